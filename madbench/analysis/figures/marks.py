"""Many marks, lines or bands as one artist: matplotlib takes about a millisecond for each artist, however small.

They count for the limits of the axes once ``axes.autoscale_view()`` is called.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import TICKDOWN, TICKLEFT, Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import NullLocator
from matplotlib.transforms import IdentityTransform, Transform

from madbench.analysis.figures.style import LABEL, OTHERS, SMALLEST

Points = Sequence[tuple[float, float]] | np.ndarray
"""(n, 2), in data coordinates."""
Look = Mapping[str, Any]
"""As arguments of matplotlib's Line2D are named."""


class EntrySizes(NamedTuple):
    """Of an entry of a legend, in inches."""

    height: float
    line: float
    """Length of the line."""
    to_text: float


def add_marks(axes: Axes, points: Points, looks: Sequence[Look], **more: Any) -> None:
    """A marker at each of ``points``, as :meth:`LabelStyle.mark` says; those of one shape and size are one artist.

    Args:
        axes: where to draw.
        points: places, in order; a later one covers an earlier one of its shape.
        looks: color, marker, markersize and perhaps markerfacecolor, edge (width of the outline in points; 1) and
            alpha, one a point.
        more: arguments of the artists; ``clip_on`` where points may be outside of the axes.
    """
    for marks in _marks(points, looks, axes.transData, **more):
        _place(axes, marks)
    if looks:
        axes.update_datalim(points)


def _marks(points: Points, looks: Sequence[Look], transform: Transform, **more: Any) -> Iterator[PathCollection]:
    alike: dict[tuple[str, float], list[int]] = {}
    for i, look in enumerate(looks):
        alike.setdefault((look["marker"], look["markersize"]), []).append(i)
    for (marker, size), chosen in alike.items():
        of_kind = [looks[i] for i in chosen]
        if of_kind.count(of_kind[0]) == len(of_kind):
            of_kind = of_kind[:1]  # for a single one matplotlib has a shorter way
        outline, is_filled = _shape(marker)
        faces = [to_rgba(look.get("markerfacecolor", look["color"]), look.get("alpha")) for look in of_kind]
        marks = PathCollection(
            [outline],
            [size**2],
            offsets=[points[i] for i in chosen],
            offset_transform=transform,
            facecolors=np.array(faces) if is_filled else "none",
            edgecolors=np.array([to_rgba(look["color"], look.get("alpha")) for look in of_kind]),
            linewidths=[look.get("edge", 1.0) for look in of_kind],
            joinstyle="miter",
            **{"zorder": 2, "clip_on": False} | more,
        )
        marks.set_transform(IdentityTransform())
        yield marks


def add_line_marks(axes: Axes, lines: Sequence[Points], looks: Sequence[Look]) -> None:
    """A marker at every point of each of ``lines``, those of a line as one outline, the last lines on top.

    For many points: the place of each is found here instead of in drawing, so the limits must be final.
    """
    axes.get_xlim(), axes.get_ylim()  # makes autoscaled limits known to the transform
    figure = axes.get_figure()
    outlines = []
    for line, look in zip(lines, looks):
        outline, _ = _shape(look["marker"])
        middles = axes.transData.transform(line) / figure.dpi
        vertices = middles[:, None] + outline.vertices * look["markersize"] / 72
        outlines.append(Path(vertices.reshape(-1, 2), np.tile(outline.codes, len(middles))))
    marks = PathCollection(
        outlines,
        facecolors=np.array([to_rgba(look["markerfacecolor"]) for look in looks]),
        edgecolors=np.array([to_rgba(look["color"]) for look in looks]),
        linewidths=1.0,
        joinstyle="miter",
        clip_on=False,
        zorder=2,
        transform=figure.dpi_scale_trans,
    )
    _place(axes, marks)


def add_lines(axes: Axes, lines: Sequence[Points], looks: Sequence[Look], **more: Any) -> None:
    """Each of ``lines`` in its look (color, linewidth, perhaps linestyle and alpha), a later one over an earlier one."""
    if lines:
        _place(axes, _lines(lines, looks, **more))
        axes.update_datalim(np.concatenate([np.asarray(line, float) for line in lines]))


def add_grey_lines(axes: Axes, lines: Sequence[Points], **more: Any) -> None:
    """The lines of all labels that are not in colour, behind everything else, as one with gaps."""
    if lines:
        add_lines(axes, [joined(lines)], [OTHERS], **{"zorder": 0.9} | more)


def joined(lines: Sequence[Points]) -> np.ndarray:
    """The lines as one with gaps, which costs far less to draw."""
    gap = np.full((1, 2), math.nan)
    return np.concatenate([part for line in lines for part in (np.asarray(line, float), gap)])


def _lines(lines: Sequence[Points], looks: Sequence[Look], **more: Any) -> LineCollection:
    return LineCollection(
        lines,
        colors=np.array([to_rgba(look["color"], look.get("alpha")) for look in looks]),
        linewidths=[look["linewidth"] for look in looks],
        linestyles=[look.get("linestyle", "-") for look in looks],
        **{"zorder": 2} | more,
    )


