"""How many seeds the claims of the paper need, simulated from the stored ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pandas as pd

from madbench.analysis.claims import Claim, orientation
from madbench.analysis.findings import ClaimTest, test_claim
from madbench.analysis.inference import ENOUGH_POWER, LEVEL, MOST_SEEDS, Sample, seeds_needed
from madbench.analysis.quantities import heading, signed
from madbench.analysis.rendering import TextTable, known
from madbench.analysis.samples import samples_of


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


@dataclass(frozen=True)
class PowerTable(TextTable):
    """Rows of :class:`Power`."""

    rows: list[Power]
    caption: str
    notes: str
    shows_notes: bool = False
    latex_label: ClassVar[str] = "tab:power"
    latex_name: ClassVar[str] = "%s"

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = []
        for row in self.rows:
            needed = "-" if math.isnan(row.probability) else str(row.seeds) if row.seeds else f">{MOST_SEEDS}"
            chance = "" if math.isnan(row.probability) else f"{row.probability:.0%}"
            numbers = [signed(row.gain, row.quantity), signed(row.line, row.quantity), str(row.n)]
            lines.append([row.title, heading(row.quantity), *numbers, needed, chance])
        return ["Claim", "On", "Gain", "Line", "n", "Seeds needed", "Decided"], lines

    def records(self) -> list[dict[str, Any]]:
        return [known(asdict(row)) for row in self.rows]


def power_table(
    scores: pd.DataFrame,
    claims: Sequence[Claim],
    protocol: Sequence[str] = (),
    tracked: Callable[[list[Any]], Iterable[Any]] = iter,
) -> PowerTable:
    """The claims that have a stored pair of labels; ``scores`` are those of one protocol of every suite.

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
    return PowerTable(rows, caption, " ".join([*protocol, notes]))


def _power(claim: Claim, quantity: str, test: ClaimTest, samples: dict[str, Sample], level: float) -> Power:
    name, smallest = test.smallest
    terms = [(weight, samples[label]) for weight, label in claim.gains(test.cases)[name]]
    tests_solved = claim.expectation(quantity) != "gain"
    found = seeds_needed(terms, orientation(quantity) * test.line, level, tests_solved)
    return Power(claim.name, claim.title, quantity, smallest.estimate, test.line, smallest.n, *found)
