"""The examples of memorization: uniform keys, and one fixed map to values."""

from __future__ import annotations

import numpy as np

from madbench.tasks import IGNORE
from madbench.tasks.memorization import values_of_keys


def test_keys_are_uniform_and_targets_at_the_insert_id_are_their_values(draw, assert_uniform):
    for split in ("train", "test"):
        _, examples = draw("memorization", split, 500, vocab_size=41)
        keys = examples.inputs[:, 0::2]
        assert (examples.inputs[:, 1::2] == 40).all() and (examples.targets[:, 0::2] == IGNORE).all()
        assert_uniform(np.bincount(keys.ravel(), minlength=20))
        pairs = set(zip(keys.ravel().tolist(), examples.targets[:, 1::2].ravel().tolist()))
        assert len(pairs) == len({key for key, _ in pairs}) == len({value for _, value in pairs}) == 20
        assert {value for _, value in pairs} == set(range(20, 40))


def test_the_map_is_the_same_for_every_split_and_seed(draw):
    pairs = set()
    for split, seed in (("train", 0), ("test", 0), ("validation", 9)):
        _, examples = draw("memorization", split, 400, seed, vocab_size=64)
        pairs |= set(zip(examples.inputs[:, 0::2].ravel().tolist(), examples.targets[:, 1::2].ravel().tolist()))
    assert len(pairs) == 31


def test_the_map_is_shuffled_and_one_to_one():
    values = values_of_keys(256)
    assert len(values) == len(set(values.tolist())) == 127
    assert values.min() >= 127 and values.max() <= 254
    assert np.count_nonzero(np.diff(values) == 1) < 10


def test_the_unused_value_of_the_map_is_random():
    left_over = [set(range(n, 2 * n + 1)) - set(values_of_keys(2 * n + 2).tolist()) for n in (20, 30, 127, 255)]
    assert all(len(values) == 1 for values in left_over)
    assert [values.pop() for values in left_over] != [40, 60, 254, 510]
