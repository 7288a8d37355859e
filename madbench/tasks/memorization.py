"""The task memorization: a fixed map from keys to values must be learned from the training examples."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.tasks.base import IGNORE, CheckedExample, Examples, Split, TaskSetting

MAP_SEED = 12345


@dataclass(frozen=True)
class Memorization(TaskSetting):
    """Memorization: T / 2 pairs of a uniform key and the insert id V-1, with T = ``seq_len`` and V = ``vocab_size``.

    The target at an insert id is the value of the key before it. With n = (V - 1) // 2, keys are 0..n-1 and values are
    among n..V-2. Different keys have different values. The map from keys to values is the same in every split and for
    every seed. A key that is not in the training data cannot be answered, so the ceiling may be below 1.
    """

    heading, title = "Memor.", "memorization"
    roles: ClassVar = {"key": "k", "insert": "i"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("vocab_size", 5, "two keys")
        self.require("seq_len", 2, "pairs of a key and the insert id", is_even=True)

    @property
    def num_answers(self) -> int:
        return (self.vocab_size - 1) // 2

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        value_of = values_of_keys(self.vocab_size)
        inputs: np.ndarray = np.full((count, self.seq_len), self.vocab_size - 1, np.int32)
        targets: np.ndarray = np.full((count, self.seq_len), IGNORE, np.int32)
        inputs[:, 0::2] = rng.integers(len(value_of), size=(count, self.seq_len // 2), dtype=np.int32)
        targets[:, 1::2] = value_of[inputs[:, 0::2]]
        return inputs, targets

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        value_of = dict(enumerate(values_of_keys(self.vocab_size).tolist()))
        expected, problems = [], []
        for position, (key, mark) in enumerate(zip(inputs[0::2], inputs[1::2])):
            if key not in value_of or mark != self.vocab_size - 1:
                wanted = f"a key (0..{len(value_of) - 1}) and the insert id {self.vocab_size - 1}"
                problems.append(f"position {2 * position}: {key} {mark}, expected {wanted}")
            expected += [IGNORE, value_of.get(key, IGNORE)]
        return CheckedExample(["key", "insert"] * (self.seq_len // 2), expected, problems)

    def ceiling(self, examples: Callable[[Split], Examples]) -> float:
        return float(np.isin(examples("test").inputs[:, 0::2], examples("train").inputs[:, 0::2]).mean())


@functools.cache
def values_of_keys(vocab_size: int) -> np.ndarray:
    """The value of each key 0..n-1, int64 (n,), with n = (vocab_size - 1) // 2. All values are distinct."""
    num_keys = (vocab_size - 1) // 2
    values = np.arange(num_keys, vocab_size - 1)
    value_of = np.random.Generator(np.random.PCG64(MAP_SEED)).permutation(values)[:num_keys]
    value_of.setflags(write=False)
    return value_of
