"""Results: what the jobs of an experiment gave, as far as they are stored."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pandas as pd

from madbench.analysis.captions import protocol_sentences
from madbench.analysis.scores import collect, language_scores, mad_scores, no_scores, setting_scores
from madbench.experiment import Experiment, PlannedRow
from madbench.store.runs import Run, Store
from madbench.suites import LANGUAGE, MAD, Suite


@dataclass(frozen=True)
class Results:
    """What the jobs of an experiment gave, as far as ``store`` has it; read once, however much of it is asked for.

    Of the MAD suite a row shows all its jobs, whether they are stored or not; of the language suite those with a result.
    """

    experiment: Experiment
    store: Store

    @functools.cached_property
    def collected(self) -> pd.DataFrame:
        """The MAD jobs (:func:`madbench.analysis.scores.collect`), once for each row that has them, under its name."""
        pairs = [(job, row.name) for row in self.rows(MAD) for job in row.jobs]
        return collect([job for job, _ in pairs], self.store, [name for _, name in pairs])

    @functools.cached_property
    def runs(self) -> dict[str, list[Run]]:
        """The finished and diverged language models with their curves, by the name of the row; no row without one."""
        rows = self.rows(LANGUAGE)
        records = self.store.records({job.id for row in rows for job in row.jobs})
        done = {job_id for job_id, record in records.items() if record.status != "failed"}
        found = {row.name: [self.store.read(job.id) for job in row.jobs if job.id in done] for row in rows}
        return {name: runs for name, runs in found.items() if runs}

    @property
    def language_runs(self) -> list[Run]:
        """Those of all rows, in their order."""
        return [run for runs in self.runs.values() for run in runs]

    @functools.cached_property
    def setting_scores(self) -> pd.DataFrame:
        """Scores of every setting of the MAD tasks, and those of language models; ``setting`` is empty there."""
        language = self.scores[self.scores.suite == LANGUAGE.name].assign(setting="")
        parts = [setting_scores(self.collected) if self.rows(MAD) else language[:0], language]
        return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)

    @functools.cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of all rows, suite by suite (:mod:`madbench.analysis.scores`); ``label`` is the row's name."""
        frames = [mad_scores(self.collected)] if self.rows(MAD) else []
        if self.runs:
            names = [name for name, runs in self.runs.items() for _ in runs]
            frames.append(language_scores(self.language_runs, names=names))
        return pd.concat(frames, ignore_index=True) if frames else no_scores()

    def rows(self, suite: Suite) -> list[PlannedRow]:
        """The rows of one suite."""
        return self.experiment.of(suite).rows

    def of(self, suite: Suite) -> Results:
        """The part of one suite."""
        return Results(self.experiment.of(suite), self.store)

    def has(self, suite: Suite) -> bool:
        """Whether there is a row of the suite; of the language suite, one with a result."""
        return bool(self.runs if suite is LANGUAGE else self.rows(suite))

    @property
    def labels(self) -> list[str]:
        """The labels of all rows, each once, in their order."""
        return self.experiment.labels

    def sentences(self, suite: Suite | None = None) -> list[str]:
        """What the runs of one suite share, or those of each."""
        suites = (MAD, LANGUAGE) if suite is None else (suite,)
        return [sentence for one in suites if self.has(one) for sentence in protocol_sentences(self, one)]
