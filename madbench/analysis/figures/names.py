"""Names of points, beside them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from madbench.analysis.figures.style import GREY, SMALLEST

_STARTS = ((8, 0), (14, 0), (20, 0), (-14, 0), (10, 10))  # from a point to where its name begins to move, in points
_RADIUS = 4  # of a marker, in points


def name_points(axes: Axes, names: Sequence[str], points: np.ndarray, lines: Sequence[np.ndarray] = ()) -> None:
    """Writes the names of ``points``, so that none covers another, a point or a line; leaders lead to distant ones.

    Where adjustText does not find such places from one start it tries from others; the best attempt is drawn. The layout
    of the figure must be fixed and the limits of the axes final.

    Args:
        axes: where to write.
        names: one a point.
        points: (n, 2) in data coordinates.
        lines: horizontal and vertical ones to avoid, of two ends (2, 2) each in data coordinates.
    """
    from adjustText import adjust_text  # imports pyplot

    to_pixels, scale = axes.transData, axes.get_figure(root=True).dpi / 72
    to_data = to_pixels.inverted()
    middles = to_pixels.transform(points)
    taken = [Bbox([middle - _RADIUS * scale, middle + _RADIUS * scale]) for middle in middles]
    taken += [Bbox([ends.min(axis=0), ends.max(axis=0)]).padded(scale) for ends in map(to_pixels.transform, lines)]
    leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 1, "shrinkB": _RADIUS - 1, "zorder": 2.5}
    behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.2}
    least, best = np.inf, []
    for start in _STARTS:
        places = to_data.transform(middles + np.multiply(start, scale))
        texts = [
            axes.text(*place, name, va="center", fontsize=SMALLEST, bbox=behind) for name, place in zip(names, places)
        ]
        _, leaders = adjust_text(
            texts,
            ax=axes,
            target_x=points[:, 0],
            target_y=points[:, 1],
            objects=[box.transformed(to_data) for box in taken],
            avoid_self=False,
            prevent_crossings=True,
            force_pull=(0, 0),
            min_arrow_len=2 * _RADIUS * scale,
            iter_lim=200,
            arrowprops=leader,
        )
        boxes = [text.get_window_extent() for text in texts]
        covered = sum(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        covered += sum(box.overlaps(other) for box in boxes for other in taken)
        worse, best = (best, [*texts, *leaders]) if covered < least else ([*texts, *leaders], best)
        least = min(least, covered)
        for artist in worse:
            artist.remove()
        if not least:
            return
