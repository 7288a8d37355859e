from __future__ import annotations

import pandas as pd
import pytest

from madbench.analysis.attribution_table import attribution_table
from madbench.analysis.figures.effects import TYPES, effects_figure, effects_frame
from madbench.analysis.frames import read_frame, write_frame

CONV = {"S": [10.0, 11.0], "S-c": [40.0, 41.5], "R": [20.0, 21.0], "R-c": [51.0, 51.0]}


@pytest.fixture
def frame(cells):
    return effects_frame(attribution_table(cells({(label, "compression"): of for label, of in CONV.items()})), "p")


def test_effects_and_their_pairs_are_rows(frame, points, ticks):
    (axes,) = effects_figure(frame).axes
    assert ticks(axes, "y") == {"base: R against S": 0, "conv: c": 1}
    assert points(axes, 6) == [(10.125, 0.0), (30.375, 1.0)]  # means of 10, 10.25 and of 30.25, 30.5
    pairs = frame[(frame.kind == "pair") & (frame.row == "conv: c")]
    assert [x for x, y in points(axes, 3) if y > 1] == pairs.difference.tolist()
    assert set(zip(pairs.given, pairs.without)) == {("S-c", "S"), ("R-c", "R")}


def test_only_what_may_be_claimed_is_filled(frame, points, words):
    (axes,) = effects_figure(frame).axes
    effects = frame[frame.kind == "effect"].reset_index(drop=True)
    is_filled = [(x, y) not in points(axes, 6, "s", "white") for x, y in points(axes, 6, "s")]
    assert is_filled == (effects.p_holm <= 0.05).tolist() and any(is_filled)
    assert "Filled: p of at most 0.05 after Holm" in words(effects_figure(frame))


def test_one_pair_of_one_seed_is_a_cross_without_interval(cells, points, lines, words):
    single = effects_frame(attribution_table(cells({("S", "compression"): [1.0], ("S-c", "compression"): [5.0]})), "p")
    figure = effects_figure(single)
    (axes,) = figure.axes
    assert points(axes, 5, "x") == [(4.0, 0.0)] and not lines(axes)
    assert "Bars" not in words(figure) and "Filled" not in words(figure)


def test_interactions_beyond_the_noise_are_below_a_line(cells, ticks, words):
    accuracies = {
        "S": [10.0, 10.1, 10.2],
        "S-c": [10.1, 10.0, 10.2],
        "R": [10.0, 10.2, 10.1],
        "R-c": [60.0, 60.1, 60.2],
    }
    table = cells({(label, "compression"): of for label, of in accuracies.items()})
    frame = effects_frame(attribution_table(table), "p")
    assert frame[frame.kind == "interaction"].row.tolist() == ["R/S x c"]
    figure = effects_figure(frame)
    (axes,) = figure.axes
    assert ticks(axes, "y") == {"base: R against S": 0, "conv: c": 1, "R/S x c": 2.5}
    assert "a x b, below the line" in words(figure)


def test_an_interval_beyond_the_axis_ends_in_arrows(frame, points, lines):
    frame.loc[frame.kind == "effect", ["low", "high"]] = [-1000.0, 1000.0]
    (axes,) = effects_figure(frame).axes
    limit = axes.get_xlim()[1]
    assert limit < 100 and lines(axes, 1.6) == [([-limit, limit], [place, place]) for place in (0, 1)]
    assert points(axes, 5, "<") == [(-limit, 0), (-limit, 1)] and points(axes, 5, ">") == [(limit, 0), (limit, 1)]


def test_losses_have_an_axis_of_their_own(cells):
    losses = pd.DataFrame(
        [
            {"label": label, "seed": seed, "loss_l5": loss}
            for label, loss in (("S", 3.0), ("S-c", 2.5))
            for seed in (0, 1)
        ]
    )
    table = cells({("S", "compression"): [1.0, 2.0], ("S-c", "compression"): [50.0, 52.0]})
    accuracy, loss = effects_figure(effects_frame(attribution_table(table, losses), "p")).axes[:2]
    assert "less is better" in loss.get_xlabel() and accuracy.get_xlabel() == "percentage points"
    assert loss.get_xlim()[1] < 1 < accuracy.get_xlim()[1]


def test_the_csv_holds_what_is_drawn(frame, tmp_path):
    write_frame(frame, tmp_path / "effects.csv")
    again = read_frame(tmp_path / "effects.csv", TYPES, "effects")
    assert again.equals(frame.reset_index(drop=True))
