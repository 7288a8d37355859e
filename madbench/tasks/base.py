"""What a MAD task is: a frozen setting that draws examples, and reads them back in plain Python.

The tasks are those of MAD (Poli et al. 2024, arXiv 2403.17844). Token ids are 0..vocab_size-1.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from madbench.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

IGNORE = -100
"""Target of a position that is neither trained on nor evaluated."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

Role = Literal[
    "key", "value", "probe key", "probe value", "token", "noise", "blank", "copy", "compress", "insert", "pad"
]
"""What an input position is to its task; a probe is the pair that ends a recall sequence."""


@dataclass(frozen=True)
class Examples:
    """The examples of one split; N examples of T positions."""

    inputs: np.ndarray
    """int64 (N, T), token ids."""
    targets: np.ndarray
    """int64 (N, T), the token id asked for at each position, or ``IGNORE``."""


@dataclass(frozen=True)
class Reading:
    """What the rules of a task say about one example, worked out from its tokens alone."""

    roles: list[Role]
    """What each input position is."""
    targets: list[int]
    """The target each position has to have."""
    problems: list[str]
    """Rules of the task that the tokens break; empty for a sound example."""
    unknowable: frozenset[int] = frozenset()
    """Positions whose target nothing in the sequence tells."""


@dataclass(frozen=True)
class TaskSetting(abc.ABC):
    """One task at one difficulty."""

    model: ClassVar[Literal["language_model", "autoencoder"]] = "language_model"

    vocab_size: int
    """Number of token ids, special ones included."""
    seq_len: int
    """Length T of a sequence, in tokens."""
    num_train_examples: int
    """Examples to train on."""
    num_validation_examples: int
    """Examples to choose learning rate and weight decay by."""
    num_test_examples: int
    """Examples the reported accuracy is measured on."""

    def __post_init__(self):
        for split in SPLITS:
            require(self.count(split) >= 1, f"num_{split}_examples must be at least 1, got {self.count(split)}")

    def count(self, split: Split) -> int:
        """Number of examples in ``split``."""
        return getattr(self, f"num_{split}_examples")

    @property
    def input_len(self) -> int:
        """Positions of an input."""
        return self.seq_len

    @property
    @abc.abstractmethod
    def num_answers(self) -> int:
        """Ids that evaluation asks for: who guesses among them, knowing no more, is right once in so many times."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """``count`` examples drawn from ``rng``: inputs and targets, integers (count, input_len)."""

    @abc.abstractmethod
    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> Reading:
        """Works out one example again, in plain Python and without the code of :meth:`draw`.

        Of ``targets`` only the last may be used, and only where it is the token that the shift by one cut off the
        inputs.
        """

    def knowable(self, test: Examples, train: Callable[[], Examples]) -> np.ndarray:
        """bool (N, T): the evaluated targets of ``test`` that follow from the sequence or from the training data."""
        return test.targets != IGNORE


def require(condition: bool, message: str) -> None:
    """Raises ``ConfigError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)
