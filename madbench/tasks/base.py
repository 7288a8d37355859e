"""What a task is: a frozen setting that draws examples, and reads them back in plain Python.

Token ids are 0..vocab_size-1. The tasks of this folder are those of MAD (Poli et al. 2024, arXiv 2403.17844).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from madbench.config import check_at_least
from madbench.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

IGNORE = -100
"""Target of a position that is neither trained on nor evaluated."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
MOST_TOKENS = 1_000_000_000  # of one split, which is held in memory


@dataclass(frozen=True)
class Examples:
    """The examples of one split; N examples of T positions."""

    inputs: np.ndarray  # int64 (N, T), token ids
    targets: np.ndarray  # int64 (N, T), the token id asked for at each position, or ``IGNORE``


@dataclass(frozen=True)
class CheckedExample:
    """What the rules of a task say about one example, worked out from its tokens alone."""

    roles: list[str]  # what each input position is, by a name in the task's ``roles``
    targets: list[int]  # the target each position has to have
    problems: list[str]  # rules of the task that the tokens break; empty for a sound example
    num_unknowable: int = 0  # evaluated targets that do not follow from the sequence


@dataclass(frozen=True)
class TaskSetting(abc.ABC):
    """One task at one difficulty; a task is a subclass, and adds fields, a heading, a title and roles to it.

    ``heading`` is that of its column in tables, ``title`` stands above its plots, ``published_column`` is its column
    in Table 1 of the HyperMLP paper, and ``roles`` gives each role that an input position can have a letter. ``model``
    says from what an answer is read: its own position, or the vector of the last position. ``suite`` is the name of the
    suite that trains it; without one it is the main suite.
    """

    heading: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[Mapping[str, str]]
    published_column: ClassVar[str | None] = None
    model: ClassVar[Literal["language_model", "autoencoder"]] = "language_model"
    solved_share: ClassVar[float] = 0.9
    suite: ClassVar[str] = ""

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
        check_at_least(self, -math.inf, "vocab_size", "seq_len")  # what is too few depends on the task
        check_at_least(self, 1, *(f"num_{split}_examples" for split in SPLITS))
        if (tokens := self.input_len * max(map(self.count, SPLITS))) > MOST_TOKENS:
            raise ConfigError(
                f"{tokens:,} tokens in one split; at most {MOST_TOKENS:,}: fewer examples or a smaller seq_len"
            )

    def require(self, name: str, least: int, why: str = "", is_even: bool = False) -> None:
        """Raises ``ConfigError`` if the field ``name`` is below ``least``, or odd and has to be even."""
        value = getattr(self, name)
        if value < least or (is_even and value % 2):
            even, why = "even and " if is_even else "", f" ({why})" if why else ""
            raise ConfigError(f"{name} must be {even}at least {least}{why}, got {value}")

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
        """Ids that evaluation asks for; chance is one over this."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """``count`` examples drawn from ``rng``: inputs and targets, integers (count, input_len)."""

    @abc.abstractmethod
    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        """Works out one example again, in plain Python and without the code of :meth:`draw`.

        Of ``targets`` only the last may be used, and only where it is the token that the shift by one cut off the
        inputs.
        """

    def ceiling(self, examples: Callable[[Split], Examples]) -> float:
        """Share of the test targets that follow from their sequence or from the training data."""
        return 1.0
