"""The content of each figure, compared with its frame."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color
from matplotlib.path import Path
from matplotlib.text import Text

from analysis.figures.synthetic import TABLE, budget, effects, frame_of
from madbench.analysis.figures.accuracy import difficulty_figure, score_figure
from madbench.analysis.figures.budget import budget_figure
from madbench.analysis.figures.curves import X_LABELS, learning_figure, loss_figure
from madbench.analysis.figures.effects import effects_figure
from madbench.analysis.figures.files import NothingToDrawError
from madbench.analysis.figures.panels import Layout
from madbench.analysis.figures.style import GRAY
from madbench.suites.columns import loss_l5
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import MAD_TASKS

pytestmark = pytest.mark.usefixtures("without_layout")
LOSSES = [5.0, 4.0, 3.0, 2.8, 2.5, 2.6, 2.4, 2.5]
MEAN = {"task": "compression", "mark": "mean"}


@pytest.mark.slow
def test_a_row_has_the_mean_its_interval_and_every_seed(points, bars, ticks):
    rows = [MEAN | {"label": "S", "accuracy": 27.0, "low": 20.0, "high": 34.0, "n": 3}]
    rows += [MEAN | {"mark": "seed", "label": "S", "seed": i, "accuracy": x} for i, x in enumerate((20.0, 26.0, 35.0))]
    rows += [MEAN | {"label": "R", "accuracy": 52.0, "n": 1}, MEAN | {"mark": "seed", "label": "R", "accuracy": 52.0}]
    rows += [MEAN | {"mark": "ceiling", "accuracy": 90.0}]
    (axes,) = score_figure(frame_of("scores", rows)).axes
    assert ticks(axes, "y") == {"S": 0, "R": 1} and list(ticks(axes, "x")) == ["0", "25", "50", "75", "100"]
    assert sorted(points(axes)) == [(20.0, 0.32), (26.0, 0.32), (27.0, 0.0), (35.0, 0.32), (52.0, 1.0)]
    assert points(axes, face="white") == [(52.0, 1.0)]  # a single seed
    assert bars(axes) == [[[20.0, 0.0], [34.0, 0.0]]]
    assert [
        line.get_xdata()[0] for line in axes.lines if same_color(line.get_color(), GRAY) and len(line.get_xdata())
    ] == [90.0]


def test_a_label_without_a_mean_has_the_reason_in_its_row_of_the_figure(points):
    rows = [MEAN | {"label": "S", "accuracy": 27.0, "n": 2}, MEAN | {"label": "R", "state": "1/2 diverged"}]
    rows += [MEAN | {"mark": "seed", "label": "R", "accuracy": 20.0}]
    (axes,) = score_figure(frame_of("scores", rows)).axes
    assert [(text.get_text(), text.get_position()[1]) for text in axes.texts] == [("1/2 diverged", 1)]
    assert sorted(points(axes)) == [(20.0, 1.32), (27.0, 0.0)]


def learning(runs):
    """``learning({(label, seed, status): [accuracy after 10 steps, ...]})``."""
    rows = [
        {"task": "compression", "label": label, "seed": seed, "status": status, "id": f"{label}{seed}"}
        | {"split": "validation", "step": 10 * i, "accuracy": value, "loss": 3.0 - i}
        for (label, seed, status), values in runs.items()
        for i, value in enumerate(values, 1)
    ]
    return frame_of("learning", rows)


def test_the_curve_of_a_single_seed_ends_in_a_hollow_point(points, curves):
    frame = learning({("S", 0, "finished"): [10.0, 50.0]})
    (axes,) = learning_figure(frame).axes
    assert curves(axes, 1.8) == [([10, 20], [10.0, 50.0])] and points(axes, face="white") == [(20.0, 50.0)]
    (axes,) = learning_figure(frame, "loss").axes
    assert curves(axes, 1.8) == [([10, 20], [2.0, 1.0])] and axes.get_ylabel() == "loss, nats per target"


def test_a_learning_curve_is_the_mean_of_seeds_with_a_band_of_their_range(points, curves):
    frame = learning({("S", 0, "finished"): [20.0, 100.0], ("S", 1, "finished"): [10.0, 20.0, 40.0]})
    figure = learning_figure(frame)
    (axes,) = figure.axes
    assert curves(axes, 1.8) == [([10, 20, 30], pytest.approx([15.0, 60.0, 70.0]))]
    assert points(axes) == [(30.0, pytest.approx(70.0))] and not points(axes, face="white")
    (band,) = (drawn.get_paths()[0].vertices[:, 1] for drawn in axes.collections)
    assert (band.min(), band.max()) == (10.0, 100.0)
    assert "n = 2 seeds." in figure.get_supxlabel()


def test_a_diverged_seed_ends_in_a_cross_and_is_in_no_mean(points, curves):
    frame = learning({("S", 0, "finished"): [20.0, 40.0], ("S", 1, "diverged"): [30.0, 10.0]})
    (axes,) = learning_figure(frame).axes
    assert points(axes, "x") == [(20.0, 10.0)]
    assert curves(axes, 1.8) == [([10, 20], [20.0, 40.0])] and curves(axes, 0.7) == [([10, 20], [30.0, 10.0])]
    (axes,) = learning_figure(frame[frame.status == "diverged"]).axes
    assert points(axes) == [(20.0, 10.0)] and not curves(axes, 1.8)


def test_the_line_of_a_label_that_stopped_early_reaches_the_end_of_the_panel(points, curves):
    runs = {("S", 0, "finished"): [20.0, 30.0, 40.0, 50.0], ("R", 0, "finished"): [100.0]}
    runs |= {("G", 0, "finished"): [50.0, 100.0], ("G", 1, "finished"): [100.0]}
    (axes,) = learning_figure(learning(runs)).axes
    lines = [([10, 20, 40], [75.0, 100.0, 100.0]), ([10, 40], [100.0, 100.0])]
    assert [line for line in curves(axes, 1.8) if line[0] != [10, 20, 30, 40]] == lines
    assert sorted(points(axes)) == [(10.0, 100.0), (20.0, 100.0), (40.0, 50.0)]  # where they stopped


def test_labels_without_a_color_have_thin_gray_curves(curves):
    runs = {(label, 0, "finished"): [90.0, 99.0] for label in TABLE[:9]} | {("R-2!", 0, "finished"): [5.0]}
    (axes,) = learning_figure(learning(runs)).axes
    (gray,) = curves(axes, 0.7)
    assert gray == ([10, 20, 10, 20], [90.0, 99.0, 5.0, 5.0])


@pytest.mark.parametrize("width", [None, "single", "double"])
@pytest.mark.parametrize("draw", [learning_figure, difficulty_figure, score_figure])
def test_lines_and_markers_at_0_and_100_percent_are_not_cut(draw, width):
    if draw is learning_figure:
        frame = learning({(label, 0, "finished"): values for label, values in END_VALUES.items()})
    elif draw is difficulty_figure:
        frame = difficulty({label: dict(zip((32, 64), values)) for label, values in END_VALUES.items()})
    else:
        rows = [MEAN | {"label": label, "accuracy": values[1], "n": 1} for label, values in END_VALUES.items()]
        frame = frame_of("scores", rows)
    figure = draw(frame, layout=Layout(width))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    is_marked = {line: line.get_marker() not in ("None", "", None) and len(line.get_xdata()) for line in axes.lines}
    assert any(is_marked.values())
    for line in axes.lines:
        assert not (is_marked[line] and line.get_clip_on())
        if line.get_linestyle() != "None" and len(line.get_xdata()):
            path = line.get_transform().transform(line.get_xydata())
            half = line.get_linewidth() / 2 * figure.dpi / 72
            y = path[np.isfinite(path).all(axis=1), 1]
            assert line.get_transform() != axes.transData or (y - half >= axes.bbox.y0).all()
            assert line.get_transform() != axes.transData or (y + half <= axes.bbox.y1).all()


END_VALUES = {"S": (0.0, 100.0), "R": (100.0, 0.0)}


def loss(runs, seconds=2.0):
    """``loss({(label, seed, status): [loss of every evaluation]})``: a frame of losses.

    Validation losses are 0.1 higher.
    """
    rows = [
        {"id": f"{label}{seed}", "label": label, "seed": seed, "status": status, "evaluation": i, "step": 10 * i}
        | {"tokens": 640 * i, "seconds": (seconds + seed) * i, "train_loss": value, "validation_loss": value + 0.1}
        for (label, seed, status), values in runs.items()
        for i, value in enumerate(values, 1)
    ]
    return frame_of("loss", rows)


def test_the_training_loss_is_drawn_raw_and_as_a_mean_of_five_evaluations(curves):
    left, right = loss_figure(loss({("S", 0, "finished"): LOSSES}), "step").axes
    ((steps, raw),) = curves(left, 0.7)
    assert steps == [10 * i for i in range(1, 9)] and raw == LOSSES
    ((middles, smooth),) = curves(left, 1.8)
    assert middles == steps[2:-2]
    assert smooth[0] == pytest.approx(sum(LOSSES[:5]) / 5) and smooth[-1] == pytest.approx(loss_l5(LOSSES))
    assert curves(right, 1.8) == [(steps, pytest.approx([value + 0.1 for value in LOSSES]))]
    left, _ = loss_figure(loss({("S", 0, "finished"): LOSSES[:5]})).axes
    assert [values for _, values in curves(left, 1.8)] == [LOSSES[:5]]  # too few to be smoothed


@pytest.mark.parametrize(("x", "last"), [("step", 80), ("tokens", 5120), ("seconds", 24.0)])
def test_the_x_axis_of_loss_curves_is_the_given_quantity(curves, x, last):
    left, right = loss_figure(loss({("S", 0, "finished"): LOSSES}, seconds=3.0), x).axes
    assert curves(left, 0.7)[0][0][-1] == curves(right, 1.8)[0][0][-1] == last
    assert X_LABELS[x] == left.get_xlabel() == right.get_xlabel()


def test_loss_curves_over_seconds_are_means_at_the_mean_time_of_the_seeds(curves, names):
    runs = {("S", seed, "finished"): [value + 0.2 * seed for value in LOSSES] for seed in (0, 1)}
    figure = loss_figure(loss(runs, seconds=1.0), "seconds")
    left, right = figure.axes
    ((times, validation),) = curves(right, 1.8)
    assert times == [1.5 * i for i in range(1, 9)]
    assert validation == pytest.approx([value + 0.2 for value in LOSSES])
    (band,) = (drawn.get_paths()[0].vertices[:, 1] for drawn in right.collections)
    assert (band.min(), band.max()) == pytest.approx((min(LOSSES) + 0.1, max(LOSSES) + 0.3))
    assert len(left.collections) == 1 and names(figure) == [f"S  {loss_l5(LOSSES) + 0.1:.3f} (n = 2)"]


def test_labels_are_listed_by_their_loss_and_diverged_ones_last(names, points):
    runs = {("S-p", 0, "diverged"): LOSSES, ("S", 0, "finished"): LOSSES, ("S", 1, "finished"): [9.0, math.nan]}
    runs |= {("R", 0, "finished"): [value - 1 for value in LOSSES], ("R", 1, "diverged"): [9.0, 8.0, math.nan]}
    frame = loss({**runs, ("G", 0, "finished"): [value + 1 for value in LOSSES]})
    frame = frame[~((frame.label == "S") & (frame.seed == 1))]
    figure = loss_figure(frame, "step")
    low = loss_l5(LOSSES)
    assert names(figure) == [f"S  {low:.3f}", f"G  {low + 1:.3f}", "S-p  diverged", "R  diverged (n = 2)"]
    assert sorted(points(figure.axes[1], "x")) == [(20.0, 8.1), (80.0, 2.6)]


@pytest.mark.slow
def test_the_loss_legend_has_the_range_of_labels_without_a_color(names):
    runs = {(label, 0, "finished"): [3 + i / 10] * 6 for i, label in enumerate(TABLE[1:11])}
    runs |= {("S", 0, "finished"): [5.0] * 6, (TABLE[11], 0, "diverged"): [5.0, 4.0]}
    listed = [f"{label}  {3 + i / 10:.3f}" for i, label in enumerate(TABLE[1:8])]
    assert names(loss_figure(loss(runs))) == [*listed, "S  5.000", "4 others  3.700 to 3.900, 1 diverged"]


def test_the_steep_start_of_a_loss_is_visible_only_on_a_logarithmic_axis():
    frame = loss({("S", 0, "finished"): [100.0, *(2.0 - i / 100 for i in range(29))]})
    low, high = loss_figure(frame).axes[0].get_ylim()
    assert 1.5 < low < 1.72 and 2.1 < high < 3.0
    logarithmic = loss_figure(frame, log_x=True).axes[0]
    assert logarithmic.get_xscale() == "log" and logarithmic.get_ylim()[1] > 100


@pytest.mark.slow
@pytest.mark.parametrize("count, texts", [(40, ["1k", "2k", "5k", "10k", "20k"]), (4000, ["1k", "10k", "100k", "1M"])])
def test_logarithmic_ticks_are_at_1_2_and_5_or_at_powers_over_three_decades(ticks, count, texts):
    axes = loss_figure(loss({("S", 0, "finished"): [3.0] * count}), log_x=True).axes[0]
    found = ticks(axes, "x")
    assert [text for text in found if axes.get_xlim()[0] <= found[text] <= axes.get_xlim()[1]] == texts


def test_evaluations_that_are_not_finite_leave_out_the_means_around_them(curves):
    gaps = {
        ("S", seed, "finished"): [math.nan if i == gap else value for i, value in enumerate(LOSSES)]
        for seed, gap in enumerate((2, 3))
    }
    left, _ = loss_figure(loss(gaps), "step").axes
    ((_, raw),) = curves(left, 0.7)
    assert raw == LOSSES
    assert curves(left, 1.8) == [([60], pytest.approx([sum(LOSSES[3:]) / 5]))]


def test_runs_without_an_evaluation_raise_nothing_to_draw_error():
    for frame in (loss({("S", 0, "diverged"): [math.nan]}), loss({("S", 0, "finished"): [1.0]})[:0]):
        with pytest.raises(NothingToDrawError, match="no run was evaluated"):
            loss_figure(frame)
    with pytest.raises(NothingToDrawError, match="no run was evaluated"):
        learning_figure(learning({("S", 0, "diverged"): [math.nan]}))


EFFECT = {"kind": "effect", "quantity": "compression", "pairs": 2, "seeds": 3}


@pytest.mark.slow
def test_significant_effects_have_filled_marks_and_interactions_are_below_a_line(points, bars, arrows, ticks):
    rows = [
        EFFECT | {"row": "conv: c", "difference": 30.0, "low": 20.0, "high": 40.0, "p_holm": 0.01},
        EFFECT | {"kind": "pair", "row": "conv: c", "difference": 31.0},
        EFFECT | {"row": "gate: g", "difference": 5.0, "low": -1000.0, "high": 1000.0, "p_holm": 0.5},
        EFFECT | {"row": "pos: p", "difference": 4.0},
        EFFECT | {"kind": "interaction", "row": "R/S x c", "difference": 9.0, "low": 8.0, "high": 10.0, "p_holm": 0.01},
    ]
    (axes,) = effects_figure(frame_of("effects", rows)).axes
    assert ticks(axes, "y") == {"conv: c": 0, "gate: g": 1, "pos: p": 2, "R/S x c": 3.5}
    assert points(axes, "s") == [(30.0, 0.0), (9.0, 3.5), (5.0, 1.0)] and points(axes, "s", "white") == [(5.0, 1.0)]
    assert points(axes, "o") == [(31.0, 0.3)] and points(axes, "x") == [(4.0, 2.0)]  # without an interval
    limit = axes.get_xlim()[1]
    assert limit < 100 and [[-limit, 1.0], [limit, 1.0]] in bars(axes)
    assert arrows(axes) == [(-limit, 1.0), (limit, 1.0)]


@pytest.mark.slow
def test_effects_on_losses_have_their_own_axis():
    *_, accuracy, loss = effects_figure(effects(["S"], MAD_TASKS)).axes
    assert "less is better" in loss.get_xlabel() and accuracy.get_xlabel() == "percentage points"
    assert loss.get_xlim()[1] < 1 < accuracy.get_xlim()[1]


@pytest.mark.slow
def test_the_effects_of_each_task_have_an_axis_that_fits_them():
    small, large = (EFFECT | {"row": "conv: c", "difference": d, "low": d - 1, "high": d + 1} for d in (2.0, 60.0))
    rows = [small, large | {"quantity": "memorization"}, small | {"quantity": LOSS, "difference": 0.02}]
    limits = [axes.get_xlim()[1] for axes in effects_figure(frame_of("effects", rows)).axes]
    assert [2 < limits[0] < 5, 60 < limits[1] < 100, limits[2] < 1] == [True] * 3


@pytest.mark.slow
def test_an_axis_of_effects_that_are_all_0_fits_their_intervals():
    none = EFFECT | {"row": "conv: c", "difference": 0.0}
    for low, high, expected in ((-7.0, 6.0, 7.7), (-0.01, 0.02, 0.022), (0.0, 0.0, 1.0)):
        (axes,) = effects_figure(frame_of("effects", [none | {"low": low, "high": high, "p_holm": 1.0}])).axes
        assert axes.get_xlim() == pytest.approx((-expected, expected))


def costs(values, quantity="compression", **shared):
    rows = [
        {"quantity": quantity, "label": label, "budget_ratio": cost, "mean": mean, "n": n} | shared
        for label, (cost, mean, n) in values.items()
    ]
    return frame_of("budget", rows)


def test_the_budget_figure_draws_named_means_against_their_cost(points):
    frame = costs({"S": (1.0, 31.0, 2), "R-12!": (1.36, 50.5, 2), "G": (1.0, 20.0, 1), "R": (1.0, math.nan, 0)})
    figure = budget_figure(frame)
    (axes,) = figure.axes
    assert points(axes) == [(1.0, 31.0), (1.36, 50.5), (1.0, 20.0)] and points(axes, face="white") == [(1.0, 20.0)]
    assert [text.get_text() for text in axes.texts] == ["S", "R-12!", "G"]
    assert "unfinished: R." in " ".join(figure.get_supxlabel().split())
    assert axes.get_xlabel() == "mixer parameters, softmax attention = 1"
    frame.attrs["matched"] = "FLOPs per token"
    assert budget_figure(frame).axes[0].get_xlabel() == "mixer FLOPs per token, softmax attention = 1"


def test_the_budget_figure_names_labels_whose_cost_is_unknown(points):
    frame = costs({"S": (1.0, 31.0, 2), "G": (1.0, 20.0, 1)})
    with pytest.raises(NothingToDrawError):
        budget_figure(frame, "mixer_parameters")
    frame["mixer_parameters"] = [4000.0, math.nan]
    figure = budget_figure(frame, "mixer_parameters")
    assert points(figure.axes[0]) == [(4000.0, 31.0)] and "of unknown cost: G." in figure.get_supxlabel()


def test_the_axis_of_state_sizes_is_logarithmic(points):
    frame = costs({"S": (1.0, 31.0, 2), "KDA": (1.0, 20.0, 2), "R": (1.0, 9.0, 2)})
    frame["state"] = [50_000.0, 500.0, math.nan]
    figure = budget_figure(frame, "state")
    (axes,) = figure.axes
    assert points(axes) == [(math.log10(50_000), 31.0), (math.log10(500), 20.0)]
    texts = [text.get_text() for text in axes.get_xticklabels()]
    shown = [text for text, place in zip(texts, axes.get_xticks()) if axes.get_xlim()[0] < place < axes.get_xlim()[1]]
    assert shown == ["200", "500", "1k", "2k", "5k", "10k", "20k", "50k", "100k"]
    assert "of unknown cost: R." in figure.get_supxlabel()
    assert figure.get_suptitle() == "Accuracy against the size of the state"
    assert budget_figure(frame).get_suptitle() == "Accuracy against the budget"


@pytest.mark.parametrize("quantity, corner", [("loss_l5", (1.2, 2.0)), ("compression", (1.0, 2.5))])
def test_the_pareto_front_of_losses_runs_along_the_lowest(quantity, corner):
    (axes,) = budget_figure(costs({"S": (1.0, 2.5, 1), "R": (1.2, 2.0, 1)}, quantity)).axes
    (front,) = (line.get_xydata() for line in axes.lines if same_color(line.get_color(), GRAY))
    assert tuple(front[-1]) == (axes.get_xlim()[1], corner[1]) and list(corner) in front.tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("laid_out")
def test_no_name_of_33_labels_covers_another_name_or_a_point(points):
    figure = budget_figure(budget(TABLE, MAD_TASKS, seed=1))
    for axes in figure.axes:
        boxes = [Text.get_window_extent(text) for text in axes.texts]
        places = np.unique(axes.transData.transform(points(axes)), axis=0)  # a leader begins in a dot on its mark
        assert len(boxes) == len(places) >= 32
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
        assert not any(box.contains(*place) for box in boxes for place in places)
        assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)


def crossing(one, other):
    """True if two segments cross. A segment is the pair of its ends."""

    def side(a, b, c):
        return np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    (a, b), (c, d) = one, other
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


LONG_LABELS = [f"family:a-long-name-{i}" for i in range(20)]


@pytest.mark.slow
@pytest.mark.usefixtures("laid_out")
@pytest.mark.parametrize(
    ("width", "labels"),
    [(None, TABLE), ("single", TABLE), ("double", TABLE[:12]), ("single", LONG_LABELS)],
    ids=["None-33", "single-33", "double-12", "single-20"],
)
def test_leader_lines_of_names_cross_no_leader_and_no_name(labels, width):
    figure = budget_figure(budget(labels, MAD_TASKS), layout=Layout(width))
    for axes in (axes for page in (figure, *figure.following) for axes in page.axes):
        leaders = [
            one for one in axes.collections if isinstance(one, LineCollection) and same_color(one.get_color()[0], GRAY)
        ]
        segments = [axes.transData.transform(segment) for one in leaders for segment in one.get_segments()]
        assert not any(crossing(one, other) for one, other in itertools.combinations(segments, 2))
        boxes = [Text.get_window_extent(text) for text in axes.texts]
        assert len(boxes) >= min(len(labels), 33) - 1  # of the last label there is no loss
        for box in boxes:
            assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
            for segment in segments:
                assert not Path(segment).intersects_bbox(box.padded(-0.5), filled=False)
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.slow
@pytest.mark.usefixtures("laid_out")
@pytest.mark.parametrize("width", [None, "single"])
def test_a_leader_line_starts_in_a_dot_at_its_point_above_all_marks(width):
    means = [90.0, *(50 + i / 50 for i in range(11))]  # so close but for the first that their marks cover each other
    (axes,) = budget_figure(costs({label: (1.0, y, 3) for label, y in zip(TABLE, means)}), layout=Layout(width)).axes
    lines = [one for one in axes.collections if isinstance(one, LineCollection)]
    (leaders,) = [one for one in lines if len(one.get_color()) and same_color(one.get_color()[0], GRAY)]
    (dots,) = [one for one in axes.collections if isinstance(one, PathCollection) and len(one.get_offsets()) > 2]
    starts = [tuple(segment[0]) for segment in leaders.get_segments()]
    assert sorted(starts) == sorted(map(tuple, dots.get_offsets())) == sorted((1.0, y) for y in means)
    assert min(leaders.get_zorder(), dots.get_zorder()) > max(line.get_zorder() for line in axes.lines)


@pytest.mark.slow
@pytest.mark.usefixtures("laid_out")
@pytest.mark.parametrize("count, width", [(33, "single"), (36, "single"), (34, None), (34, "double")])
def test_a_caption_says_how_many_points_have_no_name(count, width):
    labels = [f"family:{i}" for i in range(count)]
    means = {"compression": {label: (1.0 + i / 90, 20.0 + i, 3) for i, label in enumerate(labels)}}
    means["memorization"] = {label: means["compression"][label] for label in labels[:35]}
    figure = budget_figure(pd.concat([costs(of, quantity) for quantity, of in means.items()]), layout=Layout(width))
    pages = [figure, *figure.following]
    unnamed = [
        total - len(axes.texts)
        for axes, total in zip((axes for page in pages for axes in page.axes), (count, min(count, 35)))
    ]
    caption = figure.caption or " ".join(figure.get_supxlabel().split())
    has_note = "without a name" in caption
    assert has_note == any(unnamed) == (width == "single" and count > 33)
    assert all(f"{some} (" in caption for some in unnamed if some)
    assert has_note is False or "33 best labels" in caption


def difficulty(values, variable="seq_len", n=1):
    rows = [
        {"task": "compression", "variable": variable, "value": value, "label": label, "accuracy": accuracy}
        | {"ceiling": 90.0, "n": n}
        for label, of_label in values.items()
        for value, accuracy in of_label.items()
    ]
    return frame_of("difficulty", rows)


def test_the_difficulty_line_has_a_gap_at_a_missing_result(points):
    frame = difficulty({"S": {32: 50.0, 64: 50.0, 128: 50.0}, "R": {32: 40.0, 128: 40.0}})
    (axes,) = difficulty_figure(frame).axes
    first, second = (line.get_ydata() for line in axes.lines if line.get_linewidth() == 1.4)
    assert first.tolist() == [50.0] * 3 and np.isnan(second).tolist() == [False, True, False]
    assert points(axes) == points(axes, face="white") == [(32, 50), (64, 50), (128, 50), (32, 40), (128, 40)]
    ceilings = [line.get_ydata().tolist() for line in axes.lines if same_color(line.get_color(), GRAY)]
    assert ceilings == [[90.0] * 3]


@pytest.mark.slow
def test_the_difficulty_axis_is_linear_for_shares_and_logarithmic_for_lengths(ticks):
    lengths, shares = {32: 50.0, 64: 40.0, 128: 30.0}, {0.2: 50.0, 0.4: 40.0, 0.8: 30.0}
    frame = pd.concat([difficulty({"S": shares}, "share"), difficulty({"S": lengths})])
    length, share = difficulty_figure(frame).axes
    assert (length.get_xscale(), share.get_xscale(), share.get_xlabel()) == ("log", "linear", "share")
    assert ticks(length, "x") == {"32": 32, "64": 64, "128": 128}
    assert list(ticks(length, "y")) == ["0", "25", "50", "75", "100"] and not ticks(share, "y")


@pytest.mark.slow
def test_intervals_end_in_an_arrow_where_the_axis_ends(arrows, bars):
    ends = {"low": -40.0, "high": 150.0}
    (axes,) = score_figure(frame_of("scores", [MEAN | {"label": "S", "accuracy": 52.0, "n": 3} | ends])).axes
    assert arrows(axes) == [(-5.0, 0.0), (105.0, 0.0)] and bars(axes) == [[[-5.0, 0.0], [105.0, 0.0]]]
    rows = [
        {"task": "compression", "variable": "seq_len", "value": value, "label": "S", "accuracy": 50.0, "n": 3}
        for value in (32, 64)
    ]
    (axes,) = difficulty_figure(frame_of("difficulty", [rows[0] | ends, rows[1] | {"low": 40.0, "high": 60.0}])).axes
    assert arrows(axes) == [(32.0, -3.0), (32.0, 103.0)] and [[32.0, -3.0], [32.0, 103.0]] in bars(axes)
    frame = costs({"S": (1.0, 50.0, 3), "R": (1.1, 52.0, 3)}).assign(low=-40.0, high=150.0)
    (axes,) = budget_figure(frame).axes
    low, high = axes.get_ylim()
    assert sorted(arrows(axes)) == [(1.0, low), (1.0, high), (1.1, low), (1.1, high)]


@pytest.mark.slow
@pytest.mark.usefixtures("laid_out")
def test_solved_seeds_are_counted_within_the_panel():
    rows = [MEAN | {"label": "S", "accuracy": 99.9, "n": 12, "solved": "12/12"}]
    figure = score_figure(frame_of("scores", rows))
    (axes,) = figure.axes
    (count,) = axes.texts
    figure.draw_without_rendering()
    box = count.get_window_extent()
    assert count.get_text() == "12/12" and box.x1 <= axes.bbox.x1 and box.x0 > axes.transData.transform((102, 0))[0]
