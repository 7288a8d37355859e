"""How many seeds the claims of the paper need, simulated from the stored ones."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.claims import Claim, orientation
from madbench.analysis.findings import test_claim
from madbench.analysis.inference import LEVEL, Sample, combination
from madbench.analysis.quantities import heading, signed
from madbench.analysis.rendering import Listing, known
from madbench.analysis.samples import samples_of

_SEEDS = (3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50)
"""Numbers of seeds that :func:`seeds_needed` tries."""
MOST_SEEDS = _SEEDS[-1]
ENOUGH_POWER = 0.8
"""Probability of a decision that is asked for."""


def power_table(
    scores: pd.DataFrame,
    claims: Sequence[Claim],
    protocol: Sequence[str] = (),
    tracked: Callable[[list[Any]], Iterable[Any]] = iter,
) -> Listing:
    """The claims that have a stored pair of labels, and the seeds that they need.

    Records: ``gain``, the stored one, the smallest where several have to be beyond the ``line`` that it is tested
    against; ``n`` stored seeds; ``seeds`` with which the claim is decided with enough probability, 0 for more than the
    most that are tried; and the ``probability`` of that, None where nothing can be simulated.

    Args:
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`).
        claims: those to decide.
        protocol: sentences about the protocols, which begin the notes.
        tracked: goes through the claims, with a progress bar where there is one.
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
        terms = [(weight, samples[quantity][label]) for weight, label in claim.gains(test.cases)[name]]
        tests_solved = claim.expectation(quantity) != "gain"
        seeds, probability = seeds_needed(terms, orientation(quantity) * test.line, level, tests_solved)
        numbers = [signed(smallest.estimate, quantity), signed(test.line, quantity), str(smallest.n)]
        needed = ["-", ""] if math.isnan(probability) else [str(seeds or f">{MOST_SEEDS}"), f"{probability:.0%}"]
        lines.append([claim.title, heading(quantity), *numbers, *needed])
        record = {"claim": claim.name, "title": claim.title, "quantity": quantity, "gain": smallest.estimate}
        record |= {"line": test.line, "n": smallest.n, "seeds": seeds, "probability": probability}
        records.append(known(record))
    caption = (
        f"Seeds of every label with which a claim is decided, either way, with a probability of {ENOUGH_POWER:.0%}, at"
        f" the level {level:.2g} that Holm's method leaves the first of {len(tests)} tests."
    )
    if not tests:
        caption = "No claim has a whole stored seed of every label it compares; madbench findings says what is missing."
    notes = "Gain: points of accuracy, nats per token of loss; -: not testable, or fewer than two stored seeds."
    headings = ["Claim", "On", "Gain", "Line", "n", "Seeds needed", "Decided"]
    return Listing(records, headings, lines, records, caption, " ".join([*protocol, notes]), "tab:power", "%s")


def seeds_needed(
    terms: Sequence[tuple[float, Sample]],
    line: float = 0.0,
    level: float = LEVEL,
    tests_solved: bool = False,
    draws: int = 200,
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
        return sum(combination(one, line, tests_solved).p <= level for one in drawn) / draws

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
