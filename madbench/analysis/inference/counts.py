"""P-values of two samples by counts of their seeds: those that solve a task, or are on one side of a middle."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc

from madbench.analysis.inference.distributions import exact_p
from madbench.analysis.inference.sample import APART_SHARE, Sample


def outcomes_p(first: Sample, second: Sample, estimate: float) -> float:
    """Of the counts of both; 1 where the label with the better mean has the smaller share of successes.

    Successes are seeds that solve the task; where none of either does, those that do not diverge.
    """
    has_solved = first.solved or second.solved

    def succeed(sample: Sample) -> np.ndarray:
        if not has_solved and not sample.has_diverged:
            return np.ones(sample.n, bool)
        return sample.values >= sample.scale.solved if has_solved else ~sample.diverged

    is_first_better = (estimate > 0) == (first.scale.best > first.scale.chance)
    better, worse = (first, second) if is_first_better else (second, first)
    succeeds, others = succeed(better), succeed(worse)
    if not estimate or succeeds.sum() * worse.n <= others.sum() * better.n:
        return 1.0
    best = first.scale.best if has_solved else better.mean
    return _counts_p(better.values, succeeds, worse.values, others, (first.scale.chance, best))


def sides_p(first: Sample, second: Sample, line: float = 0.0) -> float:
    """Of the counts of seeds on either side of the middle between two level samples that are further apart than one is.

    0 where they are not, where seeds cannot fail, and where a noise model says how often they fall elsewhere.
    """
    gap = first.mean - line - second.mean
    are_outcomes = all(sample.has_outcomes and not sample.has_noise for sample in (first, second))
    if not are_outcomes or not abs(gap) > APART_SHARE * first.scale.width:
        return 0.0
    better, worse = (first.values - line, second.values)[:: 1 if gap > 0 else -1]
    middle = second.mean + gap / 2
    return _counts_p(better, better > middle, worse, worse > middle, (first.scale.chance, first.scale.best))


def reach_p(first: Sample, second: Sample) -> float:
    """Boschloo's test of the seeds on either side of the middle between two samples that are within one label's reach.

    0 of samples further apart, and of a column of which no noise model knows the reach.
    """
    gap = first.mean - second.mean
    if not abs(gap) <= max(first.reach, second.reach):
        return 0.0
    sides = (sample.values > second.mean + gap / 2 for sample in (first, second))
    upper, other_upper = (int(side.sum()) for side in sides)
    return exact_p(upper, first.n, other_upper, second.n)


def _counts_p(
    better: np.ndarray,
    succeeds: np.ndarray,
    worse: np.ndarray,
    other_succeeds: np.ndarray,
    unseen: tuple[float, float],
) -> float:
    """Of two samples of which seeds succeed or not: Boschloo's test of the shares, and of the means where one agrees.

    Equal shares are equal means only where both have the same two values. Seeds that all are on one side may be a level
    of their own; then those of the other sample, at its value on either side, or where it has none there at one of the
    values ``unseen``, have the same mean with one certain share, and are so many on a side with a binomial probability.
    """
    p = exact_p(int(succeeds.sum()), len(better), int(other_succeeds.sum()), len(worse))
    if not other_succeeds.any():
        lower = better[~succeeds].mean() if not succeeds.all() else unseen[0]
        p = max(p, _level_p(worse.mean(), better[succeeds].mean(), lower, int(succeeds.sum()), len(better)))
    if succeeds.all():
        upper = worse[other_succeeds].mean() if other_succeeds.any() else unseen[1]
        fails = int((~other_succeeds).sum())
        p = max(p, _level_p(better.mean(), worse[~other_succeeds].mean(), upper, fails, len(worse)))
    return p


def _level_p(level: float, value: float, other_value: float, count: int, n: int) -> float:
    """Two-sided, of the mean ``level``: ``count`` of ``n`` seeds are at ``value``, the others at ``other_value``."""
    if not min(value, other_value) < level < max(value, other_value):
        return 0.0
    share = (level - other_value) / (value - other_value)
    return min(1.0, 2 * float(betainc(count, n - count + 1, share)))
