"""What each factor of the labels is worth, from all stored pairs of labels that differ in it alone.

Effect of a contrast: the mean over its pairs of labels of the mean over seeds of the one label's number less the
other's on the same seed.

Its interval is Student's t with the pairs as units: what a factor does depends on the label that it is in, and that
spread between pairs holds the noise of the seeds as well. A label is in at most one pair of a contrast, so the pairs
are independent where the labels' deviations from additivity are; what a seed does to all labels cancels. A contrast
has few pairs, so its variance is moderated by the others' (Smyth 2004, "Linear models and empirical Bayes methods",
section 3, but with a fixed d_0, which a handful of contrasts cannot estimate):

    s^2 = (d_0 s_0^2 + d s_own^2) / (d_0 + d),    with d_0 + d degrees of freedom

d is the number of pairs less one, s_0^2 the pooled variance of the other contrasts, and d_0 ``PRIOR_FREEDOM``, or the
others' degrees of freedom where these are fewer. A single pair has the wider of this interval and the one over its own
seeds; with one seed it has none. Where no other contrast has two pairs either, only the one over seeds is left: it
speaks of that pair and not of the factor, so it has no p-value.

Interaction of two contrasts: the mean, over squares of labels with both, either and neither, of the first one's effect
where the second is given less that where it is not. Interactions are what the labels' deviations from additivity
consist of, so they are held against the noise of the seeds alone: Welch's t test on the labels' means over the seeds
that the four have in common. What a seed does to all four is not taken out of the noise, which errs on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import stdtr

from madbench.analysis.contrasts import Contrast, Pair, Square, find_pairs, find_squares
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.statistics import LEVEL, ROUNDING, holm, students_t
from madbench.suites import MAD

PRIOR_FREEDOM = 4
"""Degrees of freedom that the other contrasts lend to the variance of one, as four more pairs of its own would."""

_SIGNS = np.array([1, -1, -1, 1])  # of a square's labels in its interaction


@dataclass(frozen=True)
class Estimate:
    """A mean difference, in the units of its quantity: percentage points, or nats per token."""

    seeds: int  # it rests on, each of some pair or square
    difference: float
    low: float  # ends of the 95% interval; NaN where there is none
    high: float
    p: float  # two-sided, of "it is zero"; NaN where there is no test
    p_holm: float = math.nan  # adjusted for all contrasts, or all interactions, of the quantity

    @property
    def is_significant(self) -> bool:
        """Whether it differs from zero."""
        return self.p_holm <= LEVEL


@dataclass(frozen=True)
class Effect:
    """What a contrast is worth on a quantity, or by how much more it is worth where a second one is given."""

    contrasts: tuple[Contrast, ...]  # one, or two that interact
    quantity: str  # a task, mad_average or loss_l5
    estimate: Estimate
    cases: dict[Pair | Square, Estimate | None]  # what it is the mean over; pairs with an interval over seeds of each

    @property
    def name(self) -> str:
        """``conv: c against none``, ``c x 1o``."""
        names = [contrast.short_name for contrast in self.contrasts]
        return " x ".join(names) if self.is_interaction else self.contrasts[0].name

    @property
    def is_interaction(self) -> bool:
        return len(self.contrasts) > 1


_Rows = Mapping[str, np.ndarray]  # values of a label by seed (N,), NaN where there is none


def measured_values(scores: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The values that effects and claims rest on, and how many results have none: unfinished, or diverged.

    ``scores`` are those of one protocol (:mod:`madbench.analysis.scores`); a seed counts once all its jobs are done.
    """
    begun = scores[(scores.done > 0) & ((scores.suite == MAD.name) | (scores.column == LOSS))]
    values = begun[begun.done == begun.expected].dropna(subset="value")
    return values, int((begun.column != MAD_AVERAGE).sum() - (values.column != MAD_AVERAGE).sum())


def attribute(values: pd.DataFrame) -> list[Effect]:
    """Every effect and then every interaction that ``values`` have labels for, by quantity and contrast.

    ``values`` has a row a label, quantity and seed; columns: label, column, seed, value, which is not NaN.
    """
    pairs = find_pairs(values.label.unique())
    squares = find_squares(pairs)
    effects: list[Effect] = []
    interactions: list[Effect] = []
    for quantity, found in values.groupby("column", sort=False):
        by_seed = found.pivot(index="label", columns="seed", values="value")
        rows = dict(zip(by_seed.index, by_seed.to_numpy(float)))
        effects += _adjusted(_effects(quantity, pairs, rows))
        interactions += _adjusted(_interactions(quantity, squares, rows))
    return effects + interactions


