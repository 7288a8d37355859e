"""Fixtures for figures: scores to draw, and the texts, curves and marks of a figure that was laid out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import same_color

from madbench.suites.language.columns import LOSS
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.scoring import mean_over

ARROWS = 2.5
"""The z-order of the arrows at cut intervals, between bars and marks."""


@pytest.fixture
def laid_out():
    """Mark a test on positions or ticks of a figure, which exist only after the layout."""


@pytest.fixture
def without_layout(request, monkeypatch):
    """Skip the layout of figures in tests that do not check positions.

    The layout takes most of the time of a figure.
    """
    if not {"laid_out", "ticks"}.intersection(request.fixturenames):
        monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda engine, figure: None)


@pytest.fixture
def scores():
    """``scores({(label, column): [value of seed 0, of seed 1, ...]})``: a frame of scores.

    NaN stands for a diverged seed, None for a seed without a run.
    """

    def call(values, ceiling=100.0):
        rows = []
        for (label, column), seeds in values.items():
            suite = LANGUAGE if column == LOSS else MAD
            for seed, value in enumerate(seeds):
                row = {"suite": suite.name, "label": label, "seed": seed, "column": column, "value": value}
                row |= {"done": int(value is not None), "expected": 1}
                row |= {
                    "chance": 4.0,
                    "heuristic": math.nan,
                    "ceiling": ceiling,
                    "solved_threshold": 4 + 0.9 * (ceiling - 4),
                }
                row |= {"chance": 5.0, "ceiling": math.nan, "solved_threshold": math.nan} if column == LOSS else {}
                is_diverged = value is not None and math.isnan(value)
                row |= {"diverged": int(is_diverged), "is_diverged": is_diverged}
                row["value"] = row["chance"] if is_diverged else value
                rows.append(row | {"budget_ratio": 1.36 if "!" in label else 1.0})
        found = pd.DataFrame(rows).astype({"value": float})
        return pd.concat([found, mean_over(found, MAD_TASKS, MAD_AVERAGE)], ignore_index=True)

    return call


@pytest.fixture
def points():
    """``points(axes, marker, face)``: the positions of the markers.

    For a line with a marker at its end, the position of that end.
    """

    def call(axes, marker=None, face=None):
        found = []
        for drawn in axes.lines:
            has_face = face is None or same_color(drawn.get_markerfacecolor(), face)
            if has_face and drawn.get_marker() not in ("None", "", None) and marker in (None, drawn.get_marker()):
                xy = drawn.get_xydata().tolist()
                found += xy[-1:] if drawn.get_markevery() == [-1] else xy
        for drawn in axes.collections if marker is None else ():
            if isinstance(drawn, PathCollection) and drawn.get_zorder() != ARROWS:
                faces = np.resize(drawn.get_facecolors(), (len(drawn.get_offsets()), 4))
                at = zip(drawn.get_offsets().tolist(), faces)
                found += [place for place, color in at if face is None or same_color(color, face)]
        return [tuple(place) for place in found]

    return call


@pytest.fixture
def arrows():
    """``arrows(axes)``: the positions of the arrows at intervals that are longer than the axis."""

    def call(axes):
        found = [one for one in axes.collections if isinstance(one, PathCollection) and one.get_zorder() == ARROWS]
        return [tuple(place) for one in found for place in one.get_offsets().tolist()]

    return call


@pytest.fixture
def curves():
    """``curves(axes, width)``: x and y of the lines of that width, without gaps."""

    def call(axes, width):
        lines = [line for line in axes.lines if line.get_linewidth() == width and line.get_linestyle() != "None"]
        drawn = [line.get_xydata()[np.isfinite(line.get_xydata()).all(axis=1)] for line in lines]
        return [tuple(xy.T.tolist()) for xy in drawn if len(xy)]

    return call


@pytest.fixture
def bars():
    """``bars(axes)``: the ends of the interval bars."""

    def call(axes):
        found = [drawn for drawn in axes.collections if hasattr(drawn, "get_segments")]
        return [segment.tolist() for drawn in found for segment in drawn.get_segments()]

    return call


@pytest.fixture
def ticks():
    """``ticks(axes, "x")``: places of the tick labels by their text."""

    def call(axes, which):
        axis = axes.xaxis if which == "x" else axes.yaxis
        shown = [tick for tick in axis.get_major_ticks() if tick.label1.get_visible() and tick.label1.get_text()]
        return {tick.label1.get_text(): tick.get_loc() for tick in shown}

    return call


@pytest.fixture
def names():
    """``names(figure)``: the texts of the legend."""
    return lambda figure: [text.get_text() for text in figure.legends[0].get_texts()]
