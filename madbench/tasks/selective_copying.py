"""The task selective copying: tokens that are scattered among blanks must be repeated in order at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from madbench.tasks.base import IGNORE, CheckedExample, TaskSetting


@dataclass(frozen=True)
class SelectiveCopying(TaskSetting):
    """Selective copying: n tokens among blanks, then the copy id, then n blanks with the tokens as targets.

    T is ``seq_len``, V is ``vocab_size`` and n is ``num_tokens_to_copy``. The tokens are uniform ids of 0..V-3. The
    blank is the id V-2, and the copy id is V-1. Each of the first T - 2n - 1 blanks is placed before a token that is
    drawn uniformly and independently. The last token therefore stands directly before the copy id. The targets are the
    n tokens, in order, at the last n positions.
    """

    heading, title = "Sel. copy", "selective copying"
    roles: ClassVar = {"token": "t", "blank": ".", "copy": "C"}

    num_tokens_to_copy: int
    """Number of tokens to repeat."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("vocab_size", 4, "two ids to copy")
        self.require("num_tokens_to_copy", 1)
        self.require("seq_len", 2 * self.num_tokens_to_copy + 1, f"num_tokens_to_copy {self.num_tokens_to_copy}")

    @property
    def num_answers(self) -> int:
        return self.vocab_size - 2

    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        n = self.num_tokens_to_copy
        rows = np.arange(count)[:, None]
        inputs: np.ndarray = np.full((count, self.seq_len), self.vocab_size - 2, np.int32)
        targets: np.ndarray = np.full((count, self.seq_len), IGNORE, np.int32)
        tokens = rng.integers(self.vocab_size - 2, size=(count, n), dtype=np.int32)
        before = rng.integers(n, size=(count, self.seq_len - 2 * n - 1))
        blanks = np.bincount((rows * n + before).ravel(), minlength=count * n).reshape(count, n)
        inputs[rows, np.arange(n) + np.cumsum(blanks, axis=1)] = tokens
        inputs[:, -n - 1] = self.vocab_size - 1
        targets[:, -n:] = tokens
        return inputs, targets

    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        n, blank, copy = self.num_tokens_to_copy, self.vocab_size - 2, self.vocab_size - 1
        roles = [{blank: "blank", copy: "copy"}.get(token, "token") for token in inputs]
        context, rest = roles[: self.seq_len - n - 1], roles[self.seq_len - n - 1 :]
        tokens = [token for token, role in zip(inputs, context) if role == "token"]
        problems = []
        if len(tokens) != n:
            problems.append(f"{len(tokens)} tokens to copy, expected {n}")
        if "copy" in context or rest != ["copy"] + ["blank"] * n:
            problems.append(f"expected the copy id {copy} once, {n} positions of blanks from the end")
        if context[-1] != "token":
            problems.append("a blank stands between the last token and the copy id")
        return CheckedExample(roles, [IGNORE] * (self.seq_len - len(tokens)) + tokens, problems)
