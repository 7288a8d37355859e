"""The jobs, groups, slots, threads and devices that reach an executor."""

from __future__ import annotations

import dataclasses
import os

import pytest

from experiments import TINY, plan_experiment
from madbench.errors import ConfigError
from madbench.execute import local
from madbench.execute.base import Listener, Policy, Summary, ignore_event
from madbench.execute.options import RunOptions
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.language.suite import LANGUAGE
from madbench.training import devices


class StandIn:
    """An executor that stores the records from ``give`` at once, and remembers its calls."""

    def __init__(self):
        self.calls = []
        self.give = lambda job: Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0})

    def __call__(self, groups, store, train, *, on_event, policy, **how):
        jobs = [job for group in groups for job in group]
        trained = jobs if policy.redo else store.missing(jobs)
        self.calls.append(
            {
                "groups": groups,
                "jobs": jobs,
                "trained": trained,
                "policy": policy,
                "train": train.keywords | vars(train.keywords["options"]),
                **how,
            }
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
    """Stand in for the executor of this machine."""
    stand_in = StandIn()
    monkeypatch.setattr(local, "run_jobs", stand_in)
    return stand_in


def test_executing_twice_trains_nothing_again_unless_with_redo(tmp_path, executor):
    planned = plan_experiment(tmp_path)
    assert planned.execute() == Summary(finished=2)
    assert planned.execute() == Summary()
    assert planned.execute(policy=Policy(redo=True)) == Summary(finished=2)
    assert [call["trained"] for call in executor.calls] == [planned.jobs, [], planned.jobs]
    assert {call["train"]["device"] for call in executor.calls} == {"cpu"}


def test_there_are_no_more_slots_than_jobs(tmp_path, executor, monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 3)
    for seeds, slots in (([0], None), ([0], 8), ([0, 1, 2, 3], None), ([0, 1, 2, 3], 2)):
        plan_experiment(tmp_path, ["S"], seeds=seeds).execute(options=RunOptions(slots=slots))
    assert [call["slots"] for call in executor.calls] == [1, 1, 3, 2]


def test_all_rows_are_passed_to_the_executor_in_one_call(tmp_path):
    executor = StandIn()
    planned = plan_experiment(tmp_path, vary={"training.epochs": [2, 3]})
    assert planned.execute(options=RunOptions(executor=executor), policy=Policy(retry=False)) == Summary(finished=4)
    (call,) = executor.calls
    assert call["jobs"] == planned.jobs and call["policy"] == Policy(retry=False)


def test_a_group_of_jobs_takes_one_slot(tmp_path, executor):
    planned = plan_experiment(tmp_path, seeds=[0, 1])
    planned.execute(options=RunOptions(slots=4))
    planned.execute(options=RunOptions(slots=4, group=2))
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
def test_jobs_of_equal_shapes_are_grouped_if_no_slot_becomes_idle(how, sizes, tmp_path, executor):
    planned = plan_experiment(tmp_path, ["S", "S-p"])
    counts = ((planned.jobs[0], 20), (planned.jobs[-1], 12))
    jobs = [dataclasses.replace(job, seed=seed) for job, count in counts for seed in range(count)]
    row = dataclasses.replace(planned.rows[0], jobs=jobs)
    device, policy = how.get("device", "cpu"), how.get("policy", Policy())
    options = RunOptions(**{name: value for name, value in how.items() if name not in ("device", "policy")})
    dataclasses.replace(planned, rows=[row], device=device).execute(options=options, policy=policy)
    [call] = how.get("executor", executor).calls
    assert sorted(len(group) for group in call["groups"]) == sorted(sizes)
    assert call["train"]["stacking"] == ("always" if "group" in how else "measured")


@pytest.mark.slow
def test_a_group_of_jobs_gives_the_numbers_of_single_jobs(tmp_path):
    how = {"labels": ["S"], "seeds": [0, 1, 2], "set": TINY | {"tasks.compression.setting.num_train_examples": 320}}
    grouped, alone = (plan_experiment(tmp_path / name, **how) for name in ("grouped", "alone"))
    events = []
    assert grouped.execute(events.append, RunOptions(slots=1, group=3)) == Summary(finished=3)
    assert alone.execute(options=RunOptions(slots=1, group=1)) == Summary(finished=3)
    assert [event["event"] for event in events if event["event"] != "progress"] == ["started"] * 3 + ["finished"] * 3
    for job in grouped.jobs:
        one, other = (Store(planned.results).read(job.id).record for planned in (grouped, alone))
        assert one.details["group"] == 3 and "group" not in other.details
        assert one.metrics == pytest.approx(other.metrics, rel=1e-3, abs=0.05)


def test_a_group_of_compiled_models_is_refused(tmp_path, executor):
    with pytest.raises(ConfigError, match="--group 2 has no effect with --compile"):
        plan_experiment(tmp_path).execute(options=RunOptions(group=2, compile="always"))


def test_devices_and_slots_reach_the_local_executor(tmp_path, executor):
    planned = plan_experiment(tmp_path, vary={"training.epochs": [2, 3]})
    planned.execute(options=RunOptions(gpus=["1", "3"]))
    planned.execute(options=RunOptions(gpus=["1", "3"], slots=8))
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
def test_threads_reach_the_local_executor_and_are_in_the_message(
    variables, asked, expected, said, tmp_path, executor, monkeypatch
):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told, planned = [], plan_experiment(tmp_path, ["S"])
    planned.execute(Listener(ignore_event, told.append), RunOptions(threads=asked))
    [call] = executor.calls
    assert (call["threads_per_slot"], call["train"]["threads"]) == expected and told == [said]
    planned.execute(Listener(ignore_event, told.append), RunOptions(threads=asked))
    assert told == [said]  # nothing was left to train


def test_a_single_language_model_uses_all_free_cores(both, executor, monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    monkeypatch.setattr(devices, "cpu_quota", lambda: 4.0)
    told = []
    monkeypatch.setattr(devices, "load_average", lambda: 8.0)
    for busy, redo in ((0.2, False), (1.3, True), (4.0, True)):
        monkeypatch.setattr(devices, "busy_cores", lambda busy=busy: busy)
        planned = both(tasks=["language_model"], labels=["S"])
        planned.execute(Listener(ignore_event, told.append), RunOptions(slots=1), policy=Policy(redo=redo))
    assert [call["threads_per_slot"] for call in executor.calls] == [4, 3, 1]
    assert [call["passive"] for call in executor.calls] == [False, True, True]
    assert told == [
        "1 at a time, 4 threads each",
        "1 at a time, 3 threads each (1 of 4 cores busy)",
        "1 at a time, 1 thread each (3 of 4 cores busy)",
    ]


def test_threads_are_refused_if_they_have_no_effect(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="--threads 2 has no effect on other machines.*cpus_per_job: 2"):
        plan_experiment(tmp_path).execute(options=RunOptions(executor=StandIn(), threads=2))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # as torchrun does
    with pytest.raises(ConfigError, match="--threads 2 has no effect under torchrun.*OMP_NUM_THREADS=2"):
        plan_experiment(tmp_path).execute(options=RunOptions(threads=2))


def test_jobs_of_both_suites_are_passed_to_the_executor_in_one_call(both):
    executor = StandIn()
    planned = both(vary={"language_model.training.steps": [4, 8]})
    assert planned.execute(options=RunOptions(executor=executor)) == Summary(finished=6)
    (call,) = executor.calls
    corpus = planned.for_suite(LANGUAGE).protocol.corpus
    assert {digest: found.folder for digest, found in call["train"]["corpora"].items()} == {
        corpus.digest: corpus.folder.absolute()
    }


def test_max_failures_counts_over_all_suites(both, executor, monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 2)
    executor.give = lambda job: Record("failed", error="a crash")
    planned = both(vary={"language_model.training.steps": [4, 8]}, seeds=[7])
    assert planned.execute(options=RunOptions(slots=1), policy=Policy(max_failures=3)) == Summary(failed=6)
    assert [len(call["jobs"]) for call in executor.calls] == [2, 4]
    assert [call["policy"].max_failures for call in executor.calls] == [3, 1]
    executor.calls.clear()
    assert planned.execute(options=RunOptions(slots=1), policy=Policy(max_failures=2)) == Summary(failed=2, left=4)
    assert len(executor.calls) == 1
    assert Store("results").status(planned.jobs[0]) == "failed"
