"""Inference for a mean difference: intervals, p-values, and p-values adjusted for a family of tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.05
"""Adjusted p-value up to which a difference is significant; 1 - confidence of every interval."""

RESAMPLES = 9999

ROUNDING = 1e-9
"""More than the standard deviation that equal values get, of percent or nats."""


def bootstrap_interval(
    values: np.ndarray, level: float = 1 - LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Expanded percentile bootstrap interval of the mean of ``values`` (n,), independent of each other; in their units.

    Percentiles alone are too narrow for few values: they lack the factor sqrt(n / (n - 1)) and Student's t. So they
    are taken where a normal distribution would put the t interval (Hesterberg 2015, "What Teachers Should Know About
    the Bootstrap", section 5.3). No bootstrap interval leaves the range of the values, so it holds the mean with a
    probability of at most 1 - :func:`smallest_p`: 75% for three values. NaN, NaN for fewer than two.
    """
    from scipy import stats  # half a second, which holm alone need not take

    values = np.asarray(values, dtype=float)
    n = len(values)
    if n < 2:
        return math.nan, math.nan
    tail = stats.norm.sf(math.sqrt(n / (n - 1)) * stats.t.isf((1 - level) / 2, n - 1))
    how = {"method": "percentile", "confidence_level": 1 - 2 * tail, "n_resamples": resamples}
    interval = stats.bootstrap((values,), np.mean, **how, **_batches(n, seed)).confidence_interval
    return float(interval.low), float(interval.high)


def sign_flip_p(differences: np.ndarray, seed: int = 0) -> float:
    """Two-sided p-value of "the mean is zero" for paired ``differences`` (n,), independent and symmetric about it.

    Every sign is as likely as the other under that hypothesis. Exact up to 13 differences; beyond, from
    :data:`RESAMPLES` random flips, the observed one counted. NaN for fewer than two.
    """
    from scipy import stats

    differences = np.asarray(differences, dtype=float)
    n = len(differences)
    if n < 2:
        return math.nan
    how = {"permutation_type": "samples", "n_resamples": RESAMPLES}
    return float(stats.permutation_test((differences,), np.mean, **how, **_batches(n, seed)).pvalue)


def _batches(n: int, seed: int) -> dict[str, Any]:
    """At most 2 million resampled values in memory at a time."""
    return {"batch": max(1, 2_000_000 // n), "rng": np.random.default_rng(seed)}


def smallest_p(n: int) -> float:
    """The smallest p-value that :func:`sign_flip_p` can give for ``n`` differences, at least 2.

    >>> smallest_p(3), smallest_p(6)
    (0.25, 0.03125)
    """
    return 2 / min(2**n, RESAMPLES + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment of the p-values of one family (Holm 1979); NaN stays NaN and does not count.

    The i-th smallest of m, from 0, is multiplied by m - i; none is adjusted to less than a smaller one, or to over 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = np.array(p_values, dtype=float)
    order = np.argsort(adjusted)[: np.count_nonzero(~np.isnan(adjusted))]  # NaN sorts last
    multiplied = adjusted[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return adjusted.tolist()


def students_t(freedom: float) -> float:
    """How many standard errors the 95% interval of Student's t reaches to either side: 4.303 for 2."""
    return float(stdtrit(freedom, 1 - LEVEL / 2))


def half_width(spread: float, n: int, freedom: float) -> float:
    """Half of Student's 95% interval of a mean of ``n`` values: t s / sqrt(n).

    NaN without degrees of freedom, and with zero variance: seeds that happen to agree do not make a mean infinitely sure.
    """
    if freedom < 1 or n < 1 or not spread > ROUNDING:
        return math.nan
    return students_t(freedom) * spread / math.sqrt(n)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of ``values`` and the ends of its 95% interval (:func:`half_width`), NaN, NaN where there is none.

    >>> [round(number, 3) for number in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    half = half_width(float(np.std(values, ddof=1)), len(values), len(values) - 1) if len(values) > 1 else math.nan
    return mean, mean - half, mean + half
