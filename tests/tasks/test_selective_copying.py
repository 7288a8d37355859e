"""The examples of selective copying: positions of blanks, and the tokens as targets in order."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.tasks import IGNORE


def draw_by_loop(rng, vocab_size, seq_len, n):
    """Draw one sequence as described: blanks are inserted one by one before a random token."""
    groups = [[rng.randrange(vocab_size - 2)] for _ in range(n)]
    for _ in range(seq_len - 2 * n - 1):
        groups[rng.randrange(n)].insert(0, vocab_size - 2)
    context = [token for group in groups for token in group]
    return [*context, vocab_size - 1, *[vocab_size - 2] * n]


def statistics(inputs, vocab_size, n):
    """Statistics of one sequence: place of the first, middle and next-to-last token, their squares, the largest gap."""
    places = [i for i, token in enumerate(inputs) if token < vocab_size - 2]
    gaps = [b - a - 1 for a, b in zip([-1, *places], places)]
    first, middle, last = places[0], places[n // 2], places[-2]
    return [first, middle, last, first**2, middle**2, last**2, max(gaps), gaps[0] * gaps[1]]


@pytest.mark.parametrize(("seq_len", "n"), [(64, 8), (40, 16), (21, 2)])
def test_blanks_are_spread_as_in_the_loop_reference(seq_len, n, draw, rng, assert_same_means):
    _, examples = draw("selective_copying", "train", 2500, vocab_size=10, seq_len=seq_len, num_tokens_to_copy=n)
    ours = [statistics(inputs, 10, n) for inputs in examples.inputs.tolist()]
    theirs = [statistics(draw_by_loop(rng, 10, seq_len, n), 10, n) for _ in range(2500)]
    assert_same_means(ours, theirs)


def test_the_targets_are_the_tokens_in_order_at_the_end(draw, assert_uniform):
    for split in ("train", "test"):
        _, examples = draw("selective_copying", split, 400, vocab_size=10, seq_len=30, num_tokens_to_copy=7)
        assert (examples.targets[:, :-7] == IGNORE).all()
        assert (examples.inputs[:, -8] == 9).all() and (examples.inputs[:, -7:] == 8).all()
        assert (examples.inputs[:, -9] < 8).all()
        for inputs, targets in zip(examples.inputs.tolist(), examples.targets.tolist()):
            assert [token for token in inputs if token < 8] == targets[-7:]
        assert_uniform(np.bincount(examples.targets[:, -7:].ravel(), minlength=8))


def test_a_sequence_without_room_for_blanks_has_only_tokens(draw):
    _, examples = draw("selective_copying", "train", 3, seq_len=9, num_tokens_to_copy=4)
    assert np.array_equal(examples.inputs[:, :4], examples.targets[:, 5:])
