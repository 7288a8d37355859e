"""What the seeds allow to be said of several labels: which may be the best, which differ beyond the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from madbench.analysis.statistics import LEVEL, students_t


@dataclass(frozen=True)
class Sample:
    """The values of a label over its seeds."""

    mean: float
    """NaN where there is none, or where a seed diverged."""
    spread: float
    """Standard deviation over seeds (n - 1); NaN for a single seed."""
    n: int
    """Seeds of which a job has a result."""


def pooled_spread(samples: Sequence[Sample]) -> tuple[float, int]:
    """The standard deviation that ``samples`` have in common, and its degrees of freedom; NaN and 0 without any."""
    freedom = sum(sample.n - 1 for sample in samples)
    if freedom == 0:
        return math.nan, 0
    return math.sqrt(sum((s.n - 1) * s.spread**2 for s in samples if s.n > 1) / freedom), freedom


def may_be_best(
    samples: Mapping[str, Sample],
    is_higher_better: bool,
    resolution: float,
    pooled: tuple[float, int] | None = None,
) -> list[str]:
    """The keys that the seeds do not rule out as the best, from the best mean on; each sample has two values or more.

    A key is ruled out where another is better beyond the noise: one-sided t at the level ``LEVEL`` / (k - 1) for k
    keys. The truly best one is then ruled out with a probability of at most ``LEVEL``, however many keys there are
    (Bonferroni over its k - 1 rivals; after Hsu's "multiple comparisons with the best"). A t test with every pair at
    the 5% level would lose it more often: of eight equal labels with three seeds, in 18% of the columns.

    Args:
        samples: what is compared.
        is_higher_better: whether the best mean is the highest.
        resolution: step in which the values are counted or printed, above 0. Its rounding error is noise as well, so
            that seeds that happen to agree do not make a difference infinitely sure.
        pooled: spread and degrees of freedom of the noise that all keys have in common, for Student's t. Without it
            Welch's, each key with noise of its own. What a seed does to all keys alike is not taken out, which errs on
            the safe side.
    """
    ranked = sorted(samples, key=lambda key: samples[key].mean, reverse=is_higher_better)
    level = LEVEL / max(1, len(ranked) - 1)

    def is_worse(one: Sample, rival: Sample) -> bool:
        spreads = (one.spread, rival.spread) if pooled is None else (pooled[0], pooled[0])
        errors = [(s**2 + resolution**2 / 12) / sample.n for s, sample in zip(spreads, (one, rival))]
        if pooled is None:
            freedom = sum(errors) ** 2 / sum(e**2 / (sample.n - 1) for e, sample in zip(errors, (one, rival)))
        else:
            freedom = pooled[1]
        return stdtr(freedom, -abs(rival.mean - one.mean) / math.sqrt(sum(errors))) <= level

    return [key for i, key in enumerate(ranked) if not any(is_worse(samples[key], samples[b]) for b in ranked[:i])]


def least_difference(values: Mapping[str, Sequence[float]]) -> float | None:
    """The difference of two means beyond which they differ at the 95% level, for any one pair of ``values``' keys.

    Student's t with the standard deviation pooled over all keys: t s sqrt(2 / n), n the fewest values of a key.
    ``None`` where no key has two values.
    """
    spreads = {key: statistics.stdev(xs) if len(xs) > 1 else math.nan for key, xs in values.items()}
    spread, freedom = pooled_spread([Sample(statistics.mean(xs), spreads[key], len(xs)) for key, xs in values.items()])
    if freedom == 0:
        return None
    return students_t(freedom) * spread * math.sqrt(2 / min(map(len, values.values())))


def within_noise(means: Mapping[str, float], difference: float) -> list[list[str]]:
    """The largest sets of two or more keys whose means are all within ``difference``, each from low to high.

    >>> within_noise({"S": 3.1, "R": 3.0, "G": 2.96, "R-c": 3.5}, 0.12)
    [['G', 'R'], ['R', 'S']]
    """
    ordered = sorted(means, key=means.__getitem__)
    sets: list[list[str]] = []
    for i, lowest in enumerate(ordered):
        within = [key for key in ordered[i:] if means[key] - means[lowest] <= difference]
        if len(within) > 1 and not (sets and within[-1] in sets[-1]):
            sets.append(within)
    return sets
