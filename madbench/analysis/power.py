"""The number of seeds that are needed to test claims, computed by a formula without simulation.

The power of a test is the probability that it finds a gain beyond the threshold of the claim, for a given true gain.
The test and this module use the same variance of the seeds: that of the stored seeds, increased if there are few (see
:mod:`madbench.analysis.inference.sample`). The seeds for the measured gain and for a given gain come from the same
formula, so a larger gain never needs more seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pandas as pd
from scipy.special import nctdtr, stdtrit

from madbench.analysis.claims import Claim
from madbench.analysis.claims.testing import ClaimTest, test_claim
from madbench.analysis.claims.thresholds import published_gain
from madbench.analysis.inference import LEVEL, Difference, Sample, VarianceTerms, planned_terms
from madbench.analysis.quantities import heading, signed_text
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of
from madbench.labels.names import display_name
from madbench.suites.planning import LEAST_SEEDS

MOST_SEEDS = 50
"""The largest number of seeds per label for which power is computed."""
ENOUGH_POWER = 0.8
"""The power that a number of seeds must have to be enough."""


def power_table(
    scores: pd.DataFrame,
    claims: Mapping[str, Sequence[Claim]],
    protocol: Sequence[str] = (),
    true_gain: float | None = None,
) -> Listing:
    """The table of the number of seeds that claims need. Claims without a stored pair of labels are left out.

    There is one JSON row per claim, column, and gain that has to exceed the threshold of the claim. Its keys are:

    - ``paper`` (only if it has a name), ``claim``, ``title``, ``quantity``: the claim and the column;
    - ``threshold``: the threshold;
    - ``gain``: the stored gain of the claim, or the smallest one if it has several; ``n``: the seeds of this gain;
    - ``seeds``: the number of seeds that is enough if the true gain is ``gain``, 0 for more than :data:`MOST_SEEDS`;
    - ``probability``: the power with ``seeds`` seeds, None if nothing is tested;
    - ``gain_name``: the name of the gain of this JSON row, empty if the claim has a single gain;
    - ``true_gain``: the assumed true value of the gain ``gain_name``;
    - ``power_seeds`` and ``power``: like ``seeds`` and ``probability``, if the true gain is ``true_gain``.

    Args:
        scores: the scores of one protocol per suite (:mod:`madbench.analysis.scores`).
        claims: the claims of each paper, by its name. The level is divided by the number of tests of the paper.
        protocol: sentences about the protocols, which begin the notes.
        true_gain: the true gain for which power is computed. If None, :func:`default_gain`.
    """
    samples = samples_of(scores)
    tests = [
        TestedClaim(paper, claim, quantity, test)
        for paper, claims_of_paper in claims.items()
        for claim in claims_of_paper
        for quantity in claim.quantities
        if (test := test_claim(claim, quantity, samples.get(quantity, {}))).gains
    ]
    counts = Counter(tested.paper for tested in tests)
    rows = [
        ClaimPower.of_test(tested, samples[tested.quantity], LEVEL / counts[tested.paper], true_gain)
        for tested in tests
    ]
    json_rows = [json_row for row in rows for json_row in _json_rows(row)]
    lines = [line for row in rows for line in _lines(row)]
    notes = (
        "Gain: in points of accuracy, or in nats per token of a loss. -: not testable, or fewer than two stored seeds."
    )
    headings = ["Claim", "On", "Gain", "Line", "n", "Seeds", "Power", "True gain", "Seeds for it", "Its power"]
    return Listing(
        json_rows, headings, lines, json_rows, _caption(counts), " ".join([*protocol, notes]), "tab:power", "%s"
    )


class GainPower(NamedTuple):
    """The seeds that a gain of a claim needs if its true value is ``true_gain``."""

    name: str
    estimate: float
    """The stored gain."""
    true_gain: float
    seeds: int
    """The number of seeds per label that is enough, 0 for more than :data:`MOST_SEEDS`."""
    power: float
    """The power with :attr:`seeds` seeds. NaN if nothing is tested."""


class TestedClaim(NamedTuple):
    """A claim of a paper, and its test in a column of results. The test has at least one gain."""

    paper: str
    claim: Claim
    quantity: str
    test: ClaimTest


@dataclass(frozen=True)
class ClaimPower:
    """The seeds that a claim needs in a column of results."""

    tested: TestedClaim
    smallest: Difference
    """The smallest stored gain of the claim."""
    measured: GainPower
    """The seeds needed if the true value of this gain is the stored one."""
    assumed: Sequence[GainPower]
    """The seeds needed for each gain of the claim, for a given true gain."""

    @classmethod
    def of_test(cls, tested: TestedClaim, samples: Mapping[str, Sample], level: float, true_gain: float | None) -> Self:
        """The seeds that the claim needs. If ``true_gain`` is None, it is :func:`default_gain`.

        ``samples`` has the stored seeds of each label in the column. The test rejects at the p-value ``level``.
        """
        _, claim, quantity, test = tested
        smallest_name, smallest = test.smallest
        assert smallest is not None  # the test has gains
        terms = claim.gains(test.cases, quantity)
        is_testable = smallest.n < LEAST_SEEDS or not test.detail or not math.isnan(test.p)

        def gain_power(name: str, estimate: float, gain: float) -> GainPower:
            if not is_testable:
                return GainPower(name, estimate, gain, 0, math.nan)
            weighted_samples = [(weight, samples[label]) for weight, label in terms[name]]
            return GainPower(name, estimate, gain, *seeds_needed(weighted_samples, gain - test.threshold, level))

        assumed_gain = default_gain(claim, quantity, test) if true_gain is None else true_gain
        assumed = []
        for name, difference in test.gains:
            is_reversed = name.endswith("(reversed)") and not claim.rivals
            assumed.append(gain_power(name, difference.estimate, -assumed_gain if is_reversed else assumed_gain))
        return cls(tested, smallest, gain_power(smallest_name, smallest.estimate, smallest.estimate), assumed)


def _json_rows(row: ClaimPower) -> list[dict[str, Any]]:
    paper, claim, quantity, test = row.tested
    of_claim: dict[str, Any] = {"paper": paper} if paper else {}
    of_claim |= {"claim": claim.name, "title": claim.title, "quantity": quantity}
    of_claim |= {"gain": row.smallest.estimate, "threshold": test.threshold, "n": row.smallest.n}
    of_claim |= {"seeds": row.measured.seeds, "probability": row.measured.power}
    return [
        without_nan(
            of_claim
            | {"gain_name": each.name, "true_gain": each.true_gain, "power_seeds": each.seeds, "power": each.power}
        )
        for each in row.assumed
    ]


def _lines(row: ClaimPower) -> list[list[str]]:
    """The lines of the table for a claim. A claim with several gains has one more line for each of them."""

    def assumed_texts(gain: GainPower) -> list[str]:
        if math.isnan(gain.power):
            return ["", "", ""]
        return [signed_text(gain.true_gain, quantity), *_seeds_texts(gain)]

    _, claim, quantity, test = row.tested
    column, threshold, n = heading(quantity), signed_text(test.threshold, quantity), str(row.smallest.n)
    line = [claim.title, column, signed_text(row.smallest.estimate, quantity), threshold, n]
    line += _seeds_texts(row.measured)
    if len(row.assumed) == 1:
        return [line + assumed_texts(row.assumed[0])]
    lines = [[*line, "", "", ""]]
    for gain in row.assumed:
        name, estimate = f"  {_shown_gain(claim, gain.name)}", signed_text(gain.estimate, quantity)
        lines.append([name, column, estimate, threshold, n, "", "", *assumed_texts(gain)])
    return lines


def _caption(counts: Mapping[str, int]) -> str:
    """The caption of the table. ``counts`` has the number of tests of each paper."""
    if not counts:
        return "No claim has a complete stored seed of each of its labels; madbench findings names the missing runs."
    levels = " and ".join(
        f"{LEVEL / count:.2g}, that of the first of {count} test{'s' if count != 1 else ''}"
        + (f" ({paper})," if len(counts) > 1 else "")
        for paper, count in counts.items()
    )
    return (
        f"Seeds: the number per label with a power of at least {ENOUGH_POWER:.0%} if the true gain is the measured one."
        f" Seeds for it: the same for the given true gain. The level is {levels} in Holm's method."
    )


def _shown_gain(claim: Claim, gain_name: str) -> str:
    """The name of a gain of the claim, with display names in place of labels if it is the gain of a pair."""
    for pair in claim.pairs:
        if gain_name.removesuffix(" (reversed)") == " - ".join(pair):
            return gain_name.replace(" - ".join(pair), " - ".join(map(display_name, pair)))
    return gain_name


def _seeds_texts(gain: GainPower) -> list[str]:
    return ["-", ""] if math.isnan(gain.power) else [str(gain.seeds or f">{MOST_SEEDS}"), f"{gain.power:.0%}"]


def default_gain(claim: Claim, quantity: str, test: ClaimTest) -> float:
    """The true gain for which power is computed by default, in the units of the column ``quantity``.

    For a claim of no difference, it is 0. For a claim of a gain, it is twice the threshold, because at the threshold
    itself the power is only the level of the test. If the threshold is 0, it is the published gain, or the absolute
    value of the stored gain if no positive gain is published. ``test`` must have at least one tested pair.
    """
    if claim.expectation(quantity) != "gain":
        return 0.0
    if test.threshold:
        return 2 * test.threshold
    published = published_gain(claim, quantity, test.cases)
    smallest_gain = test.smallest[1]
    assert smallest_gain is not None, "a test without a threshold has a case"
    return published if published > 0 else abs(smallest_gain.estimate)


def seeds_needed(terms: Sequence[tuple[float, Sample]], distance: float, level: float = LEVEL) -> tuple[int, float]:
    """Return ``(n, power)``: the smallest number of seeds per label whose power is at least :data:`ENOUGH_POWER`.

    If :data:`MOST_SEEDS` seeds are not enough, n is 0 and the power is that of :data:`MOST_SEEDS` seeds. If a label has
    fewer than two stored seeds, n is 0 and the power is NaN. ``terms``, ``distance`` and ``level`` are the arguments of
    :func:`power_at`.
    """
    if min(sample.n for _, sample in terms) < 2:
        return 0, math.nan
    for n in range(LEAST_SEEDS, MOST_SEEDS + 1):
        if (power := power_at(terms, distance, n, level)) >= ENOUGH_POWER:
            return n, power
    return 0, power


def power_at(terms: Sequence[tuple[float, Sample]], distance: float, n: int, level: float = LEVEL) -> float:
    """The probability that a test with ``n`` seeds per label rejects the threshold, in the direction of the true gain.

    Args:
        terms: a pair (weight, sample) for each label: its weight in the gain, such as 1 and -1 for a difference, and
            its stored seeds, at least two.
        distance: the true gain minus the threshold of the claim, in the units of the column.
        n: the number of seeds per label, at least two.
        level: the p-value below which the two-sided test rejects.
    """
    planned_terms = VarianceTerms.sum_of([_future(sample, n).times(weight) for weight, sample in terms])
    freedom, error = float(planned_terms.freedom.item()), math.sqrt(planned_terms.variance.item())
    quantile = stdtrit(freedom, 1 - level / 2)
    return float(1 - nctdtr(freedom, min(abs(distance) / error, 30.0), quantile))


def _future(sample: Sample, n: int) -> VarianceTerms:
    """The variance terms of the mean of ``n`` seeds that are not trained yet.

    ``sample`` has the stored seeds of the same label in the same column. The variance per seed is the one that the test
    uses for ``sample``.
    """
    if sample.parts:
        return VarianceTerms.sum_of([_future(part, n).times(1 / len(sample.parts)) for part in sample.parts])
    variance = float(sample.terms.variances[0]) * sample.n
    return planned_terms(variance, sample.mean, n, sample.scale.width, sample.splits)
