from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from madbench.sweeps import local

import madbench
from madbench.errors import BudgetError, ConfigError, LabelError, StoreError, TrainingError
from madbench.execute.base import Policy, Summary
from madbench.experiment import caption, prepare, tabulate
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.tasks import TASK_NAMES
from madbench.training import devices

SCORED = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}


@pytest.fixture
def sweep(monkeypatch):
    """Stands in for the executor: stores the record that ``give`` returns for each missing job."""

    class Sweep:
        def __init__(self):
            self.calls = []
            self.give = lambda job: Record("finished", SCORED, details={"budget_ratio": 1.0, "device": "a loom"})

        def __call__(self, jobs, store, train, slots, on_event, policy):
            missing = list(jobs) if policy.redo else store.missing(jobs)
            self.calls.append({"slots": slots, "trained": missing, "device": train.keywords["device"]})
            for job in missing:
                store.finish(job, self.give(job), replace=policy.redo)
            statuses = [store.status(job) for job in missing]
            return Summary(**{status: statuses.count(status) for status in set(statuses)})

    made = Sweep()
    monkeypatch.setattr(local, "run_jobs", made)
    return made


def small(tmp_path: Path, labels=("S",), **choices):
    usual = {"tasks": ["compression"], "device": "cpu", "results": tmp_path / "results"}
    return prepare(labels, **(usual | choices))


def test_preparing_expands_labels_orders_tasks_and_writes_nothing(tmp_path):
    made = small(tmp_path, ["{S,R}-c", "HyperGLU"], tasks=["memorization", "compression"], seeds=[0, 2])
    assert made.labels == ["S-c", "R-c", "G-cg-q-12o"]
    assert made.tasks == ["compression", "memorization"]
    assert [(job.label, job.task, job.seed) for job in made.jobs][:4] == [
        ("S-c", "compression", 0), ("S-c", "compression", 2), ("S-c", "memorization", 0), ("S-c", "memorization", 2),
    ]  # fmt: skip
    assert len(made.jobs) == 12
    assert os.listdir(tmp_path) == []


def test_all_six_tasks_by_default_and_one_by_name(tmp_path):
    assert small(tmp_path, tasks=None).tasks == list(TASK_NAMES)
    assert small(tmp_path, tasks="memorization").tasks == ["memorization"]


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"labels": ["G-cx"]}, LabelError, "G-cx"),
        ({"labels": []}, ConfigError, "nothing to train"),
        ({"seeds": []}, ConfigError, "nothing to train"),
        ({"tasks": ["compresion"]}, ConfigError, "did you mean 'compression'"),
        ({"profile": "quik"}, ConfigError, "did you mean 'quick'"),
        ({"overrides": ["training.epoch=3"]}, ConfigError, "did you mean 'epochs'"),
        ({"overrides": ["tasks.memorization.training.epochs=3"]}, ConfigError, "the tasks are compression"),
        ({"device": "tpu"}, ConfigError, "device 'tpu'"),
        ({"labels": ["G-q-12"], "overrides": ["model.d_model=8"]}, BudgetError, r"compression at seq_len \d+"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path, changes, error, says):
    with pytest.raises(error, match=says):
        small(tmp_path, **changes)


def test_precision_is_the_profiles_or_else_the_hardwares(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda: True)
    assert small(tmp_path).precision == "float32"
    assert small(tmp_path, precision="bfloat16").precision == "float32"
    assert small(tmp_path, overrides=["precision=auto"]).precision == "bfloat16"
    assert small(tmp_path, overrides=["precision=auto"], precision="float32").precision == "float32"
    made = small(tmp_path, profile="full")
    assert {job.training.precision for job in made.jobs} == {made.precision} == {"bfloat16"}


def test_a_second_run_trains_nothing_and_force_trains_everything(tmp_path, sweep):
    made = small(tmp_path, ["S", "R"])
    assert made.execute() == Summary(finished=2)
    assert made.execute() == Summary()
    assert made.execute(policy=Policy(redo=True)) == Summary(finished=2)
    assert [call["trained"] for call in sweep.calls] == [made.jobs, [], made.jobs]
    assert {call["device"] for call in sweep.calls} == {"cpu"}


def test_no_more_slots_than_jobs(tmp_path, sweep, monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 3)
    for seeds, slots in (([0], None), ([0], 8), ([0, 1, 2, 3], None), ([0, 1, 2, 3], 2)):
        small(tmp_path, seeds=seeds).execute(slots=slots)
    assert [call["slots"] for call in sweep.calls] == [1, 1, 3, 2]


def test_run_returns_the_scores_of_every_label_task_and_seed(tmp_path, sweep):
    results = tmp_path / "results"
    scores = madbench.run("{S,R}", tasks=["compression"], seeds=[0, 1], device="cpu", results=results)
    assert isinstance(scores, pd.DataFrame)
    assert scores[["label", "task", "seed", "accuracy"]].values.tolist() == [
        ["S", "compression", 0, 50.0], ["S", "compression", 1, 50.0],
        ["R", "compression", 0, 50.0], ["R", "compression", 1, 50.0],
    ]  # fmt: skip


