"""The stored results of the rows of a table, and their scores.

A frame of scores has one row per label, seed and column of results. :mod:`madbench.suites.scoring` describes its
columns, such as ``value``, and ``done`` and ``expected``: the numbers of jobs that are done and that are needed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis.marked_text import Origin
from madbench.analysis.quantities import is_average
from madbench.labels import factors_of_text
from madbench.labels.budgets import BUDGETS, MOST_MATCHED
from madbench.labels.names import row_display_name
from madbench.rows import SuiteRow, TableRows
from madbench.store.reading import StoredRuns
from madbench.suites import Suite
from madbench.suites.code_marks import CodeMarks
from madbench.suites.outcomes import JobOutcome, SettingKey, UntrainedScores, outcome_sentences, setting_key
from madbench.suites.planning import choosing_advice, choosing_note
from madbench.suites.protocol import Protocol, recognize_protocol
from madbench.suites.published import published_numbers
from madbench.suites.scoring import no_scores, profile_sentence, scoring_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from madbench.jobs import Job, Record
    from madbench.store.columns import IndexEntry


def columns_of(table: TableRows) -> list[str]:
    """The names of the columns in which the rows of ``table`` have scores once all of their jobs have results."""
    names = []
    for suite in table.suites:
        rows = table.rows_of(suite)
        thresholds = scoring_of(suite).claimed_thresholds([row.protocol for row in rows])
        names += [column.name for column in suite.columns(rows[0].protocol.tasks)] + suite.threshold_columns(thresholds)
    return names


@dataclass(frozen=True, repr=False)
class Results(TableRows):
    """The rows of a table with the results of their jobs, which are read once from ``store``."""

    store: StoredRuns

    @classmethod
    def from_rows(cls, table: TableRows, store: StoredRuns) -> Results:
        """The results of the rows of ``table``, such as an experiment, in ``store``."""
        return cls(table.grid, table.rows, store)

    @functools.cached_property
    def _outcomes(self) -> dict[str, list[JobOutcome]]:
        """The outcomes of all jobs, row by row, by the name of the suite."""
        by_suite: dict[str, list[JobOutcome]] = {}
        for suite in self.suites:
            rows = self.rows_of(suite)
            records = self._records(suite, {job.id for row in rows for job in row.jobs})
            by_suite[suite.name] = [
                JobOutcome(
                    row.name,
                    job,
                    records.get(job.id),
                    self.untrained_scores.get(setting_key(job)),
                )
                for row in rows
                for job in row.jobs
            ]
        return by_suite

    def _records(self, suite: Suite, ids: set[str]) -> Mapping[str, Record]:
        """The records of the runs with these ``ids``, by id. Failed runs and runs that are not stored are left out.

        The records include curves if the scores of the suite are computed from curves.
        """
        records = {name: record for name, record in self.store.records(ids).items() if record.status != "failed"}
        return {name: self.store.read(name).record for name in records} if scoring_of(suite).has_curves else records

    @functools.cached_property
    def untrained_scores(self) -> dict[SettingKey, UntrainedScores]:
        """The scores of baselines that need no training, such as chance, by task setting.

        They are read from the index of the store. Task settings whose scores are not in the index are left out.
        """
        entries = self._index_entries(job for row in self.rows for job in row.jobs)
        return {
            (entry.suite, entry.task, entry.setting): UntrainedScores(*scores)
            for entry in entries
            if (scores := entry.untrained_scores)
        }

    def _index_entries(self, jobs: Iterable[Job]) -> Iterator[IndexEntry]:
        """The index entries of those ``jobs`` that have a stored run."""
        return filter(None, (self.store.index_entries.get(job.id) for job in jobs))

    def outcomes(self, suite: Suite) -> list[JobOutcome]:
        """The outcome of every job of the suite, row by row. The outcome of a job without a result has no record."""
        return self._outcomes.get(suite.name, [])

    def runs(self, suite: Suite[Any, Any]) -> list[JobOutcome]:
        """The outcomes of the suite's jobs whose runs finished or diverged."""
        return [outcome for outcome in self.outcomes(suite) if outcome.record]

    def job_frame(self, suite: Suite[Any, Any]) -> pd.DataFrame:
        """A data frame with one line per row of the table and job of the suite: the runs and their scores.

        :meth:`madbench.suites.scoring.Scoring.collect` describes its columns.
        """
        return scoring_of(suite).collect(self.outcomes(suite))

    @functools.cached_property
    def scores(self) -> pd.DataFrame:
        """The frame of scores of all rows, suite by suite. Its column ``label`` has the name of the row."""
        frames = []
        for suite in self.suites:
            thresholds = scoring_of(suite).claimed_thresholds([row.protocol for row in self.rows_of(suite)])
            if outcomes := self.outcomes(suite):
                frames.append(scoring_of(suite).frame(outcomes, thresholds))
        return pd.concat(frames, ignore_index=True) if frames else no_scores()

    def has_result(self, suite: Suite) -> bool:
        """True if at least one run of the suite has a result."""
        return any(outcome.record for outcome in self.outcomes(suite))

    @property
    def suites_with_result(self) -> list[Suite]:
        """The suites with at least one run that has a result."""
        return [suite for suite in self.suites if self.has_result(suite)]

    def protocol(self, suite: Suite) -> Protocol:
        """The protocol of the suite's rows: the profile, the changes that all rows share, and the corpus."""
        runs = self.runs(suite)
        if runs and suite.corpus_of(runs[0].job):
            return recognize_protocol(suite, [(run.job, run.details) for run in runs])
        return self.rows_of(suite)[0].shared_protocol

    @property
    def chosen_on(self) -> dict[str, str]:
        """The name of the set of labels whose results were used to choose the settings, by the name of the suite.

        The name is empty for a suite without such a set. Suites without a result are left out.
        """
        return {suite.name: self.rows_of(suite)[0].protocol.profile.chosen_on for suite in self.suites_with_result}

    def origin(self, suite: Suite | None = None, names_profiles: bool = False) -> Origin:
        """Sentences on how the results of one suite were made, by default of all suites. Empty without a result.

        They give the number of seeds by which learning rates were chosen, the set of labels by which the settings of
        the profile were chosen, and the runs that used other code than the installed code. With ``names_profiles``,
        they include :attr:`changed_profiles`, for a caption that names no profile.
        """
        suites: Sequence[Suite] = self.suites_with_result if suite is None else [suite]
        if not any(map(self.has_result, suites)):
            return Origin()
        counts = [scoring_of(one_suite).choosing_seeds(self.outcomes(one_suite)) for one_suite in suites]
        seeds = list(filter(None, counts))
        choice = choosing_note(min(seeds)) if seeds else ""
        profiles = [self.rows_of(one_suite)[0].protocol.profile for one_suite in suites]
        profiles = [profile for profile in profiles if profile.chosen_on]
        notes = [advice] if seeds and (advice := choosing_advice(min(seeds))) else []
        for profile in profiles:
            whose = f" of the {profile.noun}" if len(profiles) > 1 else ""
            notes.append(f"The settings{whose} were chosen on the labels of @{profile.chosen_on}.")
        marks = [self.code_marks(one_suite) for one_suite in suites]
        code = " ".join(text for each in marks for text in each.sentences)
        code_in_paper = " ".join(text for each in marks for text in each.facts)
        profile_texts = " ".join(self.changed_profiles) if names_profiles else ""
        return Origin(choice, " ".join(notes), code, code_in_paper, profile_texts)

    @property
    def changed_profiles(self) -> list[str]:
        """Sentences that name the profiles that are changed or not shipped, and their changes: one per suite.

        Suites without a result are left out.
        """
        protocols = [self.rows_of(suite)[0].shared_protocol for suite in self.suites_with_result]
        changed = [protocol for protocol in protocols if protocol.overrides or not protocol.profile.is_shipped]
        return [f"{profile_sentence(protocol)}." for protocol in changed]

    def code_marks(self, suite: Suite) -> CodeMarks:
        """The runs of the suite, grouped by their code: equal to the installed code, different, or unknown."""
        return self._code_marks[suite.name]

    @functools.cached_property
    def _code_marks(self) -> dict[str, CodeMarks]:
        return {
            suite.name: CodeMarks.from_runs(
                [(outcome.row, self.store.run_code(outcome.job, outcome.details)) for outcome in self.runs(suite)]
            )
            for suite in self.suites
        }

    def sentences(self, suite: Suite[Any, Any] | None = None) -> list[str]:
        """Sentences on the runs of one suite, or of all suites by default.

        They give the protocol, the machines, the number of diverged runs, and the labels over budget.
        """
        suites: Sequence[Suite] = self.suites_with_result if suite is None else [suite]
        texts = []
        for one_suite in suites:
            if self.has_result(one_suite):
                texts += [
                    *scoring_of(one_suite).sentences(self.protocol(one_suite)),
                    *outcome_sentences(self.outcomes(one_suite)),
                ]
                texts += self._over_budget(one_suite)
        return texts

    def _over_budget(self, suite: Suite) -> list[str]:
        """A list with one sentence that names the rows over budget and their budget ratios. Empty if there are none."""
        labels = {row.name: row.row.label for row in self.rows_of(suite)}
        ratios = budget_ratios(self.scores[self.scores.suite == suite.name])
        ratio_by_row = {row: ratio for row, ratio in ratios.items() if self.is_over_budget(labels[row], ratio)}
        names_and_ratios = ", ".join(f"{row_display_name(row)} {ratio:.3f}" for row, ratio in ratio_by_row.items())
        subject = f"Over budget ({self.matched_quantity} relative to softmax attention, mean over tasks)"
        return [f"{subject}: {names_and_ratios}."] if ratio_by_row else []

    def published_numbers(self, row: SuiteRow, shows_always: bool = False) -> dict[str, float]:
        """The published numbers of a row, by the name of the column.

        With ``shows_always``, numbers are included even if the profile is not comparable with those of the paper
        (:func:`madbench.suites.published.published_numbers`).
        """
        profile = row.protocol.profile
        entries = self._index_entries(row.jobs) if profile.is_shipped and not row.row.changes else ()
        numbers_of_runs = (entry.published_under(profile.source, shows_always) for entry in entries)
        numbers = next((numbers for numbers in numbers_of_runs if numbers is not None), None)
        return published_numbers(row.protocol, row.name, shows_always) if numbers is None else numbers

    def is_over_budget(self, label: str, budget_ratio: float) -> bool:
        """True if a label exceeds its budget by so much that it does not compete to be the best.

        That is the case if ``budget_ratio`` is above ``MOST_MATCHED``, or if the label states it, as with ``!``.
        """
        return budget_ratio > MOST_MATCHED or self._says_over_budget(label)

    def _says_over_budget(self, label: str) -> bool:
        entries = self._index_entries(job for row in self.rows if row.row.label == label for job in row.jobs)
        if known_entry := next((entry for entry in entries if entry.is_known), None):
            return bool(known_entry.is_over_budget)
        return factors_of_text(label).get("budget") == "over"

    @property
    def matched_quantity(self) -> str:
        """The quantity that the budget makes equal for all mixers, such as ``parameters``."""
        return BUDGETS[self.rows[0].protocol.budget].name


def budget_ratios(scores: pd.DataFrame) -> dict[str, float]:
    """The budget ratio of each row, by the name of the row: the mean over tasks and seeds.

    A budget ratio is the quantity that the budget limits, such as parameters, divided by that of softmax attention.
    Rows without a known ratio are left out. Averages do not count, because an average has no score for a seed that
    lacks one of its tasks.
    """
    averages = {name for name in scores.column.unique() if is_average(name)}
    of_tasks = scores[~scores.column.isin(averages)]
    ratios = of_tasks.groupby("label", sort=False).budget_ratio.mean().dropna()
    return {str(label): float(ratio) for label, ratio in ratios.items()}
