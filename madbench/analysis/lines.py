"""The threshold of a claim, called its line: the gain that separates the claim from its contrary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from madbench.analysis.claims import Claim
from madbench.analysis.references import orientation


def published_gain(claim: Claim, quantity: str, cases: Sequence[int]) -> float:
    """The smallest published gain of these pairs. NaN if a number is missing."""
    table = claim.reference.gains
    sums = [
        sum(weight * table.get(label, {}).get(quantity, float("nan")) for weight, label in terms)
        for terms in claim.gains(cases).values()
    ]
    return round(float(np.min(sums)), 9)


def line_of(
    claim: Claim, quantity: str, cases: Sequence[int], means: Mapping[str, float], way: float = math.nan
) -> float:
    """The gain that separates the claim from its contrary.

    A threshold that is a share of published losses or steps is scaled by the ratio of stored to published means.
    ``means`` are the stored means by label. A threshold that is a share of published accuracies is scaled by the ratio
    of ``way`` to the same distance in the paper. ``way`` is the distance from the heuristic to a perfect score in the
    stored runs. If it is NaN, the threshold stays in the paper's points.
    """
    expectation, reference = claim.expectation(quantity), claim.reference
    if claim.by or claim.within:
        return claim.by or (claim.within if expectation == "no gain" else -claim.within)
    if expectation == "gain":
        line = claim.reach * published_gain(claim, quantity, cases) if claim.reach else 0.0
    else:
        line = reference.margin(quantity) if expectation == "no gain" else -reference.margin(quantity)
    if orientation(quantity) < 0 and line:
        baselines = [claim.pairs[case][1] for case in cases]
        published = {x: abs(reference.gains[x].get(quantity, math.nan)) for x in baselines if x in means}
        ratios = [means[x] / published[x] for x in baselines if x in means]
        line *= float(np.mean(ratios)) if ratios else 1.0
    scale = way / reference.way(quantity)
    return line if math.isnan(scale) else line * scale
