"""Figures with panels of equal size, a title, a legend and notes.

Matplotlib's constrained layout places the panels. The figure is as large as the panels need, so long labels make the
figure larger and not the panels smaller. If a width is given, the panels fill it. In a single column of a paper they
fill pages of fixed size.
"""

from __future__ import annotations

import itertools
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
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

from madbench.analysis.figures.style import (
    GRAY,
    HEADING,
    LABEL,
    SHADE,
    SMALL,
    SMALL_HEADING,
    SMALLEST,
    ArtistOptions,
    write_powers_as_text,
)
from madbench.analysis.marked_text import Width
from madbench.analysis.quantities import heading, title
from madbench.labels.names import row_display_name

Share = Literal["none", "all", "row"]
"""The panels that share an axis: none, all panels of a page, or the panels of a line."""
WIDTHS = {"single": 3.3, "double": 6.9}
"""The width of one column and of a page with two columns, in inches."""
HEIGHT = 2.5
"""The height of a figure in a single column, in inches. Parts that do not fit are on further pages."""
MOST_NAME = 100
"""The largest number of characters of a name in a figure. Names in runs from other people may be longer."""
MOST_NOTES = 6000
"""The largest number of characters of the sentences below a figure."""
_MOST_WORD = 200
LINE = 8.6 / 72
"""The height of a line of text in a single column, in inches."""
INTERVAL_NOTE = "Bars: 95% intervals of the mean over seeds. Hollow: a single seed."
"""The sentences of a figure's notes that explain bars and hollow marks."""
_EDGE, _SPACE = 0.08, 0.14  # margin, and space between title, panels, legend and notes, in inches
_NOTE_CHARACTER = 4.4 / 72  # mean width of a character of the notes, in inches


class Page(Figure):
    """A figure, or the first page of a figure whose panels do not fit on one page."""

    caption = ""
    """The title and the notes, for the caption in a paper. Empty if they are drawn in the figure."""
    following: Sequence[Figure] = ()
    """The pages after the first one. Empty for a figure on one page."""


@dataclass(frozen=True)
class Layout:
    """The layout of a figure: its width, and whether it shows a title and a caption."""

    width: Width | None = None
    """The width to fill (``WIDTHS``). If None, the figure is as wide as its panels need.

    A figure of width ``double`` has text of the normal size. A figure of width ``single`` has the smallest text that
    journals print, and pages that are ``HEIGHT`` inches high. Its title and sentences are not drawn, but are written to
    a text for the caption in the paper.
    """
    has_title: bool = True
    has_caption: bool = True

    @property
    def is_small(self) -> bool:
        """True if the figure is for a single column of a paper."""
        return self.width == "single"

    def lines(self, counts: Sequence[int], columns: int, least: float, name_width: float) -> list[int]:
        """The number of panels in each line of a figure whose panels come in groups. Each group begins a new line.

        Args:
            counts: the number of panels in each group.
            columns: the largest number of panels in a line. It is reduced if the panels do not fit into ``width``.
            least: the smallest width of a panel in inches.
            name_width: the inches that are needed to the left of all panels.

        >>> Layout().lines([9], 4, 1.0, 0.5), Layout("single").lines([3, 1], 4, 1.0, 0.5)
        ([3, 3, 3], [2, 1, 1])
        """
        if self.width:
            columns = max(1, min(columns, int((WIDTHS[self.width] - name_width) / least)))
        lengths = {count: math.ceil(count / math.ceil(count / columns)) for count in counts}
        return [min(lengths[count], count - start) for count in counts for start in range(0, count, lengths[count])]

    def room(self, entries: int, lines: int = 1) -> float:
        """The height in inches that a panel can have on a page with ``lines`` lines of panels.

        ``entries`` is the number of entries of the legend, which takes space below the panels. The height is infinite
        unless the figure is for a single column of a paper, because other figures grow with their panels.
        """
        if not self.is_small:
            return math.inf
        return (HEIGHT - 0.3 - LINE * math.ceil(entries / 3)) / lines - 3.2 * LINE

    def parts(self, rows: Sequence[str], entries: int) -> list[list[str]]:
        """The rows of a panel, divided into parts of about equal size, each of which fits on a page.

        ``entries`` is the number of entries of the legend below the panels.
        """
        most = max(1, int(min(len(rows), self.room(entries) / LINE)))
        count = math.ceil(len(rows) / most)
        return [[*part] for part in np.array_split(np.array(rows, dtype=object), count)] if count > 1 else [[*rows]]

    def name(self, quantity: str) -> str:
        """The title of a panel for the column ``quantity``: its name in words or, if :attr:`is_small`, its heading."""
        return heading(quantity) if self.is_small else title(quantity)

    def names(self, texts: Iterable[str], most: int = 22) -> dict[str, str]:
        """The names to draw for labels, rows of a grid and other texts, by text. A label has its display name.

        In a figure for a single column of a paper, a name is shortened to ``most`` characters, otherwise to
        ``MOST_NAME``. Shortened names remain distinct.

        >>> [*Layout("single").names(["S", "a:long-name-of-one", "a:long-name-of-two"], most=12).values()]
        ['S', 'a:lo…-of-one', 'a:lo…-of-two']
        """
        most = most if self.is_small else MOST_NAME
        short_names: dict[str, str] = {}
        for text in texts:
            short = name = row_display_name(text)
            if len(name) > most:
                short = f"{name[: most - 8]}…{name[-7:]}"
                if short in short_names.values():
                    short = f"{name[: most - 8]}…{len(short_names) + 1}"
            short_names[text] = short
        return short_names


