"""Scores of images and series: accuracy, or the share of explained variance, in percent."""

from __future__ import annotations

from madbench.jobs import Job
from madbench.suites.scoring import Scoring
from madbench.suites.signals.suite import setting_of


class SignalScoring(Scoring):
    """Scores of signals. A diverged run has the score of a guess."""

    metric = selection = "score"
    shows_chance = True

    def chance(self, job: Job) -> float:
        return 100.0 * setting_of(job).chance
