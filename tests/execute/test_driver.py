"""The driver of a sweep: which jobs it starts, stores, tries again and reports, for any backend."""

from __future__ import annotations

import os
import resource
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import pytest

from madbench.errors import StoreError
from madbench.execute import driver, worker
from madbench.execute.base import Policy, Summary
from madbench.execute.driver import ATTEMPTS, drive
from madbench.execute.messages import JobProgress, WorkerLost, WorkerStarted
from madbench.execute.worker import Assignment, throttle, work, work_remotely
from madbench.jobs import Record
from madbench.store.runs import KEEP, Store, StoreBusyError


class Desk:
    """A backend in this process. Each ``poll`` runs one group. Some machines are lost, some send nothing."""

    def __init__(self, capacity=4, shares_folder=False, losses=(), silent=(), interrupt_at=None):
        self.size = capacity
        self.shares_folder = shares_folder
        self.losses, self.silent, self.interrupt_at = dict(losses), set(silent), interrupt_at
        self.waiting, self.most, self.polls, self.cancelled, self.groups = deque(), 0, 0, [], []

    @contextmanager
    def connect(self, store):
        yield self

    def capacity(self):
        return self.size

    def submit(self, groups):
        self.waiting.extend(groups)
        self.most = max(self.most, len(self.waiting))

    def poll(self, seconds):
        self.polls += 1
        if self.polls == self.interrupt_at:
            raise KeyboardInterrupt
        if not self.waiting:
            return
        group = self.waiting.popleft()
        self.groups.append([job.seed for job in group.jobs])
        yield group, WorkerStarted()
        seed = group.jobs[0].seed
        if self.losses.get(seed, 0):
            self.losses[seed] -= 1
            yield group, WorkerLost("the power went")
        elif seed not in self.silent:
            sent = []
            outcome = work_remotely(group.assignment.pack(), lambda *progress: sent.append(progress))
            for progress in sent:
                yield group, JobProgress(*progress)
            yield group, outcome

    def last_messages(self):
        return self.poll(0)

    def cancel(self, groups):
        self.cancelled += [job.seed for group in groups for job in group.jobs]
        self.waiting = deque(group for group in self.waiting if group.jobs[0].seed not in self.cancelled)


def sweep(jobs, store, train, desk=None, **how):
    return sweep_groups([[job] for job in jobs], store, train, desk, **how)


def sweep_groups(groups, store, train, desk=None, **how):
    desk = desk or Desk()
    return drive(groups, store, train, connect=desk.connect, **how)


def results(store):
    return {run.job.seed: run.record for run in store.runs()}


def keeping(jobs, works, report):
    for job, folder in zip(jobs, works, strict=True):
        (folder / KEEP).mkdir()
        (folder / KEEP / "weights").write_bytes(bytes([job.seed]))
    return [Record("finished", details={"folder": str(work)}) for work in works]


def forgetful(jobs, works, report):
    return [Record("finished")]


def test_every_job_is_trained_and_stored_and_reported(fake, store):
    jobs = [fake.make_job(seed, steps=3, status="diverged" if seed == 2 else "finished") for seed in range(4)]
    events = []
    assert sweep([*jobs, jobs[0]], store, fake.train, on_event=events.append) == Summary(finished=3, diverged=1)
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}
    for job in jobs:
        mine = [event for event in events if event["job"] == job]
        assert [event["event"] for event in mine] == ["started", *["progress"] * 4, "finished"]
        assert mine[-1]["record"] == fake.expected(job)
        assert {event["slot"] for event in mine} == {0}
    assert os.listdir(store.root / "work") == []


@pytest.mark.parametrize("size", [1, 2])
def test_a_backend_drops_a_result_after_it_is_stored_and_before_its_lock_is_released(fake, store, size):
    jobs, dropped = [fake.make_job(seed) for seed in range(size)], []

    class Keeper(Desk):
        def submit(self, groups):
            super().submit(groups)
            for group in groups:
                group.drop_results = lambda: dropped.append((len(results(store)), is_locked(jobs[-1])))

    def is_locked(job):
        try:
            with Store(store.root).lock(job):
                return False
        except StoreBusyError:
            return True

    assert sweep_groups([jobs], store, fake.train, Keeper()) == Summary(finished=size)
    assert dropped[0] == (size, True)


def test_a_sweep_whose_jobs_are_all_stored_connects_to_no_machine(fake, store):
    job = fake.make_job(0)
    sweep([job], store, fake.train)
    assert drive([[job]], store, fake.train, connect=lambda _: pytest.fail("connected")) == Summary(skipped=1)