class Panels:
    """A figure with empty panels. Draw into them within the context ``style()``, and then call :meth:`finish`."""

    def __init__(
        self,
        layout: Layout,
        name: str,
        title: str,
        lines: Sequence[int],
        size: tuple[float, float],
        least: float = 0.45,
        entries: int = 0,
        sharex: Share = "none",
        sharey: Share = "none",
    ):
        """Create the panels. In a single column of a paper, lines of panels that do not fit are on further pages.

        Args:
            layout: the layout of the figure.
            name: the name of the figure, which Matplotlib keeps as its label.
            title: the heading above the panels.
            lines: the number of panels in each line.
            size: the width and the height of a panel in inches. Without ``layout.width``, panels have
                this size and are wider only if the title needs it.
            least: the smallest height of a panel in inches, in a single column.
            entries: the number of entries of the legend.
            sharex: the panels that share the x axis.
            sharey: the panels that share the y axis.
        """
        self.layout = layout
        self.size = size
        self.heading = title if layout.has_title else ""
        if layout.width:
            matplotlib.rcParams.update(SMALL if layout.is_small else {"axes.titlesize": LABEL})
        a_page = max([1, *(n for n in range(1, len(lines) + 1) if layout.room(entries, n) >= least)])
        self.pages: list[tuple[Page, list[list[Axes]]]] = []
        for part in np.array_split(lines, math.ceil(len(lines) / a_page)):
            roomy = max(part) * (size[0] + 1) + 12, len(part) * (size[1] + 1) + 8
            figure = Page(roomy, layout="constrained")
            FigureCanvasAgg(figure)  # a canvas that caches the sizes of texts
            pad = 0.02 if layout.is_small else 0.04
            engine_of(figure).set(w_pad=pad, h_pad=pad, wspace=0.02, hspace=0.02)
            figure.set_label(name)
            grid = figure.subplots(len(part), max(part), squeeze=False, sharex=sharex, sharey=sharey)
            rows = [list(line[:count]) for count, line in zip(part, grid)]
            for axes in {*grid.flat} - {axes for row in rows for axes in row}:
                axes.remove()
            self.pages.append((figure, rows))
        self.rows: list[list[Axes]] = [row for _, rows in self.pages for row in rows]
        self.axes: list[Axes] = [axes for row in self.rows for axes in row]

    @property
    def bottom(self) -> list[Axes]:
        """The lowest panel in each column of panels, for all pages."""
        return [
            next(line[i] for line in reversed(rows) if i < len(line))
            for _, rows in self.pages
            for i in range(max(map(len, rows)))
        ]

    def groups(self, counts: Sequence[int]) -> list[list[Axes]]:
        """All panels in order, divided into successive groups. ``counts`` has the number of panels in each group.

        A group may begin and end within a line of panels.
        """
        axes = iter(self.axes)
        return [list(itertools.islice(axes, count)) for count in counts]

    def name_axes(self, x: str, y: str = "") -> None:
        """Write ``x`` below the lowest panel of each column, and ``y`` beside the first panel of each line."""
        for axes in self.bottom:
            axes.set_xlabel(x)
        for line in self.rows if y else ():
            line[0].set_ylabel(y)

    def name_rows(self, *places: Mapping[str, float]) -> None:
        """Write the names of rows beside the first panel of each line, and shade every second row in all panels.

        ``places`` are mappings from the name of a row to its y coordinate, which increases downward. There is one
        mapping for all lines of panels, or one per line.
        """
        places = places * len(self.rows) if len(places) == 1 else places
        names = self.layout.names(dict.fromkeys(name for of_line in places for name in of_line))
        for line, of_line in zip(self.rows, places):
            heights = list(of_line.values())
            for axes in line:
                for y in heights[::2]:
                    axes.axhspan(y - 0.5, y + 0.5, facecolor=SHADE, linewidth=0, zorder=0)
                axes.set(ylim=(max(heights) + 0.6, min(heights) - 0.6), yticks=[])
            line[0].set_yticks(heights, [names[name] for name in of_line])
            line[0].grid(False, axis="y")

    def finish(
        self, notes: Sequence[str], entries: Mapping[str, ArtistOptions], is_below: bool = False, legend_title: str = ""
    ) -> Page:
        """Add notes and a legend to all pages, fix their layout, and return the first page.

        The attribute ``following`` of the first page has the other pages.

        Args:
            notes: sentences for the notes below the figure. Empty and repeated sentences are left out. A layout without
                a caption shows no notes.
            entries: the look of each entry of the legend, by the entry's text.
            is_below: True for a legend below the panels, False for a legend to their right. A figure for a
                single column of a paper has its legend below in any case.
            legend_title: the heading of the legend.
        """
        names = self.layout.names(entries, most=40)
        entries = {names[text]: look for text, look in entries.items()}
        text = _shorten(" ".join(dict.fromkeys(filter(None, notes)))) if self.layout.has_caption else ""
        for figure, rows in self.pages:
            legend = _PageLegend(entries, legend_title, is_below or self.layout.width is not None)
            if self.layout.is_small:
                figure.caption = "\n".join(filter(None, (self.heading, text)))
                _fix(figure, rows, self.layout, self.size, ("", ""), legend)
            else:
                _fix(figure, rows, self.layout, self.size, (self.heading, text), legend)
        (first, _), *others = self.pages
        first.following = [figure for figure, _ in others]
        return first


