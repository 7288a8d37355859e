"""Many comparisons at once: p-values adjusted for their number, ranks, and the labels that may be the best."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from madbench.analysis.inference.counts import reach_p
from madbench.analysis.inference.differences import difference
from madbench.analysis.inference.distributions import LEVEL
from madbench.analysis.inference.sample import Sample


def holm(p_values: Sequence[float], share: float = 1.0, groups: Sequence[Hashable] | None = None) -> list[float]:
    """Holm's adjustment of the p-values of one family (Holm 1979); NaN stays NaN and does not count.

    The i-th smallest of m, from 0, is multiplied by m - i; none is adjusted to less than a smaller one, or to over 1.
    ``share`` of the error of a table is this family's; its p-values are divided by it. Of hypotheses of one of the
    ``groups`` at most one is true, so each is multiplied by the number of groups of which one is not rejected yet
    (Shaffer 1986, "Modified sequentially rejective multiple test procedures").

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, 0.04, 0.03], groups=["a", "a", "b"])
    [0.02, 0.06, 0.06]
    """
    adjusted = np.array(p_values, dtype=float)
    order = np.argsort(adjusted)[: np.count_nonzero(~np.isnan(adjusted))]  # NaN sorts last
    names = range(len(adjusted)) if groups is None else groups
    left = Counter(names[i] for i in order)
    factors = []
    for i in order:
        factors.append(len(left))
        left -= Counter([names[i]])
    multiplied = adjusted[order] * np.array(factors) / share
    adjusted[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return adjusted.tolist()


@dataclass(frozen=True)
class Rank:
    """The place of a label in a column, 1 for the best mean, and the places that its seeds do not rule out."""

    place: int
    low: int
    high: int

    @property
    def text(self) -> str:
        """``3 [1,7]``"""
        return f"{self.place} [{self.low},{self.high}]"


def ranks(samples: Mapping[str, Sample], is_higher_better: bool) -> dict[str, Rank]:
    """The rank of every key with its 95% interval, which holds for all keys at once.

    Below a key are those that are significantly worse, above it those that are better, of all pairs by Holm's method;
    its interval is the places that are left (Al Mohamad, Goeman and van Zwet 2022, "Simultaneous confidence intervals
    for ranks", Biometrics 78). Keys that are equally good may have any place among them. Equal means, to the step in
    which the column is counted, share a place.

    Among many labels there may be one whose few seeds all landed together, far from its mean, and p-values as small as
    those of so many pairs are not calibrated for it. So pairs that are no further apart than one label's seeds may be
    are ordered only if the counts of their seeds show it as well.
    """
    keys = sorted(samples, key=lambda key: samples[key].mean, reverse=is_higher_better)
    pairs = [*itertools.combinations(keys, 2)]
    p_values = [_order_p(samples[better], samples[worse]) for better, worse in pairs]
    above, below = dict.fromkeys(keys, 0), dict.fromkeys(keys, 0)
    for (better, worse), p in zip(pairs, holm(p_values)):
        if p <= LEVEL:
            below[better] += 1
            above[worse] += 1
    counts = [round(samples[key].mean / samples[key].scale.resolution) for key in keys]
    return {
        key: Rank(1 + counts.index(count), 1 + above[key], len(keys) - below[key]) for key, count in zip(keys, counts)
    }


def _order_p(first: Sample, second: Sample) -> float:
    """Of "their means are equal", for many pairs at once; NaN where nothing is tested."""
    p = difference(first, second).p
    return p if math.isnan(p) else max(p, reach_p(first, second))


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
