"""How many seeds the claims of the paper need, simulated from the stored ones.

Assurance: the probability that a claim is decided, either way, if further seeds are like the stored ones, whose means
and spreads are themselves uncertain. Power: the probability that a gain is found beyond its line where it truly is a
stated one, and seeds scatter as the noise model and the stored seeds say.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.claims import Claim, orientation, published_gain
from madbench.analysis.findings import ClaimTest, test_claim
from madbench.analysis.inference import LEVEL, Sample, combination
from madbench.analysis.quantities import heading, signed
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of

_SEEDS = (3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50)
"""Numbers of seeds that :func:`seeds_needed` tries."""
MOST_SEEDS = _SEEDS[-1]
DRAWS = 200
"""Simulated stores behind a probability."""
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

    Records: ``gain``, the stored one, the smallest where several have to be beyond the ``line`` that it is tested
    against; ``n`` stored seeds; ``seeds`` with which the claim is decided with enough probability, 0 for more than the
    most that are tried; and the ``probability`` of that, the assurance, None where nothing can be simulated. Of every
    gain that has to be beyond the line, ``gain_name``, there is a record with ``true_gain``, the ``power_seeds`` that
    have enough power, the ``power`` of these, and its Monte-Carlo standard error ``power_error``.

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
        tests_solved = claim.expectation(quantity) != "gain"
        seeds, probability = deciding_seeds(claim, quantity, test, samples[quantity], level)
        numbers = [signed(smallest.estimate, quantity), signed(test.line, quantity), str(smallest.n)]
        needed = ["-", ""] if math.isnan(probability) else [str(seeds or f">{MOST_SEEDS}"), f"{probability:.0%}"]
        line = [claim.title, heading(quantity), *numbers, *needed]
        record = {"claim": claim.name, "title": claim.title, "quantity": quantity, "gain": smallest.estimate}
        record |= {"line": test.line, "n": smallest.n, "seeds": seeds, "probability": probability}
        stated = default_gain(claim, quantity, test) if true_gain is None else true_gain
        of_gains = []
        for gain_name, stored in test.gains:
            own = [(weight, samples[quantity][label]) for weight, label in claim.gains(test.cases)[gain_name]]
            against = orientation(quantity) * test.line
            gain = -stated if gain_name.endswith("(reversed)") and not claim.rivals else stated
            enough, power = power_seeds(own, orientation(quantity) * gain, against, level, tests_solved)
            error = math.sqrt(power * (1 - power) / DRAWS)
            texts = [signed(gain, quantity), str(enough or f">{MOST_SEEDS}"), f"{power:.0%} ±{error:.0%}"]
            texts = ["", "", ""] if math.isnan(power) else texts
            of_gains.append(([f"  {gain_name}", heading(quantity), signed(stored.estimate, quantity)], texts))
            extra = {"gain_name": gain_name, "true_gain": gain, "power_seeds": enough, "power": power}
            records.append(without_nan(record | extra | {"power_error": error}))
        if len(of_gains) == 1:
            lines.append([*line, *of_gains[0][1]])
        else:
            lines.append([*line, "", "", ""])
            lines += [[*names, *line[3:5], "", "", *texts] for names, texts in of_gains]
    caption = (
        f"Seeds of every label with which a claim is decided, either way, with a probability of {ENOUGH_POWER:.0%}, at"
        f" the level {level:.2g} that Holm's method leaves the first of {len(tests)} tests (assurance); and with which"
        " a true gain is found beyond the line as often (power, ± its Monte-Carlo error)."
    )
    if not tests:
        caption = "No claim has a whole stored seed of every label it compares; madbench findings says what is missing."
    notes = "Gain: points of accuracy, nats per token of loss; -: not testable, or fewer than two stored seeds."
    headings = ["Claim", "On", "Gain", "Line", "n", "Seeds needed", "Decided", "True gain", "Seeds", "Power"]
    return Listing(records, headings, lines, records, caption, " ".join([*protocol, notes]), "tab:power", "%s")


def deciding_seeds(
    claim: Claim, quantity: str, test: ClaimTest, samples: Mapping[str, Sample], level: float
) -> tuple[int, float]:
    """:func:`seeds_needed` of the smallest gain of a claim, given its test on the samples of the quantity by label."""
    terms = [(weight, samples[label]) for weight, label in claim.gains(test.cases)[test.smallest[0]]]
    return seeds_needed(terms, orientation(quantity) * test.line, level, claim.expectation(quantity) != "gain")


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


def power_seeds(
    terms: Sequence[tuple[float, Sample]], gain: float, line: float, level: float, tests_solved: bool = False
) -> tuple[int, float]:
    """The fewest seeds with which a true difference of ``gain`` is beyond ``line`` with 80% probability, and that.

    0 seeds where :data:`MOST_SEEDS` are not enough; NaN without two seeds of every label.
    """
    if min(sample.n for _, sample in terms) < 2:
        return 0, math.nan

    @functools.cache
    def power(n: int) -> float:
        return power_at(terms, gain, n, line, level, tests_solved)

    place = bisect.bisect_left(_SEEDS, ENOUGH_POWER, key=power)
    return (_SEEDS[place], power(_SEEDS[place])) if place < len(_SEEDS) else (0, power(MOST_SEEDS))


def power_at(
    terms: Sequence[tuple[float, Sample]],
    gain: float,
    n: int,
    line: float = 0.0,
    level: float = LEVEL,
    tests_solved: bool = False,
    draws: int = DRAWS,
) -> float:
    """The share of stores of ``n`` seeds in which a true difference of ``gain`` is found on its own side of ``line``.

    The stored means are moved as little as it takes to differ by ``gain``.
    """
    rng = np.random.default_rng(n)
    shift = (gain - sum(weight * sample.mean for weight, sample in terms)) / sum(weight**2 for weight, _ in terms)
    means = [sample.mean + shift * weight for weight, sample in terms]
    low, high = terms[0][1].scale.limits
    common = min(0.0, high - max(means)) or max(0.0, low - min(means))
    detected = 0
    for _ in range(draws):
        drawn = [(w, _planted(sample, mean + common, n, rng)) for (w, sample), mean in zip(terms, means)]
        difference = combination(drawn, line, tests_solved, tests_solved)
        detected += difference.p <= level and (difference.estimate > line) == (gain > line)
    return detected / draws


def _planted(sample: Sample, mean: float, n: int, rng: np.random.Generator) -> Sample:
    """``n`` seeds whose true mean is ``mean``, with the scatter of the noise model and of the stored seeds."""
    if sample.parts:
        room = np.array([abs(part.scale.limits[mean > sample.mean] - part.mean) for part in sample.parts])
        moves = (mean - sample.mean) * (room / room.mean() if np.isfinite(room).all() and room.any() else 1.0)
        moved = zip(sample.parts, np.broadcast_to(moves, len(sample.parts)))
        parts = tuple(_planted(part, part.mean + move, n, rng) for part, move in moved)
        return Sample(np.mean([part.values for part in parts], axis=0), sample.scale, None, parts)
    if sample.has_noise:
        variance, _ = sample.noise.lend(sample.spread**2, mean, sample.n)
        share = sample.noise.surprises / (sample.n + sample.noise.surprises)
        jumps = sample.noise.jump * rng.choice((-1, 1), n) * (rng.random(n) < share)
        values = mean + rng.normal(0, math.sqrt(variance), n) + jumps
    elif sample.is_level:
        values = rng.normal(mean, sample.spread, n)
    else:
        values = rng.choice(sample.values, n) + mean - sample.mean
    return Sample(np.clip(values, *sample.scale.limits), sample.scale, noise=sample.noise)


def seeds_needed(
    terms: Sequence[tuple[float, Sample]],
    line: float = 0.0,
    level: float = LEVEL,
    tests_solved: bool = False,
    draws: int = DRAWS,
) -> tuple[int, float]:
    """The fewest seeds with which :func:`combination` gives a p of at most ``level`` with 80% probability, and it.

    The seeds are simulated: each draw takes a mean and a spread, or a share of solved seeds, that the stored seeds
    allow (normal and chi-square; Jeffreys' prior), and as many seeds from them. So that the stored ones are few is
    in the probability as well. 0 seeds where :data:`MOST_SEEDS` are not enough, NaN without two seeds of every label.
    """
    if min(sample.n for _, sample in terms) < 2:
        return 0, math.nan

    @functools.cache
    def chance(n: int) -> float:
        rng = np.random.default_rng(n)
        drawn = ([(weight, _simulated(sample, n, rng)) for weight, sample in terms] for _ in range(draws))
        return sum(combination(of_store, line, tests_solved).p <= level for of_store in drawn) / draws

    place = bisect.bisect_left(_SEEDS, ENOUGH_POWER, key=chance)
    return (_SEEDS[place], chance(_SEEDS[place])) if place < len(_SEEDS) else (0, chance(MOST_SEEDS))


def _simulated(sample: Sample, n: int, rng: np.random.Generator) -> Sample:
    """``n`` seeds as those of ``sample`` may be."""
    if sample.parts:
        parts = tuple(_simulated(part, n, rng) for part in sample.parts)
        return Sample(np.mean([part.values for part in parts], axis=0), sample.scale, None, parts)
    if sample.is_level:
        spread = sample.spread * math.sqrt((sample.n - 1) / rng.chisquare(sample.n - 1))
        mean = sample.mean + rng.normal() * spread / math.sqrt(sample.n)
        values = np.clip(rng.normal(mean, spread, n), *sample.scale.limits)
        return Sample(values, sample.scale, noise=sample.noise)
    successes, others = sample.modes
    share = rng.beta(len(successes) + 0.5, len(others) + 0.5)
    is_success = rng.random(n) < share
    good = rng.choice(successes, n) if len(successes) else np.full(n, sample.scale.ceiling)
    bad = rng.choice(others, n) if len(others) else np.full(n, sample.scale.chance)
    diverged = ~is_success if sample.has_diverged and not sample.solved else None
    return Sample(np.where(is_success, good, bad), sample.scale, diverged)
