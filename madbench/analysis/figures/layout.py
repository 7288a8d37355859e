"""Where everything in a figure goes: lines of panels, the title above, notes and legend around. Lengths are inches.

They follow from the text, whose width is measured once: nothing has to be drawn to be placed, and a figure with long
labels is larger instead of its panels smaller.
"""

from __future__ import annotations

import functools
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from madbench.analysis.figures.marks import EntrySizes, Look, add_entries
from madbench.analysis.figures.style import GREY, HEADING, LABEL, SMALLEST

NUMBERS = 0.33
"""Width of tick labels that matplotlib chooses."""
ENTRY = 0.204
"""Height of an entry of a legend."""

_EDGE = 0.08  # around everything
_RIGHT = 0.2  # of the last axes, for half of a tick label
_TITLE = 0.28  # from the edge to below the title
_PANEL_TITLE = 0.25
_SPACE = 0.1  # between what does not belong together
_TICK = 0.1  # the mark and what is between it and its label
_TICK_LABEL = 0.13
_LABEL_LINE = 0.15
_NOTE_LINE = 0.135
_NOTE_CHARACTER = 4.5 / 72  # on average
_HINTED = 1.04  # letters begin at whole pixels: text is wider than its outlines
_LINE, _TO_TEXT, _TO_COLUMN = 0.425, 0.1, 0.25  # in the legend


@dataclass(frozen=True)
class Panels:
    """Lines of panels of one size."""

    lines: Sequence[int]
    """How many are in each line, from the left."""
    width: float
    """Of the axes; they are wider where the title needs it."""
    height: float
    names: float
    """Width of the widest tick label on the left."""
    y_lines: int = 0
    """Lines of text of the label on the left."""
    x_lines: Sequence[int] = ()
    """Lines of text of the label below, of each line of panels; one by default."""
    has_titles: bool = True
    is_y_shared: bool = True
    """Whether only the first panel of a line has tick labels and a label on the left."""

    @property
    def left(self) -> float:
        """What is on the left of the first axes."""
        return self.names + _TICK + self.y_lines * _LABEL_LINE + 0.04 * bool(self.y_lines)

    @property
    def gap(self) -> float:
        """Between axes."""
        return 0.18 if self.is_y_shared else self.left + _SPACE

    def across(self, width: float, columns: int) -> float:
        """Of axes of ``width``, without what is on their left."""
        return columns * width + (columns - 1) * self.gap

    def heights(self) -> Iterator[tuple[float, float, float]]:
        """Of each line, where its axes begin, where they end, and where what is below them ends."""
        y = 0.0
        for _, text_lines in itertools.zip_longest(self.lines, self.x_lines, fillvalue=1):
            top = y + (_PANEL_TITLE if self.has_titles else _SPACE)
            bottom = top + self.height
            y = bottom + _TICK + _TICK_LABEL + text_lines * _LABEL_LINE + 0.07 * bool(text_lines)
            yield top, bottom, y


