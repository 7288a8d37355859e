"""The rows of a table: labels with changed settings, and for each suite the protocol and the jobs of every row.

The rows come from a grid that is trained (:mod:`madbench.grid`, :mod:`madbench.experiment`) or from stored runs
(:mod:`madbench.analysis`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from madbench.config import Override
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels.names import DisplayNames
from madbench.suites import Suite, suites
from madbench.suites.addressing import leading_suite, suite_of_override
from madbench.suites.protocol import Protocol


@dataclass(frozen=True)
class Row:
    """One row of a table: a label with changed settings."""

    label: str
    """Canonical label."""
    changes: tuple[Override, ...] = ()
    """Overrides that not all rows share."""
    named_changes: tuple[Override, ...] = ()
    """The changes that appear in the row's name."""
    name_suffix: str = ""
    """Further words of the row's name, for rows that differ in more than their changes."""

    @property
    def name(self) -> str:
        """The label, the named changes and the suffix, such as ``R-cg-q-12o  model.mix_rank=16``."""
        words = " ".join(filter(None, [*map(str, self.named_changes), self.name_suffix]))
        return "  ".join(filter(None, [self.label, words]))

    def keep_changes(self, is_wanted: Callable[[Override], bool]) -> Row:
        """Return the row without the changes for which ``is_wanted`` is false."""
        changes = tuple(filter(is_wanted, self.changes))
        named_changes = tuple(filter(is_wanted, self.named_changes))
        return replace(self, changes=changes, named_changes=named_changes)

    def for_suite(self, suite: Suite, leading: Suite) -> Row:
        """Return the row without the changes for other suites.

        Overrides without a prefix belong to the suite ``leading``.
        """
        return self.keep_changes(lambda change: suite_of_override(change, leading) is suite)


@dataclass(frozen=True)
class Grid:
    """The rows of a table, the baseline first, and the settings that they share."""

    rows: tuple[Row, ...]
    tasks: tuple[str, ...] | None = None
    """Tasks of any suite, in the order of the grid file. None for the tasks of MAD and, if there is a corpus, the
    language model."""
    seeds: tuple[int, ...] = (0,)
    profile: str = ""
    """Profile of the leading suite. Empty for its usual profile."""
    fidelity: Fidelity = "corrected"
    budget: Budget = "strict"
    overrides: tuple[Override, ...] = ()
    """Overrides that all rows share."""
    axes: tuple[str, ...] = ()
    """Keys of the settings in which rows differ, such as ``model.mix_rank``."""
    description: str = ""
    where: str = ""
    """The file of the grid, with which error messages begin."""
    names: DisplayNames = field(default_factory=DisplayNames, compare=False)
    """Display names of the labels."""

    @property
    def leading(self) -> Suite:
        """The suite whose overrides and profile need no prefix: the first suite that has one of the grid's tasks."""
        return leading_suite(self.tasks)


@dataclass(frozen=True)
class SuiteRow:
    """A row in the table of one suite: the row, its protocol, and its jobs, which may be stored or not."""

    row: Row
    protocol: Protocol
    jobs: list[Job]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def shared_protocol(self) -> Protocol:
        """The protocol of the row without the overrides in which it differs from other rows (``row.changes``)."""
        changes = {change.without_suite() for change in self.row.changes}
        return replace(
            self.protocol, overrides=tuple(override for override in self.protocol.overrides if override not in changes)
        )


@dataclass(frozen=True, repr=False)
class TableRows:
    """The rows of a table for all of its suites."""

    grid: Grid
    rows: list[SuiteRow]
    """The rows, grouped by suite. In each suite they have the order of the grid, with the baseline first."""

    def rows_of(self, suite: Suite[Any, Any]) -> list[SuiteRow]:
        """The rows of one suite."""
        return [row for row in self.rows if row.protocol.suite is suite]

    def for_suite(self, suite: Suite) -> Self:
        """Return the table with the rows of one suite only."""
        return replace(self, rows=self.rows_of(suite))

    @property
    def suites(self) -> list[Suite]:
        """The suites that have rows."""
        return [suite for suite in suites().values() if self.rows_of(suite)]

    @property
    def names(self) -> list[str]:
        """The names of the rows, without duplicates, in the order of the grid.

        The name of a row in the table of a suite leaves out changes of other suites' settings.
        """
        of_grid = [[row, *(row.for_suite(suite, self.grid.leading) for suite in self.suites)] for row in self.grid.rows]
        in_order = [row.name for rows in of_grid for row in rows]
        names = [row.name for row in self.rows]
        return [name for name in dict.fromkeys([*in_order, *names]) if name in names]

    @functools.cached_property
    def jobs(self) -> list[Job]:
        """The jobs of all rows, without duplicates, in the order of the rows."""
        return list({job.id: job for row in self.rows for job in row.jobs}.values())

    @property
    def labels(self) -> list[str]:
        """The labels of the rows, without duplicates."""
        return list(dict.fromkeys(row.row.label for row in self.rows))