def _effects(quantity: str, pairs: Mapping[Contrast, Sequence[Pair]], rows: _Rows) -> list[Effect]:
    differences: dict[Contrast, dict[Pair, np.ndarray]] = {}
    for contrast, of_contrast in pairs.items():
        for given, without in of_contrast:
            if given in rows and without in rows and not np.isnan(values := rows[given] - rows[without]).all():
                differences.setdefault(contrast, {})[given, without] = values
    means = {contrast: np.nanmean([*by_pair.values()], axis=1) for contrast, by_pair in differences.items()}
    all_squares = sum(map(_squares, means.values()))
    all_freedom = sum(len(of_pairs) - 1 for of_pairs in means.values())
    effects = []
    for contrast, by_pair in differences.items():
        alone = {pair: _over_seeds(values) for pair, values in by_pair.items()}
        seeds = int((~np.isnan([*by_pair.values()])).any(axis=0).sum())
        estimate = _over_pairs(means[contrast], all_squares, all_freedom, seeds)
        if len(alone) == 1:
            (of_pair,) = alone.values()
            if math.isnan(estimate.p):  # nothing says how labels differ
                estimate = replace(of_pair, p=math.nan)
            elif not estimate.high > of_pair.high:  # wider, or NaN for a single seed
                estimate = of_pair
        effects.append(Effect((contrast,), quantity, estimate, alone))
    return effects


def _over_pairs(means: np.ndarray, all_squares: float, all_freedom: int, seeds: int) -> Estimate:
    """The estimate from the ``means`` of a contrast's pairs, its variance moderated by those of the other contrasts.

    ``all_squares`` and ``all_freedom`` are sums over all contrasts, this one too, of the squares about the mean over
    pairs and of their degrees of freedom.
    """
    squares, freedom = _squares(means), len(means) - 1
    of_others, freedom_of_others = max(0.0, all_squares - squares), all_freedom - freedom
    prior = min(PRIOR_FREEDOM, freedom_of_others)
    total = freedom + prior
    variance = (squares + prior * of_others / max(1, freedom_of_others)) / max(1, total)
    return _estimate(means.mean(), variance / len(means), total, seeds)


def _squares(values: np.ndarray) -> float:
    """Sum of the squares about the mean."""
    return len(values) * values.var()


def _interactions(
    quantity: str, squares: Mapping[tuple[Contrast, Contrast], Sequence[Square]], rows: _Rows
) -> list[Effect]:
    """From the squares whose four labels have two seeds in common."""
    interactions = []
    for contrasts, of_contrasts in squares.items():
        stored = [square for square in of_contrasts if all(label in rows for label in square)]
        if not stored:
            continue
        values = np.array([[rows[label] for label in square] for square in stored])  # (squares, 4, seeds)
        is_common = ~np.isnan(values).any(axis=1, keepdims=True)
        is_enough = is_common.sum(axis=(1, 2)) > 1
        if not is_enough.any():
            continue
        stored = [square for square, enough in zip(stored, is_enough) if enough]
        values = np.where(is_common, values, np.nan)[is_enough]
        n = is_common[is_enough].sum(axis=2)
        mean = (np.nanmean(values, axis=2) @ _SIGNS).mean()
        variances = np.nanvar(values, axis=2, ddof=1) / n / len(stored) ** 2
        spread = (variances**2 / (n - 1)).sum()
        freedom = variances.sum() ** 2 / spread if spread else 1.0
        seeds = int(is_common[is_enough].any(axis=(0, 1)).sum())
        estimate = _estimate(mean, variances.sum(), freedom, seeds)
        interactions.append(Effect(contrasts, quantity, estimate, dict.fromkeys(stored)))
    return interactions


def _over_seeds(values: np.ndarray) -> Estimate:
    """The estimate from the ``values`` (N,) of one pair, NaN where a seed is missing."""
    values = values[~np.isnan(values)]
    freedom = len(values) - 1
    return _estimate(values.mean(), values.var(ddof=1) / len(values) if freedom else math.nan, freedom, len(values))


def _estimate(mean: float, variance: float, freedom: float, seeds: int) -> Estimate:
    """Student's t; ``variance`` is that of ``mean``. Zero variance about a mean that is not zero: no interval."""
    mean = round(float(mean), 9)  # so that equal numbers differ by nothing
    error = math.sqrt(variance) if freedom else math.nan
    if not freedom or (mean and error < ROUNDING):
        return Estimate(seeds, mean, math.nan, math.nan, math.nan)
    half = error * students_t(freedom)
    p = 2 * float(stdtr(freedom, -abs(mean) / error)) if error else 1.0
    return Estimate(seeds, mean, mean - half, mean + half, p)


def _adjusted(effects: Sequence[Effect]) -> list[Effect]:
    """``effects``, a family, with the adjusted p-values of its estimates."""
    p_values = holm([one.estimate.p for one in effects])
    return [replace(one, estimate=replace(one.estimate, p_holm=p)) for one, p in zip(effects, p_values)]
