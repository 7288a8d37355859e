from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.collections import PolyCollection

from madbench.analysis.figures.learning import TYPES, learning_figure, learning_frame
from madbench.analysis.frames import read_frame, write_frame
from madbench.errors import ConfigError
from madbench.jobs import Job, Record
from madbench.store.runs import Run

HARD = '{"seq_len": 64}'


@pytest.fixture
def stored():
    """``stored(rows)``: the collected frame and the runs of ``(id, label, seed, setting, rate, status, accuracies)``."""

    def call(rows, split="validation", name="token_accuracy"):
        collected, runs = [], {}
        for run_id, label, seed, setting, rate, status, accuracies in rows:
            row = {"id": run_id, "label": label, "task": "compression", "setting": setting, "seed": seed}
            last = accuracies[-1] if accuracies and status == "finished" else None
            collected.append(row | {"learning_rate": rate, "status": status, "selection_accuracy": last})
            curve = [
                {"epoch": i, "step": 10 * i, "train_loss": 2.0, f"{split}_loss": 3.0 - i, f"{split}_{name}": accuracy}
                for i, accuracy in enumerate(accuracies, 1)
            ]
            runs[run_id] = Run(Job(label, "compression", {}, seed=seed), Record(status, {}, curve), Path(run_id))
        return pd.DataFrame(collected), runs.__getitem__

    return call


def test_the_chosen_run_of_the_first_setting_is_drawn(stored, points, lines):
    frame = learning_frame(
        *stored(
            [
                ("a", "S", 0, "{}", 1e-3, "finished", [0.2, 0.3]),
                ("b", "S", 0, "{}", 1e-2, "finished", [0.1, 0.5]),
                ("c", "S", 0, HARD, 1e-2, "finished", [0.1, 0.9]),
                ("d", "S", 1, "{}", 1e-2, "missing", []),
            ]
        ),
        "p",
    )
    assert frame.id.tolist() == ["b", "b"] and frame.accuracy.tolist() == [10.0, 50.0]
    (axes,) = learning_figure(frame).axes
    assert lines(axes) == [([10, 20], [10.0, 50.0])]
    assert points(axes, 6) == points(axes, 6, face="white") == [(20.0, 50.0)]  # a single seed
    (axes,) = learning_figure(frame, "loss").axes
    assert lines(axes) == [([10, 20], [2.0, 1.0])] and axes.get_ylabel() == "loss, nats per target"


def test_rows_without_an_evaluation_are_skipped(stored):
    collected, read = stored([("a", "S", 0, "{}", 1, "finished", [0.2, 0.4])])
    read("a").record.curve.insert(1, {"epoch": 1, "step": 15, "train_loss": 1.5})
    assert learning_frame(collected, read, "p").step.tolist() == [10, 20]


def test_seeds_are_a_mean_and_a_band_and_one_that_stopped_keeps_its_value(stored, points, lines, words):
    frame = learning_frame(
        *stored([("a", "S", 0, "{}", 1, "finished", [0.2, 1.0]), ("b", "S", 1, "{}", 1, "finished", [0.1, 0.2, 0.4])]),
        "p",
    )
    figure = learning_figure(frame)
    (axes,) = figure.axes
    assert lines(axes) == [([10, 20, 30], pytest.approx([15.0, 60.0, 70.0]))]
    assert points(axes, 6, face="white") == [] and points(axes, 6) == [(30.0, pytest.approx(70.0))]
    (band,) = (drawn for drawn in axes.collections if isinstance(drawn, PolyCollection))
    assert (band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()) == (10.0, 100.0)
    assert "keeps its last value" in words(figure) and "n = 2 seeds." in words(figure)


def test_a_seed_of_which_no_run_finished_ends_in_a_cross(stored, points, lines, words):
    rows = [("a", "S", 0, "{}", 1, "finished", [0.2, 0.4]), ("b", "S", 1, "{}", 1, "diverged", [0.3])]
    frame = learning_frame(*stored(rows), "p")
    figure = learning_figure(frame)
    (axes,) = figure.axes
    assert points(axes, 6, "x") == [(10.0, 30.0)]
    assert ([10, 20], [20.0, 40.0]) in lines(axes) and "Cross: diverged." in words(figure)


def test_a_task_of_which_no_run_finished_is_crosses_alone(stored, points, lines):
    frame = learning_frame(
        *stored([("a", "S", 0, "{}", 1, "diverged", [0.3, 0.1]), ("b", "R", 0, "{}", 1, "diverged", [])]), "p"
    )
    (axes,) = learning_figure(frame).axes
    assert points(axes, 6, "x") == points(axes, 6) == [(20.0, 10.0)] and lines(axes) == [([10, 20], [30.0, 10.0])]


def test_the_published_fidelity_is_evaluated_on_test_data(stored, words):
    frame = learning_frame(*stored([("a", "S", 0, "{}", 1, "finished", [0.2])], "test", "batch_macro_accuracy"), "p")
    assert frame.accuracy.tolist() == [20.0]
    assert words(learning_figure(frame)).startswith("MAD: test accuracy in training")


def test_the_csv_holds_what_is_drawn(stored, tmp_path):
    frame = learning_frame(*stored([("a", "S", 0, "{}", 1, "finished", [1 / 3, 2 / 3])]), "p")
    write_frame(frame, tmp_path / "learning.csv")
    again = read_frame(tmp_path / "learning.csv", TYPES, "learning curves")
    assert again.equals(frame)


def test_no_curve_is_an_error(stored):
    frame = learning_frame(*stored([("a", "S", 0, "{}", 1, "diverged", [])]), "p")
    with pytest.raises(ConfigError, match="not evaluated even once|no run was evaluated"):
        learning_figure(frame)
