from __future__ import annotations

import math
import re

import numpy as np
import pytest
from matplotlib.lines import TICKLEFT
from scipy import stats

from madbench.analysis.figures.mad import mad_figure, mad_frame
from madbench.analysis.figures.style import GREY, label_styles
from madbench.tasks import TASK_NAMES

NAN = float("nan")


def test_a_row_has_the_mean_its_interval_and_every_seed(cells, points, lines, ticks):
    seeds = {("S", "memorization"): [20.0, 26.0, 35.0], ("R-c", "memorization"): [50.0, 52.0, 54.0]}
    frame = mad_frame(cells(seeds), "p")
    (axes,) = mad_figure(frame).axes
    assert ticks(axes, "y") == {"S": 0, "R-c": 1} and list(ticks(axes, "x")) == ["0", "25", "50", "75", "100"]
    assert [x for x, _ in points(axes, 3)] == [value for of_label in seeds.values() for value in of_label]
    assert points(axes, 6) == [(27.0, 0.0), (52.0, 1.0)]
    half = stats.t.ppf(0.975, 2) * 2 / math.sqrt(3)
    assert lines(axes, 1.6)[-1] == (pytest.approx([52 - half, 52 + half]), [1, 1])


def test_a_single_seed_is_hollow_and_has_no_interval(cells, points, lines, words):
    frame = mad_frame(cells({("S", "memorization"): [20.0], ("R", "memorization"): [20.0, None]}), "p")
    means = frame[frame.mark == "mean"]
    assert means.n.tolist() == [1, 1] and means.low.isna().all()
    figure = mad_figure(frame)
    (axes,) = figure.axes
    assert points(axes, 6) == points(axes, 6, face="white") == [(20.0, 0.0), (20.0, 1.0)] and not lines(axes)
    assert "Hollow: a single seed" in words(figure) and "Bars" not in words(figure) and "n = 1 seed." in words(figure)


def test_seeds_that_agree_have_no_interval_and_are_no_single_seed(cells, points, lines, words):
    frame = mad_frame(cells({("S", "memorization"): [100.0] * 3}), "p")
    figure = mad_figure(frame)
    (axes,) = figure.axes
    assert points(axes, 6) == [(100.0, 0.0)] and not points(axes, 6, face="white") and not lines(axes, 1.6)
    assert "n = 3 seeds. Seeds that agree exactly have no bar" in words(figure)
    assert not {"Bars", "Hollow", "single"} & set(re.findall(r"\w+", words(figure)))
    assert [text.get_text() for text in figure.texts[-2:]] == ["mean", "one seed each"]


def test_what_has_no_mean_says_why(cells, words):
    seeds = {("S", "compression"): [20.0, NAN], ("R", "compression"): [NAN, NAN], ("G", "compression"): [None, None]}
    frame = mad_frame(cells(seeds), "p")
    assert frame[frame.mark == "mean"].state.tolist() == ["1/2 diverged", "diverged", "not run"]
    figure = mad_figure(frame)
    assert all(state in words(figure) for state in ("1/2 diverged", "not run"))
    assert frame[frame.mark == "seed"].accuracy.tolist() == [20.0]


def test_unfinished_seeds_do_not_count(cells):
    table = cells({("S", "compression"): [20.0, 90.0]})
    table.loc[1, "expected"] = 6
    frame = mad_frame(table, "p")
    (mean,) = frame[frame.mark == "mean"].itertuples()
    assert (mean.accuracy, mean.n) == (20.0, 1)
    assert mad_frame(table[table.seed == 1], "p").state.tolist() == ["unfinished"]


def test_the_average_is_of_whole_seeds_and_only_with_all_tasks(cells):
    seeds = {("S", task): [10.0 * i, 12.0 * i] for i, task in enumerate(TASK_NAMES)}
    frame = mad_frame(cells(seeds), "p").query("task == 'mad_average' and mark == 'mean'")
    assert frame.accuracy.tolist() == [27.5]
    assert "mad_average" not in set(mad_frame(cells({("S", "compression"): [1.0]}), "p").task)


def test_references_are_drawn_where_they_are_known(cells, words):
    table = cells({("S", "compression"): [20.0], ("~x", "compression"): [20.0]}, ceiling=90.0)
    bare = mad_frame(table, "p")
    assert set(bare.mark) == {"mean", "seed", "ceiling"}
    frame = mad_frame(table, "p", {"compression": 6.25}, shows_published=True)
    published = frame[frame.mark == "published"]
    assert dict(zip(published.label, published.accuracy)) == {"S": 35.19}
    (axes,) = mad_figure(frame).axes
    references = [line for line in axes.lines if line.get_color() == GREY]
    assert {line.get_xdata()[0] for line in references} == {90.0, 6.25}


def test_a_label_keeps_its_style_among_others(cells, points):
    looks = label_styles(["S", "R", "G"])
    (axes,) = mad_figure(mad_frame(cells({("G", "compression"): [20.0, 22.0]}), "p"), looks).axes
    assert points(axes, 6, looks["G"].marker, looks["G"].color) == points(axes, 6) == [(21.0, 0.0)]


def test_a_panel_beside_the_first_has_the_same_rows(cells, ticks):
    table = cells({(label, task): [20.0] for label in ("S", "R", "G") for task in TASK_NAMES[:2]})
    first, second = mad_figure(mad_frame(table, "p")).axes
    (shades,) = (patch.get_path().vertices[:, 1] for patch in second.patches)
    assert np.unique(shades).tolist() == [-0.5, 0.5, 1.5, 2.5]  # the first and the last row of three
    marks, grid = (
        next(line.get_ydata() for line in second.lines if is_so(line))
        for is_so in (lambda line: line.get_marker() == TICKLEFT, lambda line: set(line.get_xdata()) >= {0.0, 1.0})
    )
    assert list(marks) == np.unique(grid).tolist() == [0, 1, 2]
    assert first.get_ylim() == second.get_ylim() == (2.6, -0.6) and ticks(first, "y") and not ticks(second, "y")
