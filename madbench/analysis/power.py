"""The number of seeds that claims need, in closed form from the test itself.

Power: the probability that a gain is found beyond its line if it truly is a stated one, and seeds scatter as the test
takes them to do: with the stored seeds' variance, raised where these are few. The seeds for the measured gain and for a
stated one come from the same formula, so a larger gain never needs more seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
from scipy.special import nctdtr, stdtrit

from madbench.analysis.claims import Claim, published_gain
from madbench.analysis.findings import ClaimTest, test_claim
from madbench.analysis.inference import LEAST_SEEDS, LEVEL, Sample, Terms, planned_terms
from madbench.analysis.quantities import heading, signed
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of

MOST_SEEDS = 50
"""The largest number of seeds that is considered."""
ENOUGH_POWER = 0.8
"""Probability of a decision that is asked for."""


def power_table(
    scores: pd.DataFrame,
    claims: Sequence[Claim],
    protocol: Sequence[str] = (),
    tracked: Callable[[list[Any]], Iterable[Any]] = iter,
    true_gain: float | None = None,
) -> Listing:
    """The claims that have a stored pair of labels, and the seeds that they need.

    Records: ``gain``, the stored one, the smallest if several have to be beyond the ``line`` that it is tested against;
    ``n`` stored seeds; ``seeds`` with which a true gain of this size is found with enough probability, 0 for more than
    :data:`MOST_SEEDS`; and the ``probability`` of that, None if nothing is tested. Every gain that has to be beyond the
    line, ``gain_name``, has a record with ``true_gain``, and the ``power_seeds`` and ``power`` of that.

    Args:
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`).
        claims: those to decide.
        protocol: sentences about the protocols, which begin the notes.
        tracked: goes through the claims, with a progress bar where there is one.
        true_gain: the gain at which power is stated; by default :func:`default_gain`.
    """
    samples = samples_of(scores)
    tests = [
        (claim, quantity, test)
        for claim in claims
        for quantity in claim.quantities
        if (test := test_claim(claim, quantity, samples.get(quantity, {}))).gains
    ]
    level = LEVEL / max(1, len(tests))
    lines, records = [], []
    for claim, quantity, test in tracked(tests):
        name, smallest = test.smallest
        terms = {key: [(w, samples[quantity][x]) for w, x in of] for key, of in claim.gains(test.cases).items()}
        is_testable = smallest.n < LEAST_SEEDS or not test.detail or not math.isnan(test.p)
        seeds, probability = 0, math.nan
        if is_testable:
            seeds, probability = seeds_needed(terms[name], smallest.estimate - test.line, level)
        numbers = [signed(smallest.estimate, quantity), signed(test.line, quantity), str(smallest.n)]
        line = [claim.title, heading(quantity), *numbers, *_texts(seeds, probability)]
        record = {"claim": claim.name, "title": claim.title, "quantity": quantity, "gain": smallest.estimate}
        record |= {"line": test.line, "n": smallest.n, "seeds": seeds, "probability": probability}
        stated = default_gain(claim, quantity, test) if true_gain is None else true_gain
        of_gains = []
        for gain_name, stored in test.gains:
            gain = -stated if gain_name.endswith("(reversed)") and not claim.rivals else stated
            enough, power = seeds_needed(terms[gain_name], gain - test.line, level) if is_testable else (0, math.nan)
            texts = ["", "", ""] if math.isnan(power) else [signed(gain, quantity), *_texts(enough, power)]
            of_gains.append(([f"  {gain_name}", heading(quantity), signed(stored.estimate, quantity)], texts))
            extra = {"gain_name": gain_name, "true_gain": gain, "power_seeds": enough, "power": power}
            records.append(without_nan(record | extra))
        if len(of_gains) == 1:
            lines.append([*line, *of_gains[0][1]])
        else:
            lines.append([*line, "", "", ""])
            lines += [[*names, *line[3:5], "", "", *texts] for names, texts in of_gains]
    caption = (
        f"Seeds of every label with which a gain is found beyond the line with a probability of {ENOUGH_POWER:.0%} or"
        " more, and that probability: if the true gain is the measured one, and if it is a stated true gain. The level"
        f" is {level:.2g}, as Holm's method leaves it to the first of {len(tests)} tests."
    )
    if not tests:
        caption = "No claim has a whole stored seed of every label it compares; madbench findings says what is missing."
    notes = "Gain: points of accuracy, nats per token of loss; -: not testable, or fewer than two stored seeds."
    headings = ["Claim", "On", "Gain", "Line", "n", "Seeds", "Power", "True gain", "Seeds for it", "Its power"]
    return Listing(records, headings, lines, records, caption, " ".join([*protocol, notes]), "tab:power", "%s")


def _texts(seeds: int, power: float) -> list[str]:
    return ["-", ""] if math.isnan(power) else [str(seeds or f">{MOST_SEEDS}"), f"{power:.0%}"]


def default_gain(claim: Claim, quantity: str, test: ClaimTest) -> float:
    """The gain at which power is stated where nobody names one.

    At the line itself power is the level. So no difference for a claim of none; twice the line for one of a gain, which
    of half of a published gain is that gain; where the line is 0 the published gain, and without one the stored gain.
    """
    if claim.expectation(quantity) != "gain":
        return 0.0
    if test.line:
        return 2 * test.line
    published = published_gain(claim, quantity, test.cases)
    return published if published > 0 else abs(test.smallest[1].estimate)


def seeds_needed(terms: Sequence[tuple[float, Sample]], distance: float, level: float = LEVEL) -> tuple[int, float]:
    """The smallest number of seeds with a power of :data:`ENOUGH_POWER`, and this power (:func:`power_at`).

    0 seeds and the power of :data:`MOST_SEEDS` if these are not enough; NaN without two seeds of every label.
    """
    if min(sample.n for _, sample in terms) < 2:
        return 0, math.nan
    for n in range(LEAST_SEEDS, MOST_SEEDS + 1):
        if (power := power_at(terms, distance, n, level)) >= ENOUGH_POWER:
            return n, power
    return 0, power


def power_at(terms: Sequence[tuple[float, Sample]], distance: float, n: int, level: float = LEVEL) -> float:
    """The probability that ``n`` seeds of every label find a true sum ``distance`` away from the line, on its side."""
    planned = Terms.joined([_future(sample, n).scaled(weight) for weight, sample in terms])
    freedom, error = float(planned.freedom.item()), math.sqrt(planned.variance.item())
    quantile = stdtrit(freedom, 1 - level / 2)
    return float(1 - nctdtr(freedom, min(abs(distance) / error, 30.0), quantile))


def _future(sample: Sample, n: int) -> Terms:
    """The terms of the mean of ``n`` seeds that scatter as the test takes those of ``sample`` to do."""
    if sample.parts:
        return Terms.joined([_future(part, n).scaled(1 / len(sample.parts)) for part in sample.parts])
    variance = float(sample.terms.variances[0]) * sample.n
    return planned_terms(variance, sample.mean, n, sample.scale.width, sample.splits)
