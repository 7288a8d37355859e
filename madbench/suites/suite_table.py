"""The members of suites that concern tables: columns, and the results that lists and figures show."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from madbench.suites.columns import Average, Column, ShownMetric


class SuiteTable(abc.ABC):
    """The members of :class:`madbench.suites.base.Suite` that concern tables.

    The defaults fit a suite whose tasks have one column each, with an accuracy in percent.
    """

    title: ClassVar[str]
    """The title of the suite in tables and lists, such as ``MAD tasks``."""
    scoring: ClassVar[str] = "madbench.suites.scoring:Scoring"
    """``module:class`` of the suite's :class:`madbench.suites.scoring.Scoring`. It imports pandas, on first use."""
    averages: ClassVar[Mapping[str, Average]] = MappingProxyType({})
    """The columns with means over tasks, by column name."""
    measure: ClassVar[str] = "accuracy in percent"
    """The quantity that the suite's tables show, for captions."""
    claimed_columns: ClassVar[tuple[str, ...]] = ()
    """The names of columns that claims use, whether or not a table shows them."""
    figures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The suite's own figures: name to ``module:value`` of a Drawing."""
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
        """The columns of the tasks, in the order of ``tasks``.

        The column of an average follows the last of its tasks. It is included if all its tasks are given.
        """
        names = list(tasks)
        for name, average in self.averages.items():
            if set(average.tasks) <= set(names):
                names.insert(1 + max(map(names.index, average.tasks)), name)
        return [column for name in names if (column := self.column(name))]

    def threshold_columns(self, thresholds: Iterable[float]) -> list[str]:
        """The names of the columns that count steps to thresholds, one per threshold.

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
