"""Selections of stored runs: one protocol per suite, chosen by a query."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.analysis.figures import figure_names
from madbench.analysis.marked_text import Shows, Width
from madbench.analysis.protocols import NothingStored, protocol_list
from madbench.analysis.query import Query, in_grammar_order, plural
from madbench.analysis.scores import Results
from madbench.analysis.suite_rows import SeveralProtocols, rows_of_suite
from madbench.config import short_repr
from madbench.config.allowed import with_checked_arguments
from madbench.errors import ConfigError, LabelError, MadbenchError, StoreError, did_you_mean
from madbench.labels import reading_problem
from madbench.labels.sets import expand
from madbench.rows import Grid, Row, SuiteRow
from madbench.store.results_folder import command_on, training_command
from madbench.suites import Suite, suites
from madbench.suites.addressing import beside_profiles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from madbench.analysis.attribution import AttributionTable
    from madbench.analysis.findings_table import FindingsTable
    from madbench.analysis.rendering import Listing, TextTable
    from madbench.analysis.result_table import ResultTable
    from madbench.analysis.tables import TableOptions


@dataclass(frozen=True)
class Selection(Query):
    """A query over the result store that selects one protocol per suite.

    If tasks are requested, their suites are shown. It is an error if one of these suites has no matching run. If no
    task is requested, these suites are shown if they have stored runs: the leading suite, suites that its profile lists
    under ``beside``, suites with an override, and suites that are trained on a corpus.
    """

    def select(self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool) -> Results:
        """The results of all suites to show. If tasks are requested, these are the suites of the tasks.

        Args:
            nothing: the reason in the error message if no protocol is left.
            is_enough: gets the set of labels of a protocol, and returns False to exclude the protocol. It is used only
                for a suite with a corpus, or if a protocol id is requested.

        Raises a ``MadbenchError`` if a requested suite has no matching run, or if no suite has one.
        """
        rows, missing = self.available(nothing=nothing, is_enough=is_enough)
        errors = self.lacking(missing)
        if errors or not rows:
            first = missing.get(self.leading.name)
            raise (errors or ([first] if first else list(missing.values())))[0]
        return self.results_of(rows)

    def frame(self) -> pd.DataFrame:
        """The scores of the selected runs, one row per label, seed and column (:mod:`madbench.suites.scoring`)."""
        return self.select().scores

    @with_checked_arguments
    def table(
        self,
        *,
        thresholds: Sequence[float] | None = None,
        has_baseline: bool = False,
        shows_published: bool = False,
        shows: Shows = "interval",
        shows_baselines: bool = False,
    ) -> ResultTable:
        """The table of the selected runs.

        The arguments are the fields of :class:`madbench.analysis.tables.TableOptions`, which describes them. Raises
        ``ConfigError`` for an argument that is not allowed, and ``StoreError`` if no run has a result.
        """
        from madbench.analysis.tables import TableOptions

        options = TableOptions(thresholds, has_baseline, shows_published, shows, shows_baselines)
        return self.table_of(self.select(), options)

    def table_of(self, results: Results, options: TableOptions) -> ResultTable:
        """The table of ``results``, which :meth:`select` returned. The errors are those of :meth:`table`."""
        from madbench.analysis.tables import result_table

        if table := result_table(results, options):
            return table
        why = command_on(self.results, "ls", "sweeps")
        raise StoreError(f"{self.results}: no result yet: all of these runs failed; {why} says why")

    @with_checked_arguments
    def compare(self, within: float | Mapping[str, float] | None = None, has_deviations: bool = False) -> Listing:
        """The table that compares the other labels of the query with the first one, the baseline.

        The arguments are those of :func:`madbench.analysis.comparison.comparison_table`.

        Raises ``StoreError`` if the first label shares no protocol or no task with any of the others, and
        ``ConfigError`` for fewer than two labels or an invalid margin.
        """
        return self.comparison_of(self.select_to_compare(), within, has_deviations)

    def select_to_compare(self) -> Results:
        """The results under a protocol that the first label of the query shares with another label of the query.

        Raises ``ConfigError`` if the query has fewer than two labels.
        """
        if len(self.labels) < 2:
            first_label = self.labels[0] if self.labels else "no label"
            raise ConfigError(f"{first_label}: nothing to compare with; give two labels or more")
        return self.select(self._shares_no("protocol"), lambda labels: labels > {self.labels[0]})

    def _shares_no(self, what: str) -> str:
        baseline, *others = self.labels
        return f"{baseline} shares no {what} with {' or '.join(others)}"

    def comparison_of(
        self, results: Results, within: float | Mapping[str, float] | None = None, has_deviations: bool = False
    ) -> Listing:
        """The table that compares the labels in ``results``, which :meth:`select_to_compare` returned.

        The other arguments and the errors are those of :meth:`compare`. A label that shares no task with the first one
        is left out, with a warning.
        """
        from madbench.analysis.comparison import comparison_table

        baseline, *others = self.labels
        table = comparison_table(
            baseline, others, results.scores, results.sentences(), within, has_deviations, results.matched_quantity
        )
        compared_labels = {row.label for row in table.rows}
        started_columns = results.scores[results.scores.done > 0].groupby("label").column.agg(set)
        unfinished = [
            label for label in others if started_columns.get(label, set()) & started_columns.get(baseline, set())
        ]
        with_complete_seed = " with a complete seed of both"
        if not compared_labels:
            absent = [label for label in self.labels if label not in started_columns]
            advice = f"; {' and '.join(absent)} must be trained first:\n  {self._training(results, absent)}"
            problem = self._shares_no("task") + (with_complete_seed if unfinished else "") + (advice if absent else "")
            raise StoreError(f"{self.results}: {problem}")
        for label in others:
            if label not in compared_labels:
                addition = with_complete_seed if label in unfinished else ""
                self.warn(f"{label} is left out: it shares no task with {baseline}{addition}")
        return table.of_origin(results.origin(names_profiles=True))

    def _training(self, results: Results, labels: Sequence[str]) -> str:
        """The command that trains ``labels`` under the protocol of ``results``, on the requested tasks or on all."""
        from madbench.experiment.commands import train_words

        row = results.rows[0]
        tasks = self.tasks_of(row.protocol.suite) if self.tasks else None
        return shlex.join(train_words(row, self.results, labels, {job.seed for job in row.jobs}, tasks))

    @with_checked_arguments
    def attribute(self, shows_pairs: bool = False) -> AttributionTable:
        """The table of the effects of single factors of the selected labels, and of interactions of two factors.

        With ``shows_pairs``, the printed table also has one row per pair of labels. See
        :func:`madbench.analysis.attribution.attribution_table`.

        Raises ``StoreError`` if no two labels differ in exactly one factor.
        """
        from madbench.analysis.attribution import attribution_table

        results = self.select("no two labels share a protocol", lambda labels: len(labels) > 1)
        table = attribution_table(results.scores, results.sentences(), shows_pairs)
        if not table.rows:
            raise StoreError(
                f"{self.results}: no two labels with a finished task in common differ in exactly one factor; "
                f"{self._with_neighbors([*results.scores.label.unique()])}"
            )
        return table.of_origin(results.origin(names_profiles=True))

    def _with_neighbors(self, labels: Sequence[str]) -> str:
        """Advice on how to add labels that differ in one factor from one of ``labels``, which are those of the query.

        If the store has such labels, this is the command that shows them too. Otherwise it is one that trains them.
        """
        from madbench.experiment.commands import option_words

        profile = ["-p", str(self.profile)] if self.profile else []
        tasks = ["-t", ",".join(self.tasks)] if self.tasks else []
        others = option_words({"--fidelity": self.fidelity, "--corpus": self.corpus}, self.budget)
        options = [*map(str, self.overrides), *profile, *tasks, *others]
        protocol = option_words({"--protocol": self.protocol})
        stored: set[str] = set()
        with suppress(MadbenchError):  # several protocols, of which the user has to choose one
            stored = {*replace(self, labels=(), warn=lambda _: None).select().scores.label}
        for label in labels:
            with suppress(LabelError):  # a label of a package that is not installed
                neighbors = {*expand([f"~{label}"])} - {label}
                if neighbors & stored - {*labels}:
                    command = command_on(self.results, "attribute", *labels, f"~{label}", *options, *protocol)
                    return f"{command} adds the stored labels that differ from {label} in one factor"
        command = training_command(self.results, *options, labels=[f"~{labels[0]}"])
        return f"{command} trains the labels that differ from {labels[0]} in one factor"

    @with_checked_arguments
    def audit(self, against: Selection | None = None) -> TextTable:
        """The audit of the profile's columns (:mod:`madbench.analysis.audit`).

        ``against`` is a query for another profile. If it is given, the table compares the results under both profiles
        instead (:mod:`madbench.analysis.transfer`). Raises ``StoreError`` if no seed is complete or no run of the other
        profile is stored, and ``ConfigError`` if both queries select the same runs.
        """
        from madbench.analysis.audit import audit_table
        from madbench.analysis.transfer import transfer_table

        results = self.select()
        if against is None:
            return audit_table(results)
        try:
            others = against.select()
        except NothingStored as error:
            raise StoreError(f"--against {against.profile}: {error.reason}") from None
        if {job.id for job in results.jobs} == {job.id for job in others.jobs}:
            raise ConfigError(f"--against {against.profile}: its runs are those that are shown; name another profile")
        return transfer_table(results, others, str(against.profile))

    @with_checked_arguments
    def findings(self, claims: Path | str | None = None, unscaled: bool = False) -> FindingsTable:
        """The table of findings on claims, tested on the selected runs.

        ``claims`` is a file of claims or the name of a paper. By default, the claims of all papers with claims about
        the selected labels are tested (:func:`madbench.analysis.claims.claims_on`). With ``unscaled``, thresholds that
        are shares of published accuracies stay in the paper's points.
        """
        from madbench.analysis.claims import claims_on, load_claims
        from madbench.analysis.findings import findings_by_paper
        from madbench.analysis.findings_table import findings_table

        results = self.select()
        claims_of = claims_on(results.scores.label.unique()) if claims is None else {"": load_claims(claims)}
        findings_of_papers = findings_by_paper(
            results.scores, claims_of, scales=not unscaled, chosen_on=results.chosen_on
        )
        return findings_table(findings_of_papers, results.sentences()).of_origin(results.origin(names_profiles=True))

    @with_checked_arguments
    def plot(self, figure: str, width: Width | None = None, title: bool = True, caption: bool = True) -> Figure:
        """Draw the figure with the name ``figure`` from the selected runs (:mod:`madbench.analysis.figures`).

        ``width`` is ``single`` for one column of a paper, ``double`` for both columns, and None for a figure as wide as
        its panels need. If ``title`` or ``caption`` is False, the title or the notes are left out.

        Raises ``ConfigError`` for an unknown figure, and ``NothingToDrawError`` if there is nothing to draw.
        """
        from madbench.analysis.figures.panels import Layout  # imports Matplotlib
        from madbench.analysis.figures.registry import drawing_of, figure_frame

        if figure not in figure_names():
            raise ConfigError(f"plot: no figure {short_repr(figure)}{did_you_mean(figure, figure_names())}")
        return drawing_of(figure).draw(figure_frame(figure, self.select()), layout=Layout(width, title, caption))

    def lacking(self, missing: Mapping[str, StoreError]) -> list[StoreError]:
        """The errors in ``missing`` that belong to suites which the user asked for.

        ``missing`` has the error of each suite without matching runs, by the name of the suite. The user asks for a
        suite by one of its tasks. If no task is requested, the user asks for it by the profile or an override.
        """
        return [error for name, error in missing.items() if self._names_suite(suites()[name])]

    def _names_suite(self, suite: Suite) -> bool:
        """True if the user asked for ``suite`` by a task or, if no task is requested, by the profile or an override."""
        if self.requested_tasks is not None:
            return suite.name in self.requested_tasks
        return self.is_given(suite)

    def available(
        self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool
    ) -> tuple[list[SuiteRow], dict[str, StoreError]]:
        """Return the rows of every suite to show, and the error of each suite without matching runs, by its name.

        The arguments are those of :meth:`select`.

        Raises ``ConfigError`` for an ambiguous or impossible query, and ``StoreError`` if no run follows the requested
        protocol.
        """
        self.check_corpus()
        rows: list[SuiteRow] = []
        missing = {}
        for suite in suites().values():
            if suite.name in self.suite_names and self._is_shown(suite):
                try:
                    rows += rows_of_suite(self, suite, nothing, is_enough)
                except StoreError as error:
                    missing[suite.name] = error
                    if isinstance(error, SeveralProtocols) and self.requested_tasks is None:
                        choose = "choose a protocol with --protocol ID"
                        self.warn(f"{plural(suite)} are left out; {choose}:\n{error.listed}")
        shown_labels = {row.row.label for row in rows}
        for label in dict.fromkeys(job.label for job in self.jobs.values()) if not self.labels else ():
            if label not in shown_labels | self.known_labels and (problem := reading_problem(label)):
                self.warn(f"{label} is left out; {problem}")
        if self.protocol and self.jobs and not self.is_stored(self.protocol):
            by_suite = [(suite, self.jobs_of(suite)) for suite in suites().values()]
            lists = [protocol_list(suite, self.runs_of(jobs), self.results) for suite, jobs in by_suite if jobs]
            lists_text = "\n".join(lists)
            raise StoreError(f"{self.results}: no run follows protocol {self.protocol}; it has:\n{lists_text}")
        return rows, missing

    def _is_shown(self, suite: Suite) -> bool:
        """True if the runs of ``suite`` are shown.

        If no task is requested, these suites are shown: the leading suite, suites that its profile lists under
        ``beside``, suites with an override, and suites with runs on a corpus. If a task is requested, the result is
        always True, and the caller leaves out suites without a requested task.
        """
        if self.requested_tasks is not None or suite is self.leading or self.has_corpus(suite):
            return True
        return suite.override_name in beside_profiles(self.leading, self.profile) or self.is_changed(suite)

    def results_of(self, rows: Sequence[SuiteRow]) -> Results:
        """The results of ``rows``. Labels are in the order of the query, or of the grammar if the query names none."""
        with_rows = {row.row.label for row in rows}
        labels = [label for label in self.labels or in_grammar_order(with_rows) if label in with_rows]
        seeds = tuple(sorted({job.seed for row in rows for job in row.jobs}))
        settings = (self.profile or "", self.fidelity, self.budget or "strict", tuple(self.overrides))
        grid = Grid(tuple(map(Row, labels)), None if self.tasks is None else tuple(self.tasks), seeds, *settings)
        return Results(grid, list(rows), self.store)
