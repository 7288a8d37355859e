"""Student's t, shares of counts, and the errors of sums: the distributions behind every interval and test."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import betaincinv, stdtr, stdtrit

LEVEL = 0.05
"""Adjusted p-value up to which a difference is significant; 1 - confidence of every interval."""


def students_t(freedom: float) -> float:
    """How many standard errors the 95% interval of Student's t reaches to either side: 4.303 for 2."""
    return float(stdtrit(freedom, 1 - LEVEL / 2))


def binomial_interval(solved: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's 95% interval of a share of which ``solved`` of ``n`` are known.

    >>> [round(end, 3) for end in binomial_interval(3, 3)]
    [0.292, 1.0]
    """
    low = betaincinv(solved, n - solved + 1, LEVEL / 2) if solved else 0.0
    high = betaincinv(solved + 1, n - solved, 1 - LEVEL / 2) if solved < n else 1.0
    return float(low), float(high)


@functools.cache
def exact_p(solved: int, n: int, other_solved: int, other_n: int) -> float:
    """Boschloo's test of two counts of solved seeds, two-sided.

    >>> exact_p(3, 3, 0, 3), exact_p(2, 3, 2, 3)
    (0.03125, 1.0)
    """
    from scipy.stats import boschloo_exact  # half a second

    if solved * other_n == other_solved * n:
        return 1.0
    table = [[solved, other_solved], [n - solved, other_n - other_solved]]
    return round(float(boschloo_exact(table, alternative="two-sided").pvalue), 9)


def joined_error(errors: Iterable[float], freedoms: Iterable[float]) -> tuple[float, float]:
    """Standard error of a sum of independent means and its degrees of freedom (Satterthwaite 1946)."""
    variances = [error * error for error in errors]  # mostly two, for which an array takes ten times as long
    total = sum(variances)
    of_freedoms = sum(variance * variance / freedom for variance, freedom in zip(variances, freedoms))
    return math.sqrt(total), total * total / of_freedoms if of_freedoms else math.nan


@dataclass(frozen=True)
class ErrorOfSum:
    """The standard error of a sum of independent means.

    Its sides, what is added and what is subtracted, have each a share of the variance and degrees of freedom.
    """

    total: float
    shares: tuple[float, ...]
    freedoms: tuple[float, ...]

    @classmethod
    def of(cls, terms: Sequence[tuple[float, float, float]]) -> ErrorOfSum:
        """Of weight, standard error and degrees of freedom of each term."""
        joined = []
        for sign in (1, -1):
            if side := [(weight * error, freedom) for weight, error, freedom in terms if weight * sign > 0]:
                joined.append(joined_error(*zip(*side)))
        variances = [error * error for error, _ in joined]
        total = sum(variances)
        return cls(math.sqrt(total), tuple(each / total for each in variances), tuple(each[1] for each in joined))

    @functools.cached_property
    def half_width(self) -> float:
        """Half of the 95% interval of the sum."""
        return self.total * self._quantile(LEVEL / 2)

    def p(self, distance: float) -> float:
        """Two-sided, of a sum that is ``distance`` from what it is tested against.

        >>> error = ErrorOfSum.of([(1.0, 1.0, 4.0), (-1.0, 1.0, 4.0)])
        >>> round(error.p(2.776445 * math.sqrt(2)), 6)  # as t's with 4
        0.05
        """
        by_side = [2 * float(stdtr(freedom, -abs(distance) / self.total)) for freedom in self.freedoms]
        least, most = min(by_side), max(by_side)
        if least < most and least > 0:
            from scipy.optimize import brentq  # a tenth of a second

            def surplus(log_p: float) -> float:
                return self._quantile(math.exp(log_p) / 2) * self.total - abs(distance)

            low, high = math.log(least), math.log(most)
            if surplus(low) > 0 > surplus(high):  # else they agree to the last digits
                most = math.exp(brentq(surplus, low, high, xtol=1e-12))
        return round(most, 15) or most

    def _quantile(self, tail: float) -> float:
        """Of the upper ``tail``, in standard errors of the sum."""
        return sum(share * -float(stdtrit(freedom, tail)) for share, freedom in zip(self.shares, self.freedoms))
