"""Student's t tests of the paper's claims: gains over pairs of labels and seeds against the line a claim draws.

Everything is a gain: points of accuracy, or nats per token of L5 that are saved, so that more is better. The gain of a
claim on a quantity is the mean over its stored pairs of the first label's number less the second's on the same seed.
Seeds are the repetitions: an interval speaks of these pairs under this protocol, not of other labels that the factor
may be in (:mod:`madbench.analysis.attribution` does that). They are the seeds that all the pairs have in common; where
pairs share fewer than two, the pair with the fewest is dropped first.

A claim draws a line. "gain" expects more than 0; "no loss" more than minus the margin; "no gain" less than the margin.
So a "no difference" is never read off a large p-value. The margin is :data:`MARGIN_SHARE` of what sequence mixing gains
in the paper's table, from R-cg-q to R-cg-q-12o. A factor that has to outdo its rivals (``Claim.rivals``) is tested
against each, of either sign: the claim is supported by the largest p of these, and contradicted by the smallest times
their number.

MAD average and L5 are sums of many noises, alike from label to label, and several claims are tested on them; so there
a variance is moderated by those of the other claims, as in :mod:`madbench.analysis.attribution`. In simulations that
keeps the family-wise error where the labels' standard deviations differ by a factor of three either way; by seven, with
three seeds, it is 8%. A task has the variance of its own claim alone.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtr

from madbench.analysis.attribution import PRIOR_FREEDOM
from madbench.analysis.claims import Claim
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, column
from madbench.analysis.scores import published_scores
from madbench.analysis.statistics import LEVEL, students_t
from madbench.tasks import MAD_TASKS

MARGIN_SHARE = 0.25
"""Of the published gain of sequence mixing: what a "no difference" may hide."""
MOST_SEEDS = 20
"""Beyond which no more are asked for."""


@dataclass(frozen=True)
class Measured:
    """What is stored of a claim on a quantity: contrasts k (one, or two a rival), oriented so that the claim is > 0."""

    cases: tuple[int, ...]  # indices of the pairs that count
    seeds: tuple[int, ...]
    gains: np.ndarray  # (K, N), over the line
    weight: float  # sum of the squared weights of the labels in the first contrast: its variance over that of one label

    @property
    def freedom(self) -> int:
        return len(self.seeds) - 1


def as_gain(value: float, quantity: str) -> float:
    """The value with the sign with which more is better."""
    return -value if column(quantity).better == "lower" else value


def margin(quantity: str) -> float:
    """The gain that a "no difference" may hide: points, or nats per token."""
    table, published = published_gains(), MAD_AVERAGE if quantity in MAD_TASKS else quantity
    return MARGIN_SHARE * (table["R-cg-q-12o"][published] - table["R-cg-q"][published])


@functools.cache
def published_gains() -> dict[str, dict[str, float]]:
    """The paper's table by label and quantity, L5 with a minus so that more is better."""
    names = (*MAD_TASKS, MAD_AVERAGE, LOSS)
    return {label: {name: as_gain(row[name], name) for name in names} for label, row in published_scores().items()}


def line_of(claim: Claim, quantity: str) -> float:
    """The gain that separates the claim from its contrary."""
    return {"gain": 0.0, "no loss": -margin(quantity), "no gain": margin(quantity)}[claim.expects]


def oriented(claim: Claim, quantity: str, gains: np.ndarray | float) -> np.ndarray | float:
    """By how much ``gains`` are on the claim's side of the line."""
    return (gains - line_of(claim, quantity)) * claim.sign


