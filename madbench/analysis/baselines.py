"""Scores that need no learning: those of a random guess, and of the best answer that ignores the context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from madbench.analysis.quantities import parts_of
from madbench.jobs import Job, mapping_text
from madbench.suites import suite_of
from madbench.suites.scoring import JobOutcome, UntrainedScores, scoring_of


@dataclass(frozen=True)
class Baseline:
    """A kind of score that needs no learning, such as ``chance``. Its value is unknown for some columns."""

    name: str
    """The name of the baseline in figures and tables."""
    words: str
    """The explanation of the baseline in captions, without its name."""

    @property
    def sentence(self) -> str:
        return f"{self.name.capitalize()}: {self.words}."


CHANCE = Baseline("chance", "a random guess among the possible answers")
HEURISTIC = Baseline("heuristic", "the best answer that ignores the context, mostly the most frequent one so far")
BASELINES = (CHANCE, HEURISTIC)


SettingKey = tuple[str, str, str]
"""The suite, the task and the setting of a job, the setting as JSON."""


def setting_key(job: Job) -> SettingKey:
    """The key of a job's setting."""
    return job.suite, job.task, mapping_text(job.setting)


def baseline_values(
    baseline: Baseline,
    jobs: Sequence[Job],
    averages: bool = True,
    known: Mapping[SettingKey, UntrainedScores] = MappingProxyType({}),
) -> dict[str, float]:
    """The score of ``baseline`` by column: for each task, the mean over the settings in ``jobs``.

    Unknown scores are left out. With ``averages``, an average is included if the scores of all its tasks are known.
    ``known`` has the scores of settings that were computed before. Scores of other settings are computed.
    """
    jobs = list({(job.task, id(job.setting)): job for job in jobs}.values())  # many jobs share few settings
    suites = {job.task: suite_of(job) for job in jobs}
    scorings = {task: scoring_of(suite) for task, suite in suites.items()}
    by_task: dict[str, list[float]] = {}
    for job in {(job.task, mapping_text(job.setting)): job for job in jobs}.values():
        scores = known.get(setting_key(job))
        value = getattr(scores, baseline.name) if scores else getattr(scorings[job.task], baseline.name)(job)
        by_task.setdefault(job.task, []).append(value)
    values = {task: sum(of_settings) / len(of_settings) for task, of_settings in by_task.items()}
    values = {task: value for task, value in values.items() if math.isfinite(value)}
    names = {name for suite in suites.values() for name in suite.averages} if averages else ()
    return values | {
        name: sum(values[task] for task in tasks) / len(tasks)
        for name in names
        if (tasks := parts_of(name)) and set(tasks) <= values.keys()
    }


def with_heuristics(scores: pd.DataFrame, outcomes: Sequence[JobOutcome]) -> pd.DataFrame:
    """A copy of ``scores`` with the new column ``heuristic``: the score of the best answer that ignores the context.

    NaN if it is unknown. ``outcomes`` has the jobs of the rows of ``scores``.
    """
    jobs: dict[str, list[Job]] = {}
    for outcome in outcomes:
        jobs.setdefault(outcome.row, []).append(outcome.job)
    untrained_scores = {setting_key(outcome.job): outcome.untrained for outcome in outcomes if outcome.untrained}
    values = {label: baseline_values(HEURISTIC, of_label, known=untrained_scores) for label, of_label in jobs.items()}
    heuristics = [values.get(label, {}).get(name, math.nan) for label, name in zip(scores.label, scores.column)]
    return scores.assign(heuristic=pd.Series(heuristics, scores.index, dtype=float))
