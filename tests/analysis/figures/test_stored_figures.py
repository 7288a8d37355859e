"""From stored runs to figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drawings import FIGURES
from madbench.analysis.figures.files import NothingToDrawError, write_frame
from madbench.analysis.figures.registry import figure_frame
from madbench.analysis.selection import Selection
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD

pytestmark = pytest.mark.usefixtures("without_layout")

TASKS = ("compression", "in_context_recall")


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "results")


@pytest.fixture
def fill(store):
    """Store runs of two tasks of the quick profile, without training them; ``setting`` changes theirs."""

    def call(labels, accuracy=0.5, seeds=(0,), setting=(), tasks=TASKS, **choices):
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0}]
        curve[0]["validation_token_accuracy"] = accuracy
        details = {"budget_ratio": 0.99, "mixer_parameters": 1000, "device": "an abacus"}
        profile = MAD.Profile.load("quick")
        for job in MAD.jobs(labels, profile, tasks=tasks, seeds=seeds, precision="float32", **choices):
            job = replace(job, setting=job.setting | dict(setting))
            store.finish(job, Record("finished", metrics, curve, details))

    return call


@pytest.fixture
def data(store):
    """``data(...)``: the data for figures of a selection of stored runs."""
    return lambda **choices: Selection(results=store.root, **choices).select()


def frames_and_reasons(data):
    """The frames of the figures that can be drawn, and for each other figure the reason why it cannot."""
    frames, reasons = {}, {}
    for name in FIGURES:
        try:
            frames[name] = figure_frame(name, data)
            FIGURES[name].draw(frames[name])
        except NothingToDrawError as error:
            reasons[name] = str(error)
    return frames, reasons


@pytest.mark.slow
def test_every_figure_of_a_store_with_both_suites_survives_its_csv(store, fill, language_run, data, tmp_path):
    for label, accuracy in (("S", 0.1), ("S-c", 0.5)):
        fill([label], accuracy, (0, 1))
        fill([label], accuracy / 2, (0, 1), {"seq_len": 48})
        run = language_run(label)
        store.finish(run.job, run.record)
    frames, reasons = frames_and_reasons(data(tasks=[*TASKS, "language_model"], budget=None))
    assert not reasons and list(frames) == list(FIGURES)
    for name, frame in frames.items():
        write_frame(frame, tmp_path / "some.csv")
        assert FIGURES[name].read(tmp_path / "some.csv").equals(frame), name
    of_labels = frames["budget"][frames["budget"].label != ""]
    of_task = of_labels[of_labels.quantity == "compression"]
    assert dict(zip(of_task.label, of_task.mixer_parameters)) == {"S": 1000, "S-c": 1000}
    blocks, d_model, taps, tokens = 2, 64, 4, 63
    states = {"S": tokens * 2 * d_model, "S-c": (tokens * 2 + taps - 1) * d_model}
    assert dict(zip(of_task.label, of_task.state)) == {label: blocks * state for label, state in states.items()}
    assert of_task.flops_per_token.is_monotonic_increasing and of_task.flops_per_token.is_unique
    assert set(frames["budget"].quantity) == {*TASKS, "loss_l5"}


@pytest.mark.slow
def test_figures_without_data_in_the_store_have_a_reason(fill, store, language_run, data):
    run = language_run("S", [], status="diverged")
    store.finish(run.job, run.record)
    _, reasons = frames_and_reasons(data(tasks=["language_model"], budget=None))
    lacking = [name for name in FIGURES if name not in ("scores", "budget")]  # a diverged loss is that of chance
    assert list(reasons) == lacking
    assert reasons["learning"] == "there are no runs: MAD tasks" and "evaluated" in reasons["loss"]
    fill(["S"])
    frames, reasons = frames_and_reasons(data(tasks=TASKS))
    assert list(frames) == ["scores", "learning", "budget"]
    assert "--profile full" in reasons["difficulty"] and "no runs: Language model" in reasons["loss"]


@pytest.mark.slow
def test_the_difficulty_figure_takes_only_task_settings_of_the_same_protocol(fill, data):
    for label in ("S", "R"):
        fill([label], 0.5)
        fill([label], 0.3, setting={"seq_len": 48})
    fill(["S"], 0.9, setting={"seq_len": 128}, fidelity="published")
    frame = figure_frame("difficulty", data(tasks=TASKS))
    assert set(zip(frame.task, frame.variable)) == {(task, "seq_len") for task in TASKS}
    of_task = frame[frame.task == "compression"]
    assert list(zip(of_task.label, of_task.value, of_task.accuracy)) == [
        ("S", 16, 50.0), ("S", 48, 30.0), ("R", 16, 50.0), ("R", 48, 30.0),
    ]  # fmt: skip
