"""From a grid to a plan: rows, jobs and refused settings."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import madbench
from experiments import TINY, plan_experiment
from madbench.config import Override, settings_of
from madbench.errors import BudgetError, ConfigError, LabelError, MadbenchError, StoreError
from madbench.experiment import ExperimentOptions, prepare
from madbench.grid import load_grid
from madbench.mixers import build as build_mixer
from madbench.mixers import solve
from madbench.rows import Grid, Row
from madbench.suites.addressing import tasks_in_order
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.text.options import CorpusOptions
from madbench.text.prepare import default_corpus
from madbench.training import devices


def test_prepare_expands_labels_orders_tasks_and_writes_nothing(tmp_path):
    planned = plan_experiment(
        tmp_path, ["{S,R}-c", "HyperGLU"], tasks=["memorization", "compression"], seeds=[0, 2], set={}
    )
    assert planned.labels == ["S-c", "R-c", "G-cg-q-12o"]
    assert planned.protocol.tasks == ["compression", "memorization"]
    assert [(job.label, job.task, job.seed) for job in planned.jobs][:4] == [
        ("S-c", "compression", 0), ("S-c", "compression", 2), ("S-c", "memorization", 0), ("S-c", "memorization", 2),
    ]  # fmt: skip
    assert len(planned.jobs) == 12
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("is_plan", [True, False])
def test_a_file_in_place_of_the_results_folder_is_named(tmp_path, is_plan):
    (tmp_path / "results").touch()
    with pytest.raises(StoreError, match="results: a file is where a folder should be"):
        prepare(load_grid(["S"], {}), ExperimentOptions(device="cpu", results=tmp_path / "results", is_plan=is_plan))


@pytest.mark.slow
def test_a_plan_of_a_language_model_writes_nothing_to_the_results(tmp_path):
    grid, results = Grid((Row("S"),), tasks=("language_model",)), tmp_path / "results"
    options = ExperimentOptions(device="cpu", results=results)
    planned = prepare(grid, replace(options, is_plan=True))
    assert not results.exists()
    assert planned.jobs == prepare(grid, options).jobs and (results / "corpora").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("is_default", [True, False])
def test_a_plan_with_a_corpus_that_exists_writes_nothing_to_the_results(tmp_path, is_default):
    results, folder = tmp_path / "results", tmp_path / "shakespeare"
    if is_default:
        default_corpus(results)
    else:
        folder.mkdir()
        for split in ("train", "val"):
            np.arange(5000, dtype=np.uint16).tofile(folder / f"{split}.bin")
    data = CorpusOptions() if is_default else CorpusOptions(folder)
    before = sorted(tmp_path.rglob("*"))
    options = ExperimentOptions(device="cpu", results=results, data=data)
    planned = prepare(Grid((Row("S"),), tasks=("language_model",)), replace(options, is_plan=True))
    assert sorted(tmp_path.rglob("*")) == before
    assert planned.jobs == prepare(planned.grid, options).jobs and len(sorted(tmp_path.rglob("*"))) > len(before)


@pytest.mark.slow
def test_the_default_experiment_has_six_tasks_and_the_language_model(tmp_path):
    planned = prepare(load_grid(["S"], {}), ExperimentOptions(device="cpu", results=tmp_path / "results"))
    assert planned.for_suite(MAD).protocol.tasks == list(MAD_TASKS)
    assert [job.task for job in planned.for_suite(LANGUAGE).jobs] == ["language_model"]
    assert planned.suites == [MAD, LANGUAGE]


@pytest.mark.slow
def test_the_text_of_a_plan_counts_one_job_and_several():
    plan = madbench.plan(["S"], tasks="memorization", profile="quick")
    assert repr(plan).startswith("<Experiment of 1 job: profile quick, ")
    plan = madbench.plan(["S", "R"], tasks="memorization", profile="quick")
    assert repr(plan).startswith("<Experiment of 2 jobs: profile quick, ")


def test_a_row_has_the_jobs_of_an_experiment_with_its_changes_alone(tmp_path):
    planned = plan_experiment(tmp_path, vary={"training.epochs": [2, 3], "model.n_layer": [1, 2]}, seeds=[0, 1])
    for row in planned.rows:
        changes = settings_of(row.row.changes)
        alone = plan_experiment(tmp_path, [row.row.label], set=TINY | changes, seeds=[0, 1])
        assert row.jobs == alone.jobs
    assert len(planned.jobs) == len({job.id for job in planned.jobs}) == 2 * 2 * 2 * 2
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_extending_a_grid_only_adds_jobs(tmp_path):
    small = plan_experiment(tmp_path, ["S"], vary={"training.epochs": [2, 3]})
    tasks = ["compression", "memorization"]
    large = plan_experiment(tmp_path, ["S", "R"], vary={"training.epochs": [2, 3, 4]}, seeds=[0, 1], tasks=tasks)
    assert {job.id for job in small.jobs} < {job.id for job in large.jobs}


def test_a_setting_of_one_task_adds_no_jobs_to_the_others(tmp_path):
    vary = {"tasks.memorization.training.epochs": [2, 3]}
    planned = plan_experiment(tmp_path, ["S"], vary=vary, tasks=["compression", "memorization"])
    assert [len(row.jobs) for row in planned.rows] == [2, 2]
    assert [job.task for job in planned.jobs] == ["compression", "memorization", "memorization"]


def test_an_override_of_a_whole_task_needs_that_task_to_be_trained():
    change = Override.parse("tasks.compression={training: {epochs: 3}}")
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
        (
            {"tasks": ["language_model"], "set": {"language_model": ""}},
            ConfigError,
            "leaves out the language model, which the tasks name; give only one",
        ),
    ],
)
def test_a_plan_refuses_wrong_keys_and_keys_without_effect(tmp_path, monkeypatch, keys, error, says):
    monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda: False)  # auto precision is float32
    with pytest.raises(error, match=re.escape(says)):
        plan_experiment(tmp_path, keys.pop("labels", ["S", "R"]), **keys)
    assert not (tmp_path / "results").exists()


def test_a_label_that_does_not_use_the_varied_setting_is_planned_with_a_note(tmp_path):
    planned = plan_experiment(tmp_path, ["S", "R-12!"], vary={"model.mix_rank": [2, 3]})
    (note,) = planned.notes
    assert "S  model.mix_rank=2 = S  model.mix_rank=3" in note and "R-12!" not in note


@pytest.mark.parametrize("of_softmax", [{}, {"model.mix_rank": 2}])
def test_the_note_on_rows_that_train_the_same_model_includes_rows_without_changes(tmp_path, of_softmax):
    rows = [{"label": "S", **of_softmax}, {"label": "S", "model.mix_rank": 3}]
    rows += [{"label": "R-12!"}, {"label": "R-12!", "model.mix_rank": 3}]
    (note,) = plan_experiment(tmp_path, [], mode="list", rows=rows).notes
    first_name = "S  model.mix_rank=2" if of_softmax else "S"
    assert f": {first_name} = S  model.mix_rank=3" in note and "R-12!" not in note


@pytest.mark.parametrize("has_units", [False, True])
def test_precision_comes_from_the_profile_or_from_the_hardware(tmp_path, monkeypatch, has_units):
    monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda: has_units)
    hardware = "bfloat16" if has_units else "float32"
    assert plan_experiment(tmp_path).protocol.precision == "float32"
    assert plan_experiment(tmp_path, set={"precision": "auto"}).protocol.precision == hardware
    assert plan_experiment(tmp_path, set={"precision": "bfloat16"}).protocol.precision == "bfloat16"
    full = plan_experiment(tmp_path, profile="full", set={})
    assert {job.training.precision for job in full.jobs} == {full.protocol.precision} == {hardware}


def test_each_suite_has_only_the_rows_that_change_it(both):
    planned = both(vary={"training.epochs": [2, 3], "language_model.training.steps": [4, 8]})
    assert [row.name for row in planned.for_suite(MAD).rows] == [
        f"{x}  training.epochs={n}" for x in "SR" for n in (2, 3)
    ]
    assert [row.name for row in planned.for_suite(LANGUAGE).rows] == [
        f"{x}  language_model.training.steps={n}" for x in "SR" for n in (4, 8)
    ]
    assert [job.training.steps for job in planned.for_suite(LANGUAGE).jobs] == [4, 8, 4, 8]
    assert len(planned.jobs) == 8


def test_settings_of_the_other_suite_are_refused(both):
    only = {"tasks": ["language_model"], "set": {"language_model": "profile.yaml"}}
    with pytest.raises(ConfigError, match="training: unknown key 'epochs'"):
        both(**only, vary={"training.epochs": [2, 3]})
    with pytest.raises(ConfigError, match="fidelity published has no effect on the language model"):
        both(**only, fidelity="published")


def test_varied_values_may_include_the_value_of_the_profile(tmp_path):
    keys = {"budget": "paper", "tasks": ["compression"], "set": {"model.d_model": 16}}
    planned = plan_experiment(tmp_path, ["cd:exp-sum"], vary={"model.qk_rank": [16, 32]}, **keys)
    assert planned.jobs[0].id == plan_experiment(tmp_path, ["cd:exp-sum"], **keys).jobs[0].id != planned.jobs[1].id


def test_a_row_with_a_setting_without_effect_is_refused(tmp_path):
    rows = [{"label": "R-12!"}, {"label": "S", "model.mix_rank": 4}]
    with pytest.raises(ConfigError, match="model.mix_rank has no effect on 'S'; settings of its mixer"):
        plan_experiment(tmp_path, [], mode="list", rows=rows)
    plan_experiment(tmp_path, [], mode="list", rows=[*rows, {"label": "R-12!", "model.mix_rank": 4}])


@pytest.mark.parametrize("keys", [{}, {"vary": {"training.warmup_steps": [0, 7]}}])
def test_a_warm_up_in_the_published_fidelity_is_refused(tmp_path, keys):
    keys = keys or {"set": {"training.warmup_steps": 7}}
    with pytest.raises(ConfigError, match="training.warmup_steps has no effect on"):
        plan_experiment(tmp_path, ["S", "R-c"], tasks=["memorization"], fidelity="published", **keys)


@pytest.mark.parametrize(("tasks", "profile"), [(["compression"], "mini"), ([], "gpt2")])
def test_a_profile_of_a_language_model_that_is_not_trained_is_refused(tmp_path, tasks, profile):
    with pytest.raises(ConfigError, match=f"'language_model={profile}' has no effect: no language model is trained"):
        plan_experiment(tmp_path, ["S"], tasks=tasks, set={"language_model": profile})


@pytest.mark.slow
def test_a_varied_value_equivalent_to_another_spelling_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="stop_accuracy=3 trains the same as training.stop_accuracy=2"):
        plan_experiment(tmp_path, vary={"training.stop_accuracy": [0.9, 3]})
    plan_experiment(tmp_path, vary={"training.stop_accuracy": [0.9, 2]})


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-p", "R-12!", "D-p", "L-p", "cd:gdn", "cd:mamba2-cg", "ha:3us-q", "hfa:2w-q"])
def test_every_size_that_can_be_solved_can_be_built(label):
    planned = 0
    for d_model, n_head in ((95, 3), (33, 2), (31, 5), (7, 2), (90, 6)):
        try:
            solve(label, d_model, n_head, 16)
        except BudgetError:
            continue
        planned += 1
        mixer = build_mixer(label, d_model, 16, n_head=n_head)
        mixer(torch.randn(2, 16, d_model)).sum().backward()
    assert planned >= 4


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
