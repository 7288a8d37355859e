"""From a grid to checked jobs of both suites, and how they reach an executor."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest
import torch

import madbench
from madbench.errors import BudgetError, ConfigError, LabelError, MadbenchError
from madbench.execute import local
from madbench.execute.base import Listener, Policy, Summary, ignore_event
from madbench.experiment import prepare
from madbench.grid import load_grid
from madbench.jobs import Record
from madbench.mixers import build as build_mixer
from madbench.mixers import solve
from madbench.rows import Grid, Row
from madbench.store.runs import Store
from madbench.suites.addressing import tasks_in_order
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.training import devices

TINY = {"model.d_model": 16}


def made(tmp_path, labels=("S", "R"), *, device="cpu", precision=None, **keys):
    keys = {"tasks": ["compression"], "set": TINY} | keys
    how = {"device": device, "precision": precision, "results": tmp_path / "results"}
    return prepare(load_grid(list(labels), keys), **how)


class StandIn:
    """An executor that stores at once what ``give`` says, and remembers its calls."""

    def __init__(self):
        self.calls = []
        self.give = lambda job: Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0})

    def __call__(self, groups, store, train, *, on_event, policy, **how):
        jobs = [job for group in groups for job in group]
        trained = jobs if policy.redo else store.missing(jobs)
        self.calls.append(
            {"groups": groups, "jobs": jobs, "trained": trained, "policy": policy, "train": train.keywords, **how}
        )
        summary = Summary()
        for job in trained:
            record = self.give(job)
            store.finish(job, record, replace=policy.redo)
            setattr(summary, record.status, getattr(summary, record.status) + 1)
            on_event({"event": "finished", "job": job, "slot": 0, "record": record})
        return summary


@pytest.fixture
def executor(monkeypatch):
    """Stands in for the executor of this machine."""
    stand_in = StandIn()
    monkeypatch.setattr(local, "run_jobs", stand_in)
    return stand_in


def test_preparing_expands_labels_orders_tasks_and_writes_nothing(tmp_path):
    planned = made(tmp_path, ["{S,R}-c", "HyperGLU"], tasks=["memorization", "compression"], seeds=[0, 2], set={})
    assert planned.labels == ["S-c", "R-c", "G-cg-q-12o"]
    assert planned.protocol.tasks == ["compression", "memorization"]
    assert [(job.label, job.task, job.seed) for job in planned.jobs][:4] == [
        ("S-c", "compression", 0), ("S-c", "compression", 2), ("S-c", "memorization", 0), ("S-c", "memorization", 2),
    ]  # fmt: skip
    assert len(planned.jobs) == 12
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_all_six_tasks_and_the_language_model_by_default(tmp_path):
    planned = prepare(load_grid(["S"], {}), device="cpu", results=tmp_path / "results")
    assert planned.for_suite(MAD).protocol.tasks == list(MAD_TASKS)
    assert [job.task for job in planned.for_suite(LANGUAGE).jobs] == ["language_model"]
    assert planned.suites == [MAD, LANGUAGE]


@pytest.mark.slow
def test_rows_have_the_jobs_of_the_same_experiment_alone(tmp_path):
    planned = made(tmp_path, vary={"training.epochs": [2, 3], "model.n_layer": [1, 2]}, seeds=[0, 1])
    for row in planned.rows:
        changes = dict(change.split("=") for change in row.row.changes)
        alone = made(tmp_path, [row.row.label], set=TINY | {key: int(n) for key, n in changes.items()}, seeds=[0, 1])
        assert row.jobs == alone.jobs
    assert len(planned.jobs) == len({job.id for job in planned.jobs}) == 2 * 2 * 2 * 2
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_extending_a_grid_only_adds_jobs(tmp_path):
    small = made(tmp_path, ["S"], vary={"training.epochs": [2, 3]})
    tasks = ["compression", "memorization"]
    large = made(tmp_path, ["S", "R"], vary={"training.epochs": [2, 3, 4]}, seeds=[0, 1], tasks=tasks)
    assert {job.id for job in small.jobs} < {job.id for job in large.jobs}


def test_a_setting_of_one_task_adds_no_jobs_to_the_others(tmp_path):
    vary = {"tasks.memorization.training.epochs": [2, 3]}
    planned = made(tmp_path, ["S"], vary=vary, tasks=["compression", "memorization"])
    assert [len(row.jobs) for row in planned.rows] == [2, 2]
    assert [job.task for job in planned.jobs] == ["compression", "memorization", "memorization"]


def test_an_override_of_a_whole_task_holds_for_a_task_that_is_trained():
    change = "tasks.compression={training: {epochs: 3}}"
    assert tasks_in_order(MAD, [change], ["compression"]) == ["compression"]
    assert MAD.Profile.load("quick", [change]).trainings("compression", "float32")[0].epochs == 3
    with pytest.raises(ConfigError, match="has no effect: the tasks are memorization"):
        tasks_in_order(MAD, [change], ["memorization"])


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ({"labels": ["G-cx"]}, LabelError, "G-cx"),
        ({"labels": []}, ConfigError, "nothing to train: give at least one label and one seed"),
        ({"seeds": []}, ConfigError, "nothing to train"),
        ({"seeds": [0.5]}, ConfigError, "seeds: expected whole numbers of at least 0, such as 0-2"),
        ({"seeds": [True]}, ConfigError, "got True"),
        ({"fidelity": "publishd"}, ConfigError, "'publishd' is not allowed; did you mean 'published'?"),
        ({"budget": "strikt"}, ConfigError, "'strikt' is not allowed; did you mean 'strict'?"),
        ({"tasks": ["compresion"]}, ConfigError, "did you mean 'compression'"),
        ({"profile": "quik"}, ConfigError, "did you mean 'quick'"),
        ({"device": "tpu"}, ConfigError, "device 'tpu'"),
        ({"vary": {"training.epoch": [2, 3]}}, ConfigError, "training: unknown key 'epoch'"),
        ({"vary": {"epochs": [2, 3]}}, ConfigError, "override 'epochs': unknown key; did you mean 'training.epochs'?"),
        ({"vary": {"training.epochs": ["2", 3]}}, ConfigError, "epochs: expected a whole number, got '2'"),
        ({"vary": {"precision": ["auto", "float32"]}}, ConfigError, "train the same jobs; leave one out"),
        ({"vary": {"tasks.memorization.training.epochs": [2, 3]}}, ConfigError, "the tasks are compression"),
        ({"vary": {"language_model.training.steps": [2, 3]}}, ConfigError, "no language model is trained"),
        ({"vary": {"model.mix_rank": [2, 3]}}, ConfigError, "model.mix_rank has no effect on any row"),
        ({"vary": {"model.rope": ["rotation", "mispaired"]}}, ConfigError, "model.rope has no effect on any row"),
        (
            {"vary": {"training.warmup_steps": [2, 3]}, "fidelity": "published"},
            ConfigError,
            "training.warmup_steps has no effect on any row: each label trains the same model for all its values",
        ),
        ({"labels": ["G-q-12"], "set": {"model.d_model": 8}}, BudgetError, "compression at seq_len 8: G-q-12 does"),
        ({"tasks": ["language_model"], "set": {"language_model": ""}}, ConfigError, "leaves out the language model"),
    ],
)
def test_what_cannot_be_trained_or_has_no_effect_is_refused(tmp_path, monkeypatch, keys, error, says):
    monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda: False)  # auto precision is float32
    with pytest.raises(error, match=re.escape(says)):
        made(tmp_path, keys.pop("labels", ["S", "R"]), **keys)
    assert not (tmp_path / "results").exists()


def test_a_label_that_does_not_use_what_varies_is_noted_but_may_be_there(tmp_path):
    planned = made(tmp_path, ["S", "R-12!"], vary={"model.mix_rank": [2, 3]})
    (note,) = planned.notes
    assert "S  model.mix_rank=2 = S  model.mix_rank=3" in note and "R-12!" not in note


@pytest.mark.parametrize("has_units", [False, True])
def test_precision_is_the_profiles_or_else_the_hardwares(tmp_path, monkeypatch, has_units):
    monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda: has_units)
    hardware = "bfloat16" if has_units else "float32"
    assert made(tmp_path).protocol.precision == "float32"
    assert made(tmp_path, precision="bfloat16").protocol.precision == "float32"
    assert made(tmp_path, set={"precision": "auto"}).protocol.precision == hardware
    assert made(tmp_path, set={"precision": "auto"}, precision="float32").protocol.precision == "float32"
    full = made(tmp_path, profile="full", set={})
    assert {job.training.precision for job in full.jobs} == {full.protocol.precision} == {hardware}


def test_a_second_run_trains_nothing_and_redo_trains_everything(tmp_path, executor):
    planned = made(tmp_path)
    assert planned.execute() == Summary(finished=2)
    assert planned.execute() == Summary()
    assert planned.execute(policy=Policy(redo=True)) == Summary(finished=2)
    assert [call["trained"] for call in executor.calls] == [planned.jobs, [], planned.jobs]
    assert {call["train"]["device"] for call in executor.calls} == {"cpu"}


def test_no_more_slots_than_jobs(tmp_path, executor, monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 3)
    for seeds, slots in (([0], None), ([0], 8), ([0, 1, 2, 3], None), ([0, 1, 2, 3], 2)):
        made(tmp_path, ["S"], seeds=seeds).execute(slots=slots)
    assert [call["slots"] for call in executor.calls] == [1, 1, 3, 2]


def test_all_rows_train_in_one_call_where_the_executor_is(tmp_path):
    executor = StandIn()
    planned = made(tmp_path, vary={"training.epochs": [2, 3]})
    assert planned.execute(executor=executor, policy=Policy(retry=False)) == Summary(finished=4)
    (call,) = executor.calls
    assert call["jobs"] == planned.jobs and call["policy"] == Policy(retry=False)


def test_jobs_that_train_together_take_one_slot(tmp_path, executor):
    planned = made(tmp_path, seeds=[0, 1])
    planned.execute(slots=4)
    planned.execute(slots=4, group=2)
    alone, together = executor.calls
    assert alone["groups"] == [[job] for job in planned.jobs] and alone["slots"] == 4
    assert together["groups"] == [planned.jobs[:2], planned.jobs[2:]] and together["slots"] == 2


@pytest.mark.parametrize(
    "how, sizes",
    [
        ({"slots": 1}, [1] * 32),  # on a CPU only if asked for
        ({"slots": 1, "device": "cuda"}, [7, 7, 6, 6, 6]),  # 20 and 12 jobs of equal shapes
        ({"slots": 2, "device": "cuda"}, [2] * 16),
        ({"slots": 4, "device": "cuda"}, [1] * 32),  # fewer groups would leave slots idle
        ({"slots": 4, "group": 3}, [3, 3, 3, 3, 3, 3, 2, 3, 3, 3, 3]),
        ({"slots": 1, "group": 1}, [1] * 32),
        ({"slots": 1, "device": "cuda", "compile": "always"}, [1] * 32),
        ({"slots": 1, "device": "cuda", "policy": Policy(time_limit=60)}, [1] * 32),
        ({"executor": StandIn()}, [1] * 32),
        ({"executor": StandIn(), "group": 20}, [20, 12]),
    ],
)
def test_jobs_of_equal_shapes_are_grouped_where_that_leaves_no_slot_idle(how, sizes, tmp_path, executor):
    planned = made(tmp_path, ["S", "S-p"])
    counts = ((planned.jobs[0], 20), (planned.jobs[-1], 12))
    jobs = [dataclasses.replace(job, seed=seed) for job, count in counts for seed in range(count)]
    row = dataclasses.replace(planned.rows[0], jobs=jobs)
    device = how.get("device", "cpu")
    options = {name: value for name, value in how.items() if name != "device"}
    dataclasses.replace(planned, rows=[row], device=device).execute(**options)
    [call] = how.get("executor", executor).calls
    assert sorted(len(group) for group in call["groups"]) == sorted(sizes)
    assert call["train"]["stacking"] == ("always" if "group" in how else "measured")


@pytest.mark.slow
def test_a_group_trains_in_a_process_and_gives_what_its_jobs_give_alone(tmp_path):
    how = {"labels": ["S"], "seeds": [0, 1, 2], "set": TINY | {"tasks.compression.setting.num_train_examples": 320}}
    grouped, alone = (made(tmp_path / name, **how) for name in ("grouped", "alone"))
    events = []
    assert grouped.execute(events.append, slots=1, group=3) == Summary(finished=3)
    assert alone.execute(slots=1, group=1) == Summary(finished=3)
    assert [event["event"] for event in events if event["event"] != "progress"] == ["started"] * 3 + ["finished"] * 3
    for job in grouped.jobs:
        one, other = (Store(planned.results).read(job.id).record for planned in (grouped, alone))
        assert one.details["group"] == 3 and "group" not in other.details
        assert one.metrics == pytest.approx(other.metrics, rel=1e-3, abs=0.05)


def test_a_group_of_compiled_models_is_refused(tmp_path, executor):
    with pytest.raises(ConfigError, match="--group 2 has no effect with --compile"):
        made(tmp_path).execute(group=2, compile="always")


def test_devices_and_slots_reach_the_local_executor(tmp_path, executor):
    planned = made(tmp_path, vary={"training.epochs": [2, 3]})
    planned.execute(devices=["1", "3"])
    planned.execute(devices=["1", "3"], slots=8)
    assert [(call["devices"], call["slots"]) for call in executor.calls] == [(["1", "3"], 2), (["1", "3"], 4)]


@pytest.mark.parametrize(
    ("variables", "asked", "expected", "said"),
    [
        ({}, None, (1, None), "1 at a time, 1 thread each"),
        ({}, 2, (2, 2), "1 at a time, 2 threads each (--threads 2)"),
        ({"OMP_NUM_THREADS": "3"}, None, (3, 3), "1 at a time, 3 threads each (OMP_NUM_THREADS=3)"),
        ({"MKL_NUM_THREADS": "3"}, None, (3, 3), "1 at a time, 3 threads each (MKL_NUM_THREADS=3)"),
        ({"OMP_NUM_THREADS": "3"}, 2, (2, 2), "1 at a time, 2 threads each (--threads 2)"),
    ],
)
def test_threads_reach_the_local_executor_and_are_told(
    variables, asked, expected, said, tmp_path, executor, monkeypatch
):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told, planned = [], made(tmp_path, ["S"])
    planned.execute(Listener(ignore_event, told.append), threads=asked)
    [call] = executor.calls
    assert (call["threads_per_slot"], call["train"]["threads"]) == expected and told == [said]
    planned.execute(Listener(ignore_event, told.append), threads=asked)
    assert told == [said]  # nothing was left to train


def test_a_language_model_alone_has_the_cores_that_are_free(both, executor, monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    monkeypatch.setattr(devices, "cpu_quota", lambda: 4.0)
    told = []
    monkeypatch.setattr(devices, "load_average", lambda: 8.0)
    for busy, redo in ((0.2, False), (1.3, True), (4.0, True)):
        monkeypatch.setattr(devices, "busy_cores", lambda busy=busy: busy)
        planned = both(tasks=["language_model"], labels=["S"])
        planned.execute(Listener(ignore_event, told.append), policy=Policy(redo=redo), slots=1)
    assert [call["threads_per_slot"] for call in executor.calls] == [4, 3, 1]
    assert [call["passive"] for call in executor.calls] == [False, True, True]
    assert told == [
        "1 at a time, 4 threads each",
        "1 at a time, 3 threads each (1 of 4 cores busy)",
        "1 at a time, 1 thread each (3 of 4 cores busy)",
    ]


def test_threads_are_refused_where_they_have_no_effect(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="--threads 2 has no effect on other machines.*cpus_per_job: 2"):
        made(tmp_path).execute(executor=StandIn(), threads=2)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # as torchrun does
    with pytest.raises(ConfigError, match="--threads 2 has no effect under torchrun.*OMP_NUM_THREADS=2"):
        made(tmp_path).execute(threads=2)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """A folder with a profile and a corpus; makes an experiment of both suites there."""
    from madbench.text.prepare import prepare as prepare_text

    monkeypatch.chdir(tmp_path)
    Path("profile.yaml").write_text(
        "description: A few steps.\ncomparable_with_paper: false\nprecision: float32\n"
        "model: {d_model: 16, n_layer: 1, seq_len: 16, mix_rank: 2}\n"
        "training: {steps: 8, tokens_per_step: 64, eval_every: 4, eval_sequences: 4, warmup_steps: 2}\n"
    )
    Path("hen.txt").write_text("The brown hen sat by the mill and counted every grain. " * 40)
    prepare_text(["hen.txt"], tmp_path / "hens", validation=0.2)

    def call(**keys):
        usual = {"tasks": ["compression", "language_model"], "set": TINY | {"language_model": "profile.yaml"}}
        if keys.get("tasks") == ["language_model"]:
            usual["set"] = {"language_model": "profile.yaml"}
        return prepare(load_grid(keys.pop("labels", ["S", "R"]), usual | keys), device="cpu", corpus="hens")

    return call


def test_each_suite_has_the_rows_that_concern_it(both):
    planned = both(vary={"training.epochs": [2, 3], "language_model.training.steps": [4, 8]})
    assert [row.name for row in planned.for_suite(MAD).rows] == [
        f"{x}  training.epochs={n}" for x in "SR" for n in (2, 3)
    ]
    assert [row.name for row in planned.for_suite(LANGUAGE).rows] == [
        f"{x}  language_model.training.steps={n}" for x in "SR" for n in (4, 8)
    ]
    assert [job.training.steps for job in planned.for_suite(LANGUAGE).jobs] == [4, 8, 4, 8]
    assert len(planned.jobs) == 8


def test_both_suites_train_in_one_call_where_the_executor_is(both):
    executor = StandIn()
    planned = both(vary={"language_model.training.steps": [4, 8]})
    assert planned.execute(executor=executor) == Summary(finished=6)
    (call,) = executor.calls
    corpus = planned.for_suite(LANGUAGE).protocol.corpus
    assert {digest: found.folder for digest, found in call["train"]["corpora"].items()} == {
        corpus.digest: corpus.folder.absolute()
    }


def test_suites_that_take_turns_share_the_failures_allowed(both, executor, monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 2)
    executor.give = lambda job: Record("failed", error="a crash")
    planned = both(vary={"language_model.training.steps": [4, 8]}, seeds=[7])
    assert planned.execute(slots=1, policy=Policy(max_failures=3)) == Summary(failed=6)
    assert [len(call["jobs"]) for call in executor.calls] == [2, 4]
    assert [call["policy"].max_failures for call in executor.calls] == [3, 1]
    executor.calls.clear()
    assert planned.execute(slots=1, policy=Policy(max_failures=2)) == Summary(failed=2, left=4)
    assert len(executor.calls) == 1
    assert Store("results").status(planned.jobs[0]) == "failed"


def test_settings_of_the_other_suite_are_refused(both):
    only = {"tasks": ["language_model"], "set": {"language_model": "profile.yaml"}}
    with pytest.raises(ConfigError, match="training: unknown key 'epochs'"):
        both(**only, vary={"training.epochs": [2, 3]})
    with pytest.raises(ConfigError, match="fidelity published: has no effect on the language model"):
        both(**only, fidelity="published")


def test_labels_that_a_change_leaves_alone_share_the_runs_without_it_and_are_named(tmp_path):
    changed = made(tmp_path, ["S", "R-12!"], set={"model.mix_rank": 4}, tasks=["compression"])
    plain = made(tmp_path, ["S", "R-12!"], set={}, tasks=["compression"])
    same, other = zip(changed.jobs, plain.jobs)
    assert same[0].id == same[1].id and other[0].id != other[1].id
    assert changed.notes == ["model.mix_rank=4 has no effect on S and is ignored there"]
    swept = made(tmp_path, ["S", "R-12!"], vary={"model.mix_rank": [4, 2]}, tasks=["compression"])
    assert [len(row.jobs) for row in swept.rows] == [1] * 4 and len(swept.jobs) == 3, "nothing is trained twice"


def test_a_value_that_trains_what_the_profile_trains_may_be_among_those_that_vary(tmp_path):
    keys = {"budget": "paper", "tasks": ["compression"], "set": {"model.d_model": 16}}
    planned = made(tmp_path, ["cd:exp-sum"], vary={"model.qk_rank": [16, 32]}, **keys)
    assert planned.jobs[0].id == made(tmp_path, ["cd:exp-sum"], **keys).jobs[0].id != planned.jobs[1].id


def test_a_row_whose_own_setting_decides_nothing_is_refused(tmp_path):
    rows = [{"label": "R-12!"}, {"label": "S", "model.mix_rank": 4}]
    with pytest.raises(ConfigError, match="model.mix_rank has no effect on 'S'; settings of its mixer"):
        made(tmp_path, [], mode="list", rows=rows)
    made(tmp_path, [], mode="list", rows=[*rows, {"label": "R-12!", "model.mix_rank": 4}])


@pytest.mark.parametrize("keys", [{}, {"vary": {"training.warmup_steps": [0, 7]}}])
def test_a_warm_up_in_the_published_fidelity_is_refused(tmp_path, keys):
    keys = keys or {"set": {"training.warmup_steps": 7}}
    with pytest.raises(ConfigError, match="training.warmup_steps has no effect on"):
        made(tmp_path, ["S", "R-c"], tasks=["memorization"], fidelity="published", **keys)


@pytest.mark.parametrize(("tasks", "profile"), [(["compression"], "mini"), ([], "gpt2")])
def test_a_profile_of_a_language_model_that_is_not_trained_is_refused(tmp_path, tasks, profile):
    with pytest.raises(ConfigError, match=f"'language_model={profile}' has no effect: no language model is trained"):
        made(tmp_path, ["S"], tasks=tasks, set={"language_model": profile})


@pytest.mark.slow
def test_a_value_with_another_spelling_is_refused_in_any_row(tmp_path):
    with pytest.raises(ConfigError, match="stop_accuracy=3 trains the same as training.stop_accuracy=2"):
        made(tmp_path, vary={"training.stop_accuracy": [0.9, 3]})
    made(tmp_path, vary={"training.stop_accuracy": [0.9, 2]})


def schedule_notes(experiment) -> list[str]:
    return [note for note in experiment.notes if "training ends" in note or "the rate rises" in note]


@pytest.mark.slow
def test_a_warm_up_that_no_run_ends_is_said_once_with_its_tasks(tmp_path):
    tasks = ["memorization", "compression"]
    long = made(tmp_path, tasks=tasks, seeds=[0, 1], set=TINY | {"training.warmup_steps": 100_000})
    steps = {job.task: MAD.size(job).steps for job in long.jobs}
    assert schedule_notes(long) == [
        f"{task}: training ends within the warm-up, after {count:,} of its 100,000 steps, at {count / 100_001:.2g} of "
        "the learning rate"
        for task, count in steps.items()
    ]
    longest = max(steps.values())
    for warmup_steps, tasks_within in ((0, 0), (longest - 1, 1), (longest, 2)):
        planned = made(tmp_path, tasks=tasks, set=TINY | {"training.warmup_steps": warmup_steps})
        assert len(schedule_notes(planned)) == tasks_within, warmup_steps


@pytest.mark.slow
def test_tasks_of_as_many_steps_share_a_note_and_rows_have_their_own(tmp_path):
    epochs = {f"tasks.{task}.setting.num_train_examples": 64 for task in ("memorization", "compression")}
    planned = made(
        tmp_path,
        tasks=["memorization", "compression"],
        set=TINY | epochs | {"training.epochs": 2},
        vary={"training.warmup_steps": [0, 50, 60]},
    )
    (steps,) = {MAD.size(job).steps for job in planned.jobs}
    assert schedule_notes(planned) == [
        f"compression, memorization: training ends within the warm-up, after {steps} of its {warmup_steps} steps, at "
        f"{steps / (warmup_steps + 1):.2g} of the learning rate"
        for warmup_steps in (50, 60)
    ]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, ""),
        ({"training.warmup_steps": 7}, ""),
        (
            {"training.warmup_steps": 8},
            "training ends within the warm-up, after 8 of its 8 steps, at 0.89 of the learning rate",
        ),
        ({"training.lr_decay_steps": 6}, ""),
        (
            {"training.lr_decay_steps": 600_000, "training.learning_rate": 0.01},
            "training ends before the cosine does, after 8 of 600,000 steps, at a learning rate of 0.01",
        ),
        (
            {"training.learning_rate": 0.001, "training.min_learning_rate": 0.002},
            "after the warm-up the rate rises, from learning_rate 0.001 to min_learning_rate 0.002; set"
            " training.min_learning_rate too",
        ),
        ({"training.learning_rate": 0.002, "training.min_learning_rate": 0.002}, ""),
    ],
)
def test_what_a_language_models_schedule_does_not_reach_or_where_it_rises_is_said(both, changes, note):
    keys = {f"language_model.{key}": value for key, value in changes.items()} | {"language_model": "profile.yaml"}
    notes = schedule_notes(both(set=TINY | keys))
    assert notes == ([f"language_model: {note}"] if note else [])


@pytest.mark.parametrize(
    "seeds, words, text",
    [
        ([0, 1, 2], ["learning_rates=[1e-3,2e-3]"], "3 seeds give n = 2. Nothing is tested with n below 3: train 4"),
        ([0, 1, 2, 3], ["weight_decays=[0.0,0.1]"], "4 seeds give n = 3."),
        ([0], ["learning_rates=[1e-3,2e-3]"], ""),
        ([0, 1, 2], [], ""),
    ],
)
def test_a_plan_says_that_several_rates_cost_a_seed(tmp_path, seeds, words, text):
    grid = Grid((Row("S"),), ("compression",), tuple(seeds), "quick", overrides=tuple(words))
    notes = prepare(grid, device="cpu", results=tmp_path).notes
    assert [note.endswith(text) or text in note for note in notes] == [True] * bool(text)


@pytest.mark.parametrize(
    ("labels", "d_model", "n_head", "text"),
    [
        (["S-p", "R"], 95, 3, "n_head 3 does not divide d_model 95: softmax attention (S) has r_qk 93 and r_vo 96"),
        (["S-p", "R"], 90, 6, "d_model 90 / n_head 6 is odd, and labels with p take heads of even width"),
        (["R"], 90, 6, ""),
        (["S-p", "R"], 96, 6, ""),
        (["ha:2+3-p"], 96, 3, "ha:2+3-p has 4 heads in place of 3"),
        (["ha:2+3-p"], 96, 4, ""),
        (["R/S-p"], 90, 6, "d_model 90 / n_head 6 is odd, and labels with p take heads of even width"),
        (["R/ha:2+3-p"], 96, 3, "ha:2+3-p has 4 heads in place of 3"),
    ],
)
def test_a_plan_says_that_heads_do_not_share_a_width_evenly(tmp_path, labels, d_model, n_head, text):
    words = (f"model.d_model={d_model}", f"model.n_head={n_head}")
    grid = Grid(tuple(map(Row, labels)), ("compression",), (0,), "quick", overrides=words)
    notes = prepare(grid, device="cpu", results=tmp_path).notes
    assert [note.startswith(text) for note in notes] == [True] * bool(text)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-p", "R-12!", "D-p", "L-p", "cd:gdn", "cd:mamba2-cg", "ha:3us-q", "hfa:2w-q"])
def test_every_width_that_is_planned_can_be_built(label):
    for d_model, n_head in ((95, 3), (33, 2), (31, 5), (7, 2), (90, 6)):
        try:
            solve(label, d_model, n_head, 16)
        except BudgetError:
            continue
        mixer = build_mixer(label, d_model, 16, n_head=n_head)
        mixer(torch.randn(2, 16, d_model)).sum().backward()


DIGITS = 10**5000  # more than Python writes


@pytest.mark.parametrize(
    "call",
    [
        lambda: madbench.plan("S", tasks="language_model", overrides=f"model.mlp={DIGITS:#x}"),
        lambda: madbench.plan("S", tasks="language_model", overrides={"model.mlp": DIGITS}),
        lambda: madbench.plan("S", tasks="compression", overrides={"model.d_model": DIGITS}),
        lambda: madbench.plan("S", tasks="compression", seeds=DIGITS),
        lambda: madbench.plan("S", tasks="compression", seeds=2**63),
        lambda: madbench.plan("S", tasks="compression", seeds=-DIGITS),
        lambda: madbench.plan("S", tasks="compression", budget=DIGITS),
        lambda: madbench.plan("S", tasks="compression", profile="a" * 300),
        lambda: madbench.plan("S", tasks="compression", profile="a" * 300 + ".yaml"),
        lambda: madbench.plan("@" + "a" * 300),
        lambda: madbench.plan("@" + "a" * 300 + ".yaml"),
        lambda: madbench.parse("@" + "a" * 300),
        lambda: madbench.load("a" * 300, results=os.curdir),
        lambda: madbench.run("S", tasks="compression", results="a" * 300),
    ],
)
def test_huge_numbers_and_long_names_are_errors_of_madbench(call):
    with pytest.raises(MadbenchError) as error:
        call()
    assert len(str(error.value)) < 1000
