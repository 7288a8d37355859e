from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color
from matplotlib.markers import MarkerStyle


@pytest.fixture
def cells():
    """``cells({(label, task): [accuracy of seed 0, of seed 1, ...]})``: scores; NaN diverged, None is not done yet."""

    def call(accuracies, ceiling=100.0):
        rows = []
        for (label, task), seeds in accuracies.items():
            for seed, accuracy in enumerate(seeds):
                row = {"label": label, "task": task, "seed": seed, "accuracy": accuracy, "ceiling": ceiling}
                row |= {
                    "done": int(accuracy is not None),
                    "expected": 1,
                    "diverged": int(accuracy is not None and math.isnan(accuracy)),
                }
                rows.append(row | {"budget_ratio": 1.36 if "!" in label else 1.0})
        return pd.DataFrame(rows).astype({"accuracy": float})

    return call


def middles(axes, drawn, size):
    """Of the markers of that size that are parts of one outline, in data coordinates."""
    corners = []
    for path in drawn.get_paths():
        starts = np.flatnonzero(path.codes == path.MOVETO)
        parts = [(part.min(axis=0), part.max(axis=0)) for part in np.split(path.vertices, starts[1:])]
        corners += [(low, high) for low, high in parts if np.allclose(high - low, size / 72)]
    return [tuple(axes.transData.inverted().transform((low + high) / 2 * axes.figure.dpi)) for low, high in corners]


@pytest.fixture
def points():
    """``points(axes, size, ...)``: places of the markers of that size, marker and face, each shape in order of drawing."""

    def call(axes, size, marker=None, face=None):
        shape = marker and MarkerStyle(marker)
        outline = marker and shape.get_path().transformed(shape.get_transform()).vertices.tolist()
        found = []
        for drawn in axes.collections:
            if isinstance(drawn, PathCollection) and drawn.get_transform() is axes.figure.dpi_scale_trans:
                if face is None or any(same_color(color, face) for color in drawn.get_facecolors()):
                    found += middles(axes, drawn, size)
                continue
            if not isinstance(drawn, PathCollection) or drawn.get_sizes().tolist() != [size**2]:
                continue
            if marker and drawn.get_paths()[0].vertices.tolist() != outline:
                continue
            faces = itertools.cycle(drawn.get_facecolors() if len(drawn.get_facecolors()) else [None])
            for (x, y), color in zip(drawn.get_offsets().tolist(), faces):
                if face is None or same_color(color, face):
                    found.append((x, y))
        return found

    return call


@pytest.fixture
def lines():
    """``lines(axes, width)``: x and y of the lines of that width, all without one, in the order of drawing."""

    def call(axes, width=None):
        found = []
        for drawn in axes.collections:
            if isinstance(drawn, LineCollection) and drawn.get_transform() is axes.transData:
                paths = [path.vertices.T.tolist() for path in drawn.get_paths()]
                found += [tuple(path) for path, w in zip(paths, drawn.get_linewidths()) if width in (None, w)]
        return found

    return call


@pytest.fixture
def ticks():
    """``ticks(axes, "x")``: places of the tick labels by their text, from one end of the axis."""

    def call(axes, which):
        is_tick = {"x": lambda text: text.get_va() == "top", "y": lambda text: text.get_ha() == "right"}[which]
        return {text.get_text(): text.get_position()[which == "y"] for text in axes.texts if is_tick(text)}

    return call


@pytest.fixture
def words():
    """``words(figure)``: the title, the notes and all text within the panels, joined."""

    def call(figure):
        texts = [figure.get_suptitle(), figure.get_supxlabel()]
        texts += [text.get_text() for axes in figure.axes for text in axes.texts]
        return " ".join(" ".join(texts).split())

    return call
