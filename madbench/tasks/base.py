"""The base class of tasks. Each instance is one setting of a task, which draws examples and can check them again.

Token ids are 0..vocab_size-1. The tasks of this folder are the tasks of MAD (Poli et al. 2024, arXiv 2403.17844).
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
MOST_TOKENS = 1_000_000_000  # largest number of tokens in one split, because a split is held in memory


@dataclass(frozen=True)
class Examples:
    """The examples of one split: N examples with T positions each."""

    inputs: np.ndarray
    """int64 (N, T), token ids."""
    targets: np.ndarray
    """int64 (N, T), the target id of each position, or ``IGNORE``."""


@dataclass(frozen=True)
class CheckedExample:
    """The result of checking one example: roles, correct targets and faults, computed from its tokens alone."""

    roles: list[str]
    """The role of each input position, a name in the task's ``roles``."""
    targets: list[int]
    """The correct target of each position."""
    problems: list[str]
    """Rules of the task that the tokens break; empty for a valid example."""
    num_unknowable: int = 0
    """Number of evaluated targets that do not follow from the sequence."""


@dataclass(frozen=True)
class TaskSetting(abc.ABC):
    """A setting of a task. Each task is a subclass, which adds fields, a heading, a title and roles.

    Class attributes:

    - ``heading``: the heading of the task's column in tables.
    - ``title``: the title of the task's plots.
    - ``roles``: the roles that an input position can have, such as ``key``, each with a letter for printing.
    - ``model``: ``language_model`` if each answer is read at its own position, ``autoencoder`` if all answers are
      decoded from the vector of the last position.
    - ``solved_share``: a run has solved the task if its accuracy is above this fraction of the way from chance to
      ceiling.
    - ``suite``: the name of the suite that trains the task.
    """

    heading: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[Mapping[str, str]]
    model: ClassVar[Literal["language_model", "autoencoder"]] = "language_model"
    solved_share: ClassVar[float] = 0.9
    suite: ClassVar[str] = "mad"

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

    def __post_init__(self) -> None:
        check_at_least(self, -math.inf, "vocab_size", "seq_len")  # the lower limit depends on the task
        check_at_least(self, 1, *(f"num_{split}_examples" for split in SPLITS))
        if (tokens := self.input_len * max(map(self.count, SPLITS))) > MOST_TOKENS:
            raise ConfigError(
                f"{tokens:,} tokens in one split; at most {MOST_TOKENS:,}: fewer examples or a smaller seq_len"
            )

    def require(self, name: str, least: int, why: str = "", is_even: bool = False) -> None:
        """Raise ``ConfigError`` if the field ``name`` is below ``least``, or if it is odd and ``is_even`` is true.

        ``why`` is the reason for the limit, which the message repeats.
        """
        value = getattr(self, name)
        if value < least or (is_even and value % 2):
            even, why = "even and " if is_even else "", f" ({why})" if why else ""
            raise ConfigError(f"{name} must be {even}at least {least}{why}, got {value}")

    def count(self, split: Split) -> int:
        """The number of examples in ``split``."""
        count: int = getattr(self, f"num_{split}_examples")
        return count

    @property
    def input_len(self) -> int:
        """The number of positions of an input."""
        return self.seq_len

    @property
    @abc.abstractmethod
    def num_answers(self) -> int:
        """The number of ids that can be evaluation targets. The accuracy of guessing is one divided by this number."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``count`` examples from ``rng``. Return inputs and targets, both integers (count, input_len).

        If ``training`` is true, the targets are training targets, otherwise evaluation targets. Positions without a
        target have the target ``IGNORE``.
        """

    @abc.abstractmethod
    def read(self, inputs: Sequence[int], targets: Sequence[int], training: bool) -> CheckedExample:
        """Compute the correct targets of one example again, in plain Python and without the code of :meth:`draw`.

        ``training`` is true if ``targets`` are training targets. If the task predicts next tokens, ``inputs`` lack the
        last token of the sequence, and an implementation may take it from the last entry of ``targets``. It may use
        nothing else of ``targets``.
        """

    def ceiling(self, examples: Callable[[Split], Examples]) -> float:
        """The share of test targets that can be inferred from their sequence or from the training data.

        ``examples`` is called with the name of a split and returns its examples.
        """
        return 1.0
