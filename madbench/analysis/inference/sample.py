"""Samples: the values of the seeds of one label in one column, with their mean, its variance and its interval.

Two facts about seeds increase the variance of a mean, by the same rules for every profile, suite and column.

1. Few seeds often show less than the true spread. So the variance of n seeds is the larger of their sample variance v
   and the moderated variance (d0 s0^2 + (n - 1) v) / (d0 + n - 1) of Smyth (2004), "Linear models and empirical
   Bayes methods for assessing differential expression in microarray experiments", Statistical Applications in Genetics
   and Molecular Biology 3. The prior variance s0^2 has d0 degrees of freedom. In contrast to Smyth, a variance is never
   decreased. The larger variance has n - 1 + d0 min(1, s0^2 / v) degrees of freedom: the prior adds almost none if the
   spread of the seeds is far larger than s0.
2. A label may split: it solves a task in some seeds and not in others, so its seeds have one of two values, which
   differ by a gap. If the seeds of a sample are close together, all may have the same one of these values by chance. If
   the share of solving seeds is uniformly distributed, n seeds show only one value with probability 2 / (n + 1). In
   this case, the expected squared distance between their mean and the true mean is 2 gap^2 / ((n + 2) (n + 3)). It is
   multiplied by the posterior probability that the label splits, and added to the variance of the mean with
   :data:`SPLIT_FREEDOM` degrees of freedom. In a column without a finite range, such as a loss, nothing is added.

The constants were rounded from the 33 labels of ``results/measured/evening.tar.xz``, three seeds each.
``studies/calibration.py`` measures the test on other seeds.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincinv, stdtr, stdtrit

TEST, VERSION = "moderated t", 1
"""Name and version of the test. A registration contains both.

The version must be raised when the formula of the variance changes, or one of the constants of this module from
``LEVEL`` down to ``SPLIT_FREEDOM``.
"""
LEVEL = 0.05
"""A difference is significant if its adjusted p-value is at most this. Intervals have the confidence 1 - LEVEL."""
PRIOR_FREEDOM = 2.0
"""d0: the degrees of freedom of the prior variance."""
SPREAD_SHARE, LOSS_SPREAD_SHARE = 0.02, 0.01
"""s0, the prior standard deviation: ``SPREAD_SHARE`` times the range of a column, such as 2 points of accuracy.

In a column without a finite range, such as a loss: ``LOSS_SPREAD_SHARE`` times the mean."""
SPLIT_SHARE = 0.15
"""The prior probability that a label splits in a column, so that it solves the task in some seeds and not in others."""
GAP_SHARE = 0.35
"""The assumed gap of a label that splits, i.e. that solves a task in some seeds only: the distance between the values
of seeds that solve the task and of seeds that do not, as a share of the range of the column. It scales the variance
that is added to a mean for a split that the stored seeds may not show.
"""
VISIBLE_SHARE = 0.25
"""If seeds of a label differ by more than this share of the range of the column, the label may split.

A label splits if it solves the task in some seeds and not in others. The sample variance of such seeds already contains
the split. Otherwise a term for a split that the seeds do not show is added to the variance of their mean.
"""
SPLIT_FREEDOM = 4.0
UNLEARNED_SHARE = 0.05
"""A label has learned a task if its mean exceeds the heuristic by more than this share of the distance to the ceiling.

The heuristic is the score of the best answer that ignores the context, and the ceiling is the best score that the data
allow. If the heuristic is unknown, chance replaces it.
"""
SETTLING_SEEDS = 5
"""The number of seeds with which false verdicts are rare even for labels that split.

