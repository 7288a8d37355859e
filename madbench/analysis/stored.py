"""The stored runs that are shown: one protocol per suite, by what a user asked for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from madbench.analysis.planned_rows import planned_rows
from madbench.analysis.protocols import protocol_list
from madbench.analysis.query import Query, in_grammar_order, plural
from madbench.analysis.recognised_rows import SeveralProtocols, recognised_rows
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.experiment import Experiment, PlannedRow
from madbench.grid import Grid, Row
from madbench.labels import reading_problem
from madbench.suites import Suite, main_suite, suites
from madbench.suites.addressing import profile_named


@dataclass(frozen=True)
class Selection(Query):
    """What a user asked to see of a store: one protocol of every suite, as far as it is stored.

    A suite whose tasks were asked for is shown, or it is an error that it cannot be. Without any task those are shown
    that are stored: the first of them, and what its profile names beside it.
    """

    def select(self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool) -> Results:
        """The rows of every suite that is asked for or stored.

        Raises a ``MadbenchError`` where a suite that was asked for has none, and where no suite has any. Of several
        protocols that are stored the one is shown whose labels are enough; where there is none, the error says
        ``nothing``.
        """
        rows, missing = self.available(nothing=nothing, is_enough=is_enough)
        asked = self.lacking(missing)
        if asked or not rows:
            first = missing.get(self.leading.name)
            raise (asked or ([first] if first else list(missing.values())))[0]
        return self.results_of(rows)

    def lacking(self, missing: Mapping[str, StoreError]) -> list[StoreError]:
        """The errors of suites that are left out though a task, the profile or an override asked for them."""
        return [error for name, error in missing.items() if self._names_suite(suites()[name])]

    def _names_suite(self, suite: Suite) -> bool:
        """True if a suite was asked for: by a task, or as that of the profile or of an override."""
        if self.asked is not None:
            return suite.name in self.asked
        return self.is_given(suite)

    def available(
        self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool
    ) -> tuple[list[PlannedRow], dict[str, StoreError]]:
        """The rows of every suite as far as they are stored; by its name why a suite is left out.

        Raises ``ConfigError`` for what cannot be told apart, or cannot be.
        """
        rows: list[PlannedRow] = []
        missing = {}
        for suite in suites().values():
            if suite.name in self.named and self._is_shown(suite):
                try:
                    rows += self.rows(suite, nothing, is_enough)
                except StoreError as error:
                    missing[suite.name] = error
                    if isinstance(error, SeveralProtocols) and self.asked is None:
                        choose = "choose a protocol with --protocol ID"
                        self.warn(f"{plural(suite)} are left out; {choose}:\n{error.listed}")
        shown = {row.row.label for row in rows}
        for label in dict.fromkeys(job.label for job in self.jobs.values()) if not self.labels else ():
            if label not in shown and (problem := reading_problem(label)):
                self.warn(f"{label} is left out; {problem}")
        if self.protocol and self.jobs and not self.is_stored(self.protocol):
            by_suite = [(suite, self.stored(suite)) for suite in suites().values()]
            lists = [protocol_list(suite, self.details(jobs), self.results) for suite, jobs in by_suite if jobs]
            listed = "\n".join(lists)
            raise StoreError(f"{self.results}: no run follows protocol {self.protocol}; it has:\n{listed}")
        return rows, missing

    def _is_shown(self, suite: Suite) -> bool:
        """True if a suite is shown: one that was asked for, the one that leads, one beside it, or one on a corpus."""
        if self.asked is not None or suite is self.leading or suite.takes_corpus:
            return True
        profile = self.leading.Profile.load(self.profile or self.leading.default)
        return suite.address in profile.beside or self.is_changed(suite)

    def results_of(self, rows: Sequence[PlannedRow]) -> Results:
        """What the jobs of these rows gave; labels are in the order given, or else in that of the grammar."""
        with_rows = {row.row.label for row in rows}
        labels = [label for label in self.labels or in_grammar_order(with_rows) if label in with_rows]
        seeds = tuple(sorted({job.seed for row in rows for job in row.jobs}))
        asked = (self.profile or "", self.fidelity, self.budget or "strict", tuple(self.overrides))
        grid = Grid(tuple(map(Row, labels)), None if self.tasks is None else tuple(self.tasks), seeds, *asked)
        return Results(Experiment(grid, list(rows), "cpu", self.results), self.store, self.stored_labels)

    def rows(self, suite: Suite, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool) -> list[PlannedRow]:
        """The rows of one suite under the one protocol that was asked for.

        Where a profile is known, each row has the jobs that a run of it trains, for the seeds that have begun; else
        those that are stored. Raises ``StoreError`` where nothing is stored of what was asked for, and ``ConfigError``
        for several protocols, with the commands that show each.
        """
        profile = profile_named(suite, self.overrides, self.leading, self.profile, True)
        suite.Profile.load(profile, self.own_overrides(suite))  # which has to be one
        stored = self.stored(suite)
        if not stored:
            example = f"-t {suite.tasks()[0]}" if suite is not main_suite() else ""
            named = ["-p", self.profile] if self.profile and suite is self.leading else []
            command = shlex.join(["madbench", "run", "G-cg-q-12o", *example.split(), *named])
            others = [other for other in suites().values() if self.stored(other)]
            hints = [f"; its {plural(other)} are in {self._table_of(other)}" for other in others[:1]]
            raise StoreError(f"{self.results}: no runs of {plural(suite)} yet; {command} makes some{''.join(hints)}")
        is_chosen = self.protocol is not None and self.protocol in self.protocols(suite)
        if not is_chosen and not suite.takes_corpus:
            return planned_rows(self, suite, profile, stored)
        return recognised_rows(self, suite, stored, profile if self.is_given(suite) else "", nothing, is_enough)

    def _table_of(self, suite: Suite) -> str:
        """The command that shows stored runs of a suite."""
        named = {job.task for job in self.stored(suite)}
        task = next(task for task in suite.tasks() if task in named)
        where = ["--results", str(self.results)] if self.results != Path("results") else []
        return shlex.join(["madbench", "table", "-t", task, *where])
