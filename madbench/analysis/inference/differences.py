"""Differences between means of labels, with intervals, and tests against zero, a threshold or a margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from madbench.analysis.inference.sample import Sample, VarianceTerms
from madbench.suites.planning import LEAST_SEEDS

NEITHER_LEARNED, BOTH_SOLVE = "neither learned it", "both solve it"
"""Two reasons why nothing is tested although there are enough seeds: no label has learned the task, or all solve it."""


@dataclass(frozen=True)
class Difference:
    """A difference between means of labels, or another weighted sum of them, with its interval and test.

    ``low`` and ``high`` are NaN if there is no interval, and ``p`` is NaN if there is no test.
    """

    estimate: float
    low: float
    """The lower end of the 95% interval; ``high`` is the upper end."""
    high: float
    p: float
    """The two-sided p-value of the hypothesis that the difference equals the tested threshold, by default zero."""
    n: int
    """The number of seeds of the label with the fewest seeds."""
    test: str = ""
    """The kind of the test: ``t`` (Student's t). Empty if nothing is tested."""
    reason: str = ""
    """The reason why nothing is tested. Empty for a test."""

    def p_above(self, threshold: float) -> float:
        """The one-sided p-value of the hypothesis that the difference is at most ``threshold``.

        The difference must have been tested against this ``threshold``, because the result is computed from :attr:`p`.
        """
        return self.p / 2 if self.estimate > threshold else 1 - self.p / 2


def difference(first: Sample, second: Sample, threshold: float = 0.0) -> Difference:
    """The mean of ``first`` minus the mean of ``second``, two labels in one column, with its 95% interval and test.

    The test is two-sided. Its hypothesis is that the difference equals ``threshold``.
    """
    return combination([(1.0, first), (-1.0, second)], threshold)


def combination(
    terms: Sequence[tuple[float, Sample]], threshold: float = 0.0, tests_solved: bool = False
) -> Difference:
    """A weighted sum of means, with a two-sided test of the hypothesis that it equals ``threshold``.

    Nothing is tested if a label has fewer than ``LEAST_SEEDS`` seeds, or if no label has learned the task. There is no
    interval if a label has fewer than two seeds.

    Args:
        terms: pairs (weight, sample). The samples are those of different labels in one column.
        threshold: the tested value of the sum, in the units of the column.
        tests_solved: True to test also if all seeds of all labels solve the task. Such a test can show that labels are
            equal, but not that one of them is better.
    """
    samples = [sample for _, sample in terms]
    n = min(sample.n for sample in samples)
    estimate = round(sum(weight * sample.mean for weight, sample in terms), 9)  # equal numbers differ by exactly 0
    reason = _why_untested(samples, tests_solved)
    if n < 2:
        return Difference(estimate, math.nan, math.nan, math.nan, n, reason=reason)
    total = VarianceTerms.sum_of([sample.terms.times(weight) for weight, sample in terms])
    low, high = samples[0].scale.limits
    most = (high - low) * sum(weight for weight, _ in terms if weight > 0)
    half = float(total.half_width)
    p = math.nan if reason else float(total.p(estimate - threshold))
    return Difference(
        estimate, max(estimate - half, -most), min(estimate + half, most), p, n, "" if reason else "t", reason
    )


@dataclass(frozen=True)
class Equivalence:
    """The result of two one-sided tests: that a difference is above minus the margin, and that it is below the margin.

    The p-values are NaN if nothing is tested.
    """

    margin: float
    p_above: float
    """The one-sided p-value of the hypothesis that the difference is at most minus the margin."""
    p_below: float
    """The one-sided p-value of the hypothesis that the difference is at least the margin."""
    reason: str = ""
    """The reason why nothing is tested. Empty for a test."""

    @property
    def p(self) -> float:
        """The p-value of the hypothesis that the absolute difference is at least the margin.

        It is the larger p-value of the two tests.
        """
        return max(self.p_above, self.p_below)


def equivalence(first: Sample, second: Sample, margin: float) -> Equivalence:
    """Test if the means of two labels in one column differ by less than ``margin``, in the units of the column.

    The method is two one-sided tests (Schuirmann 1987).
    """
    terms = [(1.0, first), (-1.0, second)]
    above, below = (combination(terms, threshold, tests_solved=True) for threshold in (-margin, margin))
    return Equivalence(margin, above.p_above(-margin), 1 - below.p_above(margin), above.reason)


def _why_untested(samples: Sequence[Sample], tests_solved: bool) -> str:
    """The reason why a difference or sum of the means of ``samples`` is not tested. Empty if it is tested.

    If ``tests_solved`` is True, labels that solve the task in all seeds are tested, too.
    """
    n = min(sample.n for sample in samples)
    if n < LEAST_SEEDS:
        return {0: "no seed", 1: "single seed", 2: "two seeds"}.get(n, f"{n} seeds")
    if not any(sample.has_learned for sample in samples):
        return NEITHER_LEARNED
    if not tests_solved and all(sample.has_threshold and sample.solved == sample.n for sample in samples):
        return BOTH_SOLVE
    return ""
