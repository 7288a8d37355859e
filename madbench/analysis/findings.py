"""Verdicts on claims from stored runs: supported, contradicted, not decided, not testable, or not enough data.

A finding is the verdict on a claim in one column of results, which is called its quantity. The claim is tested against
its threshold (:mod:`madbench.analysis.claims.testing`), with Holm's correction over all findings tested together.
If p is at most 0.05, the claim is supported if its gain is on the claimed side of the threshold, and contradicted
otherwise. So the probability of any false verdict among these findings is at most 5%. A claim is not testable if
neither label has learned the task, or if a gain is claimed and both labels solve the task. If the claim was tested and
p is larger, it is not decided. If it was not tested, because runs or seeds are missing, the verdict is "not enough
data".

If seeds are added until there is a verdict, the p-value overstates the evidence. ``madbench register`` avoids this: it
states claims, labels and seeds before the runs exist. A verdict holds for the protocol of the runs. Published numbers
have no interval.
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

from madbench.analysis.claims import Claim
from madbench.analysis.claims.testing import ClaimTest, test_claim
from madbench.analysis.claims.thresholds import claim_threshold, published_gain
from madbench.analysis.contrasts import LabelPair
from madbench.analysis.inference import (
    BOTH_SOLVE,
    LEVEL,
    NEITHER_LEARNED,
    Difference,
    Sample,
    holm,
)
from madbench.analysis.quantities import column, p_text, signed_text, suite_of_known, with_averages
from madbench.analysis.references import gain_sign
from madbench.analysis.samples import samples_of
from madbench.config import seed_list
from madbench.suites import main_suite

Verdict = Literal["supported", "contradicted", "not decided", "not testable", "not enough data"]
VERDICTS: tuple[Verdict, ...] = typing.get_args(Verdict)

Thresholds = Mapping[str, Mapping[str, float]]
"""The thresholds of claims, by the name of the claim and then by quantity."""
PROVISIONAL = "provisional"
"""The mark of a registered verdict that can still change: runs are missing, or registered values have changed."""
ADVISED_SEEDS = 5
"""The number of seeds in commands that train missing runs."""


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim in one column (its quantity), with the published and the measured gain."""

    claim: Claim
    quantity: str
    """The name of the column: a task, or a name such as ``mad_average`` or ``loss_l5``."""
    options: str
    """The options of ``madbench run`` that select the protocol of the runs, as text."""
    threshold: float
    """The gain has to be above this threshold, or below it for a claim of "no gain"."""
    published: float
    """The published gain of the tested pairs, or of all pairs if none is tested. If the claim needs several gains, the
    smallest. NaN if unknown."""
    ours: Difference | None
    """The measured gain. If the claim needs several gains, the smallest. None without a stored pair."""
    gain_name: str
    """The rival or the pair to which ``ours`` belongs. Empty if there is only one gain."""
    p: float
    """The p-value of the two-sided test of the claim, which uses all its gains. NaN without a test."""
    p_holm: float
    """``p`` after Holm's correction over all findings that are tested."""
    tested: int
    """The number of findings that are tested together in Holm's correction."""
    verdict: Verdict
    detail: str
    """The reason why there is no test. For a supported claim of no difference, what was shown, such as ``equal within
    the margin``. Otherwise empty."""
    labels: tuple[str, ...]
    """Labels of the tested pairs. If no pair is tested, those of the pair with the fewest missing labels."""
    missing: tuple[str, ...]
    """The labels in ``labels`` that have no complete seed. Empty if a pair is stored."""
    pairs: dict[LabelPair, float]
    """The tested pairs, each with its mean gain."""
    published_threshold: float = math.nan
    """The threshold in the paper's points, if it is scaled to the profile, otherwise NaN."""
    marks: tuple[str, ...] = ()
    """Reservations about a registered verdict, such as "provisional"."""
    chosen_on: str = ""
    """The name of the set of labels whose published order was used to choose the settings of the runs. Empty if there
    is none."""
    paper: str = ""
    """The paper of the claim. Empty if all claims have one source."""

    @property
    def n(self) -> int:
        """The smallest number of seeds of any label in the tested pairs. 0 if no pair is stored."""
        return self.ours.n if self.ours else 0

    @property
    def verdict_text(self) -> str:
        """The verdict with its marks in brackets, such as ``supported (provisional)``."""
        return f"{self.verdict} ({', '.join(self.marks)})" if self.marks else self.verdict

    @property
    def choice_note(self) -> str:
        """A note that the settings of the runs were chosen by published numbers. Empty if they were not."""
        return choice_note([self.chosen_on])

    @property
    def published_agrees(self) -> bool:
        """True if the published gain is on the claim's side of the threshold. False if no published gain is known."""
        threshold = self.threshold if math.isnan(self.published_threshold) else self.published_threshold
        return (self.published - threshold) * self.claim.sign(self.quantity) > 0

    @property
    def is_at_threshold(self) -> bool:
        """True if the claim is tested but not decided, and its gain equals the threshold in the printed digits."""
        if self.ours is None or self.verdict != "not decided":
            return False
        return round(self.ours.estimate - self.threshold, column(self.quantity).digits) == 0

    @property
    def suite(self) -> str:
        """The name of the suite to which the column :attr:`quantity` belongs."""
        return suite_of_known(self.quantity).name

    @property
    def task_words(self) -> list[str]:
        """The words ``-t TASKS`` with which ``madbench run`` trains the tasks of the column :attr:`quantity`.

        Empty if these tasks are trained by default.
        """
        suite = suite_of_known(self.quantity)
        if self.quantity in suite.tasks():
            return ["-t", self.quantity]
        return ["-t", ",".join(suite.tasks())] if self.options and suite is not main_suite() else []

    @property
    def command(self) -> str:
        """The command that trains :attr:`labels` with :data:`ADVISED_SEEDS` seeds.

        Empty if the tested labels have that many stored seeds or more.
        """
        if self.n >= ADVISED_SEEDS:
            return ""
        words = ["madbench", "run", *self.labels, "--seeds", seed_list(range(ADVISED_SEEDS)), *self.task_words]
        return " ".join(filter(None, [*words, self.options]))

    @property
    def reason(self) -> str:
        """The reason for the verdict in sentences, with the p-value and the threshold if the claim was tested."""
        if self.missing:
            return f"No finished runs of {', '.join(self.missing)}."
        if math.isnan(self.p):
            return f"{self.detail.capitalize()}: not tested."
        gain = f"The gain over {self.gain_name}" if self.claim.rivals else "The gain"
        threshold = signed_text(self.threshold, self.quantity) if self.threshold else "0"
        if not math.isnan(self.published_threshold):
            threshold += f" ({signed_text(self.published_threshold, self.quantity)} in the paper's points)"
        sign = self.claim.sign(self.quantity)
        if self.is_at_threshold:
            where = "is at"
        elif self.verdict == "not decided":
            where = "may be on either side of"
        else:
            where = "is above" if (self.verdict == "supported") == (sign > 0) else "is below"
        sentences = [f"{gain} {where} {threshold}: p {p_text(self.p_holm)} after Holm ({self.tested} tested)."]
        if self.detail:
            sentences.append(f"{self.detail.capitalize()}.")
        if len(self.pairs) > 1 and not self.claim.rivals:
            agree = sum((gain - self.threshold) * sign > 0 for gain in self.pairs.values())
            sentences.append(f"{agree} of {len(self.pairs)} pairs are on the claim's side of it.")
        return " ".join(sentences)


