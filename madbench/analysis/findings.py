"""Claims held against stored runs: supported, contradicted, not testable, or not enough data.

A claim on a quantity is tested against the line that it draws (:mod:`madbench.analysis.claims`), with the contrasts of
:mod:`madbench.analysis.inference`. It is supported or contradicted, by the side of the line that its gain is on, where
p is at most 0.05 after Holm over all findings that are tested together; so any false verdict among them has a
probability of at most 5%. Of several gains that all have to be beyond the line, the largest p supports the claim, and
the smallest times their number contradicts it. A claim is not testable where neither label has learned the task, or
both solve it and a gain is claimed. Everything else is not enough data.

A verdict that was waited for, with seeds added until it came, is worth less than its p says; ``madbench register``
states claims, labels and seeds before the runs exist. A verdict is about the protocol of the runs. The published
numbers, one seed each, are read without an interval.
"""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import pandas as pd

from madbench.analysis.claims import Claim, Terms
from madbench.analysis.contrasts import Pair
from madbench.analysis.inference import (
    BOTH_SOLVE,
    LEAST_SEEDS,
    LEVEL,
    NEITHER_LEARNED,
    Difference,
    Sample,
    combination,
    holm,
)
from madbench.analysis.lines import line_of, published_gain
from madbench.analysis.quantities import column, p_text, signed, suite_of_known
from madbench.analysis.references import orientation
from madbench.analysis.samples import samples_of
from madbench.config import seed_list
from madbench.suites import main_suite, suites

Verdict = Literal["supported", "contradicted", "not testable", "not enough data"]
VERDICTS: tuple[Verdict, ...] = typing.get_args(Verdict)

Lines = Mapping[str, Mapping[str, float]]
"""By name of a claim and quantity, what its gain has to be beyond."""
PROVISIONAL = "provisional"
"""The mark of a verdict that is not the registered one yet."""
ASKED_SEEDS = 5
"""Seeds that a command asks for where the store has fewer."""


@dataclass(frozen=True)
class Finding:
    """A claim on one quantity: what the paper's table says, what the store says, and the verdict."""

    claim: Claim
    quantity: str  # a MAD task, mad_average, loss_l5 or steps_to_x
    options: str  # of the command: the protocol
    line: float  # what the gain has to be above, or below for a claim of "no gain"
    published: float  # gain in the paper's table, of the same pairs or, without any, of all; NaN where it has none
    ours: Difference | None  # the smallest of the gains that have to be beyond the line; None without a pair
    gain_name: str  # which that is: the rival, or the pair; empty where there is one gain
    p: float  # two-sided, of all gains together; NaN without a test
    p_holm: float  # adjusted for all findings that are tested
    tested: int  # findings that are tested together with this one
    verdict: Verdict
    detail: str  # why there is no test; or of what kind "no loss" is
    labels: tuple[str, ...]  # of the pairs that count, or else of the pair that lacks the fewest
    missing: tuple[str, ...]  # those without finished runs; none where a pair is stored
    pairs: dict[Pair, float]  # those that count and the mean gain of each
    published_line: float = math.nan  # the line in the paper's points, where it is scaled to the profile
    marks: tuple[str, ...] = ()  # of a registration: what makes the verdict weaker than a confirmed one
    chosen_on: str = ""  # the set of labels by whose published order the settings of the runs were chosen, if any
    paper: str = ""  # the paper whose claim it is, if claims of papers were judged

    @property
    def n(self) -> int:
        """Seeds of the label that has the fewest; 0 without a pair."""
        return self.ours.n if self.ours else 0

    @property
    def verdict_text(self) -> str:
        """The verdict with its marks in brackets."""
        return f"{self.verdict} ({', '.join(self.marks)})" if self.marks else self.verdict

    @property
    def choice_note(self) -> str:
        """A note beside the verdict on settings that were chosen by published numbers. Empty if none were."""
        return choice_note([self.chosen_on])

    @property
    def published_agrees(self) -> bool:
        """Whether the published gain is on the claim's side of the line, in the paper's points."""
        line = self.line if math.isnan(self.published_line) else self.published_line
        return (self.published - line) * self.claim.sign(self.quantity) > 0

    @property
    def is_at_line(self) -> bool:
        """True if no verdict came and the gain is on the line, to the digits that are printed."""
        if self.ours is None or self.verdict != "not enough data" or math.isnan(self.p):
            return False
        return round(self.ours.estimate - self.line, column(self.quantity).digits) == 0

    @property
    def suite(self) -> str:
        """The name of the suite whose runs it is about."""
        return suite_of_known(self.quantity).name

    @property
    def task_words(self) -> list[str]:
        """The option that names its tasks; none where a run trains them unasked."""
        suite = suite_of_known(self.quantity)
        if self.quantity in suite.tasks():
            return ["-t", self.quantity]
        return ["-t", ",".join(suite.tasks())] if self.options and suite is not main_suite() else []

    @property
    def command(self) -> str:
        """What trains :data:`ASKED_SEEDS` seeds; empty where they are there."""
        if self.n >= ASKED_SEEDS:
            return ""
        words = ["madbench", "run", *self.labels, "--seeds", seed_list(range(ASKED_SEEDS)), *self.task_words]
        return " ".join(filter(None, [*words, self.options]))

    @property
    def reason(self) -> str:
        """The reason of the verdict, in sentences."""
        if self.missing:
            return f"No finished runs of {', '.join(self.missing)}."
        if math.isnan(self.p):
            return f"{self.detail.capitalize()}: not tested."
        gain = f"The gain over {self.gain_name}" if self.claim.rivals else "The gain"
        line = signed(self.line, self.quantity) if self.line else "0"
        if not math.isnan(self.published_line):
            line += f" ({signed(self.published_line, self.quantity)} in the paper's points)"
        sign = self.claim.sign(self.quantity)
        if self.is_at_line:
            where = "is at"
        elif self.verdict == "not enough data":
            where = "may be on either side of"
        else:
            where = "is above" if (self.verdict == "supported") == (sign > 0) else "is below"
        sentences = [f"{gain} {where} {line}: p {p_text(self.p_holm)} after Holm ({self.tested} tested)."]
        if self.detail:
            sentences.append(f"{self.detail.capitalize()}.")
        if len(self.pairs) > 1 and not self.claim.rivals:
            agree = sum((gain - self.line) * sign > 0 for gain in self.pairs.values())
            sentences.append(f"{agree} of {len(self.pairs)} pairs are on the claim's side of it.")
        return " ".join(sentences)


