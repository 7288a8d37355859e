"""Placing the names of points in a panel: beside the points if there is room, otherwise in columns at the edges.

Names in columns have leader lines to their points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from madbench.analysis.figures.style import GRAY, ArtistOptions, smallest

_RADIUS = 4  # radius of a marker, in points
_BESIDE = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_AWAY = 7  # distance from a point to its name, in points
_GAP = 16  # distance between a column of names and the points, in points
_LEAST_BETWEEN = 50  # smallest distance between the two columns, in points
_PITCH = 1.04  # distance of names in a column, in heights of a name


def name_points(axes: Axes, names: Sequence[str], points: np.ndarray, lines: Sequence[np.ndarray]) -> None:
    """Write the names of ``points``, an array (n, 2), without overlaps.

    A name covers no other name, no point and no line of ``lines``, which are arrays (2, 2) of two ends. If all names
    fit, they are beside their points. Otherwise they are in two columns, at the left and right edge of the panel.
    Leader lines that do not cross connect them with their points, and the limits of the x axis are changed to make
    room. The layout of the figure and the limits of the y axis must be final.
    """
    look: ArtistOptions = {"fontsize": smallest(), "bbox": {"fc": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.2}}
    texts = [axes.text(x, y, name, va="center", **look) for (x, y), name in zip(points, names)]
    if not _place_beside(axes, texts, points, lines):
        _in_columns(axes, texts, points, lines)


def _place_beside(axes: Axes, texts: Sequence[Text], points: np.ndarray, lines: Sequence[np.ndarray]) -> bool:
    """Move each text to a free place beside its point. Stop and return False if a text has none.

    A free place is within the panel and covers no other text, no point and none of ``lines``.
    """
    scale = points_of(axes)
    middles = axes.transData.transform(points)
    taken = [Bbox([middle - _RADIUS * scale, middle + _RADIUS * scale]) for middle in middles]
    taken += _boxes(axes, lines, scale)
    for text, middle in zip(texts, middles):
        size = np.array(text.get_window_extent().size)
        for side in _BESIDE:
            center = middle + side * (size / 2 * np.abs(side) + _AWAY * scale * np.abs(side) / np.hypot(*side))
            box = Bbox([center - size / 2, center + size / 2])
            if _is_within(box, axes.bbox) and not any(box.overlaps(other) for other in taken):
                break
        else:
            return False
        text.set(position=axes.transData.inverted().transform(center), ha="center")
        taken.append(box)
    return True


def points_of(axes: Axes) -> float:
    """The number of pixels in one typographic point (1/72 inch) in the figure of ``axes``."""
    figure = axes.get_figure()
    assert figure is not None
    return figure.dpi / 72


def _boxes(axes: Axes, lines: Iterable[np.ndarray], pad: float) -> list[Bbox]:
    ends = [axes.transData.transform(line) for line in lines]
    return [Bbox([line.min(axis=0) - pad, line.max(axis=0) + pad]) for line in ends]


def _is_within(inner: Bbox, outer: Bbox) -> bool:
    return bool(np.all(inner.min >= outer.min) and np.all(inner.max <= outer.max))


def _in_columns(axes: Axes, texts: Sequence[Text], points: np.ndarray, lines: Sequence[np.ndarray]) -> None:
    """Move the texts to columns at the left and right edge, and draw leader lines from the texts to their points.

    The places are chosen so that the total length of the leader lines is smallest. Therefore the lines do not cross.
    """
    scale, panel, order = points_of(axes), axes.bbox, np.argsort(points[:, 0], kind="stable")
    widths, height = np.array([text.get_window_extent().width for text in texts]), texts[0].get_window_extent().height
    slots = panel.y1 - height * _PITCH * (0.5 + np.arange(max(1, int(panel.height / (height * _PITCH)))))
    free = slots[[_is_free(slot, height, axes, lines) for slot in slots]]
    best = None
    for count in range(len(texts) + 1):  # number of names in the left column
        left, right = order[:count], order[count:]
        if len(left) > len(slots) or len(right) > len(free):
            continue
        ends = panel.x0 + widths[left].max(initial=0) + scale, panel.x1 - widths[right].max(initial=0) - scale
        room = [ends[0] + _GAP * scale * (count > 0), ends[1] - _GAP * scale * (count < len(texts))]
        pixels = np.column_stack([_spread(points[:, 0], *room), axes.transData.transform(points)[:, 1]])
        places, length = np.empty_like(pixels), max(0.0, _LEAST_BETWEEN * scale - (room[1] - room[0])) * 1e3
        for side, x, heights in ((left, ends[0], slots), (right, ends[1], free)):
            anchors = np.column_stack([np.full(len(heights), x), heights])
            distances = cdist(pixels[side], anchors)
            which, where = linear_sum_assignment(distances)
            places[side[which]] = anchors[where]
            length += distances[which, where].sum()
        if best is None or length < best[0]:
            best = length, room, places, left
    assert best is not None, "more names than the columns hold"
    _, (first, last), places, left = best
    low, high = points[:, 0].min(), points[:, 0].max()
    span = (high - low or 0.1 * abs(high) or 1.0) / max(last - first, 1.0)  # data units per pixel
    middle = (low + high) / 2 - span * ((first + last) / 2 - (panel.x0 + panel.x1) / 2)
    axes.set_xlim(middle - span * panel.width / 2, middle + span * panel.width / 2)
    to_data = axes.transData.inverted()
    for i, (text, place) in enumerate(zip(texts, places)):
        text.set(position=to_data.transform(place), ha="right" if i in left else "left")
    sides = np.where(np.isin(np.arange(len(texts)), left), 1.5, -1.5) * scale
    dots = to_data.transform(places + np.column_stack([sides, np.zeros(len(texts))]))
    over: ArtistOptions = {"zorder": 3.5, "clip_on": False}  # drawn above the marks, which are close together here
    axes.add_collection(LineCollection([*zip(points, dots)], colors=GRAY, linewidths=0.5, **over), autolim=False)
    axes.scatter(points[:, 0], points[:, 1], s=3, color=GRAY, linewidths=0, **over)


def _is_free(slot: float, height: float, axes: Axes, lines: Iterable[np.ndarray]) -> bool:
    """True if a name at the right edge of the axes covers none of the horizontal ``lines`` that end at this edge.

    The name is centered at ``slot``, measured in pixels from the bottom, and is ``height`` pixels high.
    """
    edge = axes.get_xlim()[1]
    levels = [line[0] for line in lines if line[0][1] == line[1][1] and max(line[0][0], line[1][0]) >= edge]
    return all(abs(axes.transData.transform(level)[1] - slot) > 0.55 * height for level in levels)


def _spread(values: np.ndarray, first: float, last: float) -> np.ndarray:
    """The values scaled linearly to the range from ``first`` to ``last``. If all are equal, they become its middle."""
    span = float(np.ptp(values))
    return first + (last - first) * ((values - values.min()) / span if span else np.full(len(values), 0.5))