def test_the_policy_decides_which_stored_jobs_are_trained_again(fake, store, tmp_path):
    flaky = fake.make_job(0, trouble="once", marker=str(tmp_path / "marker"))
    assert sweep([flaky], store, fake.train) == Summary(failed=1)
    events = []
    assert sweep([flaky], store, fake.train, policy=Policy(retry=False), on_event=events.append) == Summary(skipped=1)
    assert events == [{"event": "skipped", "job": flaky, "reason": "failed"}]
    assert sweep([flaky], store, fake.train) == Summary(finished=1)
    assert sweep([flaky], store, fake.train, policy=Policy(redo=True)) == Summary(finished=1)


def test_a_failing_job_is_recorded_and_the_others_go_on(fake, store):
    troubles = {
        "raise": "ValueError: the loss has no gradient",
        "sys.exit": "SystemExit: 0",
        "no Exception": "GeneratorExit: cancelled",
        "out of memory": "MemoryError",
    }
    jobs = [fake.make_job(seed, trouble=trouble) for seed, trouble in enumerate([None, *troubles, None])]
    assert sweep(jobs, store, fake.train) == Summary(finished=2, failed=4)
    assert [results(store)[job.seed].error.splitlines()[-1] for job in jobs[1:-1]] == [*troubles.values()]


@pytest.mark.parametrize(
    "trouble", ["raise", "memory slots", "sys.exit", "out of memory", "torch out of memory", "lost GPU"]
)
def test_one_job_of_a_group_fails_alone_unless_its_process_is_unsound(fake, store, trouble, monkeypatch):
    """The failures are running out of memory and losing a GPU."""
    monkeypatch.setattr(fake, "LOST_GPUS", [])
    jobs = [fake.make_job(0, trouble=trouble), fake.make_job(1)]
    outcome = work(Assignment(jobs, fake.train, Policy(), None), lambda *_: None)
    if trouble in ("raise", "memory slots", "sys.exit"):
        assert [record.status for record in outcome.records] == ["failed", "finished"]
    else:
        assert outcome.records[0] is None and outcome.error and not outcome.broken


@pytest.mark.parametrize("losses", [1, ATTEMPTS - 1])
def test_a_job_whose_machine_is_lost_is_tried_again(fake, store, losses):
    jobs = [fake.make_job(seed) for seed in range(3)]
    events = []
    assert sweep(jobs, store, fake.train, Desk(losses={1: losses}), on_event=events.append) == Summary(finished=3)
    assert [event["job"].seed for event in events if event["event"] == "started"] == [0, 1, 2]
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}


def test_a_job_that_is_lost_each_time_fails_with_the_reason(fake, store):
    jobs = [fake.make_job(seed) for seed in range(2)]
    assert sweep(jobs, store, fake.train, Desk(losses={0: 99})) == Summary(finished=1, failed=1)
    assert results(store)[0].error == f"killed or lost {ATTEMPTS} times, at last: the power went"


@pytest.mark.slow
def test_the_driver_submits_no_more_jobs_than_the_capacity(fake, store):
    desk = Desk(capacity=8)
    assert sweep([fake.make_job(seed) for seed in range(30)], store, fake.train, desk) == Summary(finished=30)
    assert desk.most == 8


def test_a_job_that_another_process_works_on_is_left_to_it(fake, store):
    jobs = [fake.make_job(seed) for seed in range(3)]
    with Store(store.root).lock(jobs[1]):
        assert sweep(jobs, store, fake.train) == Summary(finished=2, busy=1)
    assert set(results(store)) == {0, 2}


def test_after_max_failures_waiting_jobs_are_left_and_unlocked(fake, store):
    jobs = [fake.make_job(seed, trouble="raise") for seed in range(9)]
    desk = Desk()
    assert sweep(jobs, store, fake.train, desk, policy=Policy(max_failures=2)) == Summary(failed=2, left=7)
    assert set(results(store)) == {0, 1} and desk.cancelled[:2] == [2, 3]
    for job in jobs:
        with Store(store.root).lock(job):
            pass


def test_a_run_stops_at_the_time_limit(fake, store):
    job = fake.make_job(0, steps=1000, pause=0.01)
    assert sweep([job], store, fake.train, policy=Policy(time_limit=0.1)) == Summary(failed=1)
    assert results(store)[0].error == "stopped after the time limit of 0.1 s"


