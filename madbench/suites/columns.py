"""The quantities that a suite's tables show: columns, averages of columns, and the loss L5 of a curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

LAST_EVALUATIONS = 5
"""The number of evaluations at the end of a curve whose mean training loss is L5."""


def loss_l5(train_losses: Sequence[float]) -> float:
    """L5: the mean of the last five training losses, or of all if there are fewer. NaN if there are none."""
    last = train_losses[-LAST_EVALUATIONS:]
    return sum(last) / len(last) if last else math.nan


@dataclass(frozen=True)
class Column:
    """A column of a suite's table: one quantity, with a value per label."""

    name: str
    heading: str
    _: KW_ONLY
    digits: int  # decimal places that are printed; comparisons do not use them
    better: Literal["higher", "lower", ""] = ""  # empty if the column is not a result; it then has no interval or best
    limits: tuple[float, float] = (-math.inf, math.inf)  # smallest and largest possible value
    missing: str = ""  # text of a cell without a number
    resolution: float = 1e-6  # step of the values; values within one step are equal
    title: str = ""  # title in words; empty: the heading
    axis: str = ""  # axis label in figures; empty: the title
    unit: str = "points"  # unit of a difference, for programs
    difference: str = "points"  # what a difference is, in words: ``nats per token of a loss``
    is_steps: bool = False  # True if values are training steps to an event that a run may miss
    is_compared: bool = True  # True if labels are compared in it
    is_attributed: bool = True  # True if factor effects and cost figures use it
    legend: str = ""  # the column's sentence in captions
    counts: str = ""  # caption of ``[k/n]``, the number of seeds that succeed
    has_thresholds: bool = False  # True if the user chooses its thresholds

    @classmethod
    def percent(cls, name: str, heading: str, **fields: Any) -> Column:
        """A column of percentages, where higher is better. ``fields`` add to these defaults or replace them."""
        usual: dict[str, Any] = {
            "digits": 1,
            "better": "higher",
            "limits": (0.0, 100.0),
            "missing": "-",
            "resolution": 0.1,
        }
        return cls(name, heading, **(usual | fields))

    @classmethod
    def accuracy(cls, name: str, heading: str, **fields: Any) -> Column:
        """A column of accuracies in percent. ``fields`` add to these defaults or replace them."""
        usual = {"axis": "accuracy, %", "difference": "percentage points of accuracy"}
        return cls.percent(name, heading, **(usual | fields))

    @property
    def words(self) -> str:
        return self.title or self.heading


@dataclass(frozen=True)
class ShownMetric:
    """The metric of a record that lists show as the result of a run."""

    name: str
    """The key of the metric in a record."""
    form: str
    """The format string of the value, such as ``{:.1%}``."""
    named_form: str
    """The format string of the value with the metric's name, such as ``acc {:.3f}``."""

    def text(self, metrics: Mapping[str, float], is_named: bool = False) -> str:
        """The metric's value as text, after the metric's name if ``is_named``. Empty if the metric is missing."""
        value = metrics.get(self.name)
        return "" if value is None else (self.named_form if is_named else self.form).format(value)


@dataclass(frozen=True)
class Average:
    """A column with the mean over ``tasks``, for every seed that has results of all these tasks."""

    heading: str
    title: str
    tasks: tuple[str, ...]
