"""Published numbers from which the thresholds of claims are computed."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from madbench.analysis.quantities import averages_of, column, parts_of
from madbench.suites.published import Scores, paper_scores, published_by_paper


@dataclass(frozen=True)
class Reference:
    """The published numbers of one paper. Empty for a paper without any."""

    paper: str = ""
    title: str = ""
    """The name of its tables in captions."""
    scores: Scores = field(default_factory=dict)
    """Published numbers by label and column."""
    margin_share: float = 0.0
    """The margin of a claim of no difference without ``within``, as a share of the gain between ``margin_labels``."""
    margin_labels: tuple[str, ...] = ()
    """Two labels: the first minus the second is the published gain behind ``margin_share``."""
    heuristics: Mapping[str, float] = field(default_factory=dict)
    """The score of each task's heuristic at the size of the published numbers, by task."""

    @functools.cached_property
    def gains(self) -> Scores:
        """The published numbers, negated if less is better. Steps to a loss that was not reached are left out."""
        return {
            label: {name: orientation(name) * value for name, value in row.items()}
            for label, row in self.scores.items()
        }

    def margin(self, quantity: str) -> float:
        """The margin of a claim of no difference without ``within``: points, nats per token, or steps.

        NaN if the paper has no such gain.
        """
        if not self.margin_labels:
            return math.nan
        published = next(iter(averages_of(quantity)), quantity)
        first, second = (self.gains.get(label, {}).get(published, math.nan) for label in self.margin_labels)
        return self.margin_share * (first - second)

    def way(self, quantity: str) -> float:
        """The distance from the heuristic to a perfect score at the size of the published numbers. NaN if unknown."""
        parts = parts_of(quantity) or (quantity,)
        return float(np.mean([100.0 - self.heuristics.get(name, math.nan) for name in parts]))


def orientation(quantity: str) -> float:
    """1 if more of the quantity is better, -1 if less is better."""
    return -1.0 if column(quantity).better == "lower" else 1.0


@functools.cache
def references() -> Mapping[str, Reference]:
    """The published numbers that belong to no particular profile, by paper. Papers without any are left out."""
    found = {}
    for paper, (_, published) in published_by_paper().items():
        if scores := paper_scores(paper):
            title = ", ".join(table.title for table in published.tables)
            margins = published.margin_share, published.margin_labels, published.heuristics
            found[paper] = Reference(paper, title, scores, *margins)
    return found


def find_reference(paper: str, labels: Collection[str]) -> Reference:
    """The published numbers of a paper.

    If ``paper`` is empty: the numbers of the first paper that has numbers of all ``labels``, or else of the first
    paper.
    """
    known = references()
    if paper:
        return known.get(paper, Reference(paper))
    of_labels = (reference for reference in known.values() if set(labels) <= reference.scores.keys())
    return next(of_labels, next(iter(known.values()), Reference()))
