"""How every figure looks: one style for screen, slide and grey print, whatever the user's matplotlibrc says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd

from madbench.analysis.quantities import MAD_AVERAGE

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")  # Okabe and Ito's, no yellow
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
GREY = "#595959"  # of what is beside the point: references, notes, what is missing
OTHERS = {"color": "#bdbdbd", "linewidth": 0.7}  # the lines of labels that are not in colour
HEADING, LABEL, SMALLEST = 12, 9, 8  # pt, of text

PERCENTS = (0, 25, 50, 75, 100)
"""Ticks of an accuracy."""

TITLES = {
    "compression": "compression",
    "fuzzy_in_context_recall": "fuzzy recall",
    "in_context_recall": "in-context recall",
    "memorization": "memorization",
    "noisy_in_context_recall": "noisy recall",
    "selective_copying": "selective copying",
    MAD_AVERAGE: "MAD average",
    "loss_l5": "language model: L5",
}
"""Headings of panels by task or quantity, in their order."""

_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": LABEL,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titley": 1.0,  # not to be looked for by matplotlib
    "figure.dpi": 200,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],  # the first in files, any of them in an SVG
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}


@dataclass(frozen=True)
class LabelStyle:
    """What tells one label from the others: its colour, and dashes and marker where there is no colour."""

    color: str
    dashes: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Of a curve."""
        return {"color": self.color, "linestyle": self.dashes, "linewidth": 1.8}

    def mark(self, is_single: bool = False) -> dict[str, Any]:
        """The marker of a mean; hollow where that rests on a single seed."""
        face = "white" if is_single else self.color
        return {"color": self.color, "marker": self.marker, "markerfacecolor": face, "markersize": 6}


def label_styles(labels: Iterable[str]) -> dict[str, LabelStyle]:
    """A style for every label by its place among ``labels``; neighbours differ in everything, 35 labels in something."""
    return {
        label: LabelStyle(COLORS[i % len(COLORS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, label in enumerate(dict.fromkeys(labels))
    }


@contextmanager
def style() -> Iterator[None]:
    """Within it matplotlib draws in our style."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def seeds_text(counts: Iterable[int]) -> str:
    """``n = 3 seeds.``, ``n = 1 to 3 seeds.``"""
    counts = sorted({int(count) for count in counts if count})
    if not counts:
        return ""
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"n = {n} seed{'s' * (counts[-1] > 1)}."


def interval_texts(counts: pd.Series, low: pd.Series, whose: str = "") -> list[str]:
    """What bars and hollow marks are, and why a mean of several seeds has no bar.

    Args:
        counts: seeds of each mean drawn.
        low: lower end of its interval, NaN where it has none.
        whose: ``; of L5 with the spread pooled``, said of the interval.
    """
    texts = []
    if low.notna().any():
        texts.append(f"Bars: 95% intervals of the mean, Student's t over seeds{whose}.")
    if ((counts > 1) & low.isna()).any():
        texts.append("Seeds that agree exactly have no bar, as Student's t has nothing to go by.")
    if (counts == 1).any():
        texts.append("Hollow: a single seed, without an interval.")
    return texts