def contrasts(claim: Claim, case: int) -> list[dict[str, float]]:
    """Weights of labels whose sums are the gain of pair ``case``, or its gain over each rival of either sign."""
    gain = dict(zip(claim.pairs[case], (1.0, -1.0)))
    rivals = [pairs[case] for pairs in claim.rivals.values()]
    return [_sum([gain, dict(zip(rival, (-sign, sign)))]) for rival in rivals for sign in (1.0, -1.0)] or [gain]


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def measure(claim: Claim, quantity: str, stored: pd.DataFrame) -> Measured | None:
    """What is stored of the claim; ``None`` without a pair that has a seed in common.

    ``stored`` are gains by label (index) and seed (columns), NaN where a seed is missing.
    """
    by_case, has = {}, {}
    for case in range(len(claim.pairs)):
        if set(claim.labels([case])) <= set(stored.index):
            values = [sum(w * stored.loc[x].to_numpy() for x, w in one.items()) for one in contrasts(claim, case)]
            if not (lacks := np.isnan(values).any(axis=0)).all():
                by_case[case], has[case] = np.array(values), ~lacks
    if not by_case:
        return None
    enough = min(2, max(map(np.sum, has.values())))
    while (common := np.logical_and.reduce([*has.values()])).sum() < enough:
        del has[min(reversed(has), key=lambda case: has[case].sum())]
    gains = np.mean([by_case[case][:, common] for case in has], axis=0)
    gains = np.round(oriented(claim, quantity, gains), 9)  # so that equal numbers differ by nothing
    weights = _sum(contrasts(claim, case)[0] for case in has)
    weight = sum(w**2 for w in weights.values()) / len(has) ** 2
    return Measured(tuple(has), tuple(map(int, stored.columns[common])), gains, weight)


@dataclass(frozen=True)
class ClaimTest:
    """Student's t test of a claim; the defaults are those of a claim that cannot be tested."""

    k: int = 0  # the contrast with the smallest gain
    mean: float = math.nan  # this gain, over the line and oriented so that the claim is > 0
    error: float = math.nan  # standard error of the mean over seeds
    freedom: int = 0
    prior: int = 0  # degrees of freedom among these that the other claims lend
    p: float = math.nan  # two-sided, of "the gain is on the line"
    is_for: bool = False  # whether the gain is on the claim's side

    @property
    def half_width(self) -> float:
        """Half of the 95% interval of the gain."""
        return self.error * students_t(self.freedom) if self.freedom else math.nan


def judge(own: Measured | None, others: Sequence[Measured]) -> ClaimTest:
    """Of ``own``; the variances of ``others``, on the same quantity and with one contrast each, moderate its own."""
    if own is None:
        return ClaimTest()
    means = own.gains.mean(axis=1)
    k = int(means.argmin())
    if not own.freedom:
        return ClaimTest(k, float(means[k]))
    lent = sum(other.freedom for other in others)
    prior = min(PRIOR_FREEDOM, lent)
    of_others = sum(other.freedom * other.gains[0].var(ddof=1) / other.weight for other in others) / max(1, lent)
    freedom = own.freedom + prior
    variances = (prior * of_others * own.weight + own.freedom * own.gains.var(axis=1, ddof=1)) / freedom
    errors = np.sqrt(variances / len(own.seeds))
    p_above = np.array([_p_above(mean, error, freedom) for mean, error in zip(means, errors)])
    p_for, p_against = p_above.max(), min(1.0, len(means) * (1 - p_above).min())
    p = min(1.0, 2 * min(p_for, p_against))
    return ClaimTest(k, float(means[k]), float(errors[k]), freedom, prior, p, is_for=p_for < p_against)


def _p_above(mean: float, error: float, freedom: int) -> float:
    """One-sided p of "the mean is not above 0"."""
    if not error:
        return 0.5 - 0.5 * np.sign(mean)
    return float(stdtr(freedom, -mean / error))


def published_gain(claim: Claim, quantity: str, cases: Sequence[int]) -> float:
    """The gain of these pairs in the paper's table, over the next largest factor where the claim has rivals."""
    found = [contrasts(claim, case) for case in cases]
    gains = [[sum(w * published_gains()[x][quantity] for x, w in one.items()) for one in of_case] for of_case in found]
    return round(float(np.mean(gains, axis=0).min()), 9)


def seeds_needed(own: Measured, test: ClaimTest, tested: int) -> int:
    """With how many seeds like the stored ones Holm's first step would decide; 0 for more than ``MOST_SEEDS``."""
    mean, spread = abs(test.mean), test.error * math.sqrt(len(own.seeds))
    for n in range(len(own.seeds) + 1, MOST_SEEDS + 1):
        if 2 * _p_above(mean, spread / math.sqrt(n), n - 1 + test.prior) <= LEVEL / tested:
            return n
    return 0
