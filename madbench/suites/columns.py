"""The columns of a suite's tables, averages of columns, and L5, the final training loss of a curve.

:class:`SuiteColumns` has the members of a suite about its columns.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

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
    """The direction of better values. Empty if the column is no result: it then has no interval and no best label."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Smallest and largest possible value."""
    missing: str = ""
    """Text of an empty cell."""
    resolution: float = 1e-6
    """Step between possible values. Means count as equal if they are equal after rounding to a multiple of it."""
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
    """Explanation of the mark ``[k/n]`` for captions, such as ``[k/n] of steps: k of n seeds get there``."""

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

        ``metrics`` are all metrics of a record. Empty if this metric is missing.
        """
        value = metrics.get(self.name)
        return "" if value is None else (self.named_form if is_named else self.form).format(value)


@dataclass(frozen=True)
class Average:
    """A column with the mean over ``tasks``. A seed has a value if it has results of all these tasks."""

    heading: str
    title: str
    tasks: tuple[str, ...]


class SuiteColumns(abc.ABC):
    """The members of :class:`madbench.suites.base.Suite` that concern tables.

    The defaults fit a suite whose tasks have one column each, with an accuracy in percent.
    """

    title: ClassVar[str]
    """The title of the suite in tables and lists, such as ``MAD tasks``."""
    scoring: ClassVar[str] = "madbench.suites.scoring:Scoring"
    """``module:class`` of the suite's :class:`madbench.suites.scoring.Scoring`. Imported on first use, with pandas."""
    averages: ClassVar[Mapping[str, Average]] = MappingProxyType({})
    """The columns with means over tasks, by column name."""
    measure: ClassVar[str] = "accuracy in percent"
    """The quantity that the suite's tables show, for captions."""
    claimed_columns: ClassVar[tuple[str, ...]] = ()
    """The names of columns that claims use, whether or not a table shows them."""
    figures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The suite's own figures: name to ``module:value`` of a :class:`madbench.analysis.figures.registry.Drawing`."""
    shown_metric: ClassVar[ShownMetric] = ShownMetric("accuracy", "{:.1%}", "acc {:.3f}")
    """The metric that lists show as the result of a run."""

    @abc.abstractmethod
    def tasks(self) -> Sequence[str]:
        """The names of the suite's tasks, in the order of the columns of its table."""

    def task_column(self, task: str) -> Column:
        """The column of a task in tables."""
        return Column.accuracy(task, task.replace("_", " "))

    def column(self, name: str) -> Column | None:
        """The column of a task, an average or another quantity, by its name. None if there is no such column."""
        if average := self.averages.get(name):
            return replace(self.task_column(average.tasks[0]), name=name, heading=average.heading, title=average.title)
        return self.task_column(name) if name in self.tasks() else None

    def columns(self, tasks: Iterable[str]) -> list[Column]:
        """The columns of the tasks, each once, in the order of ``tasks``. A name without a column is skipped.

        The column of an average follows the last of its tasks. It is included if all its tasks are given.
        """
        names = list(dict.fromkeys(tasks))
        for name, average in self.averages.items():
            if set(average.tasks) <= set(names) and name not in names:
                names.insert(1 + max(map(names.index, average.tasks)), name)
        return [column for name in names if (column := self.column(name))]

    def threshold_columns(self, thresholds: Iterable[float]) -> list[str]:
        """The names of the columns that count the steps until the loss is below each of ``thresholds``, in order.

        Empty if the suite has no such columns.
        """
        return []

    def order(self) -> list[str]:
        """The names of the columns of all tasks and averages, in the order of the table."""
        return [column.name for column in self.columns(self.tasks())]

    def headline(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """The names of the columns by which rows of a grid are compared with the grid's baseline.

        If the suite has an average over exactly ``tasks``, it is the only column. Otherwise these are the columns of
        the tasks, and the mean over them is compared.
        """
        names = (name for name, average in self.averages.items() if set(average.tasks) == set(tasks))
        return tuple([name] if (name := next(names, None)) else tasks)

    def about_task(self, task: str) -> str:
        """A short description of a task for lists of tasks."""
        column = self.column(task)
        return column.words if column else self.title

    def difficulty(self, task: str) -> Mapping[str, Any] | None:
        """The baseline setting of a task: field to value. None if the suite's tasks do not have several settings."""
        return None
