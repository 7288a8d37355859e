"""Prefix sum: the running sum of digits 0..V-1, modulo V. With V = 2 it is the parity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.tasks.base import CheckedExample, TaskSetting


@dataclass(frozen=True)
class PrefixSum(TaskSetting):
    """T uniform digits from 0 to V - 1. The target at position t is the sum, modulo V, of the digits up to t."""

    heading, title = "Prefix sum", "prefix sum"
    roles: ClassVar = {"digit": "d"}

    def __post_init__(self):
        super().__post_init__()
        self.require("vocab_size", 2)
        self.require("seq_len", 2)

    @property
    def num_answers(self) -> int:
        return self.vocab_size

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        digits = rng.integers(self.vocab_size, size=(count, self.seq_len))
        return digits, digits.cumsum(axis=1) % self.vocab_size

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        total, expected = 0, []
        for digit in inputs:
            total = (total + digit) % self.vocab_size
            expected.append(total)
        return CheckedExample(["digit"] * len(inputs), expected, problems=[])
