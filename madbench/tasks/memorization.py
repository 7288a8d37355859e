"""Memorization: a fixed map from keys to values, to be learned from the training examples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from madbench.tasks.base import IGNORE, Examples, Reading, TaskSetting, require

MAP_SEED = 12345


@dataclass(frozen=True)
class Memorization(TaskSetting):
    """T / 2 times a uniform key and the insert id V-1, whose target is the key's value.

    With n = (V - 1) // 2, keys are 0..n-1 and values n..V-2; the one-to-one map between them is the same in every
    split and for every seed, so a key that training never shows cannot be answered.
    """

    def __post_init__(self):
        super().__post_init__()
        require(self.vocab_size >= 5, f"vocab_size must be at least 5 (two keys), got {self.vocab_size}")
        even = self.seq_len >= 2 and self.seq_len % 2 == 0
        require(even, f"seq_len must be even and at least 2 (pairs of a key and the insert id), got {self.seq_len}")

    @property
    def num_answers(self) -> int:
        return (self.vocab_size - 1) // 2

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        value_of = values_of_keys(self.vocab_size)
        inputs = np.full((count, self.seq_len), self.vocab_size - 1, np.int32)
        targets = np.full((count, self.seq_len), IGNORE, np.int32)
        inputs[:, 0::2] = rng.integers(len(value_of), size=(count, self.seq_len // 2), dtype=np.int32)
        targets[:, 1::2] = value_of[inputs[:, 0::2]]
        return inputs, targets

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> Reading:
        insert, num_keys = self.vocab_size - 1, (self.vocab_size - 1) // 2
        value_of = values_of_keys(self.vocab_size)
        roles, expected, problems = [], [], []
        for position in range(0, self.seq_len, 2):
            key, mark = inputs[position], inputs[position + 1]
            if not 0 <= key < num_keys:
                problems.append(f"position {position}: {key} is not a key (0..{num_keys - 1})")
            if mark != insert:
                problems.append(f"position {position + 1}: {mark} is not the insert id {insert}")
            roles += ["key", "insert"]
            expected += [IGNORE, int(value_of[key]) if 0 <= key < num_keys else IGNORE]
        return Reading(roles, expected, problems)

    def knowable(self, test: Examples, train: Callable[[], Examples]) -> np.ndarray:
        known = np.zeros(test.targets.shape, bool)
        known[:, 1::2] = np.isin(test.inputs[:, 0::2], train().inputs[:, 0::2])
        return known


@functools.cache
def values_of_keys(vocab_size: int) -> np.ndarray:
    """The value of each key 0..n-1, int64 (n,), no value twice."""
    num_keys = (vocab_size - 1) // 2
    values = np.arange(num_keys, vocab_size - 1)
    value_of = np.random.Generator(np.random.PCG64(MAP_SEED)).permutation(values)[:num_keys]
    value_of.setflags(write=False)
    return value_of
