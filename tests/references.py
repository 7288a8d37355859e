"""Statistics written out, to hold those of madbench against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

Side = tuple[float, float]
"""Variance of what is added or subtracted, and its degrees of freedom."""


def side(variances: Sequence[float], freedoms: Sequence[float]) -> Side:
    """The sum of some variances, with Satterthwaite's degrees of freedom."""
    return sum(variances), sum(variances) ** 2 / sum(v**2 / f for v, f in zip(variances, freedoms))


def mean_side(values: Sequence[float], weight: float = 1.0) -> Side:
    """Of the mean of seeds."""
    return weight**2 * np.var(values, ddof=1) / len(values), len(values) - 1


def cochran_cox_interval(estimate: float, sides: Sequence[Side]) -> tuple[float, float]:
    """The 95% interval: quantiles of Student's t weighted by variances, times the standard error."""
    total = sum(variance for variance, _ in sides)
    half = sum(v * stats.t.ppf(0.975, f) for v, f in sides) / total * math.sqrt(total)
    return estimate - half, estimate + half


def wide_interval(values: Sequence[float], chance: float = 4.0, best: float = 100.0) -> tuple[float, float]:
    """Of seeds of one level without a noise model: of a share of seeds with a beta distribution it is half way off."""
    n, mean = len(values), np.mean(values)
    jump = max(best - mean, mean - chance) / 2
    variance, freedom = side([np.var(values, ddof=1) / n, stats.beta(1, n).var() * jump**2], [n - 1, n - 1])
    return stats.t.interval(0.95, freedom, mean, math.sqrt(variance))


def cochran_cox_p(distance: float, sides: Sequence[Side]) -> float:
    """The level at which the interval of Cochran and Cox ends at ``distance``."""
    total = sum(variance for variance, _ in sides)

    def surplus(log_p: float) -> float:
        return sum(v * stats.t.isf(math.exp(log_p) / 2, f) for v, f in sides) / math.sqrt(total) - abs(distance)

    return math.exp(optimize.brentq(surplus, -200, 0, xtol=1e-13))


def level_p(level: float, value: float, other_value: float, count: int, n: int) -> float:
    """Twice the probability of ``count`` or more of ``n`` seeds at ``value`` where their mean is ``level``."""
    share = (level - other_value) / (value - other_value)
    return min(1.0, 2 * float(stats.binom.sf(count - 1, n, share))) if 0 < share < 1 else 0.0
