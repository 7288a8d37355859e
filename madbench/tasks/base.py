"""The base class of tasks: a frozen setting that draws examples, and checks them again in plain Python.

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
"""The target of a position that is neither trained on nor evaluated."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
MOST_TOKENS = 1_000_000_000  # the most tokens of one split, which is held in memory


@dataclass(frozen=True)
class Examples:
    """The examples of one split; N examples of T positions."""

    inputs: np.ndarray  # int64 (N, T), token ids
    targets: np.ndarray  # int64 (N, T), the target id of each position, or ``IGNORE``


@dataclass(frozen=True)
class CheckedExample:
    """One example as the rules of its task describe it, computed from its tokens only."""

    roles: list[str]  # the role of each input position, a name in the task's ``roles``
    targets: list[int]  # the correct target of each position
    problems: list[str]  # rules of the task that the tokens break; empty for a valid example
    num_unknowable: int = 0  # evaluated targets that do not follow from the sequence


@dataclass(frozen=True)
class TaskSetting(abc.ABC):
    """One task at one difficulty. A task is a subclass that adds fields, a heading, a title and roles.

    ``heading`` is the heading of its column in tables, and ``title`` the title of its plots. ``roles`` maps each role
    of an input position to a letter. With the model ``language_model``, an answer is read at its own position; with
    ``autoencoder``, all answers come from the vector of the last position. ``solved_share`` is the fraction of the way
    from chance to ceiling above which a seed has solved the task. ``suite`` is the name of the suite that trains the
    task; the main suite if empty.
    """

    heading: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[Mapping[str, str]]
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
        check_at_least(self, -math.inf, "vocab_size", "seq_len")  # the lower limit depends on the task
        check_at_least(self, 1, *(f"num_{split}_examples" for split in SPLITS))
        if (tokens := self.input_len * max(map(self.count, SPLITS))) > MOST_TOKENS:
            raise ConfigError(
                f"{tokens:,} tokens in one split; at most {MOST_TOKENS:,}: fewer examples or a smaller seq_len"
            )

    def require(self, name: str, least: int, why: str = "", is_even: bool = False) -> None:
        """Raise ``ConfigError`` if the field ``name`` is below ``least``, or odd if it has to be even."""
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
        """The number of ids that can be evaluation targets. Chance is one divided by this number."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``count`` examples from ``rng``: inputs and targets, integers (count, input_len)."""

    @abc.abstractmethod
    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        """Compute the correct answers of one example again, in plain Python and without the code of :meth:`draw`.

        Of ``targets``, only the last entry may be used, and only if the shift by one has cut off that token from the
        inputs.
        """

    def ceiling(self, examples: Callable[[Split], Examples]) -> float:
        """Share of the test targets that follow from their sequence or from the training data."""
        return 1.0
