"""Figures of panels of one size, with a title above, a legend and notes around them.

Matplotlib's constrained layout places the panels; the figure grows until each has the size asked for, so that long
labels make a figure larger instead of its panels smaller.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from madbench.analysis.figures.style import GREY, HEADING, SMALLEST

_EDGE, _SPACE = 0.08, 0.14  # inches, around everything and between title, panels, legend and notes
_NOTE_CHARACTER = 4.4 / 72  # inches, on average

Look = Mapping[str, Any]
"""Arguments of Matplotlib's Line2D."""


class Panels:
    """A figure whose panels are to be drawn into within ``style()``; :meth:`finish` then fixes its layout."""

    def __init__(
        self, name: str, title: str, lines: Sequence[int], size: tuple[float, float], is_y_shared: bool = True
    ):
        """
        Args:
            name: of the figure, in the registry.
            title: above everything.
            lines: how many panels there are in each line.
            size: width and height of every panel in inches; all are wider where title or legend needs it.
            is_y_shared: whether the panels of a line have one y axis, named on the left.
        """
        self.lines = list(lines)
        self.size = size
        roomy = max(lines) * (size[0] + 1) + 12, len(lines) * (size[1] + 1) + 8
        self.figure = Figure(roomy, layout="constrained")
        self.figure.get_layout_engine().set(w_pad=0.04, h_pad=0.04, wspace=0.02, hspace=0.02)
        self.figure.set_label(name)
        self.title = self.figure.suptitle(title, x=0, y=1, ha="left", va="top", fontsize=HEADING, weight="bold")
        grid = self.figure.subplots(len(lines), max(lines), squeeze=False, sharey="row" if is_y_shared else False)
        self.rows: list[list[Axes]] = [list(of_line[:count]) for count, of_line in zip(lines, grid)]
        for axes in (axes for count, of_line in zip(lines, grid) for axes in of_line[count:]):
            axes.remove()

    @property
    def axes(self) -> list[Axes]:
        return [axes for line in self.rows for axes in line]

    @property
    def bottom(self) -> list[Axes]:
        """The lowest panel of each column."""
        return [next(line[i] for line in reversed(self.rows) if i < len(line)) for i in range(max(self.lines))]

    def finish(
        self, notes: Sequence[str], entries: Mapping[str, Look], is_below: bool = False, legend_title: str = ""
    ) -> Figure:
        """The figure with its legend and notes, of a fixed layout.

        Args:
            notes: what a reader must know to trust the figure.
            entries: of the legend, by text.
            is_below: the legend goes below the panels instead of to their right.
            legend_title: above its entries.
        """
        figure, engine = self.figure, self.figure.get_layout_engine()
        legend = self._legend(entries, len(entries) if is_below else 1, legend_title)
        (title_width, title_height), (legend_width, legend_height) = _inches(self.title), _inches(legend)
        top = _EDGE + title_height + _SPACE
        right = _EDGE if is_below else legend_width + 2 * _SPACE
        for axes in self.axes:
            for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
                artist.set_in_layout(False)  # it is within the axes
        engine.execute(figure)  # roomy, to measure what is around the axes
        columns, rows = max(self.lines), len(self.lines)
        around = figure.get_size_inches() - (columns, rows) * (self.rows[0][0].bbox.size / figure.dpi)
        width = _EDGE + columns * self.size[0] + around[0] + right
        width = max(width, 2 * _EDGE + title_width, 2 * _EDGE + legend_width * is_below)
        sentences = " ".join(dict.fromkeys(note for note in notes if note))
        lines = textwrap.wrap(sentences, int((width - 2 * _EDGE) / _NOTE_CHARACTER))
        look = {"ha": "left", "va": "bottom", "fontsize": SMALLEST, "color": GREY}
        text = figure.supxlabel("\n".join(lines), x=_EDGE / width, y=0, **look)
        below = _EDGE + _inches(text)[1] + _SPACE
        bottom = below + (legend_height + _SPACE) * is_below
        height = top + rows * self.size[1] + around[1] + bottom
        figure.set_size_inches(width, height)
        engine.set(rect=(_EDGE / width, bottom / height, 1 - (_EDGE + right) / width, 1 - (top + bottom) / height))
        engine.execute(figure)
        figure.set_layout_engine("none")
        self.title.set_position((_EDGE / width, 1 - _EDGE / height))
        text.set_position((_EDGE / width, _EDGE / height))
        beside = 1 - (right - _SPACE) / width, self.rows[0][-1].get_position().y1
        legend.set_bbox_to_anchor((_EDGE / width, (below + legend_height) / height) if is_below else beside)
        return figure

    def _legend(self, entries: Mapping[str, Look], columns: int, title: str) -> Legend:
        handles = [Line2D([], [], **{"linestyle": ""} | look) for look in entries.values()]
        legend = self.figure.legend(
            handles, list(entries), loc="upper left", ncols=columns, title=title, alignment="left", labelspacing=0.7
        )
        legend.set_in_layout(False)
        return legend


def in_lines(count: int, columns: int) -> list[int]:
    """How many of ``count`` panels are in each line.

    >>> in_lines(7, 4)
    [4, 3]
    """
    return [min(columns, count - start) for start in range(0, count, columns)]


def name_rows(panels: Panels, places: Mapping[str, float]) -> None:
    """The rows of all panels, by name from the top: names on the left, every second row shaded."""
    heights = list(places.values())
    for line in panels.rows:
        for axes in line:
            for y in heights[::2]:
                axes.axhspan(y - 0.5, y + 0.5, facecolor="#f2f2f2", linewidth=0, zorder=0)
            axes.set(ylim=(max(heights) + 0.6, -0.6), yticks=[])
        line[0].set_yticks(heights, list(places))
        line[0].grid(False, axis="y")


def _inches(artist: Artist) -> np.ndarray:
    return artist.get_window_extent().size / artist.get_figure(root=True).dpi
