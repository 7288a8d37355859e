"""Many marks, lines or bands as one artist: matplotlib takes about a millisecond for each artist, however small.

They count for the limits of the axes once ``axes.autoscale_view()`` is called.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import TICKLEFT, Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform

Points = Sequence[tuple[float, float]] | np.ndarray
"""(n, 2), in data coordinates."""


def add_marks(
    axes: Axes, points: Points, looks: Sequence[Mapping[str, Any]], edge: float = 1.0, alpha: float = 1.0, **more: Any
) -> None:
    """A marker at each of ``points``, as :meth:`LabelStyle.mark` says; those of one shape and size are one artist.

    Args:
        axes: where to draw.
        points: places, in order; a later one covers an earlier one of its shape.
        looks: color, marker, markersize and perhaps markerfacecolor, one a point.
        edge: width of the outline in points.
        alpha: opacity.
        more: arguments of the artists.
    """
    alike: dict[tuple[str, float], list[int]] = {}
    for i, look in enumerate(looks):
        alike.setdefault((look["marker"], look["markersize"]), []).append(i)
    for (marker, size), chosen in alike.items():
        of_kind = [looks[i] for i in chosen]
        is_filled = MarkerStyle(marker).is_filled()
        faces = [look.get("markerfacecolor", look["color"]) if is_filled else "none" for look in of_kind]
        marks = PathCollection(
            [_outline(marker)],
            [size**2],
            offsets=[points[i] for i in chosen],
            offset_transform=axes.transData,
            facecolors=[face if face == "none" else to_rgba(face, alpha) for face in faces],
            edgecolors=[to_rgba(look["color"], alpha) for look in of_kind],
            linewidths=edge,
            joinstyle="miter",
            **{"zorder": 2} | more,
        )
        marks.set_transform(IdentityTransform())
        _add(axes, marks, [points[i] for i in chosen])


def add_lines(axes: Axes, lines: Sequence[Points], looks: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Each of ``lines`` in its look (color, linewidth, perhaps linestyle and alpha), a later one over an earlier one."""
    if not lines:
        return
    drawn = LineCollection(
        lines,
        colors=[to_rgba(look["color"], look.get("alpha")) for look in looks],
        linewidths=[look["linewidth"] for look in looks],
        linestyles=[look.get("linestyle", "-") for look in looks],
        **{"zorder": 2} | more,
    )
    _add(axes, drawn, np.concatenate([np.asarray(line, float) for line in lines]))


def add_bands(axes: Axes, bands: Sequence[np.ndarray], colors: Sequence[str]) -> None:
    """Bands of x, low and high (n, 3), below the lines."""
    if not bands:
        return
    finite = [band[np.isfinite(band).all(axis=1)] for band in bands]
    outlines = [np.concatenate([band[:, [0, 1]], band[::-1][:, [0, 2]]]) for band in finite]
    faces = [to_rgba(color, 0.15) for color in colors]
    _add(axes, PolyCollection(outlines, facecolors=faces, linewidths=0, zorder=1), np.concatenate(outlines))


def add_rows(drawn: Sequence[Axes], columns: int, places: Mapping[str, float]) -> None:
    """The rows of ``drawn``, panels in lines of ``columns`` with a common y axis: names, grid, every second one shaded."""
    heights = [*places.values()]
    shades = [[(0, y - 0.5), (1, y - 0.5), (1, y + 0.5), (0, y + 0.5)] for y in heights[::2]]
    for i, axes in enumerate(drawn):
        across = axes.get_yaxis_transform()
        _place(axes, PolyCollection(shades, facecolors="#f2f2f2", linewidths=0, zorder=0, transform=across))
        if i % columns:
            unname_ticks(axes, heights)
    drawn[0].set_yticks(heights, [*places])
    drawn[0].set_ylim(max(heights) + 0.6, -0.6)


def unname_ticks(axes: Axes, heights: Sequence[float]) -> None:
    """A y axis without labels: its grid and its ticks as two artists, of which matplotlib's own have five a tick."""
    across = axes.get_yaxis_transform()
    color, width = to_rgba(rcParams["grid.color"], rcParams["grid.alpha"]), rcParams["grid.linewidth"]
    grid = [[(0, y), (1, y)] for y in heights]
    _place(axes, LineCollection(grid, colors=color, linewidths=width, zorder=0.5, transform=across))
    mark = {"marker": TICKLEFT, "markersize": rcParams["ytick.major.size"], "mew": rcParams["ytick.major.width"]}
    ticks = Line2D([0] * len(heights), heights, color="black", linestyle="", clip_on=False, transform=across, **mark)
    ticks.set_in_layout(False)
    axes.add_artist(ticks)
    axes.yaxis.set_visible(False)


@functools.cache
def _outline(marker: str) -> Path:
    """Of the size of one point."""
    shape = MarkerStyle(marker)
    return shape.get_path().transformed(shape.get_transform())


def _add(axes: Axes, artist: Collection, points: Points) -> None:
    _place(axes, artist)
    axes.update_datalim(points)


def _place(axes: Axes, artist: Collection) -> None:
    axes.add_collection(artist, autolim=False)
    artist.set_in_layout(False)  # what is in the axes takes no room beside them