A label splits if it solves a task in some seeds and not in others. ``studies/calibration.py`` measures the rates."""


@dataclass(frozen=True)
class Scale:
    """The reference values of a column for one label, in the units of the column. NaN if there is no such value."""

    chance: float = math.nan
    """The value of a model that has learned nothing, and of a diverged run."""
    solved_threshold: float = math.nan
    """The smallest value of a seed that has solved the task."""
    ceiling: float = math.nan
    """The best value that the data allow."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """The lowest and the highest possible value."""
    resolution: float = 1e-6
    """The step between possible values."""
    is_counted: bool = False
    """True if values count the steps until an event, for example until a loss is reached. Then ``chance`` is the last
    step of a run without the event."""
    heuristic: float = math.nan
    """The value of the best answer that ignores the context."""

    @property
    def width(self) -> float:
        """The highest possible value minus the lowest. Chance replaces a lower limit that is infinite.

        NaN if the upper limit is infinite, as for losses and counts.
        """
        low, high = self.limits
        if math.isfinite(high):
            return high - (low if math.isfinite(low) else self.chance)
        return math.nan


@dataclass(frozen=True)
class Sample:
    """The values of the seeds of one label in one column."""

    values: np.ndarray
    """One value per seed, as an array (n,), in the units of the column."""
    scale: Scale = Scale()
    diverged: np.ndarray | None = None
    """True for each seed with a diverged run, as an array (n,). None if no run diverged."""
    parts: tuple[Sample, ...] = field(default=(), repr=False)
    """The samples of the tasks of an average. Empty for other columns."""

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.values)

    @functools.cached_property
    def mean(self) -> float:
        """The mean over seeds. NaN without a seed."""
        return float(self.values.mean()) if self.n else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds, with denominator n - 1. NaN for fewer than two seeds."""
        return float(self.values.std(ddof=1)) if self.n > 1 else math.nan

    @property
    def diverged_count(self) -> int:
        """Number of seeds with a diverged run."""
        return 0 if self.diverged is None else int(self.diverged.sum())

    @functools.cached_property
    def has_diverged(self) -> bool:
        """True if at least one seed has a diverged run."""
        return self.diverged_count > 0

    @property
    def all_diverged(self) -> bool:
        """True if every seed has a diverged run."""
        return self.diverged is not None and bool(self.diverged.all())

    @property
    def has_threshold(self) -> bool:
        """True if the value that a seed must reach to solve the task is known. False for an average."""
        return not self.parts and not math.isnan(self.scale.solved_threshold)

    @functools.cached_property
    def solved(self) -> int:
        """Number of seeds that solve the task."""
        return int((self.values >= self.scale.solved_threshold).sum())

    @property
    def finite_values(self) -> np.ndarray:
        """The values of the seeds whose runs did not diverge."""
        return self.values if self.diverged is None else self.values[~self.diverged]

    @property
    def headroom(self) -> float:
        """The distance from the score of the heuristic to the upper limit of the column.

        The heuristic is the best answer that ignores the context. For an average, it is the mean distance over the
        tasks. NaN if the score of a heuristic is unknown.
        """
        if self.parts:
            return float(np.mean([part.headroom for part in self.parts]))
        return self.scale.limits[1] - self.scale.heuristic

    @functools.cached_property
    def splits(self) -> bool:
        """True if the seeds differ so much that the label may solve the task in some seeds only.

        They differ by more than the share :data:`VISIBLE_SHARE` of the range of the column. Always False for an
        average.
        """
        is_apart = self.n > 1 and np.ptp(self.values) > VISIBLE_SHARE * self.scale.width
        return bool(is_apart) and not self.parts

    @functools.cached_property
    def has_learned(self) -> bool:
        """True if the label has learned the task: its mean is clearly better than the score of the heuristic.

        The heuristic is the best answer that ignores the context. The mean must exceed its score by more than the share
        :data:`UNLEARNED_SHARE` of the distance from this score to the ceiling. If the score of the heuristic is
        unknown, the mean must differ from chance by more than this share. True if both are unknown. For an average:
        True if the label has learned any of the tasks.
        """
        if self.parts:
            return any(part.has_learned for part in self.parts)
        if not math.isnan(self.scale.heuristic):
            span = self.scale.ceiling - self.scale.heuristic
            return self.mean > self.scale.heuristic + UNLEARNED_SHARE * span
        share = abs(self.mean - self.scale.chance) / abs(self.scale.ceiling - self.scale.chance)
        return not share <= UNLEARNED_SHARE

    @functools.cached_property
    def terms(self) -> VarianceTerms:
        """The terms of the variance of :attr:`mean`. There must be at least two seeds.

        For an average, these are the terms of the tasks divided by the squared number of tasks, as if tasks were
        independent. If their sum is smaller than the sample variance of the average divided by the number of seeds,
        this quotient is the only term.
        """
        if not self.parts:
            return terms_of_mean(self.values, self.scale.width, self.scale.resolution)
        terms = VarianceTerms.sum_of([part.terms.times(1 / len(self.parts)) for part in self.parts])
        own_variance = self.values.var(ddof=1) / self.n
        return (
            terms
            if terms.variance >= own_variance
            else VarianceTerms(np.array([own_variance]), np.array([self.n - 1.0]))
        )

    @functools.cached_property
    def half_width(self) -> float:
        """The half-width of the 95% interval of the mean, at most :attr:`Scale.width`. NaN for fewer than two seeds."""
        return float(np.fmin(self.terms.half_width, self.scale.width)) if self.n > 1 else math.nan

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean, cut at the limits of the column. Both ends are NaN for fewer than two seeds."""
        if self.n < 2:
            return math.nan, math.nan
        low, high = np.clip([self.mean - self.half_width, self.mean + self.half_width], *self.scale.limits).tolist()
        return low, high


@dataclass(frozen=True)
class VarianceTerms:
    """The variance of an estimate, such as a mean or a sum of means, as a sum of terms with degrees of freedom.

    ``variances`` and ``freedoms`` are arrays (..., terms) with the size and the degrees of freedom of each term.
    """

    variances: np.ndarray
    freedoms: np.ndarray

    def times(self, weight: float) -> VarianceTerms:
        """The terms of the variance of ``weight`` times the estimate."""
        return VarianceTerms(self.variances * weight**2, self.freedoms)

    @classmethod
    def sum_of(cls, terms: list[VarianceTerms]) -> VarianceTerms:
        """The terms of the variance of a sum of independent estimates. ``terms`` has the variance of each estimate."""
        variances = np.concatenate([part.variances for part in terms], axis=-1)
        return cls(variances, np.concatenate([part.freedoms for part in terms], axis=-1))

    @property
    def variance(self) -> np.ndarray:
        """The variance of the estimate, the sum of the terms, as an array (...)."""
        variance: np.ndarray = self.variances.sum(axis=-1)
        return variance

    @property
    def freedom(self) -> np.ndarray:
        """Satterthwaite's approximate degrees of freedom of the variance, as an array (...)."""
        freedom: np.ndarray = self.variance**2 / (self.variances**2 / self.freedoms).sum(axis=-1)
        return freedom

    def p(self, distance: np.ndarray | float) -> np.ndarray:
        """The two-sided p-values of Student's t, an array (...), for estimates with this variance.

        ``distance`` is the estimate minus the tested value. Its sign does not matter.
        """
        p_values: np.ndarray = 2 * stdtr(self.freedom, -np.abs(distance) / np.sqrt(self.variance))
        return p_values

    @property
    def half_width(self) -> np.ndarray:
        """The half-width, an array (...), of the 95% interval of an estimate with this variance."""
        half_width: np.ndarray = stdtrit(self.freedom, 1 - LEVEL / 2) * np.sqrt(self.variance)
        return half_width


