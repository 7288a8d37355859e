"""The variance of a mean of few seeds. It is increased, because few seeds often show less than the true variation.

Two facts about seeds are used in every variance. They are the same for every profile, suite and column.

1. Few seeds often show less than the true spread. So the variance is the larger of the sample variance v and the
   moderated variance (d0 s0^2 + (n - 1) v) / (d0 + n - 1) of Smyth (2004), "Linear models and empirical
   Bayes methods for assessing differential expression in microarray experiments", Statistical Applications in Genetics
   and Molecular Biology 3. In contrast to Smyth, a variance is never decreased. It has n - 1 + d0 min(1, s0^2 / v)
   degrees of freedom: the prior adds almost none if the spread of the seeds is far larger than s0.
2. A label may split: it solves a task in some seeds and not in others, so its seeds have one of two values, which
   differ by a gap. If the seeds of a sample are close together, all may happen to have the same one of these values. If
   the share of solving seeds is uniformly distributed, n seeds show only one value with probability 2 / (n + 1). Then
   the expected squared distance between their mean and the true mean is 2 gap^2 / ((n + 2) (n + 3)). This square, times
   the posterior probability that the label splits, is added to the variance with :data:`SPLIT_FREEDOM` degrees of
   freedom.

The constants were rounded from the 33 labels of ``results/measured/evening.tar.xz``, three seeds each.
``studies/calibration.py`` measures the test on other seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, stdtr, stdtrit

TEST, VERSION = "moderated t", 1
"""Name and version of the test. A registration contains both."""
LEVEL = 0.05
"""A difference is significant if its adjusted p-value is at most this. Intervals have the confidence 1 - LEVEL."""
PRIOR_FREEDOM = 2.0
"""d0: the degrees of freedom of the prior variance."""
SPREAD_SHARE, LOSS_SPREAD_SHARE = 0.02, 0.01
"""s0, the prior standard deviation: ``SPREAD_SHARE`` times the range of a column, such as 2 points of accuracy.

In a column without a finite range, such as a loss: ``LOSS_SPREAD_SHARE`` times the mean."""
SPLIT_SHARE = 0.15
"""The prior probability that a label splits in a column."""
GAP_SHARE = 0.35
"""The gap between the two values of a label that splits, as a share of the range of the column."""
VISIBLE_SHARE = 0.25
"""If seeds of a label differ by more than this share of the range of the column, they may have both values of a split.

Then their variance shows the split, and nothing is added for it."""
SPLIT_FREEDOM = 4.0


@dataclass(frozen=True)
class Terms:
    """The variance of a mean or a sum of means, as a sum of independent terms with degrees of freedom.

    ``variances`` and ``freedoms`` are arrays (..., terms).
    """

    variances: np.ndarray
    freedoms: np.ndarray

    def times(self, weight: float) -> Terms:
        """The terms of the variance of ``weight`` times the mean."""
        return Terms(self.variances * weight**2, self.freedoms)

    @classmethod
    def sum_of(cls, terms: list[Terms]) -> Terms:
        """The terms of the variance of a sum of independent means, whose variances have the given ``terms``."""
        variances = np.concatenate([part.variances for part in terms], axis=-1)
        return cls(variances, np.concatenate([part.freedoms for part in terms], axis=-1))

    @property
    def variance(self) -> np.ndarray:
        """The variance: the sum of the terms. It is an array (...), without the axis of terms."""
        return self.variances.sum(axis=-1)

    @property
    def freedom(self) -> np.ndarray:
        """Satterthwaite's approximate degrees of freedom of the variance, as an array (...)."""
        return self.variance**2 / (self.variances**2 / self.freedoms).sum(axis=-1)

    def p(self, distance: np.ndarray | float) -> np.ndarray:
        """The two-sided p-values, (...), of estimates with this variance at ``distance`` from the tested value."""
        return 2 * stdtr(self.freedom, -np.abs(distance) / np.sqrt(self.variance))

    @property
    def half_width(self) -> np.ndarray:
        """The half-width, an array (...), of the 95% interval of an estimate with this variance."""
        return stdtrit(self.freedom, 1 - LEVEL / 2) * np.sqrt(self.variance)


def terms_of_mean(values: np.ndarray, width: float, resolution: float = 1e-6) -> Terms:
    """The terms of the variance of the mean of n seeds, for n of 2 or more.

    Args:
        values: the values of the seeds, an array (..., n).
        width: the range of the column, such as 100 points of accuracy. NaN for a loss or a count.
        resolution: the step between possible values. The variance is at least that of the rounding error.
    """
    n = values.shape[-1]
    own_variance = np.maximum(values.var(axis=-1, ddof=1), resolution**2 / 12)
    has_width = not np.isnan(width)
    prior = SPREAD_SHARE * width if has_width else LOSS_SPREAD_SHARE * np.abs(values.mean(axis=-1))
    return _terms(own_variance, np.square(prior), n, np.ptp(values, axis=-1), width if has_width else 0.0)


def planned_terms(variance: float, mean: float, n: int, width: float, splits: bool = False) -> Terms:
    """The terms of the variance of a mean of ``n`` future seeds, if their sample variance and mean are as given.

    ``width`` is the range of the column, as in :func:`terms_of_mean`. ``splits`` is True if the given ``variance``
    already shows that the label splits (see the module). Then no term is added for a split that seeds do not show.
    """
    has_width = not np.isnan(width)
    prior = SPREAD_SHARE * width if has_width else LOSS_SPREAD_SHARE * abs(mean)
    span = np.full(1, np.inf if splits else 0.0)
    return _terms(np.full(1, variance), np.square(prior), n, span, width if has_width else 0.0)


def _terms(own_variance: np.ndarray, prior: np.ndarray, n: int, span: np.ndarray, width: float) -> Terms:
    own_variance = np.maximum(own_variance, 1e-300)
    moderated_variance = (PRIOR_FREEDOM * prior + (n - 1) * own_variance) / (PRIOR_FREEDOM + n - 1)
    variances, freedoms = (
        [np.maximum(own_variance, moderated_variance) / n],
        [n - 1 + PRIOR_FREEDOM * np.minimum(1, prior / own_variance)],
    )
    if width:
        one_side = SPLIT_SHARE * 2 / (n + 1)
        added_variance = one_side / (one_side + 1 - SPLIT_SHARE) * 2 * (GAP_SHARE * width) ** 2 / ((n + 2) * (n + 3))
        variances.append(np.where(span <= VISIBLE_SHARE * width, added_variance, 0.0))
        freedoms.append(np.full_like(freedoms[0], SPLIT_FREEDOM))
    return Terms(np.stack(variances, axis=-1), np.stack(freedoms, axis=-1))


def binomial_interval(solved: int, n: int) -> tuple[float, float]:
    """The 95% interval (Clopper and Pearson 1934) of a probability, if ``solved`` of ``n`` seeds are successes.

    >>> [round(end, 3) for end in binomial_interval(3, 3)]
    [0.292, 1.0]
    """
    low = betaincinv(solved, n - solved + 1, LEVEL / 2) if solved else 0.0
    high = betaincinv(solved + 1, n - solved, 1 - LEVEL / 2) if solved < n else 1.0
    return float(low), float(high)
