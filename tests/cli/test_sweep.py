"""``madbench sweep``: grids on the command line and in files, failures, groups and trackers."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from madbench import trackers
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.execute.machines import gpus_of
from madbench.jobs import Record
from madbench.store.runs import Store

CHOICES = ("-t", "compression", "--device", "cpu", "--slots", "1")


@pytest.fixture
def stand_in(monkeypatch):
    """Replace the local executor. Jobs of R fail, and no others."""

    def run_jobs(groups, store, train, slots, on_event, policy, **how):
        summary = Summary()
        for job in itertools.chain(*groups):
            status = store.status(job)
            if status == "finished" or (status == "failed" and not policy.retry):
                summary.skipped += 1
                on_event({"event": "skipped", "job": job, "reason": "stored" if status == "finished" else "failed"})
                continue
            if policy.max_failures is not None and summary.failed >= policy.max_failures:
                summary.left += 1
                continue
            metrics = {"accuracy": 0.5 + job.seed / 100, "selection_accuracy": 0.5, "ceiling": 1.0}
            record = Record("finished", metrics, details={"budget_ratio": 1.0})
            if job.label == "R":
                record = Record("failed", error="Traceback\n  ...\nMemoryError: of steam")
            store.finish(job, record)
            kind = "failed" if record.status == "failed" else "finished"
            setattr(summary, record.status, getattr(summary, record.status) + 1)
            on_event({"event": "started", "job": job, "slot": 0})
            on_event({"event": kind, "job": job, "slot": 0, "record": record})
        run_jobs.policies.append(policy)
        run_jobs.groups.append([[job.seed for job in group] for group in groups])
        return summary

    run_jobs.policies, run_jobs.groups = [], []
    monkeypatch.setattr(local, "run_jobs", run_jobs)
    return run_jobs


@pytest.mark.slow
def test_a_larger_grid_adds_only_its_new_rows(main, stand_in, tiny, tmp_path):
    ended = main("sweep", "S", "--vary", "training.epochs=1,2", "--profile", tiny, *CHOICES)
    assert ended.code == 0, ended.stderr
    heading, _, *lines = ended.stdout.splitlines()
    assert heading.split() == "Label Compr. Budget n vs baseline".split()
    assert [line.split() for line in lines[:2]] == [
        ["S", "training.epochs=1", "50.0†", "1.000", "1", "baseline"],
        ["S", "training.epochs=2", "50.0†", "1.000", "1", "(+0.0)"],
    ]
    assert "2 jobs, 2 rows, the baseline S  training.epochs=1; profile" in ended.stderr
    assert "runs: results/runs    the same command shows this again" in ended.stderr

    grid = f"profile: {tiny}\ntasks: [compression]\nlabels: [S]\nvary: {{training.epochs: [1, 2, 3]}}\n"
    (tmp_path / "grid.yaml").write_text(grid)
    planned = json.loads(main("sweep", "grid.yaml", "--device", "cpu", "--dry-run", "-f", "json").stdout)
    assert (planned["jobs"], planned["done"], planned["todo"], planned["failed"]) == (3, 2, 1, 0)
    assert [cell["changes"] for cell in planned["cells"]] == [f"training.epochs={n}" for n in (1, 2, 3)]
    assert [cell["steps"] for cell in planned["cells"]] == [4, 8, 12]
    assert [cell["todo"] for cell in planned["cells"]] == [0, 0, 1]
    assert planned["cells"][0]["estimated_seconds"] == 0 < planned["estimated_seconds"]


@pytest.mark.slow
def test_rows_of_a_sweep_are_compared_as_labels_are(main, stand_in, tiny):
    words = ("--seeds", "0-2", "--profile", tiny, "-t", "compression")
    local = ("--device", "cpu", "--slots", "1", "--compare")
    of_labels = main("sweep", "S", "S-c", *words, *local, "-f", "json")
    assert (
        json.loads(of_labels.stdout)["cells"]
        == json.loads(main("compare", "S", "S-c", *words[2:], "-f", "json").stdout)["cells"]
    )
    ended = main("sweep", "S", "--vary", "training.epochs=1,2", *words, *local, "--within", "20")
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[2].strip() == "S  training.epochs=2" and " +0.0 " in lines[3] and "Difference to S  tr" in ended.stdout
    assert "equivalent" in lines[3]
    shared = main("sweep", "S", "R-12!", "--vary", "model.mix_rank=4,8", *words, *local, "-f", "json")
    rows = [cell["label"] for cell in json.loads(shared.stdout)["cells"]]
    assert rows == ["R-12!  model.mix_rank=4", "R-12!  model.mix_rank=8"]  # both rows of S have the same runs
    failed = main("sweep", "R", "S", *words, *local)
    assert failed.code == 1 and "3 of 6 jobs failed" in failed.stderr and "R compression seed 0: Mem" in failed.stderr
    refused = main("sweep", "S", "S-c", "--compare", "-t", "compression,language_model")
    assert refused.stderr == "--compare is for the rows of one suite; choose its tasks with --tasks\n"


def test_trackers_get_the_varied_settings_of_the_rows_of_a_grid(main, stand_in, tiny, monkeypatch):
    told = []

    class Tracker:
        def __init__(self, results, naming):
            self.naming = naming

        def begin(self, job):
            settings = self.naming.settings(job)
            told.append(
                (self.naming.project, self.naming.title(job), settings["varied"], settings["training"]["epochs"])
            )

        def end(self, *_):
            pass

    monkeypatch.setitem(trackers.SERVICES, "tensorboard", Tracker)
    words = ("sweep", "S", "--vary", "training.epochs=1,2", "--profile", tiny, *CHOICES)
    assert main(*words, "--track", "tensorboard", "--track-project", "mine").code == 0
    rows = ("S training.epochs=1 compression seed 0", "S training.epochs=2 compression seed 0")
    assert sorted(told, key=lambda each: each[-1]) == [
        ("mine", name, {"training.epochs": i}, i) for i, name in enumerate(rows, 1)
    ]  # on one core, the longest job is the first
    refused = main(*words, "--track-name", "{label}")
    assert (refused.code, "--track-name {label} has no effect without --track" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_failed_jobs_are_listed_with_the_command_that_retries_them(main, stand_in):
    words = ("sweep", "S", "R", *CHOICES)
    ended = main(*words, "--seeds", "0,1")
    assert ended.code == 1
    assert re.search(r"^S +50\.5 ±9\.8", ended.stdout, re.MULTILINE)
    *_, count, first, second, command = ended.stderr.splitlines()
    assert count == "2 of 4 jobs failed:"
    assert [first, second] == [f"  R compression seed {seed}: MemoryError: of steam" for seed in (0, 1)]
    assert command == "to retry them: madbench sweep S R -t compression --device cpu --slots 1 --seeds 0,1 --retry"

    again = main(*words)
    assert again.code == 1 and "1 of 2 jobs failed:\n  R compression seed 0: MemoryError: of steam" in again.stderr
    planned = main(*words, "--dry-run").stdout
    assert "2 jobs in 2 rows: 1 done, 0 to do, 1 failed (--retry trains them again)." in " ".join(planned.split())
    retried = json.loads(main(*words, "--retry", "-f", "json").stdout)
    (failure,) = retried["failed"]
    assert failure == {
        "row": "R",
        "label": "R",
        "task": "compression",
        "seed": 0,
        "reason": "MemoryError: of steam",
    } | {"id": failure["id"]}
    assert [cell["row"] for cell in retried["cells"]] == ["S", "R"] and retried["left"] == 0
    assert [policy.retry for policy in stand_in.policies] == [False, False, True]


@pytest.mark.slow
def test_the_option_group_groups_jobs_that_differ_only_in_the_seed(main, stand_in):
    words = ("sweep", "S", "S-p", "--seeds", "0-3", *CHOICES)
    for group in ("2", "auto", "1"):
        assert main(*words, "--group", group).code == 0
    each_alone = [[0], [1], [2], [3]] * 2  # as auto is on a CPU
    assert stand_in.groups == [[[0, 1], [2, 3]] * 2, each_alone, each_alone]
    for wrong in ("0", "-1", "2.5", "all"):
        ended = main(*words, "--group", wrong)
        assert ended.code == 2 and f"'{wrong}' is neither auto nor a number of jobs above 0" in " ".join(
            ended.stderr.replace("│", " ").split()
        )


def test_no_cuda_graph_is_refused_on_a_cpu(main, stand_in):
    ended = main("sweep", "S", *CHOICES, "--no-cuda-graph")
    assert ended.code == 2 and "--no-cuda-graph has no effect with --device cpu" in ended.stderr


def test_fail_fast_stops_the_sweep_after_the_first_failure(main, stand_in):
    ended = main("sweep", "R", "S", "--seeds", "0-2", *CHOICES, "--fail-fast", "--time-limit", "1.5h")
    assert ended.code == 1 and ended.stdout == ""
    assert "5 jobs not started after 1 job had failed; the same command trains them" in ended.stderr
    (policy,) = stand_in.policies
    assert (policy.max_failures, policy.time_limit, policy.retry, policy.redo) == (1, 5400, False, False)


@pytest.mark.slow
def test_options_replace_keys_of_a_grid_file_with_a_message(main, stand_in, tmp_path):
    grid = "labels: [S, G]\nseeds: 0-2\ntasks: [memorization]\nset: {training.epochs: 3}\nbaseline: {label: G}\n"
    (tmp_path / "grid.yaml").write_text(grid)
    ended = main("sweep", "grid.yaml", "training.epochs=5", "--seeds", "1", "--notes", *CHOICES)
    assert ended.code == 0
    assert 'grid.yaml: tasks ["compression"] instead of ["memorization"]' in ended.stderr
    assert 'grid.yaml: seeds [1] instead of "0-2"' in ended.stderr
    assert "grid.yaml: set: training.epochs 5 instead of 3" in ended.stderr
    assert "Profile evening with training.epochs=5:" in " ".join(ended.stdout.split())
    assert ended.stdout.splitlines()[2].startswith("G ")
    assert len(os.listdir(tmp_path / "results" / "runs")) == 2


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_plan_of_a_sweep_has_one_line_per_row(main, monkeypatch, columns):
    from madbench.training import cost

    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {job.task: 1e-10 for job in jobs})
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ("-t", "compression", "--vary", "training.epochs=2,3,4,5", "--device", "cpu", "--dry-run")
    shown = main("sweep", "{S,R}", "S-c", *words)
    assert shown.code == 0
    rows = [line for line in shown.stdout.splitlines() if "training.epochs=" in line]
    assert len(rows) == 12 and all(len(line.split()) >= 6 for line in rows)
    assert "12 jobs in 12 rows: 0 done, 12 to do." in " ".join(shown.stdout.split())
    assert not Path("results").exists()


def test_vary_accepts_arguments_of_labels(main, tiny):
    varied = ("--vary", "DeltaProduct(n={1,2,3})", "--vary", "training.epochs=1,2")
    shown = main("sweep", "S", *varied, "--profile", tiny, *CHOICES, "--dry-run")
    first = [line.split()[0] for line in shown.stdout.splitlines() if "training.epochs=" in line]
    assert first == [name for name in ("S", "DeltaProduct(n=1)", "DeltaProduct", "DeltaProduct(n=3)") for _ in range(2)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["G-cx-q-12o"], "did you mean 'G-cg-q-12o'?"),
        (["none.yaml"], "none.yaml: cannot be read: No such file"),
        (["grid.yaml", "S"], "'S' has no effect: the labels are those of grid.yaml"),
        (["grid.yaml", "other.yaml"], "other.yaml: give only one grid; grid.yaml is a grid too"),
        (["grid.yaml", "model.n_layer=3"], "grid.yaml: 'model.n_layer' is both set and varied"),
        (["grid.yaml", "--vary", "modl.n_layer=1,2"], "'modl.n_layer=1': unknown key 'modl'; did you mean 'model'?"),
        (["S", "--vary", "model.n_layer"], "--vary 'model.n_layer': expected KEY=V1,V2,... such as model.mix_rank=4,8"),
        (["S", "--vary", "model.n_layer=1"], "vary: 'model.n_layer' has one value; write model.n_layer: 1 under set"),
        (["S", "--vary", "model.n_layer=1,2", "--vary", "model.n_layer=3"], "'model.n_layer' is given twice"),
        (["S", "--mode", "one_at_a_time"], "mode: one_at_a_time has no effect without values under vary"),
        (["S", "R", "--baseline", "S R"], "--baseline 'S R': expected one label, settings KEY=VALUE, or both"),
        (["S", "R", "--baseline", "G"], "baseline: no row is G; expected one of: R, S"),
        (["S", "--time-limit", "30"], "--time-limit '30': expected a number and its unit, such as 90s, 30m or 2h"),
        (["S", "--time-limit", "0s"], "time_limit must be a number of seconds above 0, got 0.0"),
        (["S", "--fail-fast", "--max-failures", "3"], "--max-failures 3 contradicts --fail-fast"),
        (["S", "--force", "--retry"], "--retry has no effect with --force"),
        (["S", "--devices", "0,0"], "--devices '0,0': expected numbers of GPUs, each once, such as 0,1"),
        (["S", "--devices", "0", "--device", "cpu"], "--devices 0 has no effect with --device cpu"),
        (["S", "--devices", "99"], "device 'cuda:99': this machine has"),
        (["S", "R", "--within", "2"], "--within has no effect without --compare"),
        (["S", "R", "--compare", "--dry-run"], "--compare has no effect with --dry-run, which shows no results"),
        (["S", "R", "--compare", "--within", "x"], "--within x: expected a number, or COLUMN=NUMBER"),
        (["S", "-f", "json", "-f", "csv"], "-f: given twice; give it once"),
        (["S", "training.epochs=2", "training.epochs=3"], "'training.epochs' is given twice"),
        (["grid.yaml", "--vary", "GDN{,(neg)}"], "'GDN{,(neg)}' has no effect: the labels are those of grid.yaml"),
        (["--vary", "training.epochs=1,2"], "nothing to train: give at least one label and one seed"),
        (["training.epochs=2"], "nothing to train: give at least one label and one seed"),
    ],
)
def test_sweep_refuses_wrong_arguments_before_it_writes_a_file(main, tmp_path, words, says):
    for name in ("grid.yaml", "other.yaml"):
        (tmp_path / name).write_text("labels: [S]\ntasks: [compression]\nvary: {model.n_layer: [1, 2]}\n")
    refused = main("sweep", *words)
    assert (refused.code, refused.stdout) == (2, ""), refused.stdout
    assert says in refused.stderr and len(refused.stderr.splitlines()) <= 2
    assert sorted(os.listdir(tmp_path)) == ["grid.yaml", "other.yaml"]


GRID = """\
profile: {tiny}
tasks: [compression, in_context_recall]
labels: ['{{S,R}}{{,-p}}']
set: {{training.epochs: 6, training.stop_accuracy: 2, training.batch_size: 8}}
"""
SEED = 5  # of the moments of the kills


@pytest.mark.slow
def test_a_sweep_killed_three_times_equals_an_uninterrupted_one(start, finish, tiny, tmp_path):
    words = ("sweep", "grid.yaml", "--device", "cpu", "--slots", "2")
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "grid.yaml").write_text(GRID.format(tiny=tiny))

    def finished() -> set[str]:
        return {path.name for path in tmp_path.glob("killed/results/runs/*")}

    moments = random.Random(SEED)
    stored = []
    for done in sorted(moments.sample(range(5), 3)):
        process = start(tmp_path / "killed", *words)
        deadline = time.monotonic() + 120
        while len(finished()) < done or not any(map(is_locked, tmp_path.glob("killed/results/work/*/lock"))):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.1))
        assert process.poll() is None, "it ended before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        stored.append(finished())
    assert all(before <= after for before, after in pairwise(stored)) and 0 < len(stored[-1]) < 8
    ended = {name: finish(start(tmp_path / name, *words)) for name in ("killed", "whole")}
    assert {code for code, _, _ in ended.values()} == {0}, ended
    outcomes = {}
    for name in ended:
        store = Store.open(tmp_path / name / "results", create=False)
        outcomes[name] = {run.job.id: (run.record.status, run.record.metrics, run.record.curve) for run in store.runs()}
        assert store.problems == [] and os.listdir(tmp_path / name / "results" / "work") == []
    assert len(outcomes["whole"]) == 8 and outcomes["killed"] == outcomes["whole"]
    assert ended["killed"].stdout == ended["whole"].stdout


def is_locked(file: Path) -> bool:
    """True if the file is locked, according to the kernel. Trying the lock would block its owner."""
    try:
        return f":{file.stat().st_ino} " in Path("/proc/locks").read_text()
    except FileNotFoundError:
        return False


def test_gpu_numbers_refer_to_the_visible_devices(monkeypatch):
    monkeypatch.setattr("madbench.execute.machines.resolve_device", lambda device: device)
    assert gpus_of("0,1", "auto") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,MIG-5")
    assert gpus_of("1", "cuda") == ["MIG-5"]
