from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgb

from analysis.figures import synthetic
from madbench.analysis.figures.registry import FIGURES
from madbench.analysis.figures.style import COLORS, OTHERS, Highlights, best_first, in_order, label_style, title
from madbench.tasks import MAD_TASKS

TABLE = synthetic.TABLE

STYLES = {label: label_style(i) for i, label in enumerate(TABLE)}


def test_all_33_labels_have_a_style_of_their_own():
    styles = [label_style(i) for i in range(len(TABLE))]
    assert len({(one.color, one.dashes) for one in styles}) == len({(one.color, one.marker) for one in styles}) == 33
    for one, other in itertools.pairwise(styles):
        assert one.color != other.color and one.dashes != other.dashes and one.marker != other.marker


def luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_stands_out_from_white_paper():
    assert min(1.05 / (luminance(color) + 0.05) for color in COLORS) > 2


def test_panels_are_in_the_order_of_the_tasks_and_the_averages_last():
    names = ["loss_l5", "mad_average", "a_task_not_installed", *reversed(MAD_TASKS)]
    assert in_order(names) == [*MAD_TASKS, "a_task_not_installed", "mad_average", "loss_l5"]
    assert title("a_task_not_installed") == "a_task_not_installed"


def test_up_to_eight_labels_are_all_in_colour_and_in_their_order():
    shown = Highlights.of({label: [float(i)] for i, label in enumerate(TABLE[:8])}, STYLES)
    assert shown.styles == {label: STYLES[label] for label in TABLE[:8]} and [*shown.styles] == TABLE[:8]
    assert not shown.others and not shown.note("learning", "x") and [*shown.entries()] == TABLE[:8]


@pytest.mark.parametrize("is_lower_better", [False, True])
@pytest.mark.parametrize("count", [9, 33])
def test_of_more_the_eight_best_are_in_colour_and_always_s(count, is_lower_better):
    labels = TABLE[:count]
    results = {label: [float(-i if is_lower_better else i)] * 2 for i, label in enumerate(labels)}
    shown = Highlights.of(results, STYLES, is_lower_better)
    assert [*shown.styles] == [*labels[:-8:-1], "S"] and shown.others == labels[1:-7]
    assert len({one.color for one in shown.styles.values()}) == 8
    assert [*shown.entries()][8:] == [f"{count - 8} other label{'s' * (count > 9)}"]
    assert "madbench plot mad LABEL" in shown.note("mad", "x")
    del results["S"]
    assert len(Highlights.of(results, STYLES).styles) == 8


def test_a_label_that_lacks_results_comes_after_all_that_have_them():
    results = {"a": [math.nan, 99.0], "b": [1.0, 2.0], "c": [math.nan, math.inf], "d": [2.0, 2.0]}
    assert best_first(results) == ["d", "b", "a", "c"]
    assert best_first(results, is_lower_better=True) == ["b", "d", "a", "c"]


def test_a_label_gives_its_colour_up_only_to_one_before_it():
    same = [label for label in TABLE if STYLES[label].color == COLORS[0]][:3]
    distinct = Highlights.of({label: [1.0] for label in [*same, TABLE[1]]}, STYLES).styles
    assert distinct[same[0]] == STYLES[same[0]] and distinct[TABLE[1]] == STYLES[TABLE[1]]
    assert len({one.color for one in distinct.values()}) == 4


@pytest.mark.parametrize("name", ["learning", "loss", "difficulty"])
def test_labels_that_are_not_in_colour_are_grey_behind_the_others(name, names):
    frame = getattr(synthetic, name)(TABLE, MAD_TASKS[:2])
    figure = FIGURES[name].draw(frame)
    assert len(names(figure)) == 9 and names(figure)[-1].startswith("25 other")
    for axes in figure.axes:
        lines = [line for line in axes.lines if line.get_linewidth() == OTHERS["linewidth"] and line.get_zorder() < 2]
        (grey,) = (line for line in lines if same_color(line.get_color(), OTHERS["color"]))
        assert np.isnan(grey.get_xdata()).sum() >= 25
        assert all(line.get_zorder() > grey.get_zorder() for line in axes.lines if line.get_linewidth() > 1.2)


@pytest.mark.parametrize("name", ["mad", "learning", "loss", "budget", "difficulty"])
def test_a_label_keeps_its_style_among_others(name):
    frame = getattr(synthetic, name)(["G"], MAD_TASKS[:1]).assign(style=2)
    (axes, *_) = FIGURES[name].draw(frame).figure.axes
    colors = [line.get_color() for line in axes.lines] + [
        c for drawn in axes.collections for c in drawn.get_edgecolor()
    ]
    assert any(same_color(color, label_style(2).color) for color in colors)
    assert not any(same_color(color, label_style(0).color) for color in colors)
