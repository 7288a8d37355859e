"""The only place with an interval or a p-value: samples of seeds, differences of samples, adjusted p-values.

The unit is the seed. A sample is what the seeds of one label gave on one column; settings of a task share their seed's
initial weights and are averaged before. A difference depends on the labels that it is about and on nothing else that is
stored, so it is the same wherever it is shown, and stays the same when the store grows.

Where a noise model is known of a column (:mod:`madbench.analysis.noise_model`), and no run diverged:

- The variance of a mean is that of its seeds, with the variance that the model lends, by their number; and what seeds
  would add that fall elsewhere. Nothing depends on which side of a threshold a seed is.

Without one a task is an outcome first: a seed solves it (:attr:`Scale.solved`) or does not, and a diverged run counts
at chance. A sample is *level* where its seeds scatter about one value and not all solve the task. Otherwise all do, or
the seeds are far apart, or some diverge.

- Share of seeds that solve a task: Clopper-Pearson.
- Mean of a level sample of :data:`LEAST_FOR_LEVEL` seeds or more: Student's t. Fewer seeds do not show that a sample is
  level; of these and of samples that are not level, the mean is share * (mean of the solved seeds) + (1 - share) *
  (mean of the others), and the interval has each of the three at the ends of its own.
- Where no run diverged, an interval is of the mean of the runs that do not diverge: seeds that were not seen cannot be
  averaged. How many may diverge is a share of its own, Clopper-Pearson again. Where some did, it is of the mean of all.
- Two samples of which one is not level: Boschloo's exact test of the counts of solved seeds, one-sided and doubled. The
  interval joins those of the means (Zou and Donner 2008, "Construction of confidence limits about effect measures: a
  general approach", Statistics in Medicine 27) and holds 0 exactly where the test does not reject.
- Two level samples further apart than the seeds of one may be: t, and of the counts of seeds on either side of the
  middle Boschloo's test; the larger p. Seeds that agree do not show that the next ones do.

Differences and sums of level samples, of averages, and of all samples of a noise model: t by Cochran and Cox (1950,
"Experimental Designs", section 4.14): the quantile is the mean of those of what is added and of what is subtracted,
weighted by their variances. Welch's degrees of freedom, joined over both, are too many where one side has few seeds and
where tests share the level of a table.

- Averages, and what is added or subtracted where it is several samples: the sum of their variances, with
  Satterthwaite's degrees of freedom. The variance of a sample that is not level is at least the binomial one with one
  more success and one more failure, shared by the parts of an average.

Nothing is tested with fewer than :data:`LEAST_SEEDS` seeds, where no seed tells the labels from chance, or from the
heuristic of the noise model, or where all seeds of both solve it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincinv, stdtr, stdtrit

from madbench.analysis.noise_model import Noise

LEVEL = 0.05
"""Adjusted p-value up to which a difference is significant; 1 - confidence of every interval."""
LEAST_SEEDS = 3
"""Of each label, for a test or a mark."""
LEAST_FOR_LEVEL = 5
"""Seeds that have to agree to show that fewer than half of all seeds differ from them: 0.5**5 < LEVEL."""
UNLEARNED_SHARE = 0.05
"""A mean within this share of the way from chance, or a known heuristic, to the ceiling has not learned the task."""
BIMODAL_SHARE = 0.2
"""Seeds within this share of the way from chance to the ceiling are one level, on whichever side of the threshold."""

NEITHER_LEARNED, BOTH_SOLVE = "neither learned it", "both solve it"
"""Reasons why labels with enough seeds are not tested."""


@dataclass(frozen=True)
class Scale:
    """What the values of a column mean, of one label; NaN where a column has no such value."""

    chance: float = math.nan
    """Of a model that has learned nothing, and of a diverged run."""
    solved: float = math.nan
    """From which on a seed has solved the task."""
    ceiling: float = math.nan
    """The best that the data allow."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Beyond which no value can be."""
    resolution: float = 1e-6
    """Step in which values are counted."""
    is_counted: bool = False
    """Whether values are counts of steps, and ``chance`` the last step of a run that did not get there."""

    @property
    def width(self) -> float:
        """The way from chance to the ceiling."""
        return abs(self.ceiling - self.chance)

    @property
    def best(self) -> float:
        """The highest finite limit: 100 of an accuracy, 0 of a loss; the ceiling without one."""
        return max(filter(math.isfinite, self.limits), default=self.ceiling)


