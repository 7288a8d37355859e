from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from madbench.analysis.figures.difficulty import TYPES, difficulty_figure, difficulty_frame
from madbench.analysis.frames import read_frame, write_frame

BASE = {"seq_len": 32, "vocab_size": 16}


@pytest.fixture
def collected():
    """``collected([(changes, label, accuracies by seed), ...])``; None is a job to do, "diverged" a diverged one."""

    def call(rows):
        jobs = []
        for changes, label, seeds in rows:
            for seed, accuracy in enumerate(seeds):
                status = {None: "missing", "diverged": "diverged"}.get(accuracy, "finished")
                value = accuracy if status == "finished" else None
                job = {"id": str(len(jobs)), "label": label, "task": "compression", "seed": seed, "status": status}
                job |= {"setting": json.dumps(BASE | changes), "accuracy": value, "selection_accuracy": value}
                jobs.append(job | {"ceiling": value and 0.9, "budget_ratio": 1.0})
        return pd.DataFrame(jobs)

    return call


def test_one_changed_variable_is_a_panel_with_the_baseline(collected, points):
    rows = [({}, "S", [0.5, 0.7]), ({"seq_len": 64}, "S", [0.4, 0.4]), ({"vocab_size": 32}, "S", [0.3, 0.3])]
    frame = difficulty_frame(collected([*rows, ({"seq_len": 64, "vocab_size": 32}, "S", [0.1, 0.1])]), "p")
    found = {(one.variable, one.value): one.accuracy for one in frame.itertuples()}
    assert found == pytest.approx(
        {("seq_len", 32): 60.0, ("seq_len", 64): 40.0, ("vocab_size", 16): 60.0, ("vocab_size", 32): 30.0}
    )
    vocabulary, length = difficulty_figure(frame).axes
    assert (vocabulary.get_xlabel(), length.get_xlabel()) == ("vocabulary", "length, tokens")
    assert points(length, 4.5) == [pytest.approx((32, 60)), pytest.approx((64, 40))]
    ceiling = [line for line in length.lines if line.get_color() == "#595959"]
    assert [list(line.get_ydata()) for line in ceiling] == [[90.0, 90.0]]


def test_a_line_has_a_gap_where_a_result_is_missing(collected, lines):
    rows = [({"seq_len": n}, label, [0.5]) for n in (64, 128) for label in ("S", "R")]
    table = collected([({}, "S", [0.5]), ({}, "R", [0.5]), *rows, ({"seq_len": 256}, "S", [0.5])])
    table.loc[(table.label == "R") & table.setting.str.contains("64"), "status"] = "diverged"
    (axes,) = difficulty_figure(difficulty_frame(table, "p")).axes
    (_, first), (_, second) = lines(axes, 1.4)
    assert first == [50.0] * 4 and np.isnan(second).tolist() == [False, True, False, True]


def test_seeds_with_jobs_to_do_and_diverged_settings_are_left_out(collected):
    rows = [({}, "S", [0.5, None]), ({"seq_len": 64}, "S", [0.5, "diverged"]), ({"seq_len": 128}, "S", [0.4])]
    frame = difficulty_frame(collected(rows), "p")
    assert list(zip(frame.value, frame.n)) == [(32.0, 1), (128.0, 1)]


def test_seeds_that_agree_have_no_interval_and_are_no_single_seed(collected, points, words):
    rows = [({}, "S", [1.0, 1.0]), ({"seq_len": 64}, "S", [0.5, 0.5]), ({"seq_len": 128}, "S", [0.3, 0.4])]
    frame = difficulty_frame(collected(rows), "p")
    assert frame.low.isna().tolist() == [True, True, False]
    figure = difficulty_figure(frame)
    assert len(points(figure.axes[0], 4.5)) == 3 and not points(figure.axes[0], 4.5, face="white")
    assert "Bars: 95% intervals" in words(figure) and "Seeds that agree exactly have no bar" in words(figure)
    assert "single seed" not in words(figure)


def test_without_a_varied_setting_the_frame_is_empty(collected):
    assert difficulty_frame(collected([({}, "S", [0.5]), ({}, "R", [0.5])]), "p").empty
    assert difficulty_frame(collected([({}, "S", [0.5]), ({"seq_len": 64}, "S", [None])]), "p").empty


def test_a_share_has_a_linear_axis_and_a_length_a_logarithmic_one(collected, ticks):
    lengths = [({"seq_len": n, "share": 0.2}, "S", [0.5]) for n in (32, 64, 128)]
    shares = [({"share": share}, "S", [0.5]) for share in (0.4, 0.8)]
    length, share = difficulty_figure(difficulty_frame(collected([*lengths, *shares]), "p")).axes
    assert (length.get_xscale(), share.get_xscale(), share.get_xlabel()) == ("log", "linear", "share")
    assert ticks(length, "x") == {"32": 32, "64": 64, "128": 128}
    assert list(ticks(length, "y")) == ["0", "25", "50", "75", "100"] and not ticks(share, "y")


def test_the_csv_holds_what_is_drawn(collected, tmp_path):
    frame = difficulty_frame(collected([({}, "S", [1 / 3]), ({"seq_len": 64}, "S", [2 / 7])]), "p")
    write_frame(frame, tmp_path / "difficulty.csv")
    again = read_frame(tmp_path / "difficulty.csv", TYPES, "difficulties")
    assert again.equals(frame)
