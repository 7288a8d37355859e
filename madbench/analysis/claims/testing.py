"""The test of a claim on one quantity against stored samples.

A gain is a weighted sum of means of labels, and a claim may require that several gains are beyond its threshold. Each
gain is tested in both directions. The claim is supported if the test in its favor rejects for every gain, so the
largest of these p-values counts. The claim is contradicted if the test against it rejects for any gain, so the smallest
of these p-values counts, multiplied by the number of gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from madbench.analysis.claims import Claim, WeightedLabels
from madbench.analysis.claims.thresholds import claim_threshold
from madbench.analysis.inference import LEVEL, Difference, Sample, combination
from madbench.analysis.references import gain_sign
from madbench.suites.planning import LEAST_SEEDS


@dataclass(frozen=True)
class ClaimTest:
    """The result of testing a claim in one column of results.

    The default values are the result if no pair of the claim is stored.
    """

    cases: tuple[int, ...] = ()
    """Indices in ``Claim.pairs`` of the pairs that are tested."""
    threshold: float = math.nan
    published_threshold: float = math.nan
    """The threshold before it is scaled to the profile, in the paper's points. NaN if it is not scaled."""
    gains: tuple[tuple[str, Difference], ...] = ()
    """The tested gains, each with its name (:meth:`madbench.analysis.claims.Claim.gains`). A larger gain is better."""
    p: float = math.nan
    """The p-value of the two-sided test, which can support or contradict the claim. NaN if nothing is tested."""
    is_for: bool = False
    """True if the test speaks for the claim and not against it. A single gain is then on the claim's side of the
    threshold."""
    detail: str = ""

    @property
    def smallest(self) -> tuple[str, Difference | None]:
        """The name of the smallest gain, and the gain. ``("", None)`` if no pair of the claim is stored."""
        return min(self.gains, key=lambda gain: gain[1].estimate, default=("", None))


def test_claim(
    claim: Claim,
    quantity: str,
    samples: Mapping[str, Sample],
    scales: bool = True,
    fixed_threshold: float | None = None,
) -> ClaimTest:
    """Test ``claim`` on the column ``quantity``.

    The pairs of the claim whose labels all have at least ``LEAST_SEEDS`` seeds are tested together. If there is no such
    pair, the result has the gains of the pairs with fewer seeds, without a p-value. A claim about every pair is tested
    only if all its pairs have samples, and then on all of them.

    Args:
        claim: the claim.
        quantity: the name of the column.
        samples: the stored seeds of each label in this column.
        scales: True if a threshold that is a share of published accuracies is scaled to the profile.
        fixed_threshold: a threshold in the units of the column. It replaces the threshold of the claim.
    """
    stored_cases = [case for case in range(len(claim.pairs)) if set(claim.labels([case])) <= samples.keys()]
    if not stored_cases or (claim.judges == "every pair" and len(stored_cases) < len(claim.pairs)):
        return ClaimTest()
    testable_cases = [c for c in stored_cases if min(samples[label].n for label in claim.labels([c])) >= LEAST_SEEDS]
    cases = stored_cases if claim.judges == "every pair" else testable_cases or stored_cases
    means = {label: sample.mean for label, sample in samples.items()}
    published_threshold = threshold = claim_threshold(claim, quantity, cases, means)
    if fixed_threshold is not None:
        published_threshold = threshold = fixed_threshold
    elif scales:
        threshold = claim_threshold(claim, quantity, cases, means, samples[claim.labels(cases)[0]].headroom)
    gains = {
        name: _gain(claim, quantity, terms, samples, threshold) for name, terms in claim.gains(cases, quantity).items()
    }
    other_threshold = math.nan if threshold == published_threshold else published_threshold
    test = ClaimTest(tuple(cases), threshold, other_threshold, tuple(gains.items()))
    if reason := next((gain.reason for gain in gains.values() if gain.reason), ""):
        return replace(test, detail=reason)
    sign = claim.sign(quantity)
    p_holds = max(gain.p / 2 if (gain.estimate - threshold) * sign > 0 else 1 - gain.p / 2 for gain in gains.values())
    p_fails = min(1.0, len(gains) * (1 - p_holds))
    test = replace(test, p=min(1.0, 2 * min(p_holds, p_fails)), is_for=p_holds < p_fails)
    if claim.expectation(quantity) != "gain" and test.is_for and test.p <= LEVEL:
        return replace(test, detail=_kind_within(claim, quantity, cases, threshold, samples))
    return test


def _kind_within(
    claim: Claim, quantity: str, cases: Sequence[int], threshold: float, samples: Mapping[str, Sample]
) -> str:
    """A description of a supported claim of no difference, such as ``equal within the margin`` or ``worse``.

    It says in words what the interval of the gain shows. ``cases`` are the indices of the tested pairs, and ``samples``
    has the stored seeds of each label.
    """
    terms = next(iter(claim.gains(cases, quantity).values()))
    gain, expectation = _gain(claim, quantity, terms, samples), claim.expectation(quantity)
    if expectation == "equal":
        return "equal within the margin"
    if expectation == "no gain":
        return "worse" if gain.high < 0 else "not better by the margin"
    if gain.high < 0:
        return "worse, within the margin"
    return (
        "equal within the margin" if gain.high < -threshold else "better" if gain.low > 0 else "not worse by the margin"
    )


def _gain(
    claim: Claim,
    quantity: str,
    terms: WeightedLabels,
    samples: Mapping[str, Sample],
    threshold: float = 0.0,
) -> Difference:
    weights_and_samples = [(weight, samples[label]) for weight, label in terms]
    tests_solved = claim.expectation(quantity) != "gain"
    return as_gain(combination(weights_and_samples, gain_sign(quantity) * threshold, tests_solved), quantity)


def as_gain(difference: Difference, quantity: str) -> Difference:
    """The difference as a gain: its sign is reversed if lower is better in the column ``quantity``."""
    if gain_sign(quantity) > 0:
        return difference
    return replace(difference, estimate=0.0 - difference.estimate, low=-difference.high, high=-difference.low)