@dataclass(frozen=True)
class Sample:
    """What the seeds of one label gave on one column."""

    values: np.ndarray
    """One a seed (n,), in the column's units."""
    scale: Scale = Scale()
    diverged: np.ndarray | None = None
    """Which seeds (n,) have a diverged run; None for none."""
    parts: tuple[Sample, ...] = field(default=(), repr=False)
    """The samples of the columns that this is the average of."""
    noise: Noise | None = None
    """What is known of the column's noise; None for nothing."""

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.values)

    @functools.cached_property
    def mean(self) -> float:
        """NaN without a seed."""
        return float(self.values.mean()) if self.n else math.nan

    @functools.cached_property
    def spread(self) -> float:
        """Standard deviation over seeds (n - 1), at least the rounding error; NaN of a single seed."""
        if self.n < 2:
            return math.nan
        return max(float(self.values.std(ddof=1)), self.scale.resolution / math.sqrt(12))

    @property
    def has_outcomes(self) -> bool:
        """Whether seeds can fail: a task to solve, or a run that diverged."""
        return self.has_threshold or (self.has_diverged and not self.parts)

    @property
    def diverged_count(self) -> int:
        """Number of seeds with a diverged run."""
        return 0 if self.diverged is None else int(self.diverged.sum())

    @property
    def has_diverged(self) -> bool:
        """Whether a run of any seed diverged."""
        return self.diverged_count > 0

    @property
    def has_threshold(self) -> bool:
        """Whether there is a task to solve."""
        return not self.parts and not math.isnan(self.scale.solved)

    @property
    def solved(self) -> int:
        """Number of seeds that solve the task."""
        return int((self.values >= self.scale.solved).sum())

    @functools.cached_property
    def succeeds(self) -> np.ndarray:
        """Which seeds (n,) solve the task; where none does, or there is nothing to solve, which do not diverge."""
        if self.solved or not self.has_diverged:
            return self.values >= self.scale.solved
        return ~self.diverged

    @property
    def modes(self) -> tuple[np.ndarray, np.ndarray]:
        """The values of the seeds that succeed, and those of the others."""
        return self.values[self.succeeds], self.values[~self.succeeds]

    @functools.cached_property
    def is_level(self) -> bool:
        """Whether the seeds scatter about one value."""
        if not self.has_outcomes or self.has_noise:
            return True
        if self.has_diverged or self.solved == self.n:
            return False
        if not self.solved:  # two levels that far apart have this spread where half the seeds are on either
            return not self.spread > BIMODAL_SHARE * self.scale.width / 2
        return bool(np.ptp(self.values) <= BIMODAL_SHARE * self.scale.width)

    @property
    def has_noise(self) -> bool:
        """Whether a noise model lends to these seeds, or to those of every part."""
        if self.parts:
            return all(part.has_noise for part in self.parts)
        return self.noise is not None and not self.has_diverged

    @property
    def has_zero_spread(self) -> bool:
        """Whether all seeds agree to the resolution."""
        return self.n > 1 and bool(np.ptp(self.values) < self.scale.resolution)

    @property
    def has_learned(self) -> bool:
        """Whether the mean is off chance, on either side, or chance unknown; of a noise model, above the heuristic."""
        if self.parts and self.has_noise:
            return any(part.has_learned for part in self.parts)
        if self.noise:
            return self.mean > self.noise.heuristic + UNLEARNED_SHARE * (self.noise.ceiling - self.noise.heuristic)
        share = abs(self.mean - self.scale.chance) / self.scale.width
        return not share <= UNLEARNED_SHARE

    @functools.cached_property
    def half_width(self) -> float:
        """Half of the t interval of the mean; NaN where the mean has no such interval."""
        if self.has_noise:
            return self._students_half if self.n > 1 else math.nan
        least = LEAST_SEEDS if self.parts else LEAST_FOR_LEVEL if self.has_outcomes else 2
        if self.n < least or not self.is_level or (self.has_zero_spread and not self.parts):
            return math.nan
        return self._students_half

    @functools.cached_property
    def _students_half(self) -> float:
        error, freedom = self.error()
        return students_t(freedom) * error

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """Of the mean, within the limits of the column; NaN, NaN where there is none."""
        return self.bounds if not self.is_level or not math.isnan(self.half_width) else (math.nan, math.nan)

    @functools.cached_property
    def bounds(self) -> tuple[float, float]:
        """The interval of the mean; of a level sample without one, as if other seeds might solve the task.

        Of seeds that agree and cannot fail it is that of the rounding error; NaN, NaN of fewer than two seeds.
        """
        if self.n < 2:
            return math.nan, math.nan
        if not self.has_outcomes or not math.isnan(self.half_width):
            ends = [self.mean - self._students_half, self.mean + self._students_half]
        else:
            shares = binomial_interval(int(self.succeeds.sum()), self.n)
            between = self.scale.chance if self.has_diverged and not self.solved else self.scale.solved
            bounds = (between, self.scale.best), (self.scale.chance, between)
            of_modes = [_mean_interval(mode, *bound) for mode, bound in zip(self.modes, bounds)]
            ends = [share * a + (1 - share) * b for share in shares for a, b in zip(*of_modes)]
        low, high = np.clip([min(ends), max(ends)], *self.scale.limits).tolist()
        return low, high

    def error(self, sharing: int = 1) -> tuple[float, float]:
        """Standard error of the mean of two or more seeds, and its degrees of freedom.

        ``sharing`` parts of an average share one more success and one more failure.
        """
        if self.parts:
            errors, freedoms = zip(*(part.error(len(self.parts)) for part in self.parts))
            error, freedom = _joined(np.array(errors) / len(errors), freedoms)
            own = self.spread / math.sqrt(self.n)
            return (error, freedom) if error >= own else (own, self.n - 1)
        if self.has_noise:
            variance, freedom = self.noise.lend(self.spread**2, self.mean, self.n)
            unseen = self.noise.unseen_variance(self.n), self.noise.lent + self.n - 1
            errors, freedoms = zip((variance / self.n, freedom), unseen)
            return _joined(np.sqrt(errors), freedoms)
        error = self.spread / math.sqrt(self.n)
        if not self.is_level:
            successes, others = self.modes
            share = (len(successes) + 1 / sharing) / (self.n + 2 / sharing)
            best = successes.mean() if len(successes) else self.scale.ceiling
            rest = others.mean() if len(others) else self.scale.chance
            error = max(error, abs(best - rest) * math.sqrt(share * (1 - share) / self.n))
        return float(error), self.n - 1


