from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Annotation, Text

from madbench.analysis.cells import Cell, Column, with_noise
from madbench.analysis.figures.budget import (
    TYPES,
    budget_figure,
    budget_frame,
    language_values,
    mad_values,
    pareto_front,
)
from madbench.analysis.figures.files import svg
from madbench.analysis.frames import read_frame, write_frame
from madbench.errors import ConfigError
from madbench.labels import expand
from madbench.tasks import TASK_NAMES


@pytest.fixture
def frame(cells):
    table = cells(
        {("S", "compression"): [30.0, 32.0], ("R-12!", "compression"): [50.0, 51.0], ("G", "compression"): [20.0]}
    )
    return budget_frame(mad_values(table, {("S", "compression"): 4000, ("R-12!", "compression"): 5000}), "p")


def synthetic(labels, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        {
            "quantity": "mad_average",
            "label": label,
            "seed": s,
            "value": 50 + 6 * rng.normal(),
            "mixer_parameters": 1000.0,
        }
        | {"budget_ratio": 1.36 if "!" in label else 0.98 + 0.02 * rng.random()}
        for label in labels
        for s in range(2)
    ]
    return budget_frame(pd.DataFrame(rows), "p")


def test_means_are_drawn_against_their_cost(frame, points):
    (axes,) = budget_figure(frame).axes
    assert points(axes, 6) == [(1.0, 31.0), (1.36, 50.5), (1.0, 20.0)]
    assert points(axes, 6, face="white") == [(1.0, 20.0)]
    assert sorted(text.get_text() for text in axes.texts if isinstance(text, Annotation)) == ["G", "R-12!", "S"]


def test_parameters_are_another_cost_and_a_label_without_is_left_out_and_named(frame, points, words):
    figure = budget_figure(frame, "mixer_parameters")
    (axes,) = figure.axes
    assert points(axes, 6) == [(4000.0, 31.0), (5000.0, 50.5)] and axes.get_xlabel() == "mixer parameters"
    assert "Left out, of unknown cost: G." in words(figure)


def test_the_average_stands_for_the_six_tasks(cells):
    table = cells({("S", task): [10.0 * i, None] for i, task in enumerate(TASK_NAMES)})
    values = mad_values(table, {("S", task): 100.0 * i for i, task in enumerate(TASK_NAMES)})
    (row,) = budget_frame(values, "p").itertuples()
    assert (row.quantity, row.mean, row.n, row.mixer_parameters) == ("mad_average", 25.0, 1, 250.0)


def test_a_label_with_a_diverged_or_no_whole_seed_has_no_mean(cells, words):
    table = cells(
        {("S", "compression"): [1.0], ("R", "compression"): [2.0, float("nan")], ("G", "compression"): [None]}
    )
    frame = budget_frame(mad_values(table, {}), "p")
    assert frame[frame["mean"].isna()].label.tolist() == ["R", "G"]
    assert "Left out, diverged or unfinished: R, G." in words(budget_figure(frame))
    with pytest.raises(ConfigError, match="nothing to draw"):
        budget_figure(frame[frame.label != "S"])


def test_seeds_that_agree_have_no_interval_and_are_no_single_seed(cells, points, words):
    table = cells({("S", "compression"): [100.0, 100.0], ("R", "compression"): [90.0]})
    figure = budget_figure(budget_frame(mad_values(table, {}), "p"))
    (axes,) = figure.axes
    assert points(axes, 6) == [(1.0, 100.0), (1.0, 90.0)] and points(axes, 6, face="white") == [(1.0, 90.0)]
    assert "Seeds that agree exactly have no bar" in words(figure) and "Bars" not in words(figure)


def test_losses_of_language_models_are_better_where_they_are_lower(language_run, lines):
    runs = [language_run("S", [3.0, 2.0]), language_run("R", [3.0, 1.0], details={"budget_ratio": 1.2})]
    frame = budget_frame(language_values(runs), "p")
    assert dict(zip(frame.label, frame["mean"])) == {"S": 2.5, "R": 2.0} and set(frame.quantity) == {"loss_l5"}
    (axes,) = budget_figure(frame).axes
    front = [heights for _, heights in lines(axes, 1)]
    assert [2.5, 2.5] in front and [2.5, 2.0] in front


def test_losses_have_the_intervals_of_the_table(language_run, words):
    seeds = {"S": [3.0, 3.1], "R": [2.0, 2.3], "G": [2.5], "S-c": [2.9, 3.0, 3.4], "R-c": [2.0, math.nan]}
    values = [
        {"quantity": quantity, "label": label, "seed": seed, "value": value, "budget_ratio": 1.0, "mixer_parameters": 9}
        for quantity in ("mad_average", "loss_l5")
        for label, of_label in seeds.items()
        for seed, value in enumerate(of_label)
    ]
    frame = budget_frame(pd.DataFrame(values), "p")
    of_table = {
        label: {"l5": Cell(np.mean(xs), np.std(xs, ddof=1) if len(xs) > 1 else math.nan, len(xs), len(xs), len(xs))}
        for label, xs in seeds.items()
    }
    table = with_noise([Column("l5", "L5", 3, "lower", is_pooled=True)], of_table, ())
    losses = frame[frame.quantity == "loss_l5"].set_index("label")
    half_widths = {label: row["l5"].half_width for label, row in table.items()}
    assert dict((losses.high - losses["mean"]).items()) == pytest.approx(half_widths, nan_ok=True)
    own = frame[frame.quantity == "mad_average"].set_index("label")
    assert half_widths["S"] == half_widths["R"] < (own.high - own["mean"])["S"] < (own.high - own["mean"])["R"]
    assert "over seeds; of L5 with the spread pooled over the labels." in words(budget_figure(frame))
    alone = budget_frame(pd.DataFrame(values[: len(values) // 2]), "p")
    assert "pooled" not in words(budget_figure(alone))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("SRGcgp", min_size=1), st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=12))
def test_the_front_holds_just_what_nothing_dominates(points):
    costs = {label: cost for label, (cost, _) in points.items()}
    values = {label: value for label, (_, value) in points.items()}
    best = {
        (cost, value)
        for cost, value in points.values()
        if not any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points.values())
    }
    front = pareto_front(costs, values)
    assert [points[label] for label in front] == sorted(best)


def test_33_names_cover_no_other_name_and_no_point(points):
    figure = budget_figure(synthetic(expand(["@table1"])))
    (axes,) = figure.axes
    figure.draw_without_rendering()
    names = [text for text in axes.texts if isinstance(text, Annotation)]
    boxes = [Text.get_window_extent(text) for text in names]  # without the lines from a point to its name
    assert len(boxes) == 33
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    places = axes.transData.transform(points(axes, 6))
    assert not any(box.contains(*place) for box in boxes for place in places)
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)


def test_the_csv_draws_the_same_figure(frame, tmp_path):
    write_frame(frame, tmp_path / "budget.csv")
    again = read_frame(tmp_path / "budget.csv", TYPES, "budgets")
    assert again.equals(frame) and svg(budget_figure(again)) == svg(budget_figure(frame))
