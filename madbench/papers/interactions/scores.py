"""The scores of the interactions suite: log10 of mean squared errors, at the training length and at other lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from madbench.jobs import Job, Record
from madbench.papers.interactions.profile import world_of
from madbench.papers.interactions.suite import ELSEWHERE, LEAST_ERROR
from madbench.suites.outcomes import JobOutcome
from madbench.suites.scoring import Scoring, no_scores


class InteractionScoring(Scoring):
    """The computation of the suite's scores. A diverged run has the error of a constant, the variance of the values.

    Worlds with a broken condition of the theorem are controls and do not enter the mean of a task.
    """

    metric = selection = "mse"
    ceiling = ""
    is_lower_better = True
    limit = math.nan

    def value(self, job: Job, record: Record) -> float:
        return _log(record.metrics.get("mse", math.nan))

    def frame(self, outcomes: Sequence[JobOutcome], thresholds: Sequence[float] = ()) -> pd.DataFrame:
        uncontrolled = [outcome for outcome in outcomes if not outcome.job.setting.get("control")]
        if not uncontrolled:
            return no_scores()
        frame = self.collect(uncontrolled)
        values, chances = zip(*map(_elsewhere, uncontrolled))
        elsewhere = frame.assign(column=frame.column + ELSEWHERE, value=values, chance=chances)
        frame = frame.assign(chance=[_variance(outcome, [world_of(outcome.job).length]) for outcome in uncontrolled])
        return self.scores_of(pd.concat([frame, elsewhere], ignore_index=True))


def _log(error: float) -> float:
    return math.log10(max(error, LEAST_ERROR)) if math.isfinite(error) else math.nan


def _elsewhere(outcome: JobOutcome) -> tuple[float, float]:
    """Return log10 of two errors at lengths other than the training length: of the run, and of the best constant.

    Each error is the largest over these lengths. The first number is NaN if the run has no such error.
    """
    world = world_of(outcome.job)
    lengths = [length for length in world.lengths if length != world.length]
    metrics = outcome.record.metrics if outcome.record else {}
    errors = [metrics[name] for length in lengths if (name := f"mse_{length}") in metrics]
    return _log(max(errors, default=math.nan)), _variance(outcome, lengths)


def _variance(outcome: JobOutcome, lengths: Sequence[int]) -> float:
    """log10 of the largest error of the best constant at ``lengths``. 0 if the record has no such error."""
    metrics = outcome.record.metrics if outcome.record else {}
    variances = [metrics[name] for length in lengths if (name := f"variance_{length}") in metrics]
    return _log(max(variances, default=1.0))
