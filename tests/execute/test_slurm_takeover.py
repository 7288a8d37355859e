"""A driver takes over the Slurm jobs of a driver that was killed."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack

import pytest

pytest.importorskip("submitit")

from madbench.errors import StoreError, TrainingError
from madbench.execute import slurm_worker
from madbench.execute.base import JobLock, Policy, Summary
from madbench.execute.driver import LockedGroup
from madbench.execute.messages import JobResult, WorkerLost, WorkerResult
from madbench.execute.slurm_folder import SlurmFolder, content_digest
from madbench.execute.submitit import SlurmConfig, slurm_executor
from madbench.execute.worker import Assignment
from waiting import wait_until

ENDINGS = ("FAILED", "CANCELLED by 0", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE", "COMPLETED")


class Queue:
    """A fake Slurm that starts no job, with functions that act as drivers."""

    def __init__(self, fake, slurm, store):
        self.fake, self.slurm, self.store, self.locks = fake, slurm, store, ExitStack()
        (slurm / "hold").write_text("PENDING")

    def group(self, *seeds, train=None, policy=Policy()):
        """The group of jobs that a driver submits after locking them."""
        jobs = [self.fake.make_job(seed) for seed in seeds]
        works = [self.locks.enter_context(self.store.lock(job)).absolute() for job in jobs]
        locks = [JobLock(job, work, ExitStack()) for job, work in zip(jobs, works)]
        return LockedGroup(locks, Assignment(jobs, train or self.fake.train, policy, works))

    def driver(self, *groups, **options):
        """The backend of a driver that has submitted these groups."""
        with slurm_executor(SlurmConfig(**options)).keywords["connect"](self.store) as backend:
            backend.submit(groups)
        return backend

    def kill_driver(self):
        """Free the jobs that were locked, as the kernel does."""
        self.locks.close()

    def enter(self, state, *names):
        for name in names or self.names():
            (self.slurm / name / "state").write_text(state)

    def end(self, name, seeds, **result):
        """End a Slurm job successfully, with a result."""
        jobs = [self.fake.make_job(seed) for seed in seeds]
        records = [self.fake.expected(job) for job in jobs]
        self.folder(name).write_outcome(jobs, WorkerResult(records, **result))
        self.enter("COMPLETED", name)

    def names(self):
        """The ids of all Slurm jobs so far."""
        return sorted(path.name for path in self.slurm.iterdir() if path.is_dir())

    def states(self):
        return {name: (self.slurm / name / "state").read_text().split()[0] for name in self.names()}

    def folder(self, name):
        return SlurmFolder(self.store.root / "slurm", name)

    def folders(self):
        """The ids of the Slurm jobs whose folders are left."""
        return sorted(path.name for path in (self.store.root / "slurm").iterdir() if path.is_dir())


def as_group(*groups):
    """The groups as one group."""
    parts = [group.assignment for group in groups]
    jobs, works = sum((part.jobs for part in parts), []), sum((part.works for part in parts), [])
    return LockedGroup(sum((group.locks for group in groups), []), Assignment(jobs, parts[0].train, Policy(), works))


@pytest.fixture
def queue(fake, slurm, store):
    queue = Queue(fake, slurm, store)
    yield queue
    queue.locks.close()


def test_slurm_jobs_that_wait_or_run_are_taken_over(queue):
    seeds = [(0,), (1, 2), (3,), (4, 5), (6,), (7,), (8,)]
    kinds = ["PENDING", "PENDING", "RUNNING", "RUNNING", "REQUEUED", "SUSPENDED", "RESIZING"]
    states = dict(zip([f"1000_{i}" for i in range(7)], kinds))
    queue.driver(*(queue.group(*seeds_of_group) for seeds_of_group in seeds))
    queue.kill_driver()
    for name, state in states.items():
        queue.enter(state, name)
    groups = [queue.group(*seeds_of_group) for seeds_of_group in seeds]
    backend = queue.driver(*groups)
    assert queue.states() == states
    assert {group: job.slurm_id for group, job in backend.jobs.items()} == dict(zip(groups, states))
    queue.end("1000_1", [1, 2])
    [(group, outcome)] = backend.poll(0)
    assert group == groups[1] and isinstance(outcome, WorkerResult)
    assert outcome.records == [queue.fake.expected(job) for job in groups[1].jobs]


@pytest.mark.parametrize("state", ["SUSPENDED", "RESIZING"])
def test_a_suspended_slurm_job_has_not_failed(queue, state, monkeypatch):
    monkeypatch.setattr("madbench.execute.submitit.ASK_SECONDS", -1)
    group = queue.group(0)
    backend = queue.driver(group)
    queue.enter(state)
    assert list(backend.poll(0)) == [] and backend.jobs[group].slurm_id == "1000"
    queue.end("1000", [0])
    assert [type(message) for _, message in backend.poll(0)] == [WorkerResult]


def test_a_node_that_lacks_madbench_ends_the_sweep(queue, monkeypatch):
    monkeypatch.setattr("madbench.execute.submitit.ASK_SECONDS", -1)
    group = queue.group(0)
    backend = queue.driver(group)
    (queue.store.root / "slurm" / "1000_0_log.err").write_text("ModuleNotFoundError: No module named 'madbench'\n")
    queue.enter("FAILED")
    [(_, outcome)] = backend.poll(0)
    assert "cannot import madbench" in outcome.broken


def test_results_of_ended_slurm_jobs_are_taken_over_and_deleted_once_stored(queue):
    queue.driver(queue.group(0), queue.group(1, 2))
    queue.kill_driver()
    queue.end("1000_0", [0])
    queue.end("1000_1", [1, 2])
    single, pair = queue.group(0), queue.group(1, 2)
    backend = queue.driver(single, pair)
    assert queue.names() == ["1000_0", "1000_1"]
    records = {group: outcome.records for group, outcome in backend.poll(0)}
    assert records == {group: [queue.fake.expected(job) for job in group.jobs] for group in (single, pair)}
    assert queue.folders() == ["1000_0", "1000_1"]  # a driver that is killed now leaves them to the next one
    single.drop_results()
    assert queue.folders() == ["1000_1"]
    pair.drop_results()
    assert queue.folders() == []


def test_the_result_of_a_partly_stored_group_serves_the_remaining_jobs(queue):
    queue.driver(queue.group(0, 1, 2))
    queue.kill_driver()
    queue.end("1000", [0, 1, 2])
    rest = queue.group(2, 1)
    [(group, outcome)] = queue.driver(rest).poll(0)
    assert group == rest and outcome.records == [queue.fake.expected(job) for job in rest.jobs]
    assert queue.names() == ["1000"]


@pytest.mark.slow
def test_slurm_jobs_that_ended_without_a_result_are_replaced(queue):
    count = len(ENDINGS)
    queue.driver(*map(queue.group, range(count)))
    queue.kill_driver()
    for i, state in enumerate(ENDINGS):
        queue.enter(state, f"1000_{i}")
    groups = [*map(queue.group, range(count))]
    backend = queue.driver(*groups)
    assert [backend.jobs[group].slurm_id for group in groups] == [f"1001_{i}" for i in range(count)]
    assert queue.folders() == [f"1001_{i}" for i in range(count)]
    states = [queue.states()[f"1000_{i}"] for i in range(count)]
    is_cancelled = ("CANCELLED by 0", "PREEMPTED")  # what is preempted may be queued again
    assert states == ["CANCELLED" if ending in is_cancelled else ending for ending in ENDINGS]


@pytest.mark.slow
def test_incomplete_and_damaged_results_of_a_worker_are_ignored(queue):
    queue.driver(*map(queue.group, range(5)))
    queue.kill_driver()
    for i in range(5):
        queue.end(f"1000_{i}", [i])
    folders = [queue.folder(f"1000_{i}") for i in range(5)]
    folders[0].outcome.write_bytes(b"")
    folders[1].outcome.write_bytes(folders[1].outcome.read_bytes()[:20])
    folders[2].outcome.write_bytes(b"[" * 200_000)
    [record] = folders[3].runs.glob("*/record.json")
    record.write_bytes(record.read_bytes().replace(b"finished", b"diverged"))
    folders[4].outcome.unlink()
    groups = [*map(queue.group, range(5))]
    backend = queue.driver(*groups)
    assert [backend.jobs[group].slurm_id for group in groups] == [f"1001_{i}" for i in range(5)]
    assert queue.folders() == [f"1001_{i}" for i in range(5)]


def test_a_damaged_result_counts_as_a_lost_worker(queue):
    group = queue.group(0)
    backend = queue.driver(group)
    queue.folder("1000").outcome.write_bytes(b"half an out")
    [(sender, message)] = backend.poll(0)
    assert sender == group and isinstance(message, WorkerLost)
    assert "result of Slurm job 1000 is damaged" in message.reason
    group.attempt = 2
    backend.submit([group])
    assert backend.jobs[group].slurm_id == "1001" and queue.folders() == ["1001"]


@pytest.mark.slow
def test_a_slurm_job_on_a_broken_node_is_replaced(queue):
    queue.driver(queue.group(0))
    queue.kill_driver()
    queue.end("1000", [], broken="no GPU there")
    group = queue.group(0)
    assert queue.driver(group).jobs[group].slurm_id == "1001"


@pytest.mark.slow
def test_a_slurm_job_unknown_to_sacct_is_cancelled_and_replaced(queue, slurm):
    queue.driver(queue.group(0))
    queue.kill_driver()
    sacct = slurm.parent / "bin" / "sacct"
    sacct.write_text("#!/bin/sh\nexit 1\n")
    group = queue.group(0)
    assert queue.driver(group).jobs[group].slurm_id == "1001"
    assert queue.states() == {"1000": "CANCELLED", "1001": "PENDING"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("larger group", "PENDING"),
        ("smaller group", "RUNNING"),
        ("other training", "PENDING"),
        ("other limit", "RUNNING"),
        ("afresh", "RUNNING"),
    ],
)
def test_a_slurm_job_with_other_jobs_or_settings_is_cancelled_and_replaced(queue, state, how):
    queue.driver(queue.group(0, 1))
    queue.kill_driver()
    queue.enter(state)
    seeds = {"smaller group": (1,), "larger group": (0, 1, 2)}.get(how, (0, 1))
    train = functools.partial(queue.fake.train, compile="always") if how == "other training" else None
    policy = {"other limit": Policy(time_limit=5), "afresh": Policy(redo=True)}.get(how, Policy())
    group = queue.group(*seeds, train=train, policy=policy)
    assert queue.driver(group).jobs[group].slurm_id == "1001"
    assert queue.states() == {"1000": "CANCELLED", "1001": "PENDING"}


def test_a_running_group_that_is_partly_stored_is_taken_over(queue):
    first, rest = queue.group(0), queue.group(1, 2)
    queue.driver(as_group(first, rest))
    queue.store.finish(first.jobs[0], queue.fake.expected(first.jobs[0]))
    queue.kill_driver()
    queue.enter("RUNNING")
    rest = queue.group(2, 1)
    backend = queue.driver(rest)
    assert backend.jobs[rest].slurm_id == "1000" and queue.states() == {"1000": "RUNNING"}
    queue.end("1000", [0, 1, 2])
    [(_, outcome)] = backend.poll(0)
    assert outcome.records == [queue.fake.expected(job) for job in rest.jobs]
    rest.drop_results()
    assert list((queue.store.root / "slurm").glob("[!.]*")) == []


@pytest.mark.slow
def test_a_member_without_a_record_is_submitted_alone(queue):
    """The group has a result without this member, as if it had run out of memory."""
    queue.driver(queue.group(0, 1))
    queue.kill_driver()
    queue.end("1000", [0], error="out of memory")
    alone = queue.group(1)
    assert queue.driver(alone).jobs[alone].slurm_id == "1001"


def test_the_record_of_a_member_is_read_before_its_group_ends(queue, monkeypatch):
    group = queue.group(0, 1)
    backend = queue.driver(group)
    record = queue.fake.expected(group.jobs[1])
    queue.folder("1000").write_record(group.jobs[1], record)
    assert list(backend.poll(0)) == [(group, JobResult(group.jobs[1].id, record))]
    del group.locks[1]  # it is stored
    assert list(backend.poll(0)) == []
    queue.end("1000", [0, 1])
    assert [type(message) for _, message in backend.poll(0)] == [WorkerResult]
    group.drop_results()
    assert list((queue.store.root / "slurm").glob("[!.]*")) == []


def test_a_slurm_job_with_an_equal_partial_function_is_taken_over(queue):
    queue.driver(queue.group(0, train=functools.partial(queue.fake.train, compile="never")))
    queue.kill_driver()
    group = queue.group(0, train=functools.partial(queue.fake.train, compile="never"))
    assert queue.driver(group).jobs[group].slurm_id == "1000"


@pytest.mark.slow
def test_a_slurm_job_of_another_version_of_madbench_is_replaced(queue, monkeypatch):
    queue.driver(queue.group(0))
    queue.kill_driver()
    for module in ("worker", "slurm_folder"):
        monkeypatch.setattr(f"madbench.execute.{module}.__version__", "99")
    group = queue.group(0)
    assert queue.driver(group).jobs[group].slurm_id == "1001"


@pytest.mark.slow
def test_only_waiting_slurm_jobs_in_another_partition_are_replaced(queue):
    queue.driver(queue.group(0), queue.group(1), partition="slow")
    queue.kill_driver()
    queue.enter("RUNNING", "1000_1")
    waiting, running = queue.group(0), queue.group(1)
    backend = queue.driver(waiting, running, partition="fast")
    assert (backend.jobs[waiting].slurm_id, backend.jobs[running].slurm_id) == ("1001", "1000_1")
    assert queue.states() == {"1000_0": "CANCELLED", "1000_1": "RUNNING", "1001": "PENDING"}


@pytest.mark.slow
def test_the_slurm_jobs_of_another_living_driver_and_of_other_sweeps_are_left_alone(queue):
    queue.driver(queue.group(0), queue.group(1))
    group = queue.group(2)
    backend = queue.driver(group)
    assert backend.jobs[group].slurm_id == "1001"
    assert queue.states() == {"1000_0": "PENDING", "1000_1": "PENDING", "1001": "PENDING"}


def test_jobs_that_a_driver_submits_later_are_taken_over(queue):
    """Another driver may be killed while this one is already working."""
    first = queue.group(0)
    backend = queue.driver(first)
    queue.driver(queue.group(1))
    queue.kill_driver()
    later = queue.group(1)
    backend.submit([later])
    assert (backend.jobs[first].slurm_id, backend.jobs[later].slurm_id) == ("1000", "1001")
    assert len(queue.names()) == 2


@pytest.mark.parametrize(
    "call",
    [b"nonsense", b"[" * 200_000, b"[]", b'{"jobs": 1}', b'{"jobs": {}, "works": []}'],
    ids=range(5),  # pytest puts ids into the environment, which sbatch gets
)
def test_a_folder_with_an_invalid_call_is_ignored(queue, call):
    path = queue.folder("7").call
    path.parent.mkdir(parents=True)
    path.write_bytes(call)
    group = queue.group(0)
    assert queue.driver(group).jobs[group].slurm_id == "1000" and path.read_bytes() == call


class Mark:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.slow
def test_reading_a_results_folder_unpickles_nothing(queue, tmp_path):
    mark = pickle.dumps(("success", Mark(tmp_path / "ran")))
    queue.driver(queue.group(0, 1), queue.group(2))
    queue.kill_driver()
    queue.end("1000_1", [2])
    names = [path.relative_to(queue.store.root) for path in queue.store.root.glob("slurm/**/*") if path.is_file()]
    job_ids = [path.name for path in queue.store.root.glob("work/*")]
    names += [f"slurm/{job}_submitted.pkl" for job in ("7", "1000_0", "1000_1")]
    names += [f"slurm/{job}_0_result.pkl" for job in ("7", "1000_0", "1000_1")]
    names += [f"slurm/{job_id}.{ending}" for job_id in job_ids for ending in ("record", "news")]
    for name in names:
        (queue.store.root / name).write_bytes(mark)
    pair, single = queue.group(0, 1), queue.group(2)
    backend = queue.driver(pair, single)
    list(backend.poll(0))
    backend.cancel([pair, single])
    assert not (tmp_path / "ran").exists()


def test_a_tampered_call_is_neither_imported_nor_run(queue, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    group = queue.group(0)
    queue.driver(group)
    folder = queue.folder("1000")
    written = folder.call.read_bytes()
    folder.call.write_bytes(written.replace(b"fake_sweep:train", b"evil:train"))
    monkeypatch.setenv("SLURM_JOB_ID", "1000")
    with pytest.raises(StoreError, match="changed since the driver wrote it"):  # on the node
        slurm_worker.main(str(folder.path.parent), content_digest(written))
    queue.kill_driver()
    group = queue.group(0)
    assert queue.driver(group).jobs[group].slurm_id == "1001"  # in the next driver
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_only_slurm_jobs_of_the_sweep_s_name_are_cancelled(queue):
    """An id in a foreign results folder may be that of an unrelated Slurm job of the user."""
    queue.driver(queue.group(0), sbatch={"job-name": "thesis"})
    queue.kill_driver()
    group = queue.group(0)
    with pytest.raises(TrainingError, match="scancel 1000"):
        queue.driver(group, partition="other")
    call = queue.folder("1000").call
    call.write_text(json.dumps(json.loads(call.read_text()) | {"name": "madbench"}))
    assert queue.driver(group, partition="other").jobs[group].slurm_id == "1001"
    assert queue.states() == {"1000": "PENDING", "1001": "PENDING"}


def test_a_slurm_job_without_a_call_ends_with_an_error(queue, monkeypatch):
    monkeypatch.setattr(slurm_worker, "CALL_SECONDS", 0)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(StoreError, match="the driver that queued this job is gone"):
        slurm_worker.main(str(queue.store.root / "slurm"), content_digest(b""))


def test_a_cancelled_group_leaves_no_folder(queue):
    group = queue.group(0)
    backend = queue.driver(group)
    backend.cancel([group])
    assert queue.folders() == [] and queue.states() == {"1000": "CANCELLED"}


def all_completed(slurm, *names):
    return all(path.exists() and path.read_text() == "COMPLETED" for path in (slurm / name / "state" for name in names))


KILLED_AT_ONCE = (
    "import os, signal; from madbench.execute.submitit import SlurmBackend\n"
    "submit = SlurmBackend.submit\n"
    "SlurmBackend.submit = lambda *given: (submit(*given), os.kill(os.getpid(), signal.SIGKILL))\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while they run", "as soon as they are queued", "and they have ended meanwhile"])
def test_jobs_of_a_killed_driver_are_trained_once_and_not_cancelled(fake, slurm, store, tmp_path, moment):
    pids = tmp_path / "pids"
    setting = {"steps": 100, "pause": 0.02, "pids": str(pids)}
    program = (
        f"{KILLED_AT_ONCE if moment == 'as soon as they are queued' else ''}"
        "import fake_sweep as fake; from madbench.store.runs import Store\n"
        "from madbench.execute.submitit import slurm_executor\n"
        f"jobs = [fake.make_job(s, **{setting}) for s in range(4)]\n"
        f"slurm_executor()([jobs[:2], jobs[2:]], Store.open({str(store.root)!r}), fake.train)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", program])
    if moment != "as soon as they are queued":
        wait_until(lambda: len(list(store.root.glob("work/*/checkpoint"))) == 4)
        driver.kill()
    driver.wait()
    have_ended = functools.partial(all_completed, slurm, "1000_0", "1000_1")
    if moment == "and they have ended meanwhile":
        wait_until(have_ended)
    jobs, events = [fake.make_job(seed, **setting) for seed in range(4)], []
    assert slurm_executor()([jobs[:2], jobs[2:]], store, fake.train, on_event=events.append) == Summary(finished=4)
    assert {run.job.seed: run.record for run in store.runs()} == {job.seed: fake.expected(job) for job in jobs}
    assert len(pids.read_text().split()) == 4  # trainings
    assert len(list(slurm.glob("script-*"))) == 1
    wait_until(have_ended)  # Slurm sees that a process has ended after the driver sees its result
    assert list(store.root.glob("slurm/[!.]*")) == [] and list(store.root.glob("work/*")) == []
    assert [event["event"] for event in events].count("started") == 4


def test_a_checkpoint_is_written_even_if_its_temporary_file_is_deleted(fake, store, monkeypatch):
    """Locking a folder deletes temporary files of killed processes, but a Slurm job may still be writing."""
    from madbench import files

    path = store.root / "work" / "x" / "checkpoint"
    path.parent.mkdir(parents=True)
    replace_file, vanished = files.os.replace, []

    def vanish(source, target):
        if not vanished:
            vanished.append(files.os.unlink(source))
        replace_file(source, target)

    monkeypatch.setattr(files.os, "replace", vanish)
    files.write_atomically(path, b"1 2")
    assert vanished and path.read_bytes() == b"1 2" and list(path.parent.iterdir()) == [path]
