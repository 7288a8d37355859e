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

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from madbench.analysis import claim_tests
from madbench.analysis.attribution import measured_values
from madbench.analysis.claim_tests import MOST_SEEDS, ClaimTest, Measured
from madbench.analysis.claims import CLAIMS, Claim
from madbench.analysis.contrasts import Pair
from madbench.analysis.quantities import LOSS, mad_columns, signed
from madbench.analysis.statistics import LEVEL, holm
from madbench.config import seed_list
from madbench.suites import MAD
from madbench.tasks import MAD_TASKS

Verdict = Literal["supported", "contradicted", "not enough data"]

SOLVED = 99.0
"""Percent of accuracy from which a task leaves next to nothing to gain."""
SEEDS = 3
"""That a command asks for where the store has fewer."""

_NOTHING = pd.DataFrame()


@dataclass(frozen=True)
class Finding:
    """A claim on one quantity: what the paper's table says, what the store says, and the verdict."""

    claim: Claim
    quantity: str  # a MAD task, mad_average or loss_l5
    options: str  # of the command: the protocol
    line: float  # what the gain has to be above, or below for a claim of "no gain"
    published: float  # gain in the paper's table, of the same pairs or, without any, of all: one seed, no interval
    ours: float  # gain; NaN without a pair. Of a claim with rivals: over the next largest factor
    low: float  # ends of the 95% interval of this gain alone; NaN for fewer than two seeds
    high: float
    n: int  # seeds
    p: float  # two-sided; NaN for fewer than two seeds
    p_holm: float  # adjusted for all findings that are tested
    tested: int  # findings that are tested together with this one
    verdict: Verdict
    labels: tuple[str, ...]  # of the pairs that count, or else of the pair that lacks the fewest
    missing: tuple[str, ...]  # those without finished runs; none where a pair is stored
    pairs: dict[Pair, float]  # those that count and the mean gain of each
    solved: tuple[str, ...]  # second labels of these pairs that have next to all of the task's accuracy already
    rival: str  # the next largest factor, of a claim with rivals
    seeds: tuple[int, ...]  # for the command; none where nothing is left to decide or more than MOST_SEEDS are needed

    @property
    def published_agrees(self) -> bool:
        """Whether the published gain is on the claim's side of the line."""
        return bool(claim_tests.oriented(self.claim, self.quantity, self.published) > 0)

    @property
    def verb(self) -> str:
        """What trains its runs."""
        return "lm" if self.quantity == LOSS else "run"

    @property
    def command(self) -> str:
        """What would give enough data, at least of such gains as are stored; empty where ``seeds`` is."""
        words = ["madbench", self.verb, *self.labels, "--seeds", seed_list(self.seeds)]
        words += ["-t", self.quantity] if self.quantity in MAD_TASKS else []
        return " ".join(filter(None, [*words, self.options])) if self.seeds else ""

    @property
    def reason(self) -> str:
        """Of the verdict, in sentences."""
        if self.missing:
            return f"No finished runs of {', '.join(self.missing)}."
        if self.n < 2:
            return "Single seed; excluded from tests." if self.n else f"{', '.join(self.labels)}: no seed in common."
        gain = f"The gain over {self.rival}" if self.rival else "The gain"
        line = signed(self.line, self.quantity) if self.line else "0"
        p = f"{p_text(self.p_holm)} after Holm ({self.tested} tested)"
        if self.verdict == "not enough data":
            more = f"{len(self.seeds)}" if self.seeds else f"not even {MOST_SEEDS}"
            sentences = [f"{gain} may be on either side of {line}: {p}; {more} seeds like these {self.n} would decide."]
        else:
            is_above = (self.verdict == "supported") == (self.claim.sign > 0)
            sentences = [f"{gain} is {'above' if is_above else 'below'} {line}: {p}."]
        if len(self.pairs) > 1 and not self.rival:
            agree = sum(claim_tests.oriented(self.claim, self.quantity, gain) > 0 for gain in self.pairs.values())
            sentences.append(f"{agree} of {len(self.pairs)} pairs are on the claim's side of it.")
        if self.solved:
            sentences.append(f"{' and '.join(self.solved)} solves the task already.")
        return " ".join(sentences)


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}" if p < 0.1 else f"p {p:.2f}"