@dataclass(frozen=True)
class Legend:
    """The entries of a legend, and where it goes unless lines of panels that are not full leave a place for it."""

    entries: Mapping[str, Look]
    """By their texts."""
    title: str = ""
    is_below: bool = False
    """Below the panels instead of on their right."""

    def columns(self, count: int) -> list[list[str]]:
        """The texts in ``count`` columns, the first ones the longest."""
        texts = [*self.entries]
        length, longer = divmod(len(texts), count)
        ends = [length * i + min(i, longer) for i in range(count + 1)]
        return [texts[start:end] for start, end in itertools.pairwise(ends)]

    def widths(self, count: int) -> list[float]:
        """Of ``count`` columns, with what is between them."""
        return [_LINE + _TO_TEXT + widest(texts, LABEL) + _TO_COLUMN for texts in self.columns(count)]

    def width(self, count: int) -> float:
        return sum(self.widths(count)) - _TO_COLUMN

    def height(self, count: int) -> float:
        return ENTRY * (-(-len(self.entries) // count) + bool(self.title))


class _Place(NamedTuple):
    """Of a legend: its upper left corner from that of the figure, columns, and how much the figure grows for it."""

    left: float
    top: float
    columns: int = 1
    wider: float = 0.0
    higher: float = 0.0


def in_lines(count: int, columns: int) -> list[int]:
    """How many of ``count`` panels are in each line.

    >>> in_lines(7, 4)
    [4, 3]
    """
    return [min(columns, count - start) for start in range(0, count, columns)]


def text_width(text: str, size: float = SMALLEST, weight: str = "normal") -> float:
    """Of a text of one line."""
    return _HINTED * size * _relative_width(text, weight)


def widest(texts: Iterable[str], size: float = SMALLEST) -> float:
    """Of texts of one line."""
    return max((text_width(text, size) for text in texts), default=0.0)


@functools.lru_cache(4096)
def _relative_width(text: str, weight: str) -> float:
    font = FontProperties(size=1, weight=weight)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def new_figure(
    name: str, title: str, notes: Sequence[str], panels: Panels, legend: Legend, least_width: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """A figure of the kind ``name`` with everything that is around its panels, and these, empty.

    ``notes`` are what a reader must know to trust the figure. To be called, and drawn into, within :func:`style`.
    """
    columns = max(panels.lines)
    *_, (_, _, depth) = panels.heights()
    left, top = _EDGE + panels.left, _EDGE + _TITLE
    beside = left + panels.across(0, columns) + _RIGHT
    least_width = max(least_width, text_width(title, HEADING, "bold") + 2 * _EDGE)
    panel_width = max(panels.width, (least_width - beside) / columns)
    width = beside + columns * panel_width
    place = _place(legend, panels, panel_width, width, depth)
    width, depth = width + place.wider, depth + place.higher
    lines = textwrap.wrap(" ".join(dict.fromkeys(notes)), int(width / _NOTE_CHARACTER))
    height = top + depth + _SPACE + _NOTE_LINE * len(lines) + _EDGE

    figure = Figure((width, height))
    figure.set_label(name)
    figure.suptitle(title, x=_EDGE / width, y=1 - _EDGE / height, ha="left", va="top", fontsize=HEADING, weight="bold")
    look = {"ha": "left", "va": "bottom", "fontsize": SMALLEST, "color": GREY}
    figure.supxlabel("\n".join(lines), x=_EDGE / width, y=_EDGE / height, **look)
    drawn = []
    for count, (start, end, _) in zip(panels.lines, panels.heights()):
        for i in range(count):
            x, y = left + i * (panel_width + panels.gap), height - top - end
            drawn.append(figure.add_axes((x / width, y / height, panel_width / width, (end - start) / height)))
            drawn[-1].patch.set_visible(False)  # the figure is white as well
    x, y = place.left, height - top - place.top
    if legend.title:
        look = {"transform": figure.dpi_scale_trans, "va": "center_baseline"}
        figure.text(x + _LINE + _TO_TEXT, y - ENTRY / 2, legend.title, **look)
        y -= ENTRY
    for texts, column_width in zip(legend.columns(place.columns), legend.widths(place.columns)):
        entries = {text: legend.entries[text] for text in texts}
        add_entries(figure, entries, (x, y), EntrySizes(ENTRY, _LINE, _TO_TEXT))
        x += column_width
    return figure, drawn


def _place(legend: Legend, panels: Panels, panel_width: float, width: float, depth: float) -> _Place:
    """``top`` counts from the upper end of the panels, which are ``depth`` deep in a figure of ``width``."""
    columns = max(panels.lines)
    heights = list(panels.heights())
    at_start = len(list(itertools.takewhile(lambda count: count < columns, panels.lines)))
    at_end = len(list(itertools.takewhile(lambda count: count < columns, reversed(panels.lines))))
    for lines in (slice(0, at_start), slice(len(heights) - at_end, None)):
        if panels.lines[lines]:
            used = max(panels.lines[lines])
            left = _EDGE + panels.left + panels.across(panel_width, used) + panels.gap
            top, bottom = heights[lines][0][0], heights[lines][-1][2]
            wider = max(0.0, left + legend.width(1) + _EDGE - width)
            if wider < 0.3 and top + legend.height(1) <= bottom:
                return _Place(left, top, wider=wider)
    if legend.is_below:
        fitting = (n for n in range(len(legend.entries), 1, -1) if legend.width(n) + 2 * _EDGE <= width)
        count = next(fitting, 1)
        wider = max(0.0, legend.width(count) + 2 * _EDGE - width)
        return _Place(_EDGE, depth + _SPACE / 2, count, wider, legend.height(count) + _SPACE)
    top = heights[0][0] if panels.has_titles else _SPACE
    rows = int((depth - top) / ENTRY) - bool(legend.title)
    count = max(1, -(-len(legend.entries) // max(1, rows)))
    return _Place(width, top, count, legend.width(count) + _EDGE)


def set_x_label(axes: Axes, text: str) -> None:
    """Below the tick labels, which therefore need not be measured when the figure is drawn."""
    axes.set_xlabel(text)
    axes.xaxis.set_label_coords(0.5, -(_TICK + _TICK_LABEL + 0.02) / _inches(axes.bbox.height, axes))


def set_y_label(axes: Axes, text: str, texts: Iterable[str]) -> None:
    """On the left of the tick labels ``texts``."""
    axes.set_ylabel(text)
    axes.yaxis.set_label_coords(-(_TICK + widest(texts) + 0.04) / _inches(axes.bbox.width, axes), 0.5)


def _inches(pixels: float, axes: Axes) -> float:
    return pixels / axes.get_figure().dpi
