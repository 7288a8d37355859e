"""Jobs in processes on this machine: groups, failures, killed processes and resumption."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import pytest

from madbench.errors import ConfigError, StoreError, TrainingError
from madbench.execute import local
from madbench.execute.base import Policy, Summary, worker_environment
from madbench.jobs import Record
from madbench.store.runs import Store
from waiting import wait_until

HERE = Path(__file__).parent
WAIT_VARIABLES = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"]
"""The environment variables that decide how threads wait."""


def run_jobs(jobs, store, train, **how) -> Summary:
    return local.run_jobs([[job] for job in jobs], store, train, **how)


def results(store: Store) -> dict[int, Record]:
    records = {run.job.seed: run.record for run in store.runs()}
    assert store.problems == []
    return records


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_every_job_is_trained_and_stored_and_reported(fake, store):
    jobs = [fake.make_job(seed, steps=3, status="diverged" if seed == 2 else "finished") for seed in range(4)]
    events = []
    summary = run_jobs([*jobs, jobs[0]], store, fake.train, slots=2, on_event=events.append)
    assert summary == Summary(finished=3, diverged=1)
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}
    for job in jobs:
        mine = [event for event in events if event["job"] == job]
        assert [event["event"] for event in mine] == ["started", *["progress"] * 4, "finished"]
        assert [event["progress"]["step"] for event in mine[1:-1]] == [0, 1, 2, 3]
        assert mine[-1]["record"] == fake.expected(job)
        assert {event["slot"] for event in mine} <= {0, 1}


@pytest.mark.slow
def test_a_second_call_trains_only_missing_jobs(fake, store, tmp_path):
    jobs = [fake.make_job(seed, status="diverged" if seed == 1 else "finished") for seed in range(4)]
    flaky = fake.make_job(9, trouble="once", marker=str(tmp_path / "marker"))
    assert run_jobs([*jobs[:2], flaky], store, fake.train) == Summary(finished=1, diverged=1, failed=1)
    events = []
    summary = run_jobs([*jobs, flaky], store, fake.train, on_event=events.append)
    assert summary == Summary(finished=3, skipped=2)
    started = [event["job"] for event in events if event["event"] == "started"]
    assert started == [jobs[2], jobs[3], flaky]
    skipped = [(event["job"], event["reason"]) for event in events if event["event"] == "skipped"]
    assert skipped == [(jobs[0], "stored"), (jobs[1], "stored")]
    assert results(store) == {job.seed: fake.expected(job) for job in [*jobs, flaky]}


def test_no_worker_starts_if_no_job_is_missing(fake, store, monkeypatch):
    job = fake.make_job(0)
    store.finish(job, fake.expected(job))
    monkeypatch.setattr(local, "WorkerProcess", lambda *_: pytest.fail("a process was started"))
    assert run_jobs([job], store, fake.train) == Summary(skipped=1)


@pytest.mark.slow
def test_a_failing_job_is_recorded_and_the_others_go_on(fake, store):
    troubles = {
        "raise": "ValueError: the loss has no gradient",
        "killed": "killed or lost 3 times, at last: the process ended with signal 9; out of memory?",
        "segmentation fault": "the process ended with signal 11 (Segmentation fault)",
        "os._exit": "the process ended with exit code 3",
    }
    bad = [fake.make_job(100 + i, trouble=trouble) for i, trouble in enumerate(troubles)]
    good = [fake.make_job(seed) for seed in range(len(bad) + 1)]
    jobs = [good[0], *(job for pair in zip(bad, good[1:], strict=True) for job in pair)]
    events = []
    summary = run_jobs(jobs, store, fake.train, slots=2, on_event=events.append)
    assert summary == Summary(finished=len(good), failed=len(bad))
    stored = results(store)
    for job, says in zip(bad, troubles.values(), strict=True):
        assert stored.pop(job.seed).status == "failed"
        assert says in store.read(job.id).record.error
    assert stored == {job.seed: fake.expected(job) for job in good}
    assert Counter(event["event"] for event in events)["failed"] == len(bad)


@pytest.mark.slow
def test_a_job_whose_process_is_killed_once_is_tried_again(fake, store, tmp_path):
    job, events = (
        fake.make_job(0, trouble="killed once", marker=str(tmp_path / "marker"), pids=str(tmp_path / "pids")),
        [],
    )
    assert run_jobs([job], store, fake.train, on_event=events.append) == Summary(finished=1)
    assert results(store) == {0: fake.expected(job)} and len((tmp_path / "pids").read_text().split()) == 2
    assert Counter(event["event"] for event in events)["started"] == 1


@pytest.mark.slow
def test_a_job_whose_process_is_killed_three_times_fails(fake, store, tmp_path):
    job = fake.make_job(0, trouble="killed", pids=str(tmp_path / "pids"))
    for summary in (Summary(failed=1), Summary(skipped=1)):
        assert run_jobs([job], store, fake.train, policy=Policy(retry=False)) == summary
    assert len((tmp_path / "pids").read_text().split()) == 3


@pytest.mark.slow
def test_a_failed_run_does_not_share_its_process_with_the_next(fake, store):
    events = []
    jobs = [fake.make_job(0), fake.make_job(1, trouble="raise"), fake.make_job(2), fake.make_job(3)]
    run_jobs(jobs, store, fake.train, on_event=events.append)
    pids = [event["progress"]["pid"] for event in events if "pid" in event.get("progress", {})]
    assert pids[0] == pids[1] != pids[2] == pids[3]


@pytest.mark.slow
def test_a_group_trains_in_one_process(fake, store):
    group, events = [fake.make_job(seed, steps=2) for seed in range(3)], []
    assert local.run_jobs([group], store, fake.train, slots=2, on_event=events.append) == Summary(finished=3)
    assert results(store) == {job.seed: fake.expected(job) for job in group}
    assert {event["slot"] for event in events} == {0}
    assert len({event["progress"]["pid"] for event in events if "pid" in event.get("progress", {})}) == 1
    assert [event["event"] for event in events][:3] == ["started"] * 3


@pytest.mark.slow
def test_members_of_a_group_finish_diverge_or_fail_independently(check_pairs):
    check_pairs(functools.partial(local.run_jobs, slots=2))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed", "interrupted"])
def test_both_jobs_of_a_group_resume_after_its_process_is_killed_or_told_to_stop(fake, store, tmp_path, ending):
    marker = tmp_path / "go on"
    pair = [fake.make_job(seed, steps=6, held_at=3, marker=str(marker)) for seed in range(2)]
    began = []  # pid, seed and step of each beginning

    def listen(event):
        progress = event.get("progress", {})
        if "pid" in progress:
            began.append((progress["pid"], event["job"].seed, progress["step"]))
        if len(began) == 2 and event["job"] == pair[1] and progress.get("step") == 3:
            if ending == "interrupted":
                raise KeyboardInterrupt
            os.kill(began[0][0], signal.SIGKILL)
            marker.touch()

    if ending == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            local.run_jobs([pair], store, fake.train, on_event=listen)
        assert results(store) == {}
        marker.touch()
    assert local.run_jobs([pair], store, fake.train, on_event=listen) == Summary(finished=2)
    assert [seed for _, seed, _ in began] == [0, 1, 0, 1] and len({pid for pid, _, _ in began}) == 2
    assert [step for _, _, step in began[2:]] == [3, 3]
    assert results(store) == {job.seed: fake.expected(job) for job in pair}


@pytest.mark.slow
def test_after_max_failures_no_further_job_starts(fake, store):
    jobs = [fake.make_job(seed, trouble="raise") for seed in range(5)]
    assert run_jobs(jobs, store, fake.train, policy=Policy(max_failures=2)) == Summary(failed=2, left=3)
    assert set(results(store)) == {0, 1}


@pytest.mark.slow
def test_a_job_that_another_process_works_on_is_left_to_it(fake, store):
    jobs = [fake.make_job(seed) for seed in range(3)]
    events = []
    with Store(store.root).lock(jobs[1]):
        summary = run_jobs(jobs, store, fake.train, on_event=events.append)
    assert summary == Summary(finished=2, busy=1)
    assert [event["job"] for event in events if event.get("reason") == "busy"] == [jobs[1]]
    assert set(results(store)) == {0, 2}


@pytest.mark.slow
def test_a_store_error_stops_the_sweep_and_keeps_stored_runs(fake, store):
    stored, *others = (fake.make_job(seed, steps=2, held_at=1, marker="never") for seed in range(3))
    store.finish(stored, fake.expected(stored))
    jobs = [stored, fake.make_job(9, trouble="disk full"), *others]
    with pytest.raises(StoreError, match="results: no space left"):
        run_jobs(jobs, store, fake.train, slots=2)
    assert set(results(store)) == {0}


@pytest.mark.slow
def test_an_error_in_the_listener_stops_the_workers(fake, store):
    pids = []

    def listen(event):
        pids.append(event.get("progress", {}).get("pid"))
        if event["event"] == "progress":
            raise KeyError("bug")

    with pytest.raises(KeyError):
        run_jobs([fake.make_job(0, held_at=0, marker="never")], store, fake.train, on_event=listen)
    assert not is_running(pids[-1])


@pytest.mark.slow
def test_workers_get_threads_and_devices_and_the_parent_environment_is_unchanged(fake, store, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "5")
    for name in WAIT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", WAIT_VARIABLES[0]]
    names += ["CUDA_VISIBLE_DEVICES"]
    jobs, events = [fake.make_job(seed, environment=names) for seed in range(3)], []
    how = {"slots": 3, "threads_per_slot": 3, "devices": ["4", "MIG-5"], "passive": True}
    run_jobs(jobs, store, fake.train, on_event=events.append, **how)
    first = {event["slot"]: event["progress"] for event in events if "pid" in event.get("progress", {})}
    seen = {slot: list(progress["environment"].values()) for slot, progress in first.items()}
    of_all = ["3", "3", "0", "5", "PASSIVE"]
    assert seen == {0: [*of_all, "4"], 1: [*of_all, "MIG-5"], 2: [*of_all, "4"]}
    assert {slot: progress["at_import"] for slot, progress in first.items()} == {0: "4", 1: "MIG-5", 2: "4"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("how", "own", "expected"),
    [
        ({"threads": 2, "passive": True}, {}, ["PASSIVE", None]),
        ({"threads": 2}, {}, [None, None]),
        ({"threads": 1, "passive": True}, {}, [None, None]),  # one thread waits for no other
        ({"threads": 2, "passive": True}, {"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", None]),
        ({"threads": 2, "passive": True}, {"GOMP_SPINCOUNT": "7"}, [None, "7"]),
    ],
)
def test_openmp_threads_wait_passively_on_busy_cores_unless_the_user_decides(how, own, expected, monkeypatch):
    for name in WAIT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    environment = os.environ | worker_environment(**how)
    assert [environment.get(name) for name in WAIT_VARIABLES] == expected


@pytest.mark.slow
def test_workers_run_on_the_cores_that_this_process_may_use(fake, store):
    before, seen = os.sched_getaffinity(0), set()
    try:
        os.sched_setaffinity(0, {max(before)})
        told = lambda event: seen.update(event.get("progress", {}).get("cores", ()))  # noqa: E731
        run_jobs([fake.make_job(0)], store, fake.train, on_event=told)
    finally:
        os.sched_setaffinity(0, before)
    assert seen == {max(before)}


@pytest.mark.parametrize("name", ["slots", "threads_per_slot"])
def test_zero_slots_or_threads_are_refused(fake, store, name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        run_jobs([], store, fake.train, **{name: 0})


@pytest.mark.slow
def test_a_training_function_that_workers_cannot_import_is_an_error(fake, store, monkeypatch, capfd):
    ghost = types.ModuleType("ghost")
    exec("def train(jobs, works, report): pass", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    with pytest.raises(TrainingError, match="did not start: the process ended with exit code 1"):
        run_jobs([fake.make_job(0)], store, ghost.train)
    assert "No module named 'ghost'" in capfd.readouterr().err
    assert results(store) == {}


class Sweep:
    """``fake_sweep.py`` as a program in a process group of its own, as a terminal would start it."""

    def __init__(self, root: Path, n_jobs: int, *grace: float):
        self.pids_file = root.parent / "pids"
        self.pids_file.touch()
        self.stopping = Path(f"{self.pids_file}.stopping")
        arguments = [root, n_jobs, self.pids_file, *grace]
        command = [sys.executable, "-W", "error", str(HERE / "fake_sweep.py"), *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, env=environment)

    def release(self) -> None:
        """Let the jobs continue beyond the step at which they wait."""
        Path(f"{self.pids_file}.go").touch()

    def workers(self) -> set[int]:
        return set(map(int, self.pids_file.read_text().split()))

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pid in filter(is_running, self.workers()):
            os.kill(pid, signal.SIGKILL)
        self.process.stderr.close()


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_and_run_again_gives_the_uninterrupted_results(fake, store):
    generator = random.Random(0)
    for attempt in range(3):
        with Sweep(store.root, 5) as sweep:
            sweep.release()
            before = sweep.workers()
            wait_until(lambda before=before: sweep.workers() - before or sweep.process.poll() is not None)
            time.sleep(generator.uniform(0, 0.3))
            new = sorted(pid for pid in sweep.workers() - before if is_running(pid))
            if attempt % 2 and new:
                os.kill(generator.choice(new), signal.SIGKILL)
                time.sleep(0.1)
            sweep.process.kill()
            sweep.process.wait()
            wait_until(lambda: not any(map(is_running, sweep.workers())))
        for record in results(store).values():
            assert record.status in ("finished", "failed")
    with Sweep(store.root, 5) as sweep:
        assert sweep.process.wait(60) == 0
        assert sweep.process.stderr.read() == b""
        jobs = fake.jobs_of_sweep(5, sweep.pids_file)
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}
    assert os.listdir(store.root / "work") == []


@pytest.mark.slow
def test_ctrl_c_stops_the_sweep_and_the_next_one_resumes_from_checkpoints(fake, store):
    def steps_done():
        return [path.read_text().split()[0] for path in store.root.glob("work/*/checkpoint")]

    with Sweep(store.root, 2) as sweep:
        wait_until(lambda: steps_done() == ["10", "10"])
        os.killpg(sweep.process.pid, signal.SIGINT)
        assert sweep.process.wait(60) == -signal.SIGINT
        stderr = sweep.process.stderr.read().decode()
        assert stderr.count("Traceback") == stderr.count("KeyboardInterrupt") == 1
        assert not any(map(is_running, sweep.workers()))
        jobs = fake.jobs_of_sweep(2, sweep.pids_file)
        sweep.release()
    assert results(store) == {}
    events = []
    run_jobs(jobs, store, fake.train, slots=2, on_event=events.append)
    first_steps = {e["job"].seed: e["progress"]["step"] for e in events if "pid" in e.get("progress", {})}
    assert first_steps == {0: 10, 1: 10}
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}


@pytest.mark.slow
def test_a_worker_that_ignores_ctrl_c_is_killed_after_the_grace_period(store):
    with Sweep(store.root, 2, 0.5) as sweep:
        wait_until(lambda: len(sweep.workers()) == 2)
        began = time.monotonic()
        os.killpg(sweep.process.pid, signal.SIGINT)
        assert sweep.process.wait(50) == -signal.SIGINT  # of the 60 s in which they do not respond
        assert time.monotonic() - began >= 0.5
        assert not any(map(is_running, sweep.workers()))
    assert results(store) == {}


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_parent_even_when_they_report_nothing(store):
    with Sweep(store.root, 2, 60) as sweep:
        wait_until(lambda: len(sweep.workers()) == 2)
        sweep.process.kill()
        sweep.process.wait()
        wait_until(lambda: not any(map(is_running, sweep.workers())), seconds=50)


@pytest.mark.slow
def test_a_second_ctrl_c_kills_at_once(store):
    with Sweep(store.root, 2, 60) as sweep:
        wait_until(lambda: len(sweep.workers()) == 2)
        os.killpg(sweep.process.pid, signal.SIGINT)
        wait_until(sweep.stopping.exists)
        assert sweep.process.poll() is None
        os.killpg(sweep.process.pid, signal.SIGINT)
        assert sweep.process.wait(50) == -signal.SIGINT
        assert not any(map(is_running, sweep.workers()))
