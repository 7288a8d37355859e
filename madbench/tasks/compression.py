"""The task compression: the whole sequence must be decoded from the vector of its last token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.tasks.base import CheckedExample, TaskSetting


@dataclass(frozen=True)
class Compression(TaskSetting):
    """Compression: the model has to reproduce its whole input. The targets equal the inputs.

    An input has T - 1 uniform ids of 0..V-2, then the compression id V-1, where T is ``seq_len`` and V ``vocab_size``.
    """

    heading, title = "Compr.", "compression"
    roles: ClassVar = {"token": "t", "compress": "C"}
    model = "autoencoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("vocab_size", 3, "two distinct ids")
        self.require("seq_len", 2)

    @property
    def num_answers(self) -> int:
        return self.vocab_size

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        tokens = rng.integers(self.vocab_size - 1, size=(count, self.seq_len), dtype=np.int32)
        tokens[:, -1] = self.vocab_size - 1
        return tokens, tokens

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        compress = self.vocab_size - 1
        roles = ["compress" if token == compress else "token" for token in inputs]
        problems = []
        if roles != ["token"] * (self.seq_len - 1) + ["compress"]:
            problems.append(f"the compression id {compress} has to be the last token and nowhere else")
        return CheckedExample(roles, list(inputs), problems)
