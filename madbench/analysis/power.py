"""How many seeds the claims of the paper need, simulated from the stored ones."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.claims import Claim, orientation
from madbench.analysis.findings import ClaimTest, test_claim
from madbench.analysis.inference import LEVEL, Sample, combination
from madbench.analysis.quantities import heading, signed
from madbench.analysis.rendering import Listing, known
from madbench.analysis.samples import samples_of

_SEEDS = (3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50)
"""Numbers of seeds that :func:`seeds_needed` tries."""
MOST_SEEDS = _SEEDS[-1]
ENOUGH_POWER = 0.8
"""Probability of a decision that is asked for."""


@dataclass(frozen=True)
class Power:
    """A claim on a quantity, and the seeds it needs."""

    claim: str
    title: str
    quantity: str
    gain: float
    """The stored gain, the smallest where several have to be beyond the line."""
    line: float
    """What the gain is tested against."""
    n: int
    """Stored seeds."""
    seeds: int
    """Seeds with which the claim is decided with enough probability; 0 for more than the most that are tried."""
    probability: float
    """Of a decision with ``seeds``, or with the most; NaN where nothing can be simulated."""


def power_table(
    scores: pd.DataFrame,
    claims: Sequence[Claim],
    protocol: Sequence[str] = (),
    tracked: Callable[[list[Any]], Iterable[Any]] = iter,
) -> Listing:
    """The claims that have a stored pair of labels, a :class:`Power` a row.

    ``scores`` are those of one protocol of every suite (:mod:`madbench.analysis.scores`).
    ``tracked`` goes through the claims, with a progress bar where there is one.
    """
    samples = samples_of(scores)
    found = [
        (claim, quantity, test)
        for claim in claims
        for quantity in claim.quantities
        if (test := test_claim(claim, quantity, samples.get(quantity, {}))).gains
    ]
    level = LEVEL / max(1, len(found))
    rows = [_power(claim, quantity, test, samples[quantity], level) for claim, quantity, test in tracked(found)]
    caption = (
        f"Seeds of every label with which a claim is decided, either way, with a probability of {ENOUGH_POWER:.0%}, at"
        f" the level {level:.2g} that Holm's method leaves the first of {len(found)} tests."
    )
    notes = "Gain: points of accuracy, nats per token of loss; -: not testable, or fewer than two stored seeds."
    headings = ["Claim", "On", "Gain", "Line", "n", "Seeds needed", "Decided"]
    about = rows, headings, [*map(_text, rows)], [known(asdict(row)) for row in rows]
    return Listing(*about, caption, " ".join([*protocol, notes]), "tab:power", "%s")


def _text(row: Power) -> list[str]:
    needed = "-" if math.isnan(row.probability) else str(row.seeds) if row.seeds else f">{MOST_SEEDS}"
    chance = "" if math.isnan(row.probability) else f"{row.probability:.0%}"
    numbers = [signed(row.gain, row.quantity), signed(row.line, row.quantity), str(row.n)]
    return [row.title, heading(row.quantity), *numbers, needed, chance]


def _power(claim: Claim, quantity: str, test: ClaimTest, samples: dict[str, Sample], level: float) -> Power:
    name, smallest = test.smallest
    terms = [(weight, samples[label]) for weight, label in claim.gains(test.cases)[name]]
    tests_solved = claim.expectation(quantity) != "gain"
    found = seeds_needed(terms, orientation(quantity) * test.line, level, tests_solved)
    return Power(claim.name, claim.title, quantity, smallest.estimate, test.line, smallest.n, *found)


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
        return Sample(np.clip(rng.normal(mean, spread, n), *sample.scale.limits), sample.scale)
    successes, others = sample.modes
    share = rng.beta(len(successes) + 0.5, len(others) + 0.5)
    is_success = rng.random(n) < share
    good = rng.choice(successes, n) if len(successes) else np.full(n, sample.scale.ceiling)
    bad = rng.choice(others, n) if len(others) else np.full(n, sample.scale.chance)
    diverged = ~is_success if sample.has_diverged and not sample.solved else None
    return Sample(np.where(is_success, good, bad), sample.scale, diverged)
