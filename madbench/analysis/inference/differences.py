"""Differences of samples, their intervals and tests: against zero, a line, and a margin on either side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from madbench.analysis.inference.counts import outcomes_p, sides_p
from madbench.analysis.inference.distributions import LEVEL, ErrorOfSum
from madbench.analysis.inference.sample import APART_SHARE, LEAST_FOR_LEVEL, LEAST_SEEDS, Sample

NEITHER_LEARNED, BOTH_SOLVE = "neither learned it", "both solve it"
"""Reasons why labels with enough seeds are not tested."""


@dataclass(frozen=True)
class Difference:
    """A weighted sum of means, its interval and its test; NaN where there is none."""

    estimate: float
    low: float
    """Ends of the 95% interval."""
    high: float
    p: float
    """Two-sided, of "it is zero", or "it is on the line"."""
    n: int
    """Seeds of the label that has the fewest."""
    test: str = ""
    """``t`` or ``exact``; empty where nothing is tested."""
    reason: str = ""
    """Why nothing is tested."""

    def p_above(self, line: float) -> float:
        """One-sided, of "it is at most the line" against which it was tested."""
        return self.p / 2 if self.estimate > line else 1 - self.p / 2


def difference(first: Sample, second: Sample, line: float = 0.0) -> Difference:
    """The mean of ``first`` less that of ``second``, tested against ``line``."""
    return combination([(1.0, first), (-1.0, second)], line)


def combination(
    terms: Sequence[tuple[float, Sample]], line: float = 0.0, tests_solved: bool = False, has_unseen: bool = False
) -> Difference:
    """The sum of weight * mean over ``terms``, samples of different labels on one column, tested against ``line``.

    ``tests_solved`` tests it also where all seeds solve the task, of which no gain can be shown; ``has_unseen`` is of
    :meth:`Sample.error`, and holds for samples of fewer than :data:`LEAST_FOR_LEVEL` seeds.
    """
    samples = [sample for _, sample in terms]
    n = min(sample.n for sample in samples)
    estimate = round(sum(weight * sample.mean for weight, sample in terms), 9)  # equal numbers differ by nothing
    reason = _why_untested(samples, tests_solved)
    if n < 2:
        return Difference(estimate, math.nan, math.nan, math.nan, n, reason=reason)
    is_pair = [weight for weight, _ in terms] == [1.0, -1.0]
    is_exact = is_pair and not all(sample.is_level for sample in samples)
    unseen = [has_unseen and sample.n < LEAST_FOR_LEVEL for sample in samples]
    if not is_pair:
        unseen = [is_unseen or apart for is_unseen, apart in zip(unseen, _stand_apart(terms))]
    sum_of = ErrorOfSum.of(
        [(weight, *sample.error(has_unseen=is_unseen)) for (weight, sample), is_unseen in zip(terms, unseen)]
    )
    if is_exact and not line:
        p, test = math.nan if reason else outcomes_p(samples[0], samples[1], estimate), "exact"
    else:
        p, test = math.nan if reason else sum_of.p(estimate - line), "t"
        if is_pair and not reason:
            p = max(p, sides_p(samples[0], samples[1], line))
    if is_exact:
        low, high = _joined_interval(samples[0], samples[1], estimate)
    else:
        limits = samples[0].scale.limits
        reach = (limits[1] - limits[0]) * sum(weight for weight, _ in terms if weight > 0)
        low, high = max(estimate - sum_of.half_width, -reach), min(estimate + sum_of.half_width, reach)
        if is_pair and sides_p(samples[0], samples[1]) > LEVEL:
            low, high = min(low, 0.0), max(high, 0.0)
    return Difference(estimate, low, high, p, n, "" if reason else test, reason)


@dataclass(frozen=True)
class Equivalence:
    """A difference held against a margin on either side; NaN where nothing is tested."""

    margin: float
    p_above: float
    """One-sided, of "it is at most minus the margin"."""
    p_below: float
    """One-sided, of "it is at least the margin"."""
    reason: str = ""
    """Why nothing is tested."""

    @property
    def p(self) -> float:
        """Of "it is the margin or more, in either direction"."""
        return max(self.p_above, self.p_below)


def equivalence(first: Sample, second: Sample, margin: float) -> Equivalence:
    """The mean of ``first`` less that of ``second``, by two one-sided tests against ``margin``."""
    terms = [(1.0, first), (-1.0, second)]
    above, below = (combination(terms, line, tests_solved=True, has_unseen=True) for line in (-margin, margin))
    return Equivalence(margin, above.p_above(-margin), 1 - below.p_above(margin), above.reason)


def _stand_apart(terms: Sequence[tuple[float, Sample]]) -> list[bool]:
    """Which samples are further from the mean of those of the other sign than the seeds of one level may be."""
    means = {sign: [x.mean for weight, x in terms if weight * sign > 0] for sign in (1, -1)}
    if not all(means.values()):
        return [False] * len(terms)
    others = [float(np.mean(means[-1 if weight > 0 else 1])) for weight, _ in terms]
    return [abs(x.mean - other) > APART_SHARE * x.scale.width for (_, x), other in zip(terms, others)]


def _why_untested(samples: Sequence[Sample], tests_solved: bool) -> str:
    """Why samples are not tested; empty where they are."""
    n = min(sample.n for sample in samples)
    if n < LEAST_SEEDS:
        return {0: "no seed", 1: "single seed", 2: "two seeds"}.get(n, f"{n} seeds")
    if not any(sample.has_learned for sample in samples):
        return NEITHER_LEARNED
    if not tests_solved and all(sample.has_outcomes and sample.solved == sample.n for sample in samples):
        return BOTH_SOLVE
    if all(sample.has_zero_spread and sample.is_level and not sample.has_noise for sample in samples):
        return "zero variance"
    return ""


def _joined_interval(first: Sample, second: Sample, estimate: float) -> tuple[float, float]:
    """Of the difference of two means, from their own intervals (Zou and Donner 2008), and within the column's limits.

    It ends a rounding error short of 0 where the exact test rejects it, and holds 0 elsewhere.
    """
    (low, high), (other_low, other_high) = first.bounds, second.bounds
    span = first.scale.limits[1] - first.scale.limits[0]
    low = max(estimate - math.hypot(first.mean - low, other_high - second.mean), -span)
    high = min(estimate + math.hypot(high - first.mean, second.mean - other_low), span)
    if outcomes_p(first, second, estimate) > LEVEL:
        return min(low, 0.0), max(high, 0.0)
    least = min(abs(estimate), first.scale.resolution)
    return (max(low, least), high) if estimate > 0 else (low, min(high, -least))
