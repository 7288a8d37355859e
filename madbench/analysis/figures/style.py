"""The look of every figure, for screen, slide and grey print: style, titles, and which labels are in colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import pandas as pd

from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.tasks import task_names
from madbench.tasks import title as task_title

Look = Mapping[str, Any]
"""Arguments of Matplotlib's Line2D."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#882255")
"""Okabe and Ito's without yellow, and a wine red: as many labels are in colour, which a reader can distinguish."""
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
REFERENCE = "S"
"""Softmax attention, which everything is compared with: in colour wherever it is."""

_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": LABEL,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.xmargin": 0.03,
    "figure.dpi": 100,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.fontsize": LABEL,
    "legend.frameon": False,
    "legend.handlelength": 3.4,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}


@contextmanager
def style() -> Iterator[None]:
    """A context in which Matplotlib draws in our style, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def in_order(quantities: Iterable[str]) -> list[str]:
    """Tasks and quantities, each once, in the order of their panels."""
    order = {name: i for i, name in enumerate(task_names())} | {MAD_AVERAGE: math.inf, LOSS: math.inf}
    return sorted(dict.fromkeys(quantities), key=lambda name: (name == LOSS, order.get(name, len(order)), name))


def title(quantity: str) -> str:
    """Heading of the panel of a task or quantity; of a task that is not installed, its name."""
    names = {MAD_AVERAGE: "MAD average", LOSS: "language model: L5"} | {task: task_title(task) for task in task_names()}
    return names.get(quantity, quantity)


@dataclass(frozen=True)
class LabelStyle:
    """What distinguishes a label: its colour, and dashes and marker where there is no colour."""

    color: str
    dashes: Any
    marker: str

    @property
    def line(self) -> Look:
        """Of a curve."""
        return {"color": self.color, "linestyle": self.dashes, "linewidth": 1.8}

    def mark(self, is_single: bool = False) -> Look:
        """The marker of a mean; hollow where that rests on a single seed."""
        return {"color": self.color, "marker": self.marker, "markerfacecolor": "white" if is_single else self.color}


def label_style(number: int) -> LabelStyle:
    """The style of this number; neighbours differ in everything, any 40 in colour or dashes."""
    return LabelStyle(*(looks[number % len(looks)] for looks in (COLORS, DASHES, MARKERS)))


def label_styles(frame: pd.DataFrame) -> dict[str, LabelStyle]:
    """The style of every label in a figure's frame: by the number in its column ``style``, or else by its place."""
    labels = [label for label in frame.label.unique() if label]
    numbers = dict(zip(frame.label, frame["style"])) if "style" in frame else {x: i for i, x in enumerate(labels)}
    return {label: label_style(numbers[label]) for label in labels}


@dataclass(frozen=True)
class Highlights:
    """The labels of a figure that are in colour, and the others, which are grey behind them."""

    styles: dict[str, LabelStyle]
    """Of those in colour; the best first where there are others."""
    others: list[str]

    @classmethod
    def of(
        cls, results: Mapping[str, Sequence[float]], styles: Mapping[str, LabelStyle], is_lower_better: bool = False
    ) -> Highlights:
        """All of up to eight labels, otherwise the best by ``results`` (:func:`best_first`), and ``REFERENCE``.

        A label has its style of ``styles`` unless it would share the colour of one before it.
        """
        chosen = [*results]
        if len(results) > len(COLORS):
            chosen = best_first(results, is_lower_better)
            first = sorted(chosen, key=lambda label: label != REFERENCE)[: len(COLORS)]
            chosen = [label for label in chosen if label in first]
        unused = [color for color in COLORS if color not in {styles[label].color for label in chosen}]
        distinct: dict[str, LabelStyle] = {}
        for label in chosen:
            is_taken = styles[label].color in {one.color for one in distinct.values()}
            distinct[label] = replace(styles[label], color=unused.pop(0)) if is_taken else styles[label]
        return cls(distinct, [label for label in results if label not in distinct])

    def color(self, label: str) -> str:
        return self.styles[label].color if label in self.styles else OTHERS["color"]

    def entries(self) -> dict[str, Look]:
        """What a legend shows."""
        entries = {label: {**look.mark(), **look.line} for label, look in self.styles.items()}
        text = f"{len(self.others)} other label{'s' if len(self.others) > 1 else ''}"
        return entries | ({text: OTHERS} if self.others else {})

    def note(self, figure: str, best_by: str) -> str:
        """Which labels are in colour, where that is not all, and how to choose them in the figure of this name."""
        if not self.others:
            return ""
        count = len(self.styles)
        best = f"{REFERENCE} and the {count - 1} best others" if REFERENCE in self.styles else f"the {count} best"
        return f"In colour: {best} by {best_by}; madbench plot {figure} LABEL ... draws up to {count} of your choice."


def best_first(results: Mapping[str, Sequence[float]], is_lower_better: bool = False) -> list[str]:
    """Labels by their mean results, one a panel; those that lack some (NaN or infinite) come later.

    >>> best_first({"S": [60, 50], "R": [90, math.nan], "G": [70, 50]})
    ['G', 'S', 'R']
    """
    keys = {}
    for label, values in results.items():
        known = [value if is_lower_better else -value for value in values if math.isfinite(value)]
        keys[label] = len(values) - len(known), sum(known) / len(known) if known else 0.0
    return sorted(results, key=keys.__getitem__)
