"""Samples: what the seeds of one label gave on one column, with its mean, interval and error."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from madbench.analysis.inference.distributions import binomial_interval, joined_error, students_t
from madbench.analysis.noise_model import Noise, unseen_variance
from madbench.jobs import LEAST_SEEDS

LEAST_FOR_LEVEL = 5
"""Seeds that have to agree to show that fewer than half of all seeds differ from them: 0.5**5 < LEVEL."""
UNLEARNED_SHARE = 0.05
"""A mean within this share of the way from the heuristic, or else chance, to the ceiling has not learned the task."""
WIDE_SURPRISES, WIDE_JUMP = 1.0, 0.5
"""Of a column without a noise model: seeds beforehand that fell elsewhere, and by which share of the way to an end.

As noise models count them, where columns have 0.05 to 0.34 (one has 1.3) and jumps of up to 0.27 of the way.
"""
BIMODAL_SHARE = 0.2
"""Seeds within this share of the way from chance to the ceiling are one level, on whichever side of the threshold."""
APART_SHARE = 0.19
"""Samples whose means are further apart may be on two levels; less than a level, as a distance has an error."""


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
    heuristic: float = math.nan
    """Of the best answer without context."""

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

    @property
    def deviation(self) -> float:
        """Standard deviation over seeds (n - 1), as it is; NaN of a single seed."""
        return float(self.values.std(ddof=1)) if self.n > 1 else math.nan

    @functools.cached_property
    def spread(self) -> float:
        """Standard deviation over seeds (n - 1), at least the rounding error; NaN of a single seed."""
        return max(self.deviation, self.scale.resolution / math.sqrt(12)) if self.n > 1 else math.nan

    @functools.cached_property
    def has_outcomes(self) -> bool:
        """Whether seeds can fail: a task to solve, or a run that diverged."""
        return self.has_threshold or (self.has_diverged and not self.parts)

    @property
    def diverged_count(self) -> int:
        """Number of seeds with a diverged run."""
        return 0 if self.diverged is None else int(self.diverged.sum())

    @functools.cached_property
    def has_diverged(self) -> bool:
        """Whether a run of any seed diverged."""
        return self.diverged_count > 0

    @property
    def has_threshold(self) -> bool:
        """Whether there is a task to solve."""
        return not self.parts and not math.isnan(self.scale.solved)

    @functools.cached_property
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

    @functools.cached_property
    def has_noise(self) -> bool:
        """Whether a noise model lends to these seeds, or to those of every part."""
        if self.parts:
            return all(part.has_noise for part in self.parts)
        return self.noise is not None and not self.has_diverged

    @property
    def way(self) -> float:
        """From the heuristic to the ceiling, where a noise model says both; NaN elsewhere."""
        if self.parts:
            return float(np.mean([part.way for part in self.parts]))
        return self.noise.ceiling - self.noise.heuristic if self.noise else math.nan

    @property
    def reach(self) -> float:
        """How far apart the means of two groups of a label's seeds may be, by a noise model; 0 without one."""
        if self.parts:  # their seeds fall elsewhere each by itself
            return math.hypot(*(part.reach for part in self.parts)) / len(self.parts)
        return self.noise.reach if self.has_noise else 0.0

    @functools.cached_property
    def has_zero_spread(self) -> bool:
        """Whether all seeds agree to the resolution."""
        return self.n > 1 and bool(np.ptp(self.values) < self.scale.resolution)

    @functools.cached_property
    def has_learned(self) -> bool:
        """Whether the mean is above the heuristic; where that is not known off chance, on either side, or that unknown.

        Of an average, whether any part is.
        """
        if self.parts:
            return any(part.has_learned for part in self.parts)
        heuristic = self.scale.heuristic
        if math.isnan(heuristic) and self.noise:
            heuristic = self.noise.heuristic
        if not math.isnan(heuristic):
            return self.mean > heuristic + UNLEARNED_SHARE * (self.scale.ceiling - heuristic)
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
        if self.has_outcomes and self.is_level and not self.has_noise:  # other seeds may fall elsewhere
            jump = WIDE_JUMP * max(abs(self.scale.best - self.mean), abs(self.mean - self.scale.chance))
            unseen = math.sqrt(unseen_variance(self.n, WIDE_SURPRISES, jump))
            error, freedom = joined_error([error, unseen], [freedom, self.n - 1])
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

    def error(self, sharing: int = 1, has_unseen: bool = False) -> tuple[float, float]:
        """Standard error of the mean of two or more seeds, and its degrees of freedom.

        ``sharing`` parts of an average share one more success and one more failure. ``has_unseen`` counts with them
        where seeds are level too, and no noise model says how often one falls elsewhere.
        """
        if (sharing, has_unseen) not in self._errors:  # a table asks for it once a pair of labels
            self._errors[sharing, has_unseen] = self._error(sharing, has_unseen)
        return self._errors[sharing, has_unseen]

    @functools.cached_property
    def _errors(self) -> dict[tuple[int, bool], tuple[float, float]]:
        return {}

    def _error(self, sharing: int, has_unseen: bool) -> tuple[float, float]:
        if self.parts:
            errors, freedoms = zip(*(part.error(len(self.parts), has_unseen) for part in self.parts))
            error, freedom = joined_error([error / len(errors) for error in errors], freedoms)
            own = self.spread / math.sqrt(self.n)
            return (error, freedom) if error >= own else (own, self.n - 1)
        if self.has_noise:
            variance, freedom = self.noise.lend(self.spread**2, self.mean, self.n)
            unseen = self.noise.unseen_variance(self.n), self.noise.lent + self.n - 1
            errors, freedoms = zip((variance / self.n, freedom), unseen)
            return joined_error(map(math.sqrt, errors), freedoms)
        error = self.spread / math.sqrt(self.n)
        if has_unseen and self.has_outcomes and self.is_level:
            share = (self.n + 1 / sharing) / (self.n + 2 / sharing)
            distance = max(abs(self.scale.best - self.mean), abs(self.mean - self.scale.chance))
            error = max(error, distance * math.sqrt(share * (1 - share) / self.n))
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