def add_bands(axes: Axes, bands: Sequence[np.ndarray], colors: Sequence[str]) -> None:
    """Bands of x, low and high (n, 3), below the lines."""
    if not bands:
        return
    finite = [band[np.isfinite(band).all(axis=1)] for band in bands]
    outlines = [np.concatenate([band[:, [0, 1]], band[::-1][:, [0, 2]]]) for band in finite]
    faces = [to_rgba(color, 0.15) for color in colors]
    _place(axes, PolyCollection(outlines, facecolors=faces, linewidths=0, zorder=1))
    axes.update_datalim(np.concatenate(outlines))


def add_entries(figure: Figure, entries: Mapping[str, Look], corner: tuple[float, float], sizes: EntrySizes) -> None:
    """Entries of a legend below each other, of which matplotlib's own takes some milliseconds each.

    Args:
        figure: where to draw.
        entries: by text, what :func:`add_lines` and :func:`add_marks` draw, or one of them.
        corner: the upper left one, in inches from the lower left one of the figure.
        sizes: of an entry.
    """
    inches = figure.dpi_scale_trans
    left, top = corner
    middles = {text: top - (i + 0.5) * sizes.height for i, text in enumerate(entries)}
    lines = {text: look for text, look in entries.items() if look.get("linewidth")}
    marks = {text: look for text, look in entries.items() if look.get("marker")}
    if lines:
        ends = [[(left, middles[text]), (left + sizes.line, middles[text])] for text in lines]
        figure.add_artist(_lines(ends, [*lines.values()], transform=inches))
    points = [(left + sizes.line / 2, middles[text]) for text in marks]
    for drawn in _marks(points, [*marks.values()], inches):
        figure.add_artist(drawn)
    for text, middle in middles.items():
        at = left + sizes.line + sizes.to_text, middle
        figure.text(*at, text, transform=inches, va="center_baseline", fontsize=LABEL)


def add_rows(drawn: Sequence[Axes], columns: int, places: Mapping[str, float]) -> None:
    """The rows of ``drawn``, panels in lines of ``columns`` with a common y axis: names, grid, every second one shaded."""
    heights = [*places.values()]
    shades = Path.make_compound_path(*(Path(_corners(y - 0.5, y + 0.5), closed=True) for y in heights[::2]))
    for i, axes in enumerate(drawn):
        across = axes.get_yaxis_transform()
        axes.add_artist(PathPatch(shades, facecolor="#f2f2f2", linewidth=0, zorder=0, transform=across))
        axes.set_ylim(max(heights) + 0.6, -0.6)
        add_ticks(axes, "y", heights, () if i % columns else [*places])


def _corners(low: float, high: float) -> list[tuple[float, float]]:
    return [(0, low), (1, low), (1, high), (0, high), (0, low)]


def add_ticks(axes: Axes, which: Literal["x", "y"], places: Sequence[float], texts: Sequence[str] = ()) -> None:
    """The ticks of an axis and their grid, instead of matplotlib's own, of which each is five artists.

    All of ``places`` must be within the limits of the axis.
    """
    is_x = which == "x"
    axis, across = (axes.xaxis, axes.get_xaxis_transform()) if is_x else (axes.yaxis, axes.get_yaxis_transform())
    axis.set_major_locator(NullLocator())
    axis.set_minor_locator(NullLocator())
    along = np.repeat(places, 3)
    ends = np.tile([0, 1, math.nan], len(places))
    grid = {name: rcParams[f"grid.{name}"] for name in ("color", "alpha", "linewidth")}
    axes.add_artist(Line2D(*((along, ends) if is_x else (ends, along)), zorder=0.5, transform=across, **grid))
    size, pad = rcParams["xtick.major.size"], rcParams["xtick.major.pad"]
    mark = {"marker": TICKDOWN if is_x else TICKLEFT, "markersize": size, "mew": rcParams["xtick.major.width"]}
    zeros = np.zeros(len(places))
    at = (places, zeros) if is_x else (zeros, places)
    axes.add_artist(Line2D(*at, color="black", linestyle="", clip_on=False, transform=across, **mark))
    transform, va, ha = (axes.get_xaxis_text1_transform if is_x else axes.get_yaxis_text1_transform)(size + pad)
    for place, text in zip(places, texts):
        at = (place, 0) if is_x else (0, place)
        axes.text(*at, text, transform=transform, va=va, ha=ha, fontsize=SMALLEST)


def simplify_ticks(axes: Axes, which: Literal["x", "y"], is_named: bool = True) -> list[str]:
    """:func:`add_ticks` of what matplotlib chose, within final limits, and their texts.

    Those of a logarithmic axis, and those with a common factor or offset written beside the axis, stay as they are.
    """
    axis, limits = (axes.xaxis, axes.get_xlim()) if which == "x" else (axes.yaxis, axes.get_ylim())
    places = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(places)
    shown = [(place, text) for place, text in zip(places, texts) if min(limits) <= place <= max(limits)]
    if axis.get_scale() == "linear" and not axis.get_major_formatter().get_offset():
        add_ticks(axes, which, [place for place, _ in shown], [text for _, text in shown] if is_named else ())
    return [text for _, text in shown]


@functools.cache
def _shape(marker: str) -> tuple[Path, bool]:
    """The outline, of the size of one point, and whether it has an inside."""
    shape = MarkerStyle(marker)
    return shape.get_path().transformed(shape.get_transform()), shape.is_filled()


def _place(axes: Axes, artist: Collection) -> None:
    axes.add_collection(artist, autolim=False)
