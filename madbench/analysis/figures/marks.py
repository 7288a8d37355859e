"""Many marks, lines or bands as one artist: matplotlib takes about a millisecond for each artist, however small.

They count for the limits of the axes once ``axes.autoscale_view()`` is called.
"""

from __future__ import annotations

import functools
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
from matplotlib.path import Path
from matplotlib.ticker import NullLocator
from matplotlib.transforms import IdentityTransform, Transform

from madbench.analysis.figures.style import LABEL, SMALLEST

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
        more: arguments of the artists.
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
            **{"zorder": 2} | more,
        )
        marks.set_transform(IdentityTransform())
        yield marks


def add_lines(axes: Axes, lines: Sequence[Points], looks: Sequence[Look], **more: Any) -> None:
    """Each of ``lines`` in its look (color, linewidth, perhaps linestyle and alpha), a later one over an earlier one."""
    if lines:
        _place(axes, _lines(lines, looks, **more))
        axes.update_datalim(np.concatenate([np.asarray(line, float) for line in lines]))


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
    shades = [[(0, y - 0.5), (1, y - 0.5), (1, y + 0.5), (0, y + 0.5)] for y in heights[::2]]
    for i, axes in enumerate(drawn):
        across = axes.get_yaxis_transform()
        _place(axes, PolyCollection(shades, facecolors="#f2f2f2", linewidths=0, zorder=0, transform=across))
        add_ticks(axes, "y", heights, () if i % columns else [*places])
        axes.set_ylim(max(heights) + 0.6, -0.6)


def add_ticks(axes: Axes, which: Literal["x", "y"], places: Sequence[float], texts: Sequence[str] = ()) -> None:
    """The ticks of an axis with their grid, instead of matplotlib's own, of which each is five artists.

    ``axes.get_xlim()`` has to be final, as places outside are not left out.
    """
    is_x = which == "x"
    axis, across = (axes.xaxis, axes.get_xaxis_transform()) if is_x else (axes.yaxis, axes.get_yaxis_transform())
    axis.set_major_locator(NullLocator())
    axis.set_minor_locator(NullLocator())
    color, width = to_rgba(rcParams["grid.color"], rcParams["grid.alpha"]), rcParams["grid.linewidth"]
    grid = [[(place, 0), (place, 1)] if is_x else [(0, place), (1, place)] for place in places]
    _place(axes, LineCollection(grid, colors=color, linewidths=width, zorder=0.5, transform=across))
    size, pad = rcParams["xtick.major.size"], rcParams["xtick.major.pad"]
    mark = {"marker": TICKDOWN if is_x else TICKLEFT, "markersize": size, "mew": rcParams["xtick.major.width"]}
    zeros = [0] * len(places)
    at = (places, zeros) if is_x else (zeros, places)
    axes.add_artist(Line2D(*at, color="black", linestyle="", clip_on=False, transform=across, **mark))
    transform, va, ha = (axes.get_xaxis_text1_transform if is_x else axes.get_yaxis_text1_transform)(size + pad)
    for place, text in zip(places, texts):
        at = (place, 0) if is_x else (0, place)
        axes.text(*at, text, transform=transform, va=va, ha=ha, fontsize=SMALLEST)


@functools.cache
def _shape(marker: str) -> tuple[Path, bool]:
    """The outline, of the size of one point, and whether it has an inside."""
    shape = MarkerStyle(marker)
    return shape.get_path().transformed(shape.get_transform()), shape.is_filled()


def _place(axes: Axes, artist: Collection) -> None:
    axes.add_collection(artist, autolim=False)