def terms_of_mean(values: np.ndarray, width: float, resolution: float = 1e-6) -> VarianceTerms:
    """The terms of the variance of the mean of n seeds, for n of 2 or more.

    Args:
        values: the values of the seeds, an array (..., n).
        width: the range of the column, such as 100 points of accuracy. NaN for a loss or a count.
        resolution: the step between possible values. The variance is at least that of the rounding error.
    """
    n = values.shape[-1]
    own_variance = np.maximum(values.var(axis=-1, ddof=1), resolution**2 / 12)
    has_width = not np.isnan(width)
    prior_deviation = SPREAD_SHARE * width if has_width else LOSS_SPREAD_SHARE * np.abs(values.mean(axis=-1))
    span = np.ptp(values, axis=-1)
    return _terms(own_variance, np.square(prior_deviation), n, span, width if has_width else 0.0)


def planned_terms(variance: float, mean: float, n: int, width: float, splits: bool = False) -> VarianceTerms:
    """The terms of the variance of the mean of ``n`` seeds that are planned and not yet trained.

    Args:
        variance: the expected sample variance of the seeds.
        mean: the expected mean of the seeds.
        n: the number of seeds.
        width: the range of the column, such as 100 points of accuracy. NaN for a loss or a count.
        splits: True if ``variance`` already shows that the label splits, so that it solves the task in some seeds only.
            Then no term for an invisible split is added.
    """
    has_width = not np.isnan(width)
    prior_deviation = SPREAD_SHARE * width if has_width else LOSS_SPREAD_SHARE * abs(mean)
    span = np.full(1, np.inf if splits else 0.0)
    return _terms(np.full(1, variance), np.square(prior_deviation), n, span, width if has_width else 0.0)


