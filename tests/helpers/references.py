"""Statistics computed directly from their formulas, with which tests compare those of madbench."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

Terms = list[tuple[float, float]]
"""The terms of the variance of a mean, as pairs (variance, degrees of freedom)."""


def terms(values: Sequence[float], weight: float = 1.0, width: float = 100.0, resolution: float = 0.1) -> Terms:
    """The terms of the variance of ``weight`` times the mean of ``values``, one value per seed.

    ``width`` is the range of the column, NaN for a loss, and ``resolution`` the step between possible values. The
    symbols v and s0 are those of docs/pages/method.md.
    """
    n, v = len(values), max(float(np.var(values, ddof=1)), resolution**2 / 12)
    s0 = 0.01 * float(np.mean(values)) if math.isnan(width) else 0.02 * width
    found = [(weight**2 * max(v, (2 * s0**2 + (n - 1) * v) / (n + 1)) / n, n - 1 + 2 * min(1, s0**2 / v))]
    if max(values) - min(values) <= width / 4:  # never of NaN
        one_side = 0.15 * 2 / (n + 1)
        split = one_side / (one_side + 0.85) * 2 * (0.35 * width) ** 2 / ((n + 2) * (n + 3))
        found.append((weight**2 * split, 4.0))
    return found


def loss_terms(values: Sequence[float]) -> Terms:
    return terms(values, width=math.nan, resolution=0.001)


def error_of(of_means: Sequence[Terms]) -> tuple[float, float]:
    """The standard error of a sum of means, and Satterthwaite's degrees of freedom.

    ``of_means`` has the terms of the variance of each mean.
    """
    every = [term for of_mean in of_means for term in of_mean]
    total = sum(v for v, _ in every)
    return math.sqrt(total), total**2 / sum(v * v / f for v, f in every)


def interval_of(estimate: float, of_means: Sequence[Terms]) -> tuple[float, float]:
    """The 95% interval of a sum of means with the value ``estimate``. ``of_means`` has the terms of each mean."""
    error, freedom = error_of(of_means)
    half = stats.t.ppf(0.975, freedom) * error
    return estimate - half, estimate + half


def p_of(distance: float, of_means: Sequence[Terms]) -> float:
    """The two-sided p-value of a sum of means whose estimate is ``distance`` away from the tested value.

    ``of_means`` has the terms of the variance of each mean.
    """
    error, freedom = error_of(of_means)
    return float(2 * stats.t.sf(abs(distance) / error, freedom))
