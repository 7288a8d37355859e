"""Samples: the values of the seeds of one label in one column, with their mean and its interval."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from madbench.analysis.inference.variance import VISIBLE_SHARE, Terms, terms_of_mean
from madbench.suites.planning import LEAST_SEEDS

UNLEARNED_SHARE = 0.05
"""A label has learned a task if its mean exceeds the heuristic by more than this share of the way to the ceiling.

If the heuristic is unknown, chance replaces it."""
SETTLING_SEEDS = 5
"""The number of seeds with which false verdicts are rare even for labels that split.

A label splits if it solves a task in some seeds and not in others. ``studies/calibration.py`` measures the rates."""


@dataclass(frozen=True)
class Scale:
    """The reference values of a column for one label, in the units of the column. NaN if there is no such value."""

    chance: float = math.nan
    """The value of a model that has learned nothing, and of a diverged run."""
    solved: float = math.nan
    """The smallest value of a seed that has solved the task."""
    ceiling: float = math.nan
    """The best value that the data allow."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """The lowest and the highest possible value."""
    resolution: float = 1e-6
    """The step between possible values."""
    is_counted: bool = False
    """True if values count the steps until an event. Then ``chance`` is the last step of a run without the event."""
    heuristic: float = math.nan
    """The value of the best answer that ignores the context."""

    @property
    def width(self) -> float:
        """The range of possible values, from chance if the lower limit is infinite. NaN if the upper limit is infinite.

        The upper limit of losses and counts is infinite.
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
        """The standard deviation over seeds, with denominator n - 1. NaN for a single seed."""
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
        """True if the value from which on a seed has solved the task is known. False for an average."""
        return not self.parts and not math.isnan(self.scale.solved)

    @functools.cached_property
    def solved(self) -> int:
        """Number of seeds that solve the task."""
        return int((self.values >= self.scale.solved).sum())

    @property
    def finite_values(self) -> np.ndarray:
        """The values of the seeds whose runs did not diverge."""
        return self.values if self.diverged is None else self.values[~self.diverged]

    @property
    def headroom(self) -> float:
        """The distance from the score of the heuristic to the upper limit of the column.

        For an average: the mean of this distance over its tasks. NaN if the heuristic is unknown.
        """
        if self.parts:
            return float(np.mean([part.headroom for part in self.parts]))
        return self.scale.limits[1] - self.scale.heuristic

    @functools.cached_property
    def splits(self) -> bool:
        """True if seeds differ so much (by :data:`VISIBLE_SHARE` of the range) that maybe only some solve the task.

        Always False for an average.
        """
        is_apart = self.n > 1 and np.ptp(self.values) > VISIBLE_SHARE * self.scale.width
        return bool(is_apart) and not self.parts

    @functools.cached_property
    def has_learned(self) -> bool:
        """True if the label has learned the task: its mean exceeds the heuristic by :data:`UNLEARNED_SHARE`.

        If the heuristic is unknown, the mean has to differ from chance by this share. True if both are unknown. For an
        average: True if the label has learned any of its tasks.
        """
        if self.parts:
            return any(part.has_learned for part in self.parts)
        if not math.isnan(self.scale.heuristic):
            headroom = self.scale.ceiling - self.scale.heuristic
            return self.mean > self.scale.heuristic + UNLEARNED_SHARE * headroom
        share = abs(self.mean - self.scale.chance) / abs(self.scale.ceiling - self.scale.chance)
        return not share <= UNLEARNED_SHARE

    @functools.cached_property
    def terms(self) -> Terms:
        """The terms of the variance of :attr:`mean`. It needs two or more seeds.

        For an average they are the terms of its tasks, divided by the squared number of tasks, as if tasks were
        independent. If the averages of the seeds have a larger variance than this, that variance is used.
        """
        if not self.parts:
            return terms_of_mean(self.values, self.scale.width, self.scale.resolution)
        terms = Terms.sum_of([part.terms.times(1 / len(self.parts)) for part in self.parts])
        own_variance = self.values.var(ddof=1) / self.n
        return terms if terms.variance >= own_variance else Terms(np.array([own_variance]), np.array([self.n - 1.0]))

    @functools.cached_property
    def half_width(self) -> float:
        """The half-width of the 95% interval of the mean, at most :attr:`Scale.width`. NaN for a single seed."""
        return float(np.fmin(self.terms.half_width, self.scale.width)) if self.n > 1 else math.nan

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean, cut at the limits of the column. Both ends are NaN for a single seed."""
        if self.n < 2:
            return math.nan, math.nan
        low, high = np.clip([self.mean - self.half_width, self.mean + self.half_width], *self.scale.limits).tolist()
        return low, high


__all__ = ["LEAST_SEEDS", "SETTLING_SEEDS", "UNLEARNED_SHARE", "Sample", "Scale"]
