"""Two tasks on the bits so far: is the number of ones odd, and are more than half of the bits ones?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.tasks.base import CheckedExample, TaskSetting


@dataclass(frozen=True)
class Parity(TaskSetting):
    """T uniform bits. The target at position t is 1 if the number of ones among bits 0..t is odd, otherwise 0."""

    suite = "counting"
    heading, title = "Parity", "odd number of ones"
    roles: ClassVar = {"bit": "b"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("vocab_size", 2)
        self.require("seq_len", 2)

    @property
    def num_answers(self) -> int:
        return 2

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        bits = rng.integers(2, size=(count, self.seq_len))
        return bits, bits.cumsum(axis=1) % 2

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        ones, expected = 0, []
        for bit in inputs:
            ones += bit
            expected.append(ones % 2)
        return CheckedExample(["bit"] * len(inputs), expected, problems=[])


@dataclass(frozen=True)
class Majority(Parity):
    """T uniform bits. The target at position t is 1 if more than half of bits 0..t are ones, otherwise 0."""

    heading, title = "Majority", "more ones than zeros"

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        bits = rng.integers(2, size=(count, self.seq_len))
        return bits, (2 * bits.cumsum(axis=1) > np.arange(1, self.seq_len + 1)).astype(int)

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        ones, expected = 0, []
        for place, bit in enumerate(inputs, 1):
            ones += bit
            expected.append(int(2 * ones > place))
        return CheckedExample(["bit"] * len(inputs), expected, problems=[])