def _terms(
    own_variance: np.ndarray, prior_variance: np.ndarray, n: int, span: np.ndarray, width: float
) -> VarianceTerms:
    """The one or two terms whose sum is the variance of the mean of ``n`` seeds, with their degrees of freedom.

    The first term is the larger of the sample variance and the moderated variance, divided by ``n`` (fact 1 of the
    module's docstring). The second term is for the case that the label solves the task in some seeds only, and the
    stored seeds do not show it (fact 2). It is zero if the stored seeds differ by more than the share
    :data:`VISIBLE_SHARE` of the range. A column without a range has only the first term.

    Args:
        own_variance: the sample variance of the seeds, an array (...).
        prior_variance: s0^2, an array (...) or a number.
        n: the number of seeds.
        span: the largest difference of two seeds, an array (...).
        width: the range of the column. 0 for a column without a range.
    """
    own_variance = np.maximum(own_variance, 1e-300)
    moderated_variance = (PRIOR_FREEDOM * prior_variance + (n - 1) * own_variance) / (PRIOR_FREEDOM + n - 1)
    variances, freedoms = (
        [np.maximum(own_variance, moderated_variance) / n],
        [n - 1 + PRIOR_FREEDOM * np.minimum(1, prior_variance / own_variance)],
    )
    if width:
        one_side = SPLIT_SHARE * 2 / (n + 1)
        added_variance = one_side / (one_side + 1 - SPLIT_SHARE) * 2 * (GAP_SHARE * width) ** 2 / ((n + 2) * (n + 3))
        variances.append(np.where(span <= VISIBLE_SHARE * width, added_variance, 0.0))
        freedoms.append(np.full_like(freedoms[0], SPLIT_FREEDOM))
    return VarianceTerms(np.stack(variances, axis=-1), np.stack(freedoms, axis=-1))


def binomial_interval(solved: int, n: int) -> tuple[float, float]:
    """The 95% interval (Clopper and Pearson 1934) of the probability of success, if ``solved`` of ``n`` seeds succeed.

    >>> [round(end, 3) for end in binomial_interval(3, 3)]
    [0.292, 1.0]
    """
    low = betaincinv(solved, n - solved + 1, LEVEL / 2) if solved else 0.0
    high = betaincinv(solved + 1, n - solved, 1 - LEVEL / 2) if solved < n else 1.0
    return float(low), float(high)
