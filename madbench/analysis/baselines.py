"""Scores that need no learning: those of a random guess, and of the best answer that ignores the context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from madbench.analysis.quantities import parts_of
from madbench.jobs import Job, mapping_text
from madbench.suites import suite_of
from madbench.suites.outcomes import SettingKey, UntrainedScores, setting_key
from madbench.suites.scoring import scoring_of


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


def baseline_values(
    baseline: Baseline,
    jobs: Sequence[Job],
    averages: bool = True,
    known: Mapping[SettingKey, UntrainedScores] = MappingProxyType({}),
) -> dict[str, float]:
    """The score of ``baseline`` by the name of the column. Columns whose score is unknown are left out.

    The score of a task is the mean over the different task settings in ``jobs``. With ``averages``, the averages whose
    tasks all have a known score are included. ``known`` has scores that were computed before, by task setting. The
    scores of other task settings are computed.
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
