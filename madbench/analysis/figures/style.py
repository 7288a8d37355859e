"""How every figure looks: one style for screen, slide and grey print, whatever the user's matplotlibrc says."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from madbench.analysis.quantities import MAD_AVERAGE

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")  # Okabe and Ito's, no yellow
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
GREY = "#595959"  # of what is beside the point: references, notes, what is missing
SMALLEST = 8  # pt, of any text

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
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 200,
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}
_POINTS_A_CHARACTER = 4.5  # of the notes, on average
_LINE = 0.135  # inches, of the notes


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


def new_figure(name: str, width: float, height: float) -> Figure:
    """An empty figure of ``width`` x ``height`` inches; ``name`` is its kind."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.set_label(name)
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
    return figure


def add_texts(figure: Figure, title: str, notes: Sequence[str]) -> None:
    """The ``title`` above, and below what a reader must know to trust the figure. Everything else goes in between."""
    width, height = figure.get_size_inches()
    text = textwrap.fill(" ".join(dict.fromkeys(notes)), _characters(width))
    figure.suptitle(title, x=0.08 / width, y=1 - 0.08 / height, ha="left", va="top", fontsize=12, fontweight="bold")
    figure.supxlabel(text, x=0.08 / width, y=0.08 / height, ha="left", va="bottom", fontsize=SMALLEST, color=GREY)
    _reserve(figure, below=0.16 + _LINE * (text.count("\n") + 1), above=0.36)


def texts_height(notes: Sequence[str], width: float) -> float:
    """Inches that title and ``notes`` take in a figure of ``width`` inches."""
    return 0.52 + _LINE * len(textwrap.wrap(" ".join(dict.fromkeys(notes)), _characters(width)))


def _characters(width: float) -> int:
    return int(72 * width / _POINTS_A_CHARACTER)


def _reserve(figure: Figure, below: float = 0.0, above: float = 0.0, right: float = 0.0) -> None:
    """Keeps axes out of so many more inches at the edges."""
    engine = figure.get_layout_engine()
    left, bottom, width, height = engine.get()["rect"]
    inches_wide, inches_high = figure.get_size_inches()
    below, above, right = below / inches_high, above / inches_high, right / inches_wide
    engine.set(rect=(left, bottom + below, width - right, height - below - above))


def panels(figure: Figure, count: int, columns: int, **shared: Any) -> tuple[list[Axes], list[Axes]]:
    """``count`` axes in rows of ``columns``, and the empty places at the end of the last row."""
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **shared)
    flat = list(grid.flat)
    for axes in flat[count:]:
        axes.set_axis_off()
    for axes in flat[:count]:
        axes.tick_params(labelbottom=True)
    return flat[:count], flat[count:]


def label_handles(styles: Mapping[str, LabelStyle], labels: Iterable[str]) -> list[Line2D]:
    """The entry in a legend of each of ``labels``."""
    return [Line2D([], [], **styles[label].mark() | styles[label].line, label=label) for label in labels]


def add_legend(figure: Figure, handles: Sequence[Line2D], free: Sequence[Axes] = (), is_below: bool = False) -> None:
    """A legend in an empty place of the panels where it fits there, else below or on the right of them.

    To be called after :func:`add_texts`.
    """
    if free and len(handles) <= 10:
        free[0].legend(handles=handles, loc="upper left", handlelength=3.4, borderaxespad=0)
        return
    width, height = figure.get_size_inches()
    _, bottom, _, share = figure.get_layout_engine().get()["rect"]
    if is_below:
        columns = max(1, int(width / 1.6))
        corner, anchor = "lower left", (0.08 / width, bottom)
    else:
        columns = -(-len(handles) // max(1, int(share * height / 0.185)))
        corner, anchor = "upper right", (1, bottom + share)
    look = {"handlelength": 3.4, "borderaxespad": 0.4, "ncols": min(columns, len(handles))}
    legend = figure.legend(handles=handles, loc=corner, bbox_to_anchor=anchor, **look)
    legend.set_in_layout(False)
    extent = legend.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    inches = {"below": extent.height / figure.dpi} if is_below else {"right": extent.width / figure.dpi}
    _reserve(figure, **{side: 0.08 + size for side, size in inches.items()})


def settle(figure: Figure) -> Figure:
    """``figure`` with everything in its final place; the last step in making one.

    The solver's last digits differ from call to call, and with them would the names of clip paths in an SVG.
    """
    figure.get_layout_engine().execute(figure)
    for axes in figure.axes:
        axes.set_position([round(number, 9) for number in axes.get_position().bounds])
    figure.set_layout_engine(None)  # "none" would keep a place holder, for which savefig draws twice
    return figure


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
