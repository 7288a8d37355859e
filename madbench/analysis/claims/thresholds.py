"""The threshold of a claim: a claim is true if its gain is on one side of the threshold, and false otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from madbench.analysis.claims import Claim
from madbench.analysis.references import gain_sign


def published_gain(claim: Claim, quantity: str, cases: Sequence[int]) -> float:
    """The gain of a claim in the published numbers of the column ``quantity``. NaN if a published number is missing.

    ``cases`` are the indices of the pairs to use. If the claim is about several gains
    (:meth:`madbench.analysis.claims.Claim.gains`), the smallest is returned.
    """
    table = claim.reference.gains
    sums = [
        sum(weight * table.get(label, {}).get(quantity, float("nan")) for weight, label in terms)
        for terms in claim.gains(cases, quantity).values()
    ]
    return round(float(np.min(sums)), 9)


def claim_threshold(
    claim: Claim, quantity: str, cases: Sequence[int], means: Mapping[str, float], headroom: float = math.nan
) -> float:
    """The threshold of a claim in the column ``quantity``, as a gain in the units of the column.

    A threshold that is a share of published numbers is scaled to the stored runs. For losses and steps, the factor is
    stored mean / published number, averaged over the second labels of the pairs that are in ``means``. For accuracies,
    the factor is ``headroom`` / headroom at the task sizes of the paper.

    Args:
        claim: the claim.
        quantity: the name of the column.
        cases: the indices of the pairs of the claim to use.
        means: the stored means by label.
        headroom: the distance from the heuristic to a perfect score at the sizes of the stored runs. If it is NaN, a
            threshold for accuracies stays in the paper's points.
    """
    expectation, reference = claim.expectation(quantity), claim.reference
    if claim.by or claim.within:
        return claim.by or (claim.within if expectation == "no gain" else -claim.within)
    if expectation == "gain":
        threshold = claim.reach * published_gain(claim, quantity, cases) if claim.reach else 0.0
    else:
        threshold = reference.margin(quantity) if expectation == "no gain" else -reference.margin(quantity)
    if gain_sign(quantity) < 0 and threshold:
        baselines = [claim.pairs[case][1] for case in cases]
        published = {x: abs(reference.gains[x].get(quantity, math.nan)) for x in baselines if x in means}
        ratios = [means[x] / published[x] for x in baselines if x in means]
        threshold *= float(np.mean(ratios)) if ratios else 1.0
    scale = headroom / reference.headroom(quantity)
    return threshold if math.isnan(scale) else threshold * scale
