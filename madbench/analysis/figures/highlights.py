"""Which labels are in colour: at most eight, which a reader can distinguish; all others are grey behind them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from madbench.analysis.figures.style import COLORS, OTHERS, LabelStyle, label_styles

MOST = len(COLORS)
"""Labels in colour."""
REFERENCE = "S"
"""Softmax attention, which everything is compared with: in colour wherever it is."""


@dataclass(frozen=True)
class Highlights:
    """The labels of a figure that are in colour, and the others."""

    styles: dict[str, LabelStyle]
    """Of those in colour; the best first where there are others."""
    others: list[str]

    @classmethod
    def of(
        cls,
        results: Mapping[str, Sequence[float]],
        styles: Mapping[str, LabelStyle] | None = None,
        is_lower_better: bool = False,
    ) -> Highlights:
        """All of up to eight labels, otherwise the best by ``results`` (:func:`best_first`), and ``REFERENCE``.

        A label keeps its style of ``styles``, those of all labels of a report, unless it would share its colour.
        """
        chosen = [*results]
        if len(results) > MOST:
            chosen = best_first(results, is_lower_better)
            first = sorted(chosen, key=lambda label: label != REFERENCE)[:MOST]
            chosen = [label for label in chosen if label in first]
        styles = styles or label_styles(chosen)
        distinct = distinct_colors({label: styles[label] for label in chosen})
        return cls(distinct, [label for label in results if label not in distinct])

    def color(self, label: str) -> str:
        return self.styles[label].color if label in self.styles else OTHERS["color"]

    def entries(self) -> dict[str, dict[str, Any]]:
        """What a legend shows."""
        entries = {label: look.mark() | look.line for label, look in self.styles.items()}
        text = f"{len(self.others)} other label{'s' if len(self.others) > 1 else ''}"
        return entries | ({text: OTHERS} if self.others else {})

    def notes(self, figure: str, best_by: str) -> list[str]:
        """Which labels are in colour, where that is not all, and how to choose them in the figure of this name."""
        if not self.others:
            return []
        best = f"{REFERENCE} and the {MOST - 1} best others" if REFERENCE in self.styles else f"the {MOST} best"
        return [f"In colour: {best} by {best_by}; madbench plot {figure} LABEL ... draws up to {MOST} of your choice."]


def best_first(results: Mapping[str, Sequence[float]], is_lower_better: bool = False) -> list[str]:
    """Labels by their mean results, one a panel; those with missing (NaN or infinite) results come later.

    >>> best_first({"S": [60, 50], "R": [90, math.nan], "G": [70, 50]})
    ['G', 'S', 'R']
    """
    sign = 1 if is_lower_better else -1

    def key(label: str) -> tuple[int, float]:
        known = [value for value in results[label] if math.isfinite(value)]
        return len(results[label]) - len(known), sign * sum(known) / len(known) if known else 0.0

    return sorted(results, key=key)


def alternate(rankings: Sequence[Sequence[str]]) -> list[str]:
    """``REFERENCE`` and the first of each ranking, then the second ones, each label once.

    >>> alternate([["R", "G", "S"], ["G-p", "G"]])
    ['S', 'R', 'G-p', 'G']
    """
    labels = [label for place in itertools.zip_longest(*rankings) for label in place if label is not None]
    return sorted(dict.fromkeys(labels), key=lambda label: label != REFERENCE)


def distinct_colors(styles: Mapping[str, LabelStyle]) -> dict[str, LabelStyle]:
    """``styles`` in which a colour that an earlier label has is replaced by an unused one, if any is left."""
    unused = [color for color in COLORS if color not in {one.color for one in styles.values()}]
    taken: set[str] = set()
    distinct = {}
    for label, one in styles.items():
        distinct[label] = replace(one, color=unused.pop(0)) if one.color in taken and unused else one
        taken.add(distinct[label].color)
    return distinct