def noises(samples: Iterable[Sample]) -> list[Noise | None]:
    """What is known of the noise of samples, averages by their parts."""
    parts = [part for sample in samples for part in (sample.parts or (sample,))]
    return [part.noise if part.has_noise else None for part in parts]


def _mean_interval(values: np.ndarray, one_end: float, other_end: float) -> tuple[float, float]:
    """Student's interval of the mean, from low to high and within two bounds, or the values that are beyond them.

    The bounds of fewer than two values.
    """
    ends = [one_end, other_end, *values]
    low, high = min(ends), max(ends)
    if len(values) < 2:
        return low, high
    mean, half = values.mean(), students_t(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(max(low, mean - half)), float(min(high, mean + half))


def _joined(errors: Sequence[float] | np.ndarray, freedoms: Iterable[float]) -> tuple[float, float]:
    """Standard error of a sum of independent means and its degrees of freedom (Satterthwaite 1946)."""
    variances = np.square(errors)
    total = variances.sum()
    return math.sqrt(total), float(total**2 / (variances**2 / np.array([*freedoms])).sum())


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
    """``t`` or ``exact``; empty where nothing is tested."""
    reason: str = ""
    """Why nothing is tested."""


def difference(first: Sample, second: Sample, line: float = 0.0) -> Difference:
    """The mean of ``first`` less that of ``second``, tested against ``line``."""
    return combination([(1.0, first), (-1.0, second)], line)


def combination(terms: Sequence[tuple[float, Sample]], line: float = 0.0, tests_solved: bool = False) -> Difference:
    """The sum of weight * mean over ``terms``, samples of different labels on one column, tested against ``line``.

    ``tests_solved`` tests it also where all seeds solve the task, of which no gain can be shown.
    """
    samples = [sample for _, sample in terms]
    n = min(sample.n for sample in samples)
    estimate = round(sum(weight * sample.mean for weight, sample in terms), 9)  # equal numbers differ by nothing
    reason = _why_untested(samples, tests_solved)
    if n < 2:
        return Difference(estimate, math.nan, math.nan, math.nan, n, reason=reason)
    is_pair = [weight for weight, _ in terms] == [1.0, -1.0]
    is_exact = is_pair and not all(sample.is_level for sample in samples)
    sum_of = ErrorOfSum.of([(weight, *sample.error()) for weight, sample in terms])
    if is_exact and not line:
        p, test = math.nan if reason else _exact_p(samples[0], samples[1], estimate), "exact"
    else:
        p, test = math.nan if reason else sum_of.p(estimate - line), "t"
        if is_pair and not reason:
            p = max(p, _sides_p(samples[0], samples[1], line))
    if is_exact:
        low, high = _joined_interval(samples[0], samples[1], estimate)
    else:
        limits = samples[0].scale.limits
        reach = (limits[1] - limits[0]) * sum(weight for weight, _ in terms if weight > 0)
        low, high = max(estimate - sum_of.half_width, -reach), min(estimate + sum_of.half_width, reach)
        if is_pair and _sides_p(samples[0], samples[1]) > LEVEL:
            low, high = min(low, 0.0), max(high, 0.0)
    return Difference(estimate, low, high, p, n, "" if reason else test, reason)


@dataclass(frozen=True)
class ErrorOfSum:
    """The standard error of a sum of independent means.

    Its sides (k,), what is added and what is subtracted, have each a share of the variance and degrees of freedom.
    """

    total: float
    shares: np.ndarray
    freedoms: np.ndarray

    @classmethod
    def of(cls, terms: Sequence[tuple[float, float, float]]) -> ErrorOfSum:
        """Of weight, standard error and degrees of freedom of each term."""
        weights, errors, freedoms = np.array(terms, dtype=float).T
        sides = [side for side in (weights > 0, weights < 0) if side.any()]
        joined = np.array([_joined(weights[side] * errors[side], freedoms[side]) for side in sides])
        variances = np.square(joined[:, 0])
        return cls(math.sqrt(variances.sum()), variances / variances.sum(), joined[:, 1])

    @property
    def half_width(self) -> float:
        """Half of the 95% interval of the sum."""
        return self.total * self._quantile(LEVEL / 2)

    def p(self, distance: float) -> float:
        """Two-sided, of a sum that is ``distance`` from what it is tested against.

        >>> error = ErrorOfSum.of([(1.0, 1.0, 4.0), (-1.0, 1.0, 4.0)])
        >>> round(error.p(2.776445 * math.sqrt(2)), 6)  # as t's with 4
        0.05
        """
        least, most = np.sort(2 * stdtr(self.freedoms, -abs(distance) / self.total))[[0, -1]].tolist()
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
        return float((self.shares * -stdtrit(self.freedoms, tail)).sum())


def _why_untested(samples: Sequence[Sample], tests_solved: bool) -> str:
    """Why samples are not tested; empty where they are."""
    n = min(sample.n for sample in samples)
    if n < LEAST_SEEDS:
        return {0: "no seed", 1: "single seed", 2: "two seeds"}.get(n, f"{n} seeds")
    if not any(sample.has_learned for sample in samples):
        return NEITHER_LEARNED
    if not tests_solved and all(sample.has_outcomes and sample.solved == sample.n for sample in samples):
        return BOTH_SOLVE
    if all(sample.has_zero_spread and sample.is_level and not sample.has_noise for sample in samples):
        return "zero variance"
    return ""


def _exact_p(first: Sample, second: Sample, estimate: float) -> float:
    """Of the counts of both; 1 where the label with the better mean has the smaller share of successes.

    Successes are seeds that solve the task; where none of either does, those that do not diverge.
    """
    has_solved = first.solved or second.solved
    successes, others = (
        sample.solved if has_solved else sample.n - sample.diverged_count for sample in (first, second)
    )
    is_first_better = (estimate > 0) == (first.scale.best > first.scale.chance)
    is_first_more = successes * second.n > others * first.n
    return exact_p(successes, first.n, others, second.n) if estimate and is_first_better == is_first_more else 1.0


def _sides_p(first: Sample, second: Sample, line: float = 0.0) -> float:
    """Of the counts of seeds on either side of the middle between two level samples that are further apart than one is.

    0 where they are not, where seeds cannot fail, and where a noise model says how often they fall elsewhere.
    """
    gap = first.mean - line - second.mean
    are_outcomes = all(sample.has_outcomes and not sample.has_noise for sample in (first, second))
    if not are_outcomes or not abs(gap) > BIMODAL_SHARE * first.scale.width:
        return 0.0
    middle, side = second.mean + gap / 2, math.copysign(1.0, gap)
    beyond, others = (int((side * (values - middle) > 0).sum()) for values in (first.values - line, second.values))
    return exact_p(beyond, first.n, others, second.n)


def _joined_interval(first: Sample, second: Sample, estimate: float) -> tuple[float, float]:
    """Of the difference of two means, from their own intervals (Zou and Donner 2008), and within the column's limits.

    It ends a rounding error short of 0 where the exact test rejects it, and holds 0 elsewhere.
    """
    (low, high), (other_low, other_high) = first.bounds, second.bounds
    span = first.scale.limits[1] - first.scale.limits[0]
    low = max(estimate - math.hypot(first.mean - low, other_high - second.mean), -span)
    high = min(estimate + math.hypot(high - first.mean, second.mean - other_low), span)
    if _exact_p(first, second, estimate) > LEVEL:
        return min(low, 0.0), max(high, 0.0)
    least = min(abs(estimate), first.scale.resolution)
    return (max(low, least), high) if estimate > 0 else (low, min(high, -least))


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


def students_t(freedom: float) -> float:
    """How many standard errors the 95% interval of Student's t reaches to either side: 4.303 for 2."""
    return float(stdtrit(freedom, 1 - LEVEL / 2))


def holm(p_values: Sequence[float], share: float = 1.0) -> list[float]:
    """Holm's adjustment of the p-values of one family (Holm 1979); NaN stays NaN and does not count.

    The i-th smallest of m, from 0, is multiplied by m - i; none is adjusted to less than a smaller one, or to over 1.
    ``share`` of the error of a table is this family's; its p-values are divided by it.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = np.array(p_values, dtype=float)
    order = np.argsort(adjusted)[: np.count_nonzero(~np.isnan(adjusted))]  # NaN sorts last
    multiplied = adjusted[order] * np.arange(len(order), 0, -1) / share
    adjusted[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return adjusted.tolist()


def may_be_best(samples: Mapping[str, Sample], is_higher_better: bool, columns: int = 1) -> list[str]:
    """The keys that the seeds do not rule out as the best, from the best mean on.

    A key is ruled out where another is better by a one-sided test at :data:`LEVEL` / (k - 1) for k keys, which rules
    out the truly best one with a probability of at most :data:`LEVEL` (Bonferroni over its k - 1 rivals; after Hsu's
    "multiple comparisons with the best"). The level is shared by the ``columns`` of a table.
    """
    ranked = sorted(samples, key=lambda key: samples[key].mean, reverse=is_higher_better)
    level = LEVEL / columns / max(1, len(ranked) - 1)

    def is_worse(key: str, rival: str) -> bool:
        gain = difference(samples[rival], samples[key])
        return gain.estimate != 0 and gain.p / 2 <= level

    return [key for i, key in enumerate(ranked) if not any(is_worse(key, better) for better in ranked[:i])]
