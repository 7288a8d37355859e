"""Differences of samples, their intervals and tests: against zero, a line, and a margin on either side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from madbench.analysis.inference.sample import LEAST_SEEDS, Sample
from madbench.analysis.inference.variance import Terms

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
    """``t``; empty if nothing is tested."""
    reason: str = ""
    """Why nothing is tested."""

    def p_above(self, line: float) -> float:
        """One-sided, of "it is at most the line" against which it was tested."""
        return self.p / 2 if self.estimate > line else 1 - self.p / 2


def difference(first: Sample, second: Sample, line: float = 0.0) -> Difference:
    """The mean of ``first`` less that of ``second``, tested against ``line``."""
    return combination([(1.0, first), (-1.0, second)], line)


def combination(terms: Sequence[tuple[float, Sample]], line: float = 0.0, tests_solved: bool = False) -> Difference:
    """The sum of weight * mean over ``terms``, samples of different labels in one column, tested against ``line``.

    ``tests_solved`` tests it also if all seeds solve the task. No gain can be shown of these, but equality can.
    """
    samples = [sample for _, sample in terms]
    n = min(sample.n for sample in samples)
    estimate = round(sum(weight * sample.mean for weight, sample in terms), 9)  # equal numbers differ by nothing
    reason = _why_untested(samples, tests_solved)
    if n < 2:
        return Difference(estimate, math.nan, math.nan, math.nan, n, reason=reason)
    joined = Terms.joined([sample.terms.scaled(weight) for weight, sample in terms])
    low, high = samples[0].scale.limits
    most = (high - low) * sum(weight for weight, _ in terms if weight > 0)
    half = float(joined.half_width)
    p = math.nan if reason else float(joined.p(estimate - line))
    return Difference(
        estimate, max(estimate - half, -most), min(estimate + half, most), p, n, "" if reason else "t", reason
    )


@dataclass(frozen=True)
class Equivalence:
    """A difference held against a margin on either side; NaN if nothing is tested."""

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
    """The mean of ``first`` less that of ``second``, by two one-sided tests against ``margin`` (Schuirmann 1987)."""
    terms = [(1.0, first), (-1.0, second)]
    above, below = (combination(terms, line, tests_solved=True) for line in (-margin, margin))
    return Equivalence(margin, above.p_above(-margin), 1 - below.p_above(margin), above.reason)


def _why_untested(samples: Sequence[Sample], tests_solved: bool) -> str:
    """The reason why samples are not tested; empty if they are."""
    n = min(sample.n for sample in samples)
    if n < LEAST_SEEDS:
        return {0: "no seed", 1: "single seed", 2: "two seeds"}.get(n, f"{n} seeds")
    if not any(sample.has_learned for sample in samples):
        return NEITHER_LEARNED
    if not tests_solved and all(sample.has_threshold and sample.solved == sample.n for sample in samples):
        return BOTH_SOLVE
    return ""