@dataclass(frozen=True)
class _PageLegend:
    """The legend of a page: the look of each entry by its text, and a heading."""

    entries: Mapping[str, ArtistOptions]
    title: str
    is_below: bool
    """True for a legend below the panels, False for a legend to their right."""

    def draw(self, figure: Figure, columns: int = 1) -> Legend:
        handles = [Line2D([], [], **{"linestyle": "", **look}) for look in self.entries.values()]
        shape: ArtistOptions = {"title": self.title, "loc": "upper left", "alignment": "left"}
        legend = figure.legend(handles, list(self.entries), ncols=min(columns, len(self.entries) or 1), **shape)
        legend.set_in_layout(False)
        return legend


def _shorten(text: str) -> str:
    """Cut words of more than :data:`_MOST_WORD` characters, and the text after :data:`MOST_NOTES` characters."""
    words = (word if len(word) <= _MOST_WORD else f"{word[: _MOST_WORD - 1]}…" for word in text.split(" "))
    text = " ".join(words)
    return text if len(text) <= MOST_NOTES else f"{text[: MOST_NOTES - 1]}…"


def _fix(
    figure: Figure,
    lines: Sequence[Sequence[Axes]],
    layout: Layout,
    size: tuple[float, float],
    texts: tuple[str, str],
    page_legend: _PageLegend,
) -> None:
    """Set the size of a page and the place of everything on it: title, panels, legend and notes.

    ``lines`` has the panels of each line, ``size`` the width and height of a panel in inches, and ``texts`` the title
    and the notes.
    """
    engine, fixed = engine_of(figure), WIDTHS[layout.width] if layout.width else None
    panels = [axes for line in lines for axes in line]
    edge, space = (0.03, 0.04) if layout.is_small else (_EDGE, _SPACE)
    is_below = page_legend.is_below
    heading_look: ArtistOptions = {"fontsize": SMALL_HEADING if fixed else HEADING, "weight": "bold"}
    title_text = figure.suptitle(texts[0], x=0, y=1, ha="left", va="top", **heading_look)
    legend = page_legend.draw(figure)
    for axes in panels:
        for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
            artist.set_in_layout(False)  # it is inside of the axes, so the layout can ignore it
    columns, rows = max(map(len, lines)), len(lines)
    for axes in panels:
        write_powers_as_text(axes.xaxis)
        write_powers_as_text(axes.yaxis)
        _wrap(axes.title, 0.9 * fixed / columns if fixed else size[0] + 0.2)
    engine.execute(figure)  # on a page with much room, to measure the parts around the axes
    margins = figure.get_size_inches() - np.array((columns, rows)) * np.array(panels[0].bbox.size) / figure.dpi
    (title_width, title_height), (legend_width, legend_height) = _inches(title_text), _inches(legend)
    right = 0 if is_below else legend_width + space
    width = fixed or 2 * edge + max(title_width, columns * size[0] + margins[0] + right)
    if is_below:
        legend.remove()
        legend = page_legend.draw(figure, columns=int((width - 2 * edge) / (legend_width + space)) or 1)
        legend_height = _inches(legend)[1]
    note_lines = textwrap.wrap(texts[1], int((width - 2 * edge) / _NOTE_CHARACTER))
    notes = figure.supxlabel("\n".join(note_lines), x=0, y=0, ha="left", va="bottom", fontsize=SMALLEST, color=GRAY)
    top, below = (edge + (height + space if height else 0) for height in (title_height, _inches(notes)[1]))
    bottom = below + (legend_height + space if is_below else 0)
    height = top + bottom + max(rows * size[1] + margins[1], 0 if is_below else 0.3 + legend_height)
    width, height = np.round((width, min(height, HEIGHT) if layout.is_small else height), 6)
    figure.set_size_inches(width, height)
    engine.set(rect=(edge / width, bottom / height, 1 - (2 * edge + right) / width, 1 - (top + bottom) / height))
    for _ in range(2 if fixed else 1):  # panels of another size may have other ticks, with another width
        engine.execute(figure)
        for axes in panels:
            _wrap(axes.yaxis.label, float(_inches(axes)[1]), is_upright=True)
    figure.set_layout_engine(None)  # with "none" every file would be drawn twice
    for axes in panels:  # the last digits of the solver vary
        axes.set_position(np.round(axes.get_position().bounds, 6))
    title_text.set_position((edge / width, 1 - edge / height))
    notes.set_position((edge / width, edge / height))
    corner = 1 - (edge + legend_width) / width, lines[0][-1].get_position().y1
    legend.set_bbox_to_anchor((edge / width, (below + legend_height) / height) if is_below else corner)
    legend.set_in_layout(True)  # notebooks crop a figure to the parts in the layout


