from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba

from madbench.analysis.figures.difficulty import difficulty_figure
from madbench.analysis.figures.highlights import Highlights, best_first, told_apart
from madbench.analysis.figures.learning import learning_figure
from madbench.analysis.figures.loss_curves import loss_curve_figure
from madbench.analysis.figures.style import COLORS, OTHERS, label_styles
from madbench.analysis.loss_curves import loss_curves
from madbench.labels import expand

TABLE = expand(["@table1"])


def names(figure):
    return [text.get_text() for text in figure.texts[2:]]


def grey(axes):
    """The collections of lines that are in grey alone."""
    lines = (drawn for drawn in axes.collections if isinstance(drawn, LineCollection))
    return [drawn for drawn in lines if {*map(tuple, drawn.get_colors())} == {to_rgba(OTHERS["color"])}]


@pytest.fixture
def learning():
    """``learning(labels)``: a figure of two tasks; the first label ends lowest, the last one highest."""

    def call(labels, status="finished"):
        rows = [
            {
                "task": task,
                "label": label,
                "seed": seed,
                "step": step,
                "accuracy": step * (i + 1.0),
                "loss": 9.0 - i / 9,
            }
            for task in ("compression", "memorization")
            for i, label in enumerate(labels)
            for seed in (0, 1)
            for step in (1, 2)
        ]
        frame = pd.DataFrame(rows).assign(protocol="p", status=status, split="validation")
        return learning_figure(frame)

    return call


def test_up_to_eight_labels_are_all_in_colour_and_in_their_order():
    results = {label: [float(i)] for i, label in enumerate(TABLE[:8])}
    shown = Highlights.of(results)
    assert shown.styles == label_styles(TABLE[:8]) and [*shown.styles] == TABLE[:8]
    assert not shown.others and not shown.notes("learning", "x") and [*shown.entries()] == TABLE[:8]


@pytest.mark.parametrize("is_lower_better", [False, True])
@pytest.mark.parametrize("count", [9, 33])
def test_of_more_the_eight_best_are_in_colour_and_always_s(count, is_lower_better):
    labels = TABLE[:count]
    results = {label: [float(-i if is_lower_better else i)] * 2 for i, label in enumerate(labels)}
    shown = Highlights.of(results, label_styles(labels), is_lower_better)
    assert [*shown.styles] == [*labels[:-8:-1], "S"] and shown.others == labels[1:-7]
    assert len({one.color for one in shown.styles.values()}) == len(COLORS) == len(set(shown.styles.values())) - 1
    assert [*shown.entries()][8:] == [f"{count - 8} other label{'s' * (count > 9)}"]
    assert "S and the 7 best others by x; madbench plot mad LABEL" in shown.notes("mad", "x")[0]
    del results["S"]
    assert len(Highlights.of(results).styles) == 8


def test_a_label_that_lacks_results_is_behind_all_that_have_them():
    results = {"a": [math.nan, 99.0], "b": [1.0, 2.0], "c": [math.nan, math.nan], "d": [2.0, 2.0]}
    assert best_first(results) == ["d", "b", "a", "c"]
    assert best_first(results, is_lower_better=True) == ["b", "d", "a", "c"]


def test_a_label_gives_its_colour_up_only_to_one_before_it():
    styles = label_styles(TABLE)
    same = [label for label in TABLE if styles[label].color == COLORS[0]][:3]
    apart = told_apart({label: styles[label] for label in [*same, TABLE[1]]})
    assert apart[same[0]] == styles[same[0]] and apart[TABLE[1]] == styles[TABLE[1]]
    assert len({one.color for one in apart.values()}) == 4


def test_of_nine_learning_curves_one_is_grey(learning, lines, points, words):
    labels = [f"R-{i}" for i in range(9)]
    figure = learning(labels)
    assert names(figure) == [*labels[:0:-1], "1 other label"]
    assert "In colour: the 8 best by accuracy at the end" in words(figure)
    for axes in figure.axes:
        (behind,) = grey(axes)
        assert behind.get_zorder() < 1 and np.nanmax(behind.get_paths()[0].vertices) == 2.0
        assert len(points(axes, 6)) == 8
    assert names(learning(labels[:8])) == labels[:8] and not grey(learning(labels[:8]).axes[0])


def test_a_diverged_run_of_another_label_is_grey_too(learning, points):
    figure = learning([f"R-{i}" for i in range(9)], status=(["diverged"] * 2 + ["finished"] * 34) * 2)
    for axes in figure.axes:
        assert points(axes, 6, "x") == [(2.0, 2.0)]
        (behind,) = grey(axes)
        assert len(behind.get_paths()[0].vertices) == 2 * 3  # of either seed, with what is between them


def test_the_legend_of_losses_has_the_range_of_the_others(language_run, points):
    losses = [5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    runs = [language_run(label, [x + i / 10 for x in losses]) for i, label in enumerate(TABLE[1:11])]
    runs += [language_run("S", [x + 2 for x in losses]), language_run(TABLE[11], losses[:2], status="diverged")]
    figure = loss_curve_figure(loss_curves(runs))
    assert names(figure)[1:] == [*(f"{label}  {3 + i / 10:.3f}" for i, label in enumerate(TABLE[1:8])), "S  5.000"] + [
        "4 others  3.700 to 3.900, 1 diverged"
    ]
    for axes in figure.axes:
        (behind,) = grey(axes)
        assert np.isnan(behind.get_paths()[0].vertices[:, 0]).sum() == 4 and len(points(axes, 6, "x")) == 1


def test_of_33_labels_a_panel_of_difficulty_has_one_grey_line():
    rows = [
        {"variable": variable, "value": value, "label": label, "accuracy": 2.0 * i, "low": 2.0 * i - 1}
        for variable in ("seq_len", "vocab_size")
        for value in (32.0, 64.0, 128.0)
        for i, label in enumerate(TABLE)
    ]
    shared = {"protocol": "p", "task": "compression", "ceiling": 100.0, "n": 2}
    figure = difficulty_figure(pd.DataFrame(rows).assign(**shared, high=99.0))
    assert names(figure) == [*TABLE[:-8:-1], "S", "25 other labels"]
    for axes in figure.axes:
        (behind,) = grey(axes)
        assert np.isnan(behind.get_paths()[0].vertices[:, 0]).sum() == 25
        (marks,) = (drawn for drawn in axes.collections if isinstance(drawn, PathCollection))
        assert len(marks.get_paths()) == 8
