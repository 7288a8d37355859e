"""The claims of the paper held against stored runs: supported, contradicted, or not enough data.

A claim on a quantity is tested against the line that it draws (:mod:`madbench.analysis.claim_tests`). It is supported or
contradicted, by the side of the line that its gain is on, where p is at most 0.05 after Holm over all findings that are
tested together; so any false verdict among them has a probability of at most 5%. Everything else is not enough data: a
pair that is not stored, a single seed, a larger p. No claim names the size of its gain, so a gain of about 0 does not
contradict it, however many seeds show it.

A verdict that was waited for, with seeds added until it came, is worth less than its p says. It is about the protocol
of the runs. The published numbers, one seed each, are read without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from madbench.analysis.attribution_table import measured_values
from madbench.analysis.claim_tests import (
    MOST_SEEDS,
    ClaimTest,
    Gains,
    Measured,
    judge,
    labels_of,
    line_of,
    measure,
    oriented,
    published_gain,
    seeds_needed,
)
from madbench.analysis.claims import CLAIMS, Claim
from madbench.analysis.contrasts import Pair
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.statistics import LEVEL, holm, students_t
from madbench.config import seed_list
from madbench.tasks import TASK_NAMES

Verdict = Literal["supported", "contradicted", "not enough data"]

SOLVED = 99.0
"""Percent of accuracy from which a task leaves next to nothing to gain."""
SEEDS = 3
"""That a command asks for where the store has fewer."""

_NOTHING = Gains((), {})


@dataclass(frozen=True)
class Finding:
    """A claim on one quantity: what the paper's table says, what the store says, and the verdict."""

    about: Claim
    quantity: str
    """A MAD task, ``mad_average`` or ``loss_l5``."""
    line: float
    """What the gain has to be above, or below for a claim of "no gain"."""
    published: float
    """Gain in the paper's table, of the same pairs as ``ours`` or, without any, of all: one seed, no interval."""
    published_agrees: bool
    """Whether the published gain is on the claim's side of the line."""
    ours: float
    """Gain; NaN without a pair. Of a claim with rivals: over the next largest factor."""
    low: float
    """Lower end of the 95% interval of this gain alone; NaN for fewer than two seeds."""
    high: float
    n: int
    """Seeds."""
    p: float
    """Two-sided; NaN for fewer than two seeds."""
    p_holm: float
    """``p`` adjusted for all findings that are tested."""
    tested: int
    """Findings that are tested together with this one."""
    verdict: Verdict
    pairs: dict[Pair, float]
    """The pairs that count and the mean gain of each."""
    solved: tuple[str, ...]
    """Second labels of these pairs that have next to all of the task's accuracy already."""
    rival: str
    """The next largest factor, of a claim with rivals."""
    missing: tuple[str, ...]
    """Labels without finished runs, of the pair that lacks the fewest; empty where a pair is stored."""
    labels: tuple[str, ...]
    """Those of ``command``: of the pairs that count, or of the pair that lacks the fewest."""
    seeds: tuple[int, ...]
    """That ``command`` asks for; empty where nothing is left to decide or more than ``MOST_SEEDS`` are needed."""
    options: str
    """Of ``command``: the protocol."""
    command: str
    """What would give enough data, at least of such gains as are stored; empty where ``seeds`` is."""

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def claim(self) -> str:
        """The paper's sentence."""
        return self.about.sentence

    @property
    def source(self) -> str:
        return self.about.source

    @property
    def unit(self) -> str:
        return "nats_per_token" if self.quantity == LOSS else "points"

    @property
    def reason(self) -> str:
        """Of the verdict, in sentences."""
        if self.missing:
            return f"No finished runs of {', '.join(self.missing)}."
        if self.n < 2:
            return "A single seed claims nothing." if self.n else f"{', '.join(self.labels)}: no seed in common."
        gain = f"The gain over {self.rival}" if self.rival else "The gain"
        line = "0" if not self.line else f"{self.line:+.{digits(self.quantity)}f}"
        p = f"{p_text(self.p_holm)} after Holm ({self.tested} tested)"
        if self.verdict == "not enough data":
            more = f"{len(self.seeds)}" if self.seeds else f"not even {MOST_SEEDS}"
            sentences = [f"{gain} may be on either side of {line}: {p}; {more} seeds like these {self.n} would decide."]
        else:
            is_above = (self.verdict == "supported") == (self.about.expects != "no gain")
            sentences = [f"{gain} is {'above' if is_above else 'below'} {line}: {p}."]
        if len(self.pairs) > 1 and not self.rival:
            agree = sum(oriented(self.about, self.quantity, gain) > 0 for gain in self.pairs.values())
            sentences.append(f"{agree} of {len(self.pairs)} pairs are on the claim's side of it.")
        if self.solved:
            sentences.append(f"{' and '.join(self.solved)} solves the task already.")
        return " ".join(sentences)


def digits(quantity: str) -> int:
    """Of a gain, behind the point."""
    return 3 if quantity == LOSS else 1


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}" if p < 0.1 else f"p {p:.2f}"


