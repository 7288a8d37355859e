"""The training settings that all suites share, and the schedule of the learning rate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from madbench.config import check_at_least, check_choices, check_numbers
from madbench.errors import ConfigError
from madbench.jobs import NOT_AT_DEFAULT, MixedPrecision

MICRO_BATCH_TOKENS = 12_288
"""The default number of text tokens in a micro-batch: 12 windows of 1,024, as in nanoGPT."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step.

    It rises linearly to ``peak`` in the warm-up, falls to ``end`` along a cosine, and then stays at ``end``.
    """

    steps: int
    """Optimizer steps of the run."""
    peak: float
    end: float
    warmup_steps: int
    decay_end: int
    """Step at which the cosine ends, counted from the start of the run."""
    divides_last: bool = False
    """True if the cosine's argument is ``(pi * done) / span``, which may differ from ``pi * (done / span)`` in the last
    digit. A suite keeps its order of operations, so that repeated runs give the same numbers."""

    def rate(self, step: int) -> float:
        """The learning rate of the step that is taken after ``step`` steps, so ``step`` is 0 for the first."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / (self.warmup_steps + 1)
        if step >= self.decay_end:
            return self.end
        done, span = step - self.warmup_steps, self.decay_end - self.warmup_steps
        angle = math.pi * done / span if self.divides_last else math.pi * (done / span)
        return self.end + (self.peak - self.end) * (0.5 * (1 + math.cos(angle)))

    def equals(self, other: Schedule) -> bool:
        """True if both schedules have the same number of steps and the same rate at every step.

        Only steps at which schedules can differ are compared.
        """
        last = self.steps - 1
        starts = self.warmup_steps, other.warmup_steps
        steps = {0, 1, last, *(step for start in starts for step in (start, start + 1, (start + last) // 2))}
        return self.steps == other.steps and all(self.rate(step) == other.rate(step) for step in steps if step <= last)

    @property
    def warning(self) -> str:
        """A clause that warns of a rate that rises after the warm-up, or of training that ends too early.

        Too early is before the end of the warm-up or of the cosine. Empty if there is nothing to warn about.
        """
        if self.end > self.peak:
            rates = f"from learning_rate {self.peak:g} to min_learning_rate {self.end:g}"
            return f"after the warm-up the rate rises, {rates}; set training.min_learning_rate too"
        if self.steps <= self.warmup_steps:
            share = self.steps / (self.warmup_steps + 1)
            after = f"after {self.steps:,} of its {self.warmup_steps:,} steps"
            return f"training ends within the warm-up, {after}, at {share:.2g} of the learning rate"
        if self.decay_end > self.steps:
            after = f"after {self.steps:,} of {self.decay_end:,} steps"
            return (
                f"training ends before the cosine does, {after}, at a learning rate of {self.rate(self.steps - 1):.3g}"
            )
        return ""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of one training run with a linear warm-up and a cosine.

    Each suite has a subclass that sets the defaults and adds the length of the run. The fields and their defaults enter
    the ids of the suite's jobs. A field that the suite did not have from the start enters an id only if it is not at
    its default (``NOT_AT_DEFAULT``).
    """

    recorded: ClassVar[tuple[str, ...]]
    """The names of the fields that every record of the suite has, in order (:func:`madbench.jobs.recorded_fields`).

    Other fields are recorded if they are not at their defaults. The names of new fields must not be added here, because
    this would change earlier records.
    """

    optimizer: Literal["adamw", "muon"] = field(default="adamw", metadata=NOT_AT_DEFAULT)
    """Optimizer: AdamW for all parameters, or Muon for the matrices of the blocks and AdamW for the rest."""
    learning_rate: float = 1e-3
    """AdamW's step size at the end of the warm-up; Muon's updates are scaled to the size of AdamW's."""
    weight_decay: float = 0.0
    """Decoupled weight decay on linear maps."""
    warmup_steps: int = field(default=0, metadata=NOT_AT_DEFAULT)
    """Steps in which the learning rate rises linearly."""
    min_learning_rate: float = field(default=0.0, metadata=NOT_AT_DEFAULT)
    """The learning rate at the end of the cosine."""
    lr_decay_steps: int = field(default=0, metadata=NOT_AT_DEFAULT)
    """Step at which the cosine ends, counted from the start of the run; 0: the last step of the run."""
    beta1: float = field(default=0.9, metadata=NOT_AT_DEFAULT)
    """AdamW's decay of the mean gradient."""
    beta2: float = field(default=0.999, metadata=NOT_AT_DEFAULT)
    """AdamW's decay of the mean squared gradient."""
    precision: MixedPrecision = "float32"
    """Arithmetic of matrix products; parameters and optimizer stay in float32."""

    def __post_init__(self) -> None:
        check_choices(self, "optimizer", "precision")
        check_at_least(self, 0, "warmup_steps", "lr_decay_steps")
        check_numbers(self, "learning_rate", "weight_decay", "min_learning_rate", "beta1", "beta2")
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise ConfigError(f"{name} must be a number from 0 to below 1, got {getattr(self, name)}")

    @property
    def betas(self) -> tuple[float, float]:
        """AdamW's decay rates of the mean gradient and of the mean squared gradient."""
        return self.beta1, self.beta2

    def schedule(self, steps: int, divides_last: bool = False, matched: int = 0) -> Schedule:
        """The schedule of a run of ``steps`` steps, or of ``matched`` steps if ``matched`` is not 0.

        With ``matched``, the warm-up has the same number of steps as without, and the cosine ends at the same fraction
        of the run. ``divides_last`` is a field of :class:`Schedule`.
        """
        rates, decay_end = (self.learning_rate, self.min_learning_rate), self.lr_decay_steps or steps
        if matched:
            steps, decay_end = matched, max(1, round(decay_end * matched / steps))
        return Schedule(steps, *rates, self.warmup_steps, decay_end, divides_last)

    def canonical(self, schedule_of: Callable[[Self], Schedule]) -> Self:
        """Replace each schedule setting by its default if this leaves the schedule unchanged. Return the settings.

        Schedule settings are ``min_learning_rate``, ``lr_decay_steps`` and ``warmup_steps``. If ``lr_decay_steps`` is
        kept and below ``warmup_steps``, it is replaced by ``warmup_steps``. ``schedule_of`` returns the schedule of a
        run with given settings.
        """
        decay_end = self.lr_decay_steps and max(self.lr_decay_steps, self.warmup_steps)
        training = dataclasses.replace(self, lr_decay_steps=decay_end)
        for each in dataclasses.fields(self):
            if each.name in ("min_learning_rate", "lr_decay_steps", "warmup_steps"):
                default: Any = each.default
                usual = dataclasses.replace(training, **{each.name: default})
                training = usual if schedule_of(usual).equals(schedule_of(training)) else training
        return training


@dataclass(frozen=True, kw_only=True)
class EpochTraining(Training):
    """The training settings of a run over a fixed set of examples, which are shuffled anew for every epoch."""

    epochs: int = 20
    """Passes over the training examples."""
    batch_size: int = 32
    """Examples per optimizer step; a last, smaller batch is used too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "epochs", "batch_size")

    def total_steps(self, examples: int) -> int:
        """The number of optimizer steps in a run of ``epochs`` epochs, each over ``examples`` examples."""
        return self.epochs * self.steps_per_epoch(examples)

    def steps_per_epoch(self, examples: int) -> int:
        """The number of optimizer steps in an epoch of ``examples`` examples."""
        return math.ceil(examples / self.batch_size)

    def seen(self, examples: int, matched: int = 0) -> tuple[int, int]:
        """Return the number of examples that a run sees, and the number of epochs that it begins.

        An example counts once in each epoch. ``examples`` is the size of the training set. ``matched`` is the number of
        steps of the run; if it is 0, the run has ``epochs`` epochs.
        """
        if not matched:
            return self.epochs * examples, self.epochs
        full, rest = divmod(matched, self.steps_per_epoch(examples))
        return full * examples + rest * self.batch_size, full + bool(rest)

    def batch_sizes(self, examples: int) -> tuple[int, ...]:
        """The distinct batch sizes of an epoch of ``examples`` examples.

        The first is the size of a full batch, or of all examples if there are fewer. If the last batch is smaller, its
        size is the second.
        """
        sizes = (min(self.batch_size, examples), examples % self.batch_size)
        return tuple(dict.fromkeys(size for size in sizes if size))