def test_a_silent_job_is_cancelled_after_the_time_limit(fake, store, monkeypatch):
    monkeypatch.setattr(driver, "GRACE", 0.05)
    desk = Desk(silent={0})
    assert sweep([fake.make_job(0)], store, fake.train, desk, policy=Policy(time_limit=0.05)) == Summary(failed=1)
    assert desk.cancelled == [0]
    assert results(store)[0].error == "stopped after the time limit of 0.05 s"


def test_ctrl_c_cancels_what_runs_and_stores_what_has_ended(fake, store):
    jobs = [fake.make_job(seed) for seed in range(5)]
    desk = Desk(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        sweep(jobs, store, fake.train, desk)
    assert set(results(store)) == {0, 1, 2} and desk.cancelled == [3, 4]
    assert sweep(jobs, store, fake.train) == Summary(finished=2, skipped=3)


def test_an_error_in_the_listener_frees_every_lock(fake, store):
    def listen(event):
        raise KeyError("bug")

    jobs = [fake.make_job(seed) for seed in range(3)]
    with pytest.raises(KeyError):
        sweep(jobs, store, fake.train, on_event=listen)
    for job in jobs:
        with Store(store.root).lock(job):
            pass


def test_a_workers_disk_that_is_full_ends_the_sweep_and_names_the_worker(fake, store):
    jobs = [fake.make_job(0), fake.make_job(1, trouble="disk full"), fake.make_job(2)]
    with pytest.raises(StoreError, match=r"^worker \S+: results: no space left$"):
        sweep(jobs, store, fake.train, Desk(capacity=1))
    assert 1 not in results(store)


@pytest.mark.parametrize("shared", [False, True])
def test_kept_files_reach_the_run_from_shared_and_unshared_disks(fake, store, shared):
    jobs = [fake.make_job(seed) for seed in range(2)]
    sweep_groups([jobs], store, keeping, Desk(shares_folder=shared))
    for job in jobs:
        run = store.read(job.id)
        assert (run.folder / "weights").read_bytes() == bytes([job.seed])
        assert (Path(run.record.details["folder"]).parent == store.root / "work") is shared
        assert not Path(run.record.details["folder"]).exists()


def test_on_a_shared_disk_a_job_resumes_from_its_checkpoint(fake, store):
    job = fake.make_job(0, steps=5)
    with store.lock(job) as folder:
        state = fake.expected(fake.make_job(0, steps=4)).metrics["state"]
        (folder / "checkpoint").write_text(f"4 {state}")
    events = []
    sweep([job], store, fake.train, Desk(shares_folder=True), on_event=events.append)
    assert events[1]["progress"]["step"] == 4
    assert results(store)[0] == fake.expected(job)


def test_a_group_trains_together_without_the_jobs_that_are_stored_or_busy(fake, store):
    jobs = [fake.make_job(seed, steps=2) for seed in range(5)]
    store.finish(jobs[0], fake.expected(jobs[0]))
    desk, events = Desk(), []
    with Store(store.root).lock(jobs[3]):
        summary = sweep_groups([jobs[:4], jobs[3:]], store, fake.train, desk, on_event=events.append)
    assert summary == Summary(finished=3, skipped=1, busy=1) and desk.groups == [[1, 2], [4]]
    assert results(store) == {seed: fake.expected(jobs[seed]) for seed in (0, 1, 2, 4)}
    mine = [event for event in events if event["job"] == jobs[2]]
    assert [event["event"] for event in mine] == ["started", *["progress"] * 3, "finished"]
    assert [event["progress"]["step"] for event in mine[1:-1]] == [0, 1, 2]


def test_after_an_error_the_jobs_of_a_group_train_one_by_one(fake, store, tmp_path):
    marker = str(tmp_path / "marker")
    jobs = [fake.make_job(0), fake.make_job(1, trouble="once", marker=marker), fake.make_job(2, trouble="raise")]
    assert sweep_groups([jobs], store, fake.train) == Summary(finished=2, failed=1)
    assert results(store)[2].error.endswith("ValueError: the loss has no gradient")


def test_members_of_a_group_finish_diverge_or_fail_independently(fake, check_pairs):
    check_pairs(lambda groups, store, train, **how: sweep_groups(groups, store, train, **how))


def test_a_group_whose_machine_is_lost_is_tried_again_and_one_over_the_time_limit_fails(fake, store):
    jobs = [fake.make_job(seed) for seed in range(3)]
    desk = Desk(losses={0: 1})
    assert sweep_groups([jobs[:2], jobs[2:]], store, fake.train, desk) == Summary(finished=3)
    assert desk.groups == [[0, 1], [2], [0, 1]]
    slow = [fake.make_job(seed, steps=1000, pause=0.01) for seed in (5, 6)]
    assert sweep_groups([slow], store, fake.train, policy=Policy(time_limit=0.1)) == Summary(failed=2)
    assert {results(store)[seed].error for seed in (5, 6)} == {"stopped after the time limit of 0.1 s"}


@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupt_while_a_group_is_stored_loses_no_member(fake, store, monkeypatch, shared):
    jobs = [fake.make_job(seed) for seed in range(2)]
    sweep_groups([jobs], store, keeping, Desk(shares_folder=shared))
    calls, finish = [], store.finish

    def interrupted(job, record, replace):
        calls.append(job.seed)
        if calls == [0, 1]:
            raise KeyboardInterrupt
        finish(job, record, replace)

    monkeypatch.setattr(store, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep_groups([jobs], store, keeping, Desk(shares_folder=shared), policy=Policy(redo=True))
    assert calls == [0, 1, 1]
    for job in jobs:
        assert (store.read(job.id).folder / "weights").read_bytes() == bytes([job.seed])


def test_a_training_function_that_forgets_a_job_of_its_group_fails(fake, store):
    jobs = [fake.make_job(seed) for seed in range(2)]
    assert sweep_groups([jobs], store, forgetful) == Summary(failed=2)
    assert results(store)[0].error.endswith("train gave 1 records for 2 jobs")


def test_jobs_left_after_max_failures_are_counted_per_job(fake, store):
    jobs = [fake.make_job(seed, trouble="raise") for seed in range(6)]
    groups = [jobs[:2], jobs[2:4], jobs[4:]]
    desk = Desk(capacity=2)
    assert sweep_groups(groups, store, fake.train, desk, policy=Policy(max_failures=1)) == Summary(failed=2, left=4)


def test_a_worker_that_does_not_see_the_results_folder_is_broken(fake, tmp_path):
    packed = Assignment([fake.make_job(0)], fake.train, Policy(), [tmp_path / "elsewhere"]).pack()
    assert "elsewhere: not found; the results folder must be on a disk" in work_remotely(packed, print).broken


def test_a_worker_with_another_version_of_madbench_is_broken(fake):
    packed = Assignment([fake.make_job(0)], fake.train, Policy(), None).pack()
    outcome = work_remotely(("0.0", packed[1]), print)
    assert outcome.records == () and "and the driver has 0.0; install the same" in outcome.broken


def test_a_worker_without_the_module_of_the_training_function_is_broken(fake):
    packed = Assignment([fake.make_job(0)], fake.train, Policy(), None).pack()
    lacking = (packed[0], packed[1].replace(b"fake_sweep", b"fake_swoop"))
    assert "cannot import the training function: No module named 'fake_swoop'" in work_remotely(lacking, print).broken


def test_a_worker_without_the_needed_gpu_is_broken(fake, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    packed = Assignment([fake.make_job(0)], fake.train, Policy(), None).pack()
    assert "finds no CUDA device" in work_remotely(packed, print, needs_gpu=True).broken


def test_progress_of_all_jobs_is_sent_together_at_most_every_interval(monkeypatch):
    now, sent = [0.0], []
    monkeypatch.setattr(worker.time, "monotonic", lambda: now[0])
    send = throttle(2.0, lambda news: sent.append({job: progress["step"] for job, progress in news.items()}))
    for step in range(9):
        now[0] = step / 2
        send("a", {"step": step})
        send("b", {"step": -step})
    assert sent == [{"a": 0}, {"a": 4, "b": -3}, {"a": 8, "b": -7}]


def test_a_language_job_without_its_corpus_on_the_worker_says_which_file(tmp_path):
    from madbench.text.corpus import Corpus, Manifest, SplitInfo, TokenizerInfo

    split = SplitInfo(10, 10, None, "")
    manifest = Manifest(None, TokenizerInfo("bytes", "", 257), "uint16", "", {"train": split, "val": split})
    with pytest.raises(StoreError, match=r"train\.bin: not there; every machine that trains needs the corpus"):
        Corpus(tmp_path / "gone", manifest).verify()


def test_more_jobs_are_locked_at_a_time_than_files_may_usually_be_open(fake, store):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
    try:
        assert sweep_groups([[fake.make_job(seed) for seed in range(30)]], store, fake.train) == Summary(finished=30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
