"""Names of points beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from madbench.analysis.figures.layout import text_width
from madbench.analysis.figures.marks import Points, add_lines
from madbench.analysis.figures.style import GREY, SMALLEST

_STEPS = (7, 14, 22, 32, 44, 58, 74, 92, 112, 134, 160)  # pt, from a point to its name
_DIRECTIONS = (  # to the right, left, above and below, then between
    (1, 0),
    (-1, 0),
    (0, 1),
    (0, -1),
    (1, 1),
    (1, -1),
    (-1, 1),
    (-1, -1),
    (1, 0.4),
    (1, -0.4),
    (-1, 0.4),
    (-1, -0.4),
)
_PLACES = np.array([(step * dx, step * dy) for step in _STEPS for dx, dy in _DIRECTIONS])  # (P, 2), nearest first
_SIDES = {1: "left", -1: "right", 0: "center"}

Box = Sequence[float]
"""Left, bottom, right, top in pixels."""


def name_points(axes: Axes, points: Mapping[str, Sequence[float]], lines: Sequence[Points]) -> None:
    """Writes the names of ``points`` so that none covers another, a point or a line, or leaves the axes.

    Points and lines, of two ends each, are in data coordinates of final limits. Each name goes to the nearest free one
    of a fixed set of places around its point, from the top down; a line leads to the point where that is far, or another
    point is nearer.
    """
    figure = axes.get_figure()
    scale = figure.dpi / 72
    to_pixels = axes.transData.transform
    at = dict(zip(points, to_pixels(list(points.values()))))
    ends = to_pixels(np.reshape(lines, (-1, 2))).reshape(-1, 2, 2)
    taken = [(*point - 3.5 * scale, *point + 3.5 * scale) for point in at.values()]
    taken += [(*pair.min(axis=0) - scale, *pair.max(axis=0) + scale) for pair in ends]
    to_data = axes.transData.inverted().transform
    leaders = []
    for name in sorted(at, key=lambda name: (-at[name][1], name)):
        size = figure.dpi * text_width(name), scale * SMALLEST * 1.2
        place, box = _free_place(at[name], size, scale, axes.bbox.extents, taken)
        taken.append(box)
        away = {other: _distance(point, box) for other, point in at.items()}
        if math.hypot(*place) > 2 * _STEPS[0] or min(away.values()) < away[name]:
            leaders.append(to_data(_leader(at[name], box, 3 * scale)))
        where = {"xy": to_data(at[name]), "xytext": place, "textcoords": "offset points"}
        axes.annotate(name, **where, fontsize=SMALLEST, ha=_SIDES[_sign(place[0])], va="center", zorder=4)
    add_lines(axes, leaders, [{"color": GREY, "linewidth": 0.5}] * len(leaders), zorder=4)


def _free_place(
    point: Sequence[float], size: Sequence[float], scale: float, inside: Box, taken: Sequence[Box]
) -> tuple[tuple[float, float], Box]:
    """The first free place in points from ``point``, or the least covered one, and the box there."""
    middle = np.asarray(point) + scale * _PLACES
    left = middle[:, 0] - size[0] * (1 - np.sign(_PLACES[:, 0])) / 2
    bottom = middle[:, 1] - size[1] / 2
    boxes = np.column_stack([left, bottom, left + size[0], bottom + size[1]]) + scale * np.array([-1, -1, 1, 1])
    others = np.asarray(taken)
    shared = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(boxes[:, None, :2], others[:, :2])  # (P, N, 2)
    covered = shared.clip(0).prod(axis=2).sum(axis=1)
    is_outside = (boxes[:, :2] < inside[:2]).any(axis=1) | (boxes[:, 2:] > inside[2:]).any(axis=1)
    best = int(np.argmin(covered + 1e9 * is_outside))
    return tuple(_PLACES[best].tolist()), boxes[best]


def _leader(point: Sequence[float], box: Box, gap: float) -> list[tuple[float, float]]:
    """The line from the middle of ``box``, as far as it is outside, to ``gap`` pixels from ``point``."""
    middle = [(box[i] + box[i + 2]) / 2 for i in range(2)]
    way = [point[i] - middle[i] for i in range(2)]
    inside = min((box[i + 2] - box[i]) / 2 / max(abs(way[i]), 1e-9) for i in range(2))
    ends = min(inside, 1.0), 1 - gap / max(math.hypot(*way), gap)
    return [(middle[0] + share * way[0], middle[1] + share * way[1]) for share in ends]


def _distance(point: Sequence[float], box: Box) -> float:
    """From ``point`` to the nearest part of ``box``, in pixels."""
    return math.hypot(*(max(box[i] - point[i], 0, point[i] - box[i + 2]) for i in range(2)))


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