def findings(
    cells: pd.DataFrame | None = None,
    losses: pd.DataFrame | None = None,
    quantities: Collection[str] | None = None,
    mad_options: str = "",
    language_options: str = "",
    claims: Sequence[Claim] = CLAIMS,
) -> list[Finding]:
    """Every claim on every quantity that it is about, in the order of ``claims``.

    Args:
        cells: :func:`madbench.analysis.scores.scores` of one protocol; a cell counts once all its jobs are done.
        losses: :func:`madbench.analysis.loss_curves.run_losses` of one protocol.
        quantities: tasks, ``mad_average``, ``loss_l5``; by default those of ``cells`` and ``losses``, all without either.
        mad_options: what ``madbench run`` needs for the protocol of ``cells``, as on the command line.
        language_options: what ``madbench lm`` needs for that of ``losses``.
        claims: those to judge, together: they are the family of Holm's adjustment.
    """
    tables: dict[str, Gains] = {}
    if cells is not None or losses is not None:
        quantities = _quantities(cells, losses) if quantities is None else quantities
        tables = _tables(measured_values(cells, losses)[0])
    asked = [
        (claim, quantity)
        for claim in claims
        for quantity in claim.quantities
        if quantities is None or quantity in quantities
    ]
    measured = [measure(claim, quantity, tables.get(quantity, _NOTHING)) for claim, quantity in asked]
    simple = {
        i: of_it for i, of_it in enumerate(measured) if of_it is not None and of_it.freedom and not asked[i][0].rivals
    }
    tests = [
        judge(of_it, [other for j, other in simple.items() if j != i and asked[j][1] == asked[i][1]])
        for i, of_it in enumerate(measured)
    ]
    adjusted = holm([test.p for test in tests])
    tested = sum(not math.isnan(p) for p in adjusted)
    return [
        _finding(
            claim,
            quantity,
            of_it,
            test,
            p,
            tested,
            tables.get(quantity, _NOTHING),
            language_options if quantity == LOSS else mad_options,
        )
        for (claim, quantity), of_it, test, p in zip(asked, measured, tests, adjusted)
    ]


def _quantities(cells: pd.DataFrame | None, losses: pd.DataFrame | None) -> list[str]:
    quantities = [] if cells is None else list(cells.task.unique())
    if set(TASK_NAMES) <= set(quantities):
        quantities.append(MAD_AVERAGE)
    return quantities + [LOSS] * (losses is not None)


def _tables(values: pd.DataFrame) -> dict[str, Gains]:
    """By quantity."""
    wide = values.dropna(subset="value").pivot(index=["task", "label"], columns="seed", values="value").astype(float)
    tables = {}
    for quantity, of_it in wide.groupby(level="task", sort=False):
        of_it = of_it.droplevel("task").dropna(axis="columns", how="all")
        gains = -of_it.to_numpy() if quantity == LOSS else of_it.to_numpy()
        tables[quantity] = Gains(tuple(map(int, of_it.columns)), dict(zip(of_it.index, gains)))
    return tables


def _finding(
    claim: Claim,
    quantity: str,
    of_it: Measured | None,
    test: ClaimTest,
    p_holm: float,
    tested: int,
    stored: Gains,
    options: str,
) -> Finding:
    line = line_of(claim, quantity)
    verdict: Verdict = "not enough data"
    if p_holm <= LEVEL:
        verdict = "supported" if test.is_for else "contradicted"
    cases: Sequence[int] = range(len(claim.pairs))
    ours = half = math.nan
    pairs: dict[Pair, float] = {}
    solved: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    if of_it:
        cases = of_it.cases
        labels = tuple(dict.fromkeys(label for case in cases for label in labels_of(claim, case)))
        ours = line + float(of_it.gains[test.k].mean()) * (-1 if claim.expects == "no gain" else 1)
        half = test.error * students_t(test.freedom) if test.freedom else math.nan
        counts = np.isin(stored.seeds, of_it.seeds)
        means = {label: float(stored.rows[label][counts].mean()) for label in labels}
        pairs = {pair: means[pair[0]] - means[pair[1]] for pair in (claim.pairs[case] for case in cases)}
        if quantity in TASK_NAMES:
            solved = tuple(without for _, without in pairs if means[without] >= SOLVED)
    else:
        lacking = {case: [label for label in labels_of(claim, case) if label not in stored.rows] for case in cases}
        nearest = min(lacking, key=lambda case: len(lacking[case]))
        labels, missing = labels_of(claim, nearest), tuple(lacking[nearest])
    seeds: tuple[int, ...] = ()
    if of_it is None or not of_it.freedom:
        seeds = _seeds(stored.seeds, max(SEEDS, len(stored.seeds)))
    elif verdict == "not enough data":
        needed = seeds_needed(of_it, test, tested)
        seeds = _seeds(of_it.seeds, needed) if needed else ()
    published = published_gain(claim, quantity, cases)
    return Finding(
        about=claim,
        quantity=quantity,
        line=line,
        published=published,
        published_agrees=bool(oriented(claim, quantity, published) > 0),
        ours=round(ours, 9),
        low=ours - half,
        high=ours + half,
        n=len(of_it.seeds) if of_it else 0,
        p=test.p,
        p_holm=p_holm,
        tested=tested,
        verdict=verdict,
        pairs=pairs,
        solved=solved,
        rival=list(claim.rivals)[test.k // 2] if claim.rivals and of_it else "",
        missing=missing,
        labels=labels,
        seeds=seeds,
        options=options,
        command=_command(labels, seeds, quantity, options) if seeds else "",
    )


def _seeds(stored: Sequence[int], count: int) -> tuple[int, ...]:
    """``stored`` and, up to ``count``, the smallest others."""
    others = (seed for seed in range(len(stored) + count) if seed not in stored)
    return tuple(sorted([*stored, *(next(others) for _ in range(count - len(stored)))]))


def _command(labels: Sequence[str], seeds: Sequence[int], quantity: str, options: str) -> str:
    verb = "lm" if quantity == LOSS else "run"
    words = ["madbench", verb, *labels, "--seeds", seed_list(seeds)]
    if quantity in TASK_NAMES:
        words += ["-t", quantity]
    return " ".join([*words, *[options] * bool(options)])
