"""The look of every figure: one style for screen, slide and grey print, whatever the user's matplotlibrc says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib

from madbench.analysis.quantities import MAD_AVERAGE

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#882255")
"""Okabe and Ito's without yellow, and a wine red: as many as a figure shows labels in colour."""
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
GREY = "#595959"
"""Of references, notes and whatever is missing."""
OTHERS = {"color": "#bdbdbd", "linewidth": 0.7, "linestyle": "-"}
"""Lines of labels that are not in colour."""
CEILING = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (6, 2))}
HEADING, LABEL, SMALLEST = 12, 9, 8
"""Sizes of text in points."""

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
    "axes.xmargin": 0.03,
    "figure.dpi": 100,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],  # the first in files, any of them in an SVG
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.fontsize": LABEL,
    "legend.frameon": False,
    "legend.handlelength": 3.4,
    "lines.markersize": 6,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}


@dataclass(frozen=True)
class LabelStyle:
    """What distinguishes a label: its colour, and dashes and marker where there is no colour."""

    color: str
    dashes: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Of a curve, as arguments of Matplotlib's Line2D."""
        return {"color": self.color, "linestyle": self.dashes, "linewidth": 1.8}

    def mark(self, is_single: bool = False) -> dict[str, Any]:
        """The marker of a mean, as arguments of Matplotlib's Line2D; hollow where that rests on a single seed."""
        return {"color": self.color, "marker": self.marker, "markerfacecolor": "white" if is_single else self.color}


def label_styles(labels: Iterable[str]) -> dict[str, LabelStyle]:
    """A style for every label by its place; neighbours differ in everything, any 40 labels in colour or dashes."""
    return {
        label: LabelStyle(COLORS[i % len(COLORS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, label in enumerate(dict.fromkeys(labels))
    }


def in_order(quantities: Iterable[str]) -> list[str]:
    """Tasks and quantities, each once, in the order of their panels: as in ``TITLES``, any other before the average."""
    order = list(TITLES)
    average = order.index(MAD_AVERAGE)
    return sorted(
        dict.fromkeys(quantities), key=lambda name: (order.index(name) if name in order else average - 0.5, name)
    )


def title(quantity: str) -> str:
    """Heading of the panel of a task or quantity."""
    return TITLES.get(quantity, quantity.replace("_", " "))


@contextmanager
def style() -> Iterator[None]:
    """A context in which Matplotlib draws in our style."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield
