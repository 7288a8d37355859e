"""Multiple comparisons: adjusted p-values, ranks, and labels that are not significantly worse than the best."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from madbench.analysis.inference.differences import difference
from madbench.analysis.inference.sample import LEVEL, Sample


def holm(p_values: Sequence[float], share: float = 1.0, groups: Sequence[Hashable] | None = None) -> list[float]:
    """Holm's adjustment of the p-values of one family (Holm 1979). NaN stays NaN and does not count.

    The i-th smallest of m p-values, with i from 0, is multiplied by m - i. Adjusted p-values keep the order of the
    p-values and are at most 1.

    Args:
        p_values: the p-values of the family.
        share: the share of the error rate of a table that this family gets. p-values are divided by it.
        groups: the group of each hypothesis, if at most one hypothesis per group can be true. Then a p-value is
            multiplied by the number of groups that still have an unrejected hypothesis (Shaffer 1986, "Modified
            sequentially rejective multiple test procedures").

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, 0.04, 0.03], groups=["a", "a", "b"])
    [0.02, 0.06, 0.06]
    """
    values = np.array(p_values, dtype=float)
    adjusted: list[float] = step_down(values, share, None if groups is None else _groups_left(values, groups)).tolist()
    return adjusted


def step_down(p_values: np.ndarray, share: float = 1.0, factors: np.ndarray | None = None) -> np.ndarray:
    """Adjust p-values by Holm's method (:func:`holm`), for many families at once.

    Args:
        p_values: an array (..., m). Its last axis has the p-values of one family. NaN stays NaN and does not count.
        share: the share of the error rate of a table that a family gets.
        factors: the factors of the p-values in ascending order. By default Holm's m, m - 1, and so on down to 1, for m
            p-values that are not NaN.

    Returns:
        The adjusted p-values, an array (..., m).
    """
    order = np.argsort(p_values, axis=-1)  # NaN sorts last
    if factors is None:
        test_count = np.count_nonzero(~np.isnan(p_values), axis=-1, keepdims=True)
        factors = test_count - np.arange(p_values.shape[-1])
    scaled_p = np.take_along_axis(p_values, order, axis=-1) * factors / share
    adjusted_p = np.empty_like(p_values)
    np.put_along_axis(adjusted_p, order, np.minimum(np.maximum.accumulate(scaled_p, axis=-1), 1.0), axis=-1)
    return adjusted_p


def _groups_left(p_values: np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    """The factors of :func:`step_down` if at most one hypothesis of each group is true.

    There is one factor per p-value, in ascending order of the p-values. The factor of a p-value is the number of groups
    that have a hypothesis with this or a larger p-value. It is 0 for NaN.
    """
    order = np.argsort(p_values)
    tested_groups = [groups[i] for i in order if not np.isnan(p_values[i])]
    remaining = Counter(tested_groups)
    factors = np.zeros(len(order))
    for place, group in enumerate(tested_groups):
        factors[place] = len(remaining)
        remaining -= Counter([group])
    return factors


@dataclass(frozen=True)
class Rank:
    """The rank ``place`` of a label in a column (1 is the best), with its 95% interval from ``low`` to ``high``."""

    place: int
    low: int
    high: int

    @property
    def text(self) -> str:
        """The rank as text, such as ``3 [1,7]``."""
        return f"{self.place} [{self.low},{self.high}]"


def ranks(samples: Mapping[str, Sample], is_higher_better: bool) -> dict[str, Rank]:
    """The rank of each key of ``samples``, such as a label, with its 95% interval.

    The intervals contain the true ranks of all keys at once with a probability of 95%. All pairs are tested with Holm's
    method. If b of N keys are significantly better than a key and w keys are significantly worse, its interval is b + 1
    to N - w (Al Mohamad, Goeman and van Zwet 2022, "Simultaneous confidence intervals for ranks", Biometrics 78). Keys
    whose true means are equal may have any of the ranks that they share. Means that are equal at the resolution of the
    column get the same rank.
    """
    keys = sorted(samples, key=lambda key: samples[key].mean, reverse=is_higher_better)
    pairs = [*itertools.combinations(keys, 2)]
    p_values = [difference(samples[better], samples[worse]).p for better, worse in pairs]
    above, below = dict.fromkeys(keys, 0), dict.fromkeys(keys, 0)
    for (better, worse), p in zip(pairs, holm(p_values)):
        if p <= LEVEL:
            below[better] += 1
            above[worse] += 1
    counts = [round(samples[key].mean / samples[key].scale.resolution) for key in keys]
    return {
        key: Rank(1 + counts.index(count), 1 + above[key], len(keys) - below[key]) for key, count in zip(keys, counts)
    }


def not_best(columns: Mapping[str, tuple[Mapping[str, Sample], bool]]) -> dict[str, set[str]]:
    """The keys, such as labels, whose mean is significantly worse than the best mean of the column, by column.

    ``columns`` has a pair for each column of a table: the samples by key, and True if higher is better. Each key is
    compared with the best by the two-sided test of :func:`difference`. All comparisons of the table are adjusted by
    Holm's method. So the marks in a table of two labels agree with the verdicts of ``madbench compare``.
    """
    pairs, p_values = [], []
    for name, (samples, is_higher_better) in columns.items():
        best = (max if is_higher_better else min)(samples, key=lambda key: samples[key].mean)
        for key in samples:
            if key != best:
                pairs.append((name, key))
                p_values.append(difference(samples[best], samples[key]).p)
    worse: dict[str, set[str]] = {name: set() for name in columns}
    for (name, key), p in zip(pairs, holm(p_values)):
        if p <= LEVEL:
            worse[name].add(key)
    return worse
