from __future__ import annotations

import re

import pytest
from madbench.sweeps import local

from madbench.errors import BudgetError, ConfigError
from madbench.execute.base import Policy, Summary
from madbench.experiment import prepare
from madbench.grid import load_grid
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.sweep_experiment import prepare_sweep, sweep

TINY = {"model.d_model": 16}


def made(tmp_path, labels=("S", "R"), **keys):
    keys = {"tasks": ["compression"], "set": TINY} | keys
    return prepare_sweep(load_grid(list(labels), keys), device="cpu", results=tmp_path / "results")


class StandIn:
    """An executor that stores at once what ``give`` says, and remembers its calls."""

    def __init__(self):
        self.calls = []
        self.give = lambda job: Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0})

    def __call__(self, jobs, store, train, *, on_event, policy, **how):
        self.calls.append({"jobs": list(jobs), "policy": policy, **how})
        summary = Summary()
        for job in jobs:
            record = self.give(job)
            store.finish(job, record)
            setattr(summary, record.status, getattr(summary, record.status) + 1)
            on_event({"event": "finished", "job": job, "slot": 0, "record": record})
        return summary


def test_rows_have_the_jobs_of_the_same_experiment_alone(tmp_path):
    swept = made(tmp_path, vary={"training.epochs": [2, 3], "model.n_layer": [1, 2]}, seeds=[0, 1])
    for row in swept.mad:
        overrides = [f"{key}={value}" for key, value in TINY.items()]
        choices = {
            "overrides": [*overrides, *row.row.changes],
            "tasks": ["compression"],
            "seeds": [0, 1],
            "device": "cpu",
        }
        assert row.jobs == prepare([row.row.label], **choices).jobs
    assert len(swept.jobs) == len({job.id for job in swept.jobs}) == 2 * 2 * 2 * 2
    assert not (tmp_path / "results").exists()


def test_extending_a_grid_only_adds_jobs(tmp_path):
    small = made(tmp_path, ["S"], vary={"training.epochs": [2, 3]})
    large = made(
        tmp_path, ["S", "R"], vary={"training.epochs": [2, 3, 4]}, seeds=[0, 1], tasks=["compression", "memorization"]
    )
    assert {job.id for job in small.jobs} < {job.id for job in large.jobs}


def test_a_setting_of_one_task_adds_no_jobs_to_the_others(tmp_path):
    vary = {"tasks.memorization.training.epochs": [2, 3]}
    swept = made(tmp_path, ["S"], vary=vary, tasks=["compression", "memorization"])
    assert [len(row.jobs) for row in swept.mad] == [2, 2]
    assert [job.task for job in swept.jobs] == ["compression", "memorization", "memorization"]


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        (
            {"vary": {"training.epoch": [2, 3]}},
            ConfigError,
            "override 'training.epoch=2': training: unknown key 'epoch'",
        ),
        ({"vary": {"epochs": [2, 3]}}, ConfigError, "override 'epochs': unknown key; did you mean 'training.epochs'?"),
        ({"vary": {"training.epochs": ["2", 3]}}, ConfigError, "epochs: expected a whole number, got '2'"),
        ({"vary": {"precision": ["auto", "float32"]}}, ConfigError, "train the same jobs; leave one out"),
        ({"vary": {"tasks.memorization.training.epochs": [2, 3]}}, ConfigError, "the tasks are compression"),
        ({"vary": {"language_model.training.steps": [2, 3]}}, ConfigError, "no language model is trained"),
        ({"vary": {"model.mix_rank": [2, 3]}}, ConfigError, "model.mix_rank has no effect on any row"),
        ({"vary": {"model.rope": ["rotation", "published"]}}, ConfigError, "model.rope has no effect on any row"),
        ({"labels": ["G-q-12"], "set": {**TINY, "model.d_model": 8}}, BudgetError, "G-q-12 does not fit its budget"),
        ({"labels": []}, ConfigError, "nothing to train: give at least one label and one seed"),
        ({"tasks": ["compresion"]}, ConfigError, "did you mean 'compression'"),
        ({"tasks": ["language_model"], "set": {"language_model": ""}}, ConfigError, "has no language model"),
    ],
)
def test_what_cannot_be_trained_or_has_no_effect_is_refused(tmp_path, keys, error, says):
    with pytest.raises(error, match=re.escape(says)):
        made(tmp_path, keys.pop("labels", ["S", "R"]), **keys)
    assert not (tmp_path / "results").exists()


def test_a_label_that_does_not_use_what_varies_is_noted_but_may_be_there(tmp_path):
    swept = made(tmp_path, ["S", "R-12!"], vary={"model.mix_rank": [2, 3]})
    (note,) = swept.notes
    assert (
        "train the same model" in note and "S  model.mix_rank=2 = S  model.mix_rank=3" in note and "R-12!" not in note
    )


