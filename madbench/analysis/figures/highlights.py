"""Which labels are in colour. A figure of lines shows eight that can be told apart, all others in grey behind them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from madbench.analysis.figures.style import COLORS, OTHERS, LabelStyle, label_styles

MOST = 8
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
        if len(results) <= MOST:
            styles = styles or label_styles(results)
            chosen = [*results]
        else:
            order = best_first(results, is_lower_better)
            styles = styles or label_styles(order)
            first = sorted(order, key=lambda label: label != REFERENCE)[:MOST]
            chosen = [label for label in order if label in first]
        of_chosen = {label: styles[label] for label in chosen}
        return cls(told_apart(of_chosen) if len(styles) > MOST else of_chosen, [x for x in results if x not in chosen])

    def color(self, label: str) -> str:
        return self.styles[label].color if label in self.styles else OTHERS["color"]

    def entries(self) -> dict[str, dict[str, Any]]:
        """What a legend shows."""
        entries = {label: look.mark() | look.line for label, look in self.styles.items()}
        text = f"{len(self.others)} other label{'s' * (len(self.others) > 1)}"
        return entries | ({text: OTHERS} if self.others else {})

    def notes(self, kind: str, best_by: str) -> list[str]:
        """Which labels are in colour, where that is not all, and how to choose them in figures of this ``kind``."""
        if not self.others:
            return []
        best = f"{REFERENCE} and the {MOST - 1} best others" if REFERENCE in self.styles else f"the {MOST} best"
        return [f"In colour: {best} by {best_by}; madbench plot {kind} LABEL ... draws up to {MOST} of your choice."]


def best_first(results: Mapping[str, Sequence[float]], is_lower_better: bool = False) -> list[str]:
    """The labels by their mean results, which are one a panel, NaN where there is none; whoever lacks some comes later.

    >>> best_first({"S": [60, 50], "R": [90, math.nan], "G": [70, 50]})
    ['G', 'S', 'R']
    """
    sign = 1 if is_lower_better else -1

    def key(label: str) -> tuple[int, float]:
        known = [value for value in results[label] if not math.isnan(value)]
        return len(results[label]) - len(known), sign * sum(known) / len(known) if known else 0.0

    return sorted(results, key=key)


def in_turns(rankings: Sequence[Sequence[str]]) -> list[str]:
    """``REFERENCE`` and the first of each, then the second ones, each label once.

    >>> in_turns([["R", "G", "S"], ["G-p", "G"]])
    ['S', 'R', 'G-p', 'G']
    """
    labels = [label for place in itertools.zip_longest(*rankings) for label in place if label is not None]
    return sorted(dict.fromkeys(labels), key=lambda label: label != REFERENCE)


def told_apart(styles: Mapping[str, LabelStyle]) -> dict[str, LabelStyle]:
    """``styles`` in which a colour that an earlier label has gives way to one that none has, if any is left."""
    free = [color for color in COLORS if color not in {one.color for one in styles.values()}]
    taken: set[str] = set()
    apart = {}
    for label, one in styles.items():
        apart[label] = replace(one, color=free.pop(0)) if one.color in taken and free else one
        taken.add(apart[label].color)
    return apart
