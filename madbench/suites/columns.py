"""The columns of a suite's tables, averages of columns, and L5, the final training loss of a curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

LAST_EVALUATIONS = 5
"""The number of evaluations at the end of a curve whose mean training loss is L5."""


def loss_l5(train_losses: Sequence[float]) -> float:
    """L5: the mean of the last five of ``train_losses``, or of all if there are fewer. NaN if there are none."""
    last = train_losses[-LAST_EVALUATIONS:]
    return sum(last) / len(last) if last else math.nan


@dataclass(frozen=True)
class Column:
    """A column of a suite's table. It shows one quantity, with one value per label."""

    name: str
    heading: str
    _: KW_ONLY
    digits: int
    """Decimal places to print; comparisons use the unrounded values."""
    better: Literal["higher", "lower", ""] = ""
    """Empty if it is no result: no interval, no best label."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Smallest and largest possible value."""
    missing: str = ""
    """Text of an empty cell."""
    resolution: float = 1e-6
    """Step between possible values; means are compared as multiples of it."""
    title: str = ""
    """Longer title for figures and lists; empty: the heading."""
    axis: str = ""
    """Axis label in figures; empty: the title."""
    unit: str = "points"
    """Unit of a difference, in machine-readable output."""
    difference: str = "points"
    """Unit of a difference in text, such as ``nats per token of a loss``."""
    is_steps: bool = False
    """True if values are training steps to an event that a run may miss."""
    is_compared: bool = True
    """True if labels are compared by this column."""
    is_attributed: bool = True
    """True if factor effects and cost figures use this column."""
    legend: str = ""
    """Sentence on the column in captions; empty: none."""
    counts: str = ""
    """Explanation of ``[k/n]`` in captions: k of n seeds succeed."""
    has_thresholds: bool = False
    """True if the column counts steps to a threshold that the user may choose."""

    @classmethod
    def percent(cls, name: str, heading: str, **fields: Any) -> Column:
        """A column of percentages, where higher is better. ``fields`` add to the defaults or replace them."""
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
        """A column of accuracies in percent. ``fields`` add to the defaults or replace them."""
        usual = {"axis": "accuracy, %", "difference": "percentage points of accuracy"}
        return cls.percent(name, heading, **(usual | fields))

    @property
    def words(self) -> str:
        return self.title or self.heading


@dataclass(frozen=True)
class ShownMetric:
    """The metric of a record that lists of runs show as the result."""

    name: str
    """The key of the metric in a record."""
    form: str
    """The format string of the value, such as ``{:.1%}``."""
    named_form: str
    """The format string of the value with the metric's name, such as ``acc {:.3f}``."""

    def text(self, metrics: Mapping[str, float], is_named: bool = False) -> str:
        """The value of the metric as text, with the name of the metric if ``is_named``.

        ``metrics`` are those of a record. Empty if the metric is missing.
        """
        value = metrics.get(self.name)
        return "" if value is None else (self.named_form if is_named else self.form).format(value)


@dataclass(frozen=True)
class Average:
    """A column with the mean over ``tasks``. A seed has a value if it has results of all these tasks."""

    heading: str
    title: str
    tasks: tuple[str, ...]