def findings(
    scores: pd.DataFrame | None = None,
    quantities: Collection[str] | None = None,
    mad_options: str = "",
    language_options: str = "",
    claims: Sequence[Claim] = CLAIMS,
) -> list[Finding]:
    """Every claim on every quantity that it is about, in the order of ``claims``.

    Args:
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`); a seed counts once its jobs are
            done.
        quantities: tasks, ``mad_average``, ``loss_l5``; by default those of ``scores``, all without any.
        mad_options: what ``madbench run`` needs for the protocol of MAD tasks, as on the command line.
        language_options: what ``madbench lm`` needs for that of language models.
        claims: those to judge, together: they are the family of Holm's adjustment.
    """
    tables: dict[str, pd.DataFrame] = {}
    if scores is not None and len(scores):
        for quantity, found in measured_values(scores)[0].groupby("column", sort=False):
            values = found.pivot(index="label", columns="seed", values="value").astype(float)
            tables[quantity] = claim_tests.as_gain(values, quantity)  # by label and seed, NaN where one is missing
        if quantities is None:
            on_tasks = scores.column[scores.suite == MAD.name].unique()
            quantities = {*scores.column, *(column.name for column in mad_columns(on_tasks))}
    asked = [(claim, x) for claim in claims for x in claim.quantities if quantities is None or x in quantities]
    stored = [tables.get(quantity, _NOTHING) for _, quantity in asked]
    measured = [claim_tests.measure(*about, found) for about, found in zip(asked, stored)]
    lenders = {i: own for i, own in enumerate(measured) if own and own.freedom and not asked[i][0].rivals}
    tests = [
        claim_tests.judge(own, [other for j, other in lenders.items() if j != i and asked[j][1] == asked[i][1]])
        for i, own in enumerate(measured)
    ]
    adjusted = holm([test.p for test in tests])
    tested = sum(not math.isnan(p) for p in adjusted)
    options = [language_options if quantity == LOSS else mad_options for _, quantity in asked]
    rows = zip(asked, options, stored, measured, tests, adjusted)
    return [_finding(*about, *of_row, tested) for about, *of_row in rows]


def _finding(
    claim: Claim,
    quantity: str,
    options: str,
    stored: pd.DataFrame,
    own: Measured | None,
    test: ClaimTest,
    p_holm: float,
    tested: int,
) -> Finding:
    cases, counted = (own.cases, own.seeds) if own else (range(len(claim.pairs)), ())
    line, published = claim_tests.line_of(claim, quantity), claim_tests.published_gain(claim, quantity, cases)
    gain, half = line + test.mean * claim.sign, test.half_width
    verdict: Verdict = "not enough data"
    if p_holm <= LEVEL:
        verdict = "supported" if test.is_for else "contradicted"
    choices = [claim.labels(cases)] if own else [claim.labels([case]) for case in cases]
    lacking = [tuple(label for label in labels if label not in stored.index) for labels in choices]
    missing, labels = min(zip(lacking, choices), key=lambda choice: len(choice[0]))
    means = {label: float(stored.loc[label, [*counted]].to_numpy().mean()) for label in labels if own}
    pairs = {(a, b): means[a] - means[b] for a, b in (claim.pairs[case] for case in cases if own)}
    solved = tuple(b for _, b in pairs if quantity in MAD_TASKS and means[b] >= SOLVED)
    rival = list(claim.rivals)[test.k // 2] if claim.rivals and own else ""
    seeds: tuple[int, ...] = ()
    if len(counted) < 2:
        seeds = _seeds(stored.columns, SEEDS)
    elif not p_holm <= LEVEL and (needed := claim_tests.seeds_needed(own, test, tested)):
        seeds = _seeds(counted, needed)
    about = (claim, quantity, options, line, published)
    numbers = (round(gain, 9), gain - half, gain + half, len(counted), test.p, p_holm, tested)
    return Finding(*about, *numbers, verdict, labels, missing, pairs, solved, rival, seeds)


def _seeds(stored: Collection[int], least: int) -> tuple[int, ...]:
    """``stored`` and, up to ``least`` in all, the smallest others."""
    others = (seed for seed in range(len(stored) + least) if seed not in stored)
    return tuple(sorted([*map(int, stored), *itertools.islice(others, max(0, least - len(stored)))]))