def _wrap(text: Text, most: float, is_upright: bool = False) -> None:
    """Break a text into lines that are at most ``most`` inches long. No line is made shorter than six characters.

    The length of an upright text, such as the label of a y axis, is its height.
    """
    parts = text.get_text().splitlines()
    for characters in range(max(map(len, parts), default=0) - 1, 5, -1):
        if _inches(text)[1 if is_upright else 0] <= most:
            break
        text.set_text("\n".join(row for part in parts for row in textwrap.wrap(part, characters)))


def draw_intervals(
    axes: Axes, at: pd.Series, low: pd.Series, high: pd.Series, colors: Any, is_vertical: bool = False, **look: Any
) -> None:
    """Draw bars from ``low`` to ``high`` along one axis, each at its coordinate ``at`` on the other axis.

    Bars are horizontal, or vertical if ``is_vertical``. ``colors`` is one color or one per bar. ``look`` has further
    arguments for ``hlines`` or ``vlines`` of Matplotlib. The limits of the axes must be final: a bar that extends
    beyond them is cut, and an arrow marks the cut end.
    """
    first, last = sorted(axes.get_ylim() if is_vertical else axes.get_xlim())
    draw, arrows = (axes.vlines, "v^") if is_vertical else (axes.hlines, "<>")
    draw(at, low.clip(first), high.clip(upper=last), colors, **look)
    colors = np.broadcast_to(colors, len(at))
    for end, arrow, is_beyond in zip((first, last), arrows, (low < first, high > last)):
        places = at[is_beyond], [end] * is_beyond.sum()
        tip: ArtistOptions = {"marker": arrow, "s": 22, "clip_on": False, "zorder": 2.5, "linewidths": 0}
        x, y = places if is_vertical else places[::-1]
        axes.scatter(x, y, c=colors[is_beyond], **tip)


def _inches(artist: Artist) -> np.ndarray:
    figure = artist.get_figure()
    assert figure is not None
    return np.array(artist.get_window_extent().size) / figure.dpi


def engine_of(figure: Figure) -> ConstrainedLayoutEngine:
    """The constrained layout engine of a figure that :class:`Panels` made and has not finished."""
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    return engine


def seeds_note(counts: Iterable[float]) -> str:
    """A sentence with the number of seeds, or its range if ``counts`` differ. Zeros are ignored. Empty if all are 0.

    >>> seeds_note([3, 1, 0])
    'n = 1 to 3 seeds.'
    """
    numbers = sorted({int(count) for count in counts if count})
    n = " to ".join(str(count) for count in dict.fromkeys(numbers[:1] + numbers[-1:]))
    return f"n = {n} seed{'s' if numbers[-1] > 1 else ''}." if numbers else ""
