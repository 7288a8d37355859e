"""What the HyperMLP paper claims of its own design: each claim with the pairs of labels that isolate it, and its line.

Everything is a gain: points of accuracy, nats per token of loss or steps that are saved, so that more is better. A
claim draws a line. "gain" expects more than 0, or more than ``reach`` of the published gain; "no loss" more than minus
the margin; "no gain" less than the margin. So a "no difference" is never read off a large p-value. The margin is
:data:`MARGIN_SHARE` of what sequence mixing gains in the paper's table, from R-cg-q to R-cg-q-12o. Lines on losses and
steps scale with the stored numbers: 0.022 nats a BPE token are not 0.022 nats a byte.

Claims that no two labels of the paper isolate are in :data:`NOT_ISOLATED`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from madbench.analysis.contrasts import Pair
from madbench.analysis.quantities import column
from madbench.config import PUBLISHED, from_mapping, read_yaml
from madbench.suites.language.suite import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.published import published_scores

PREDICTIONS = "Appendix I.3"
"""The group of claims about one task each."""
MARGIN_SHARE = 0.25
"""Of the published gain of sequence mixing: what a "no difference" may hide."""

MARGIN_LABELS = ("R-cg-q-12o", "R-cg-q")
"""With sequence mixing and without."""

Expectation = Literal["gain", "no loss", "no gain"]
Terms = list[tuple[float, str]]
"""A weighted sum of labels' means."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that pairs of labels can support or contradict."""

    name: str
    title: str  # in at most 32 characters
    sentence: str  # what the paper says
    source: str
    theory: str  # why it should hold
    group: str  # heading of the claims around it
    factors: tuple[str, ...]  # in which the labels of a pair differ, of madbench.labels.FACTORS
    pairs: tuple[Pair, ...]  # the paper's own pair first
    expects: Expectation = "gain"
    """The first label of a pair is better; not worse by the margin; not better by the margin."""
    expects_on: dict[str, Expectation] = field(default_factory=dict)
    """Where something else is expected of a quantity."""
    reach: float = 0.0
    """Share of the published gain that a claim of a large gain has to exceed."""
    judges: Literal["mean", "every pair"] = "mean"
    """Whether the mean over the pairs has to be beyond the line, or every single pair."""
    rivals: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    """Pairs of every factor that ``factors`` should outdo, as many as ``pairs`` and in the same surroundings."""
    quantities: tuple[str, ...] = (MAD_AVERAGE, LOSS)
    note: str = ""  # where the paper's text and its table disagree, and what the pairs leave out

    def expectation(self, quantity: str) -> Expectation:
        """What the claim expects on ``quantity``."""
        return self.expects_on.get(quantity, self.expects)

    def sign(self, quantity: str) -> int:
        """1 where a gain speaks for the claim, -1 where it speaks against it."""
        return -1 if self.expectation(quantity) == "no gain" else 1

    def labels(self, cases: Iterable[int]) -> tuple[str, ...]:
        """The labels of some of its pairs, given by index, and of their rivals."""
        found = [pairs[case] for case in cases for pairs in (self.pairs, *self.rivals.values())]
        return tuple(dict.fromkeys(label for pair in found for label in pair))

    def gains(self, cases: Sequence[int]) -> dict[str, Terms]:
        """The gains that all have to be beyond the line, by name, as sums over labels where more is better.

        One named "" for the mean over the pairs ``cases``; one a pair; or one over each rival, of either sign.
        """
        if self.judges == "every pair":
            return {" - ".join(self.pairs[case]): _mean([self.pairs[case]]) for case in cases}
        own = _mean([self.pairs[case] for case in cases])
        rivals = {name: _mean([pairs[case] for case in cases]) for name, pairs in self.rivals.items()}
        over = {
            f"{name}{'' if sign > 0 else ' (reversed)'}": own + [(-sign * weight, label) for weight, label in terms]
            for (name, terms), sign in itertools.product(rivals.items(), (1.0, -1.0))
        }
        return {name: _collected(terms) for name, terms in (over or {"": own}).items()}


def _mean(pairs: Sequence[Pair]) -> Terms:
    return [(sign / len(pairs), label) for pair in pairs for sign, label in zip((1.0, -1.0), pair)]


def _collected(terms: Terms) -> Terms:
    """Each label once."""
    total: dict[str, float] = {}
    for weight, label in terms:
        total[label] = total.get(label, 0.0) + weight
    return [(weight, label) for label, weight in total.items() if abs(weight) > 1e-9]


@dataclass(frozen=True)
class _File:
    claims: tuple[Claim, ...]


_PATH = PUBLISHED / "hypermlp_claims.yaml"
CLAIMS = from_mapping(_File, read_yaml(_PATH), str(_PATH)).claims

NOT_ISOLATED = "gates on the readout side alone, linear attention, registers (Proposition 2.6 ii-iv), larger models"
"""Claims of the paper that no two labels of its runs isolate. The paper claims nothing of RoPE by itself."""


def orientation(quantity: str) -> float:
    """-1 where less is better."""
    return -1.0 if column(quantity).better == "lower" else 1.0


@functools.cache
def published_gains() -> dict[str, dict[str, float]]:
    """The paper's table by label and quantity, with a minus where less is better; steps not reached are left out."""
    return {
        label: {name: orientation(name) * value for name, value in row.items()}
        for label, row in published_scores().items()
    }


def published_gain(claim: Claim, quantity: str, cases: Sequence[int]) -> float:
    """The smallest gain of these pairs in the paper's table; NaN where the table lacks a number."""
    table = published_gains()
    sums = [
        sum(weight * table[label].get(quantity, float("nan")) for weight, label in terms)
        for terms in claim.gains(cases).values()
    ]
    return round(float(np.min(sums)), 9)


def margin(quantity: str) -> float:
    """The gain that a "no difference" may hide in the paper's table: points, nats per token, or steps."""
    table, published = published_gains(), MAD_AVERAGE if quantity in MAD_TASKS else quantity
    given, without = (table[label][published] for label in MARGIN_LABELS)
    return MARGIN_SHARE * (given - without)


def line_of(claim: Claim, quantity: str, cases: Sequence[int], means: Mapping[str, float]) -> float:
    """The gain that separates the claim from its contrary.

    ``means`` are the stored means by label; losses and steps are scaled by theirs over the published ones.
    """
    expectation = claim.expectation(quantity)
    if expectation == "gain":
        line = claim.reach * published_gain(claim, quantity, cases) if claim.reach else 0.0
    else:
        line = margin(quantity) if expectation == "no gain" else -margin(quantity)
    if orientation(quantity) < 0 and line:
        baselines = [claim.pairs[case][1] for case in cases]
        ratios = [means[x] / abs(published_gains()[x].get(quantity, float("nan"))) for x in baselines if x in means]
        line *= float(np.mean(ratios)) if ratios else 1.0
    return line