def test_all_rows_train_in_one_call_and_only_what_is_missing(tmp_path):
    executor = StandIn()
    swept = made(tmp_path, vary={"training.epochs": [2, 3]})
    assert swept.execute(executor=executor, policy=Policy(retry=False)) == Summary(finished=4)
    (call,) = executor.calls
    assert call["jobs"] == swept.jobs and call["policy"] == Policy(retry=False)


def test_devices_and_slots_reach_the_local_executor(tmp_path, monkeypatch):
    executor = StandIn()
    monkeypatch.setattr(local, "run_jobs", executor)
    swept = made(tmp_path, vary={"training.epochs": [2, 3]})
    swept.execute(devices=["1", "3"])
    swept.execute(devices=["1", "3"], slots=8)
    assert [(call["devices"], call["slots"]) for call in executor.calls] == [(["1", "3"], 2), (["1", "3"], 4)]


def test_scores_name_the_row_the_label_and_what_varies(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "run_jobs", StandIn())
    frame = sweep(
        "{S,R}",
        vary={"training.epochs": [2, 3]},
        mode="one_at_a_time",
        tasks="compression",
        set=TINY,
        device="cpu",
        results=tmp_path / "results",
    )
    assert frame[["row", "label", "training.epochs", "task", "seed", "accuracy"]].values.tolist() == [
        ["S", "S", 2, "compression", 0, 50.0],
        ["R", "R", 2, "compression", 0, 50.0],
        ["S  training.epochs=3", "S", 3, "compression", 0, 50.0],
    ]
    with pytest.raises(ConfigError, match="unknown key 'varry'; did you mean 'vary'?"):
        sweep("S", varry={})


@pytest.fixture
def both(tmp_path, monkeypatch):
    """A folder with a profile, a preset and a corpus; makes a sweep of both halves there."""
    from madbench.text.prepare import prepare as prepare_text

    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset.yaml").write_text(
        "description: A few steps.\ncomparable_with_paper: false\nprecision: float32\n"
        "model: {d_model: 16, n_layer: 1, seq_len: 16, mix_rank: 2}\n"
        "training: {steps: 8, tokens_per_step: 64, eval_every: 4, eval_sequences: 4, warmup_steps: 2}\n"
    )
    (tmp_path / "hen.txt").write_text("The brown hen sat by the mill and counted every grain. " * 40)
    prepare_text([str(tmp_path / "hen.txt")], tmp_path / "hens", validation=0.2)

    def call(**keys):
        usual = {"tasks": ["compression", "language_model"], "set": TINY | {"language_model": "preset.yaml"}}
        return prepare_sweep(load_grid(["S", "R"], usual | keys), device="cpu", corpus="hens")

    return call


def test_each_half_has_the_rows_that_concern_it(both):
    swept = both(vary={"training.epochs": [2, 3], "language_model.training.steps": [4, 8]})
    assert [row.row.name for row in swept.mad] == [f"{x}  training.epochs={n}" for x in "SR" for n in (2, 3)]
    assert [row.row.name for row in swept.language] == [
        f"{x}  language_model.training.steps={n}" for x in "SR" for n in (4, 8)
    ]
    assert [job.training.steps for row in swept.language for job in row.jobs] == [4, 8, 4, 8]
    assert len(swept.jobs) == 8


def test_the_halves_train_one_after_the_other_and_share_the_failures_allowed(both):
    executor = StandIn()
    swept = both(vary={"language_model.training.steps": [4, 8]})
    assert swept.execute(executor=executor) == Summary(finished=6)
    assert [len(call["jobs"]) for call in executor.calls] == [2, 4]

    executor.calls.clear()
    executor.give = lambda job: Record("failed", error="a crash")
    again = both(vary={"language_model.training.steps": [4, 8]}, seeds=[7])
    assert again.execute(executor=executor, policy=Policy(max_failures=3)) == Summary(failed=6)
    assert [call["policy"].max_failures for call in executor.calls] == [3, 1]
    executor.calls.clear()
    assert again.execute(executor=executor, policy=Policy(max_failures=2)) == Summary(failed=2, left=4)
    assert len(executor.calls) == 1
    assert Store("results").status(again.jobs[0]) == "failed"


def test_settings_of_the_other_half_are_refused(both):
    with pytest.raises(ConfigError, match="write language_model.KEY=VALUE"):
        both(tasks=["language_model"], set={"language_model": "preset.yaml"}, vary={"training.epochs": [2, 3]})
    with pytest.raises(ConfigError, match="fidelity published: has no effect, only MAD tasks have a fidelity"):
        both(tasks=["language_model"], set={"language_model": "preset.yaml"}, fidelity="published")
