"""Figures of panels of one size, with a title above, a legend and notes around them.

Matplotlib's constrained layout places the panels; the figure is as large as they need, so that long labels make it
larger instead of its panels smaller. Only where a width is asked for, the panels fill it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from madbench.analysis.figures.style import GREY, HEADING, LABEL, SHADE, SMALL_HEADING, SMALLEST, Look
from madbench.analysis.inference import LEAST_FOR_LEVEL
from madbench.labels.names import shown_in

WIDTHS = {"single": 3.35, "double": 6.9}
"""Of a column and of a page of two, in inches."""
INTERVAL_NOTE = (
    f"Bars: 95% intervals of the mean over seeds; none of fewer than {LEAST_FOR_LEVEL} seeds of which none solves the"
    " task, or with zero variance. Hollow: a single seed."
)
"""What bars and hollow marks mean, and why a mean may have no bar."""
_EDGE, _SPACE = 0.08, 0.14  # inches, around everything and between title, panels, legend and notes
_NOTE_CHARACTER = 4.4 / 72  # inches, on average


@dataclass(frozen=True)
class Layout:
    """What is asked of any figure."""

    width: Literal["single", "double"] | None = None
    """The column it fills (``WIDTHS``), with text as large as without; as wide as its panels need by default."""
    has_title: bool = True
    has_caption: bool = True

    def lines(self, counts: Sequence[int], columns: int, least: float, beside: float) -> list[int]:
        """How many panels are in each line, of groups of ``counts`` panels that each begin a line.

        There are ``columns`` at most; fewer where a width is asked for in which panels of ``least`` inches, with
        ``beside`` inches for what is left of them all, find no room.

        >>> Layout().lines([9], 4, 1.0, 0.5), Layout("single").lines([3, 1], 4, 1.0, 0.5)
        ([3, 3, 3], [2, 1, 1])
        """
        if self.width:
            columns = max(1, min(columns, int((WIDTHS[self.width] - beside) / least)))
        lengths = {count: math.ceil(count / math.ceil(count / columns)) for count in counts}
        return [min(lengths[count], count - start) for count in counts for start in range(0, count, lengths[count])]


class Panels:
    """A figure whose panels are to be drawn into within ``style()``; :meth:`finish` then fixes its layout."""

    def __init__(
        self, layout: Layout, name: str, title: str, lines: Sequence[int], size: tuple[float, float], **shared: str
    ):
        """``lines``: how many panels there are in each line; ``size``: width and height of every panel in inches, which
        is larger where the title needs it; ``sharey="row"`` where the panels of a line have one y axis.
        """
        self.layout = layout
        self.lines = list(lines)
        self.size = size
        roomy = max(lines) * (size[0] + 1) + 12, len(lines) * (size[1] + 1) + 8
        self.figure = Figure(roomy, layout="constrained")
        FigureCanvasAgg(self.figure)  # remembers the sizes of texts
        self.figure.get_layout_engine().set(w_pad=0.04, h_pad=0.04, wspace=0.02, hspace=0.02)
        self.figure.set_label(name)
        if layout.width:
            matplotlib.rcParams["axes.titlesize"] = LABEL
        text = {"fontsize": SMALL_HEADING if layout.width else HEADING, "weight": "bold"}
        self.title = self.figure.suptitle(title if layout.has_title else "", x=0, y=1, ha="left", va="top", **text)
        grid = self.figure.subplots(len(lines), max(lines), squeeze=False, **shared)
        self.rows: list[list[Axes]] = [list(line[:count]) for count, line in zip(lines, grid)]
        self.axes: list[Axes] = [axes for line in self.rows for axes in line]
        for axes in {*grid.flat} - {*self.axes}:
            axes.remove()

    @property
    def bottom(self) -> list[Axes]:
        """The lowest panel of each column."""
        return [next(line[i] for line in reversed(self.rows) if i < len(line)) for i in range(max(self.lines))]

    def name_axes(self, x: str, y: str = "") -> None:
        """Names the x axes below the lowest panels and, where given, the y axes left of the first of each line."""
        for axes in self.bottom:
            axes.set_xlabel(x)
        for line in self.rows if y else ():
            line[0].set_ylabel(y)

    def name_rows(self, places: Mapping[str, float]) -> None:
        """Names the rows of all panels, from the top; every second row is shaded."""
        heights = list(places.values())
        for axes in self.axes:
            for y in heights[::2]:
                axes.axhspan(y - 0.5, y + 0.5, facecolor=SHADE, linewidth=0, zorder=0)
            axes.set(ylim=(max(heights) + 0.6, -0.6), yticks=[])
        for line in self.rows:
            line[0].set_yticks(heights, list(map(shown_in, places)))
            line[0].grid(False, axis="y")

    def finish(
        self, notes: Sequence[str], entries: Mapping[str, Look], is_below: bool = False, legend_title: str = ""
    ) -> Figure:
        """The figure with its notes and its legend, right of the panels or below, of a fixed layout.

        ``notes`` are what a reader must know to trust the figure; ``entries`` are those of the legend, by text.
        """
        figure, engine, fixed = self.figure, self.figure.get_layout_engine(), WIDTHS.get(self.layout.width)
        is_below |= bool(fixed)
        handles = [Line2D([], [], **{"linestyle": "", **look}) for look in entries.values()]
        shape = {"labelspacing": 0.7, "title": legend_title, "loc": "upper left", "alignment": "left"}
        names = list(map(shown_in, entries))
        legend = figure.legend(handles, names, **shape)
        legend.set_in_layout(False)
        for axes in self.axes:
            for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
                artist.set_in_layout(False)  # it is within the axes
        engine.execute(figure)  # roomy, to measure what is around the axes
        columns, rows = max(self.lines), len(self.lines)
        around = figure.get_size_inches() - (columns, rows) * (self.axes[0].bbox.size / figure.dpi)
        (title_width, title_height), (legend_width, legend_height) = _inches(self.title), _inches(legend)
        right = 0 if is_below else legend_width + _SPACE
        width = fixed or 2 * _EDGE + max(title_width, columns * self.size[0] + around[0] + right)
        if is_below:
            legend.remove()
            beside = int((width - 2 * _EDGE) / (legend_width + _SPACE)) or 1
            legend = figure.legend(handles, names, ncols=min(beside, len(entries) or 1), **shape)
            legend.set_in_layout(False)
            legend_height = _inches(legend)[1]
        notes = [note for note in notes if note and self.layout.has_caption]
        wrapped = textwrap.wrap(" ".join(dict.fromkeys(notes)), int((width - 2 * _EDGE) / _NOTE_CHARACTER))
        text = figure.supxlabel("\n".join(wrapped), x=0, y=0, ha="left", va="bottom", fontsize=SMALLEST, color=GREY)
        top, below = (_EDGE + (height + _SPACE if height else 0) for height in (title_height, _inches(text)[1]))
        bottom = below + (legend_height + _SPACE) * is_below
        height = top + bottom + max(rows * self.size[1] + around[1], 0 if is_below else 0.3 + legend_height)
        width, height = np.round((width, height), 6)
        figure.set_size_inches(width, height)
        engine.set(rect=(_EDGE / width, bottom / height, 1 - (2 * _EDGE + right) / width, 1 - (top + bottom) / height))
        engine.execute(figure)
        figure.set_layout_engine(None)  # not "none", with which every file would be drawn twice
        for axes in self.axes:  # the solver's last digits are not the same each time
            axes.set_position(np.round(axes.get_position().bounds, 6))
        self.title.set_position((_EDGE / width, 1 - _EDGE / height))
        text.set_position((_EDGE / width, _EDGE / height))
        beside = 1 - (_EDGE + legend_width) / width, self.rows[0][-1].get_position().y1
        legend.set_bbox_to_anchor((_EDGE / width, (below + legend_height) / height) if is_below else beside)
        legend.set_in_layout(True)  # notebooks cut a figure to what is
        return figure


def draw_intervals(
    axes: Axes, at: pd.Series, low: pd.Series, high: pd.Series, colors: Any, is_vertical: bool = False, **look: Any
) -> None:
    """Bars from ``low`` to ``high`` on an axis of final limits; one that is longer ends there in an arrow."""
    first, last = sorted(axes.get_ylim() if is_vertical else axes.get_xlim())
    draw, arrows = (axes.vlines, "v^") if is_vertical else (axes.hlines, "<>")
    draw(at, low.clip(first), high.clip(upper=last), colors, **look)
    colors = np.broadcast_to(colors, len(at))
    for end, arrow, is_beyond in zip((first, last), arrows, (low < first, high > last)):
        places = at[is_beyond], [end] * is_beyond.sum()
        tip = {"marker": arrow, "s": 22, "clip_on": False, "zorder": 2.5, "linewidths": 0}
        axes.scatter(*(places if is_vertical else places[::-1]), c=colors[is_beyond], **tip)


def _inches(artist: Artist) -> np.ndarray:
    return artist.get_window_extent().size / artist.get_figure().dpi


def seeds_note(counts: Iterable[float]) -> str:
    """The number of seeds, or its range; empty where there is none.

    >>> seeds_note([3, 1, 0])
    'n = 1 to 3 seeds.'
    """
    known = sorted({int(count) for count in counts if count})
    n = " to ".join(str(count) for count in dict.fromkeys(known[:1] + known[-1:]))
    return f"n = {n} seed{'s' if known[-1] > 1 else ''}." if known else ""
