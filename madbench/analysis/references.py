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
    """The published numbers of one paper. ``scores`` is empty if the paper has none."""

    paper: str = ""
    title: str = ""
    """The name of the tables in the paper, for captions."""
    scores: Scores = field(default_factory=dict)
    """The published numbers, by label and then by column."""
    margin_share: float = 0.0
    """The default margin of a claim of no difference, as a share of the published gain of ``margin_labels``."""
    margin_labels: tuple[str, ...] = ()
    """Two labels. Their published gain, the first minus the second, times ``margin_share`` is the default margin."""
    heuristics: Mapping[str, float] = field(default_factory=dict)
    """The score of the best answer that ignores the context, by task, at the task sizes of the published numbers."""

    @functools.cached_property
    def gains(self) -> Scores:
        """The published numbers by label and then by column, with losses and steps negated, so that more is better."""
        return {
            label: {name: gain_sign(name) * value for name, value in row.items()} for label, row in self.scores.items()
        }

    def margin(self, quantity: str) -> float:
        """The default margin of a claim of no difference in the column ``quantity``, in the units of the column.

        For a task, it is the margin of the average that contains the task. NaN if the paper has no numbers of
        ``margin_labels``.
        """
        if not self.margin_labels:
            return math.nan
        published = next(iter(averages_of(quantity)), quantity)
        first, second = (self.gains.get(label, {}).get(published, math.nan) for label in self.margin_labels)
        return self.margin_share * (first - second)

    def headroom(self, quantity: str) -> float:
        """The :func:`headroom` in the column ``quantity`` at the task sizes of the paper."""
        return headroom(quantity, self.heuristics)


def headroom(quantity: str, heuristics: Mapping[str, float]) -> float:
    """The distance from the heuristic's score to a perfect score in the column ``quantity``. NaN if it is unknown.

    For an average, it is the mean distance over the tasks. ``heuristics`` has the score of the best answer that ignores
    the context, by task.
    """
    parts = parts_of(quantity) or (quantity,)
    return float(np.mean([column(name).limits[1] - heuristics.get(name, math.nan) for name in parts]))


def gain_sign(quantity: str) -> float:
    """1.0 if higher is better in the column ``quantity``, -1.0 if lower is better."""
    return -1.0 if column(quantity).better == "lower" else 1.0


@functools.cache
def references() -> Mapping[str, Reference]:
    """The published numbers of each paper, by the name of the paper. Papers without published numbers are left out."""
    by_paper = {}
    for paper, (_, published) in published_by_paper().items():
        if scores := paper_scores(paper):
            title = ", ".join(table.title for table in published.tables)
            margins = published.margin_share, published.margin_labels, published.heuristics
            by_paper[paper] = Reference(paper, title, scores, *margins)
    return by_paper


def find_reference(paper: str, labels: Collection[str]) -> Reference:
    """The published numbers of the paper with the name ``paper``. Their ``scores`` are empty if the paper has none.

    If ``paper`` is empty, they are those of the first paper that has numbers of all ``labels``. If there is no such
    paper, they are those of the first paper.
    """
    all_references = references()
    if paper:
        return all_references.get(paper, Reference(paper))
    of_labels = (reference for reference in all_references.values() if set(labels) <= reference.scores.keys())
    return next(of_labels, next(iter(all_references.values()), Reference()))
