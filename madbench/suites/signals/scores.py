"""Scores of the signals suite in percent: accuracy on digits, and explained variance of a series."""

from __future__ import annotations

from madbench.jobs import Job
from madbench.suites.scoring import Scoring
from madbench.suites.signals.suite import setting_of


class SignalScoring(Scoring):
    """The computation of scores of the signals suite. A diverged run has the score of a guess."""

    metric = selection = "score"
    shows_chance = True

    def chance(self, job: Job) -> float:
        return 100.0 * setting_of(job).chance
