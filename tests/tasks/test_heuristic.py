"""The commonest answer so far: what it scores on tasks whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from madbench.tasks.base import IGNORE, TaskSetting

SIZES = {"vocab_size": 4, "seq_len": 3, "num_train_examples": 1, "num_validation_examples": 1, "num_test_examples": 1}


@dataclass(frozen=True)
class Echo(TaskSetting):
    """Two shown ids, of 2 and 3, and then which of them; the other ids are never asked for."""

    heading, title = "Echo", "echo"
    roles: ClassVar = {}
    share: float = 1.0

    @property
    def num_answers(self):
        return 2

    def draw(self, rng, count, training):
        shown = rng.integers(2, 4, size=(count, 2))
        inputs = np.concatenate([shown, np.zeros((count, 1), int)], axis=1)
        targets = np.full((count, 3), IGNORE)
        targets[:, 2] = np.where(rng.random(count) < self.share, shown[:, 0], 5 - shown[:, 0])
        return inputs, targets

    def read(self, inputs, targets, training):
        raise NotImplementedError


@dataclass(frozen=True)
class Whole(Echo):
    """The same, answered at the first position from all of them."""

    model = "autoencoder"

    def draw(self, rng, count, training):
        inputs, targets = super().draw(rng, count, training)
        return inputs, targets[:, ::-1]


@pytest.mark.parametrize("kind", [Echo, Whole])
def test_the_commonest_answer_is_right_where_it_is_and_a_tie_is_a_coin(kind):
    """Both shown are alike in half the examples, and the answer is the first; else it is a tie."""
    assert kind(**SIZES).heuristic(20_000) == pytest.approx(0.75, abs=0.01)
    assert kind(**SIZES, share=0.0).heuristic(20_000) == pytest.approx(0.25, abs=0.01)


def test_before_an_answer_was_seen_every_answer_is_as_common():
    first = type("First", (Echo,), {"draw": lambda self, *a: (lambda x, y: (x[:, 2:], y[:, 2:]))(*Echo.draw(self, *a))})
    assert first(**SIZES).heuristic(20_000) == pytest.approx(0.5, abs=0.01)


def test_it_is_the_same_every_time():
    assert Echo(**SIZES).heuristic(1000) == Echo(**SIZES).heuristic(1000)