def findings(
    scores: pd.DataFrame | None = None,
    quantities: Collection[str] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    *,
    claims: Sequence[Claim],
    scales: bool = True,
    thresholds: Thresholds = MappingProxyType({}),
    chosen_on: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Judge claims by stored runs. Return one finding per claim and column of the claim, in the order of ``claims``.

    Args:
        scores: the scores of one protocol per suite (:mod:`madbench.analysis.scores`). A seed counts if all its jobs
            are done. Columns of steps to a loss are there only if the profile is comparable with the paper. None if
            there are no stored runs.
        quantities: the columns to judge. Default: the columns of ``scores``, or all columns of the claims if no claim
            is about a column of ``scores``.
        options: the options of ``madbench run`` that select the protocol of a suite, by the suite's name.
        claims: the claims to judge. Holm's correction is over all of them.
        scales: True if thresholds that are shares of published accuracies are scaled to the profile.
        thresholds: registered thresholds, which replace the thresholds of the claims.
        chosen_on: by the suite's name, the name of the set of labels whose published order was used to choose the
            settings of the runs. Suites without such a set are missing or have an empty name.
    """
    samples = samples_of(scores) if scores is not None and len(scores) else {}
    if quantities is None and scores is not None and samples:
        claimed = itertools.chain.from_iterable(claim.quantities for claim in claims)
        quantities = with_averages(scores.column).intersection(claimed) or None
    questions = [
        _Question(claim, x, samples.get(x, {}), thresholds.get(claim.name, {}).get(x))
        for claim in claims
        for x in claim.quantities
        if quantities is None or x in quantities
    ]
    tests = [test_claim(each.claim, each.quantity, each.samples, scales, each.fixed_threshold) for each in questions]
    adjusted_p = holm([test.p for test in tests])
    test_count = sum(not math.isnan(p) for p in adjusted_p)
    rows = [
        _finding(question, options.get(suite_of_known(question.quantity).name, ""), test, p_holm, test_count)
        for question, test, p_holm in zip(questions, tests, adjusted_p)
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
    """The findings of several papers, with a separate Holm correction for each paper.

    ``claims`` has the claims of each paper by its name. The other arguments are those of :func:`findings`.
    """
    return [
        replace(row, paper=paper)
        for paper, claims_of_paper in claims.items()
        for row in findings(scores, quantities, options, claims=claims_of_paper, scales=scales, chosen_on=chosen_on)
    ]


def choice_note(sets: Iterable[str]) -> str:
    """A note that settings were chosen by the published order of labels.

    ``sets`` has the name of the set of labels for each finding, or an empty text. The note is empty if all are empty.
    """
    set_names = ", ".join(f"@{name}" for name in dict.fromkeys(sets) if name)
    return f"settings chosen by the published order of {set_names}" if set_names else ""


@dataclass(frozen=True)
class _Question:
    """A claim about one column, and the stored seeds by which it is judged."""

    claim: Claim
    quantity: str
    samples: Mapping[str, Sample]  # the seeds of each label in the column ``quantity``
    fixed_threshold: float | None  # the registered threshold; None if the claim's own threshold applies


def _finding(question: _Question, options: str, test: ClaimTest, p_holm: float, tested: int) -> Finding:
    """The finding for a claim about one column.

    The verdict is ``supported`` or ``contradicted`` if ``p_holm`` is at most ``LEVEL``. It is ``not testable`` if all
    labels solve the task in a claim of a gain, or if no label has learned it. Otherwise it is ``not decided`` if the
    claim was tested, and ``not enough data`` if it was not.

    Args:
        question: the claim with its column and its samples.
        options: the options of ``madbench run`` that select the protocol.
        test: the result of testing the claim.
        p_holm: the p-value of ``test`` after Holm's correction.
        tested: the number of tests in Holm's correction.
    """
    claim, quantity, samples = question.claim, question.quantity, question.samples
    all_cases = range(len(claim.pairs))
    cases = test.cases or all_cases
    verdict: Verdict = "not enough data"
    if p_holm <= LEVEL:
        verdict = "supported" if test.is_for else "contradicted"
    elif test.detail in (NEITHER_LEARNED, BOTH_SOLVE):
        verdict = "not testable"
    elif not math.isnan(test.p):
        verdict = "not decided"
    case_groups = [cases] if test.cases or claim.judges == "every pair" else [[case] for case in all_cases]
    choices = [claim.labels(cases_of_group) for cases_of_group in case_groups]
    lacking = [tuple(label for label in labels if label not in samples) for labels in choices]
    missing, labels = min(zip(lacking, choices), key=lambda choice: len(choice[0]))
    sign = gain_sign(quantity)
    pairs = {(a, b): sign * (samples[a].mean - samples[b].mean) for a, b in (claim.pairs[c] for c in test.cases)}
    own_threshold = question.fixed_threshold
    if own_threshold is None:
        own_threshold = claim_threshold(claim, quantity, cases, {})
    threshold = test.threshold if test.cases else own_threshold
    name, ours = test.gains[0] if test.gains and claim.expects == "equal" else test.smallest
    published = published_gain(claim, quantity, cases)
    numbers = test.p, p_holm, tested
    detail = "" if verdict == "not decided" else test.detail
    return Finding(
        claim,
        quantity,
        options,
        threshold,
        published,
        ours,
        name,
        *numbers,
        verdict,
        detail,
        labels,
        missing,
        pairs,
        test.published_threshold,
    )