def findings(
    scores: pd.DataFrame | None = None,
    quantities: Collection[str] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    *,
    claims: Sequence[Claim],
    scales: bool = True,
    lines: Lines = MappingProxyType({}),
    chosen_on: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Every claim on every quantity that it is about, in the order of ``claims``.

    Steps to a loss are judged where the scores have them: of language models of the paper's size.

    Args:
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`); a seed counts once its jobs are
            done.
        quantities: tasks, ``mad_average``, ``loss_l5``; by default those of ``scores``, or all if no claim has one.
        options: what ``madbench run`` needs for the protocol of a suite, as on the command line, by name of the suite.
        claims: those to judge, together: they are the family of Holm's adjustment.
        scales: whether lines that are shares of published accuracies are scaled to the profile.
        lines: by name of a claim and quantity, those that were registered, in place of the claim's own.
        chosen_on: the set of labels by whose published order settings were chosen, by name of the suite.
    """
    samples = samples_of(scores) if scores is not None and len(scores) else {}
    if quantities is None and scores is not None and samples:
        own = (suite.columns(scores.column[scores.suite == suite.name].unique()) for suite in suites().values())
        stored = {*scores.column, *(column.name for columns in own for column in columns)}
        quantities = stored.intersection(itertools.chain.from_iterable(claim.quantities for claim in claims)) or None
    asked = [(claim, x) for claim in claims for x in claim.quantities if quantities is None or x in quantities]
    fixed = [lines.get(claim.name, {}).get(quantity) for claim, quantity in asked]
    tests = [test_claim(claim, x, samples.get(x, {}), scales, line) for (claim, x), line in zip(asked, fixed)]
    adjusted = holm([test.p for test in tests])
    tested = sum(not math.isnan(p) for p in adjusted)
    rows = [
        _finding(
            claim,
            quantity,
            options.get(suite_of_known(quantity).name, ""),
            samples.get(quantity, {}),
            test,
            p_holm,
            tested,
            line,
        )
        for (claim, quantity), test, p_holm, line in zip(asked, tests, adjusted, fixed)
    ]
    return [replace(row, chosen_on=chosen_on.get(row.suite, "")) if row.pairs else row for row in rows]


def findings_by_paper(
    scores: pd.DataFrame | None,
    claims: Mapping[str, Sequence[Claim]],
    quantities: Collection[str] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    scales: bool = True,
    chosen_on: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """The findings of several papers. The correction for many tests is over the claims of one paper alone.

    ``claims`` are those of each paper, by its name. The other arguments are those of :func:`findings`.
    """
    return [
        replace(row, paper=paper)
        for paper, own in claims.items()
        for row in findings(scores, quantities, options, claims=own, scales=scales, chosen_on=chosen_on)
    ]


def choice_note(sets: Iterable[str]) -> str:
    """A note on settings that were chosen by the published order of these sets of labels. Empty if none were."""
    chosen = ", ".join(f"@{name}" for name in dict.fromkeys(sets) if name)
    return f"settings chosen by the published order of {chosen}" if chosen else ""


@dataclass(frozen=True)
class ClaimTest:
    """A claim on a quantity against what is stored; the defaults are those of a claim without a stored pair."""

    cases: tuple[int, ...] = ()  # indices of the pairs that count
    line: float = math.nan
    published_line: float = math.nan  # in the paper's points, where the line is scaled
    gains: tuple[tuple[str, Difference], ...] = ()  # by name; more is better
    p: float = math.nan  # two-sided, of "the smallest gain is on the line"
    is_for: bool = False  # whether it is on the claim's side
    detail: str = ""

    @property
    def smallest(self) -> tuple[str, Difference | None]:
        """The gain that is least, and its name."""
        return min(self.gains, key=lambda gain: gain[1].estimate, default=("", None))


def test_claim(
    claim: Claim,
    quantity: str,
    samples: Mapping[str, Sample],
    scales: bool = True,
    fixed_line: float | None = None,
) -> ClaimTest:
    """Tests ``claim`` on the samples of ``quantity`` by label; ``scales`` is that of :func:`findings`.

    A ``fixed_line`` stands in place of the claim's own, in the units of the column.

    Pairs with enough seeds count; without any, all that are stored. Where every pair has to hold, all have to be there.
    """
    stored = [case for case in range(len(claim.pairs)) if set(claim.labels([case])) <= samples.keys()]
    if not stored or (claim.judges == "every pair" and len(stored) < len(claim.pairs)):
        return ClaimTest()
    enough = [c for c in stored if min(samples[label].n for label in claim.labels([c])) >= LEAST_SEEDS]
    cases = stored if claim.judges == "every pair" else enough or stored
    means = {label: sample.mean for label, sample in samples.items()}
    published_line = line = line_of(claim, quantity, cases, means)
    if fixed_line is not None:
        published_line = line = fixed_line
    elif scales:
        line = line_of(claim, quantity, cases, means, samples[claim.labels(cases)[0]].way)
    gains = {name: _gain(claim, quantity, terms, samples, line) for name, terms in claim.gains(cases).items()}
    own = math.nan if line == published_line else published_line
    test = ClaimTest(tuple(cases), line, own, tuple(gains.items()))
    if reason := next((gain.reason for gain in gains.values() if gain.reason), ""):
        return replace(test, detail=reason)
    sign = claim.sign(quantity)
    p_holds = max(gain.p / 2 if (gain.estimate - line) * sign > 0 else 1 - gain.p / 2 for gain in gains.values())
    p_fails = min(1.0, len(gains) * (1 - p_holds))
    test = replace(test, p=min(1.0, 2 * min(p_holds, p_fails)), is_for=p_holds < p_fails)
    if claim.expectation(quantity) != "gain" and test.is_for and test.p <= LEVEL:
        return replace(test, detail=_kind_within(claim, quantity, cases, line, samples))
    return test


def _kind_within(claim: Claim, quantity: str, cases: Sequence[int], line: float, samples: Mapping[str, Sample]) -> str:
    """What is shown of a claim of no difference beyond the margin: equivalence, no loss, no gain, or more than that."""
    terms = next(iter(claim.gains(cases).values()))
    gain, expectation = _gain(claim, quantity, terms, samples), claim.expectation(quantity)
    if expectation == "equal":
        return "equal within the margin"
    if expectation == "no gain":
        return "worse" if gain.high < 0 else "not better by the margin"
    if gain.high < 0:
        return "worse, within the margin"
    return "equal within the margin" if gain.high < -line else "better" if gain.low > 0 else "not worse by the margin"


def _gain(
    claim: Claim,
    quantity: str,
    terms: Terms,
    samples: Mapping[str, Sample],
    line: float = 0.0,
) -> Difference:
    weighted = [(weight, samples[label]) for weight, label in terms]
    tests_solved = claim.expectation(quantity) != "gain"
    return as_gain(combination(weighted, orientation(quantity) * line, tests_solved), quantity)


def as_gain(difference: Difference, quantity: str) -> Difference:
    """``difference`` with the sign with which more is better."""
    if orientation(quantity) > 0:
        return difference
    return replace(difference, estimate=0.0 - difference.estimate, low=-difference.high, high=-difference.low)


def _finding(
    claim: Claim,
    quantity: str,
    options: str,
    samples: Mapping[str, Sample],
    test: ClaimTest,
    p_holm: float,
    tested: int,
    fixed_line: float | None,
) -> Finding:
    every = range(len(claim.pairs))
    cases = test.cases or every
    verdict: Verdict = "not enough data"
    if p_holm <= LEVEL:
        verdict = "supported" if test.is_for else "contradicted"
    elif test.detail in (NEITHER_LEARNED, BOTH_SOLVE):
        verdict = "not testable"
    needed = [cases] if test.cases or claim.judges == "every pair" else [[case] for case in every]
    choices = [claim.labels(chosen) for chosen in needed]
    lacking = [tuple(label for label in labels if label not in samples) for labels in choices]
    missing, labels = min(zip(lacking, choices), key=lambda choice: len(choice[0]))
    sign = orientation(quantity)
    pairs = {(a, b): sign * (samples[a].mean - samples[b].mean) for a, b in (claim.pairs[c] for c in test.cases)}
    own_line = line_of(claim, quantity, cases, {}) if fixed_line is None else fixed_line
    line = test.line if test.cases else own_line
    name, ours = test.gains[0] if test.gains and claim.expects == "equal" else test.smallest
    published = published_gain(claim, quantity, cases)
    numbers = test.p, p_holm, tested
    detail = "" if verdict == "not enough data" and not math.isnan(test.p) else test.detail
    return Finding(
        claim,
        quantity,
        options,
        line,
        published,
        ours,
        name,
        *numbers,
        verdict,
        detail,
        labels,
        missing,
        pairs,
        test.published_line,
    )