def test_run_raises_when_jobs_fail_and_keeps_the_others(tmp_path, sweep):
    sweep.give = lambda job: Record("failed", error="crash") if job.label == "R" else Record("finished", SCORED)
    with pytest.raises(TrainingError, match="1 of 2 jobs failed; see .*results/runs"):
        madbench.run(["S", "R"], tasks=["compression"], device="cpu", results=tmp_path / "results")
    statuses = {run.job.label: run.record.status for run in Store(tmp_path / "results").runs()}
    assert statuses == {"S": "finished", "R": "failed"}


def test_begun_keeps_the_labels_and_seeds_with_a_stored_job(tmp_path):
    made = small(tmp_path, ["S", "R"], tasks=["compression", "memorization"], seeds=[0, 1])
    stored = next(job for job in made.jobs if (job.label, job.seed, job.task) == ("R", 1, "memorization"))
    kept = made.begun({stored.id}, all_labels=False)
    assert [(job.label, job.seed, job.task) for job in kept.jobs] == [("R", 1, "compression"), ("R", 1, "memorization")]
    assert kept.tasks == made.tasks


def test_a_table_needs_a_store(tmp_path):
    with pytest.raises(StoreError, match="there is no such results folder"):
        tabulate(small(tmp_path))


def caption_of(made) -> str:
    made.execute()
    return tabulate(made).caption


def test_the_caption_names_the_protocol_the_device_and_what_to_beware_of(tmp_path, sweep):
    text = caption_of(small(tmp_path, overrides=["training.epochs=3"], counting="published"))
    for fact in (
        "token accuracy over all test targets",
        "Profile quick with training.epochs=3: d_model 64, 2 blocks",
        "Fidelity corrected; budget counting published.",
        "Trained on a loom.",
        "not comparable with the published rows",
    ):
        assert fact in text
    assert "diverged" not in text and "without guessing" not in text
    assert "chosen on the test set" in caption_of(small(tmp_path, fidelity="published"))


def test_the_caption_counts_diverged_runs_and_names_ceilings(tmp_path, sweep):
    limited = SCORED | {"ceiling": 0.8695}
    sweep.give = lambda job: Record("finished", limited) if job.task == "memorization" else Record("diverged")
    text = caption_of(small(tmp_path, tasks=["compression", "memorization"], seeds=[0, 1]))
    assert "2 of 4 runs diverged." in text
    limit = "Token accuracy without guessing is at most: memorization "
    assert f"{limit}87.0." in text or f"{limit}86.9." in text


def test_only_the_whole_protocol_is_set_beside_the_published_rows(tmp_path):
    full = small(tmp_path, profile="full")
    nothing = pd.DataFrame({"device": [], "status": [], "task": [], "ceiling": []})
    assert "The published rows used the published fidelity and counting." in caption(full, nothing)
    shorter = small(tmp_path, profile="full", overrides=["training.epochs=3"])
    assert "not comparable with the published rows" in caption(shorter, nothing)
    matched = small(tmp_path, profile="full", fidelity="published")
    assert "The published rows used" in caption(matched, nothing)
    same = small(tmp_path, profile="full", fidelity="published", counting="published")
    assert "not comparable" not in caption(same, nothing) and "The published rows" not in caption(same, nothing)


SCRIPT = """\
import json, pathlib, sys
import madbench

def run(**choices):
    scores = madbench.run(
        "S", tasks=["compression"], device="cpu", slots=1,
        overrides=[
            "model.d_model=16", "training.epochs=1", "tasks.compression.setting.seq_len=8",
            "tasks.compression.setting.num_train_examples=64",
        ],
        **choices,
    )
    times = sorted(path.stat().st_mtime_ns for path in pathlib.Path("results/runs").glob("*/*"))
    return {"scores": scores.to_dict("records"), "times": times}

if __name__ == "__main__":
    print(json.dumps([run(), run(), run(force=True)]))
"""


@pytest.mark.slow
def test_a_script_trains_once_and_again_only_by_force(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(madbench.__file__).resolve().parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    first, second, forced = json.loads(ended.stdout)
    (score,) = first["scores"]
    assert (score["label"], score["task"], score["done"]) == ("S", "compression", 1) and 0 < score["accuracy"] < 100
    assert second == first
    assert forced["scores"] == first["scores"] and min(forced["times"]) > max(first["times"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": [0.5]}, "seeds: expected whole numbers of at least 0, got 0.5"),
        ({"seeds": ["a"]}, "got 'a'"),
        ({"seeds": [-1]}, "got -1"),
        ({"seeds": [True]}, "got True"),
        ({"fidelity": "publishd"}, "fidelity: 'publishd' is not allowed; did you mean 'published'?"),
        ({"counting": "strikt"}, "counting: 'strikt' is not allowed; did you mean 'strict'?"),
    ],
)
def test_a_program_is_told_what_it_got_wrong(tmp_path, changes, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        small(tmp_path, **changes)
    assert os.listdir(tmp_path) == []


def test_one_seed_and_one_override_need_no_list(tmp_path):
    made = small(tmp_path, seeds=3, overrides="training.epochs=2")
    assert [(job.seed, job.training.epochs) for job in made.jobs] == [(3, 2)]
