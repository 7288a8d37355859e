"""The examples of compression: uniform tokens, and the whole input as target."""

from __future__ import annotations

import numpy as np


def test_tokens_are_uniform_and_independent_and_the_compression_id_ends_them(draw, assert_uniform):
    _, examples = draw("compression", "train", 2000, vocab_size=9, seq_len=12)
    tokens = examples.inputs[:, :-1]
    assert (examples.inputs[:, -1] == 8).all()
    assert_uniform(np.bincount((tokens[:, 3] * 8 + tokens[:, 4]), minlength=64))
    assert_uniform(np.bincount(tokens.ravel(), minlength=8))


def test_the_target_is_the_whole_input(draw):
    for split in ("train", "test"):
        setting, examples = draw("compression", split, 50)
        assert np.array_equal(examples.inputs, examples.targets)
        assert setting.model == "autoencoder"
