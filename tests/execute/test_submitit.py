"""Jobs on Slurm: the options of sbatch, refused and limited submissions, results and cancellation."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from madbench.errors import ConfigError, StoreError, TrainingError
from madbench.execute import submitit as module
from madbench.execute.base import JobLock, Listener, Policy, Summary
from madbench.execute.driver import LockedGroup
from madbench.execute.messages import WorkerResult
from madbench.execute.slurm_folder import content_digest
from madbench.execute.submitit import SlurmConfig, slurm_executor
from madbench.execute.worker import Assignment
from madbench.store.runs import Store
from waiting import wait_until

pytest.importorskip("submitit")


def backend_of(executor, root):
    with executor.keywords["connect"](Store(root)) as backend:
        return backend


def results(store):
    return {run.job.seed: run.record for run in store.runs()}


def test_the_script_requests_the_configured_resources_of_slurm(slurm, tmp_path):
    extra = {"account": "me", "exclusive": True}
    executor = slurm_executor(
        SlurmConfig("gpu", 90, cpus_per_job=4, gpus_per_job=2, memory_gb=8.5, sbatch=extra), slots=7
    )
    backend = backend_of(executor, tmp_path)
    script = backend.script([content_digest(bytes(index)) for index in range(30)])
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    asked = dict(line.partition("=")[::2] for line in lines)
    expected = {"partition": "gpu", "time": "90", "cpus-per-task": "4", "gpus-per-node": "2", "mem": "8704MB"}
    expected |= {"account": "me", "exclusive": "", "job-name": "madbench", "array": "0-29%7", "signal": "USR2@90"}
    assert {name: asked.get(name) for name in expected} == expected
    assert script.index("export OMP_NUM_THREADS=4") < script.index("-m madbench.execute.slurm_worker")
    assert asked["output"].startswith(str(tmp_path / "slurm"))


def test_options_that_are_not_given_are_not_in_the_script(slurm, tmp_path):
    script = backend_of(slurm_executor(), tmp_path).script([content_digest(b"")])
    assert not [name for name in ("partition", "gpus", "mem") if f"--{name}" in script]


def test_an_sbatch_that_refuses_is_a_users_error(fake, slurm, store):
    program = slurm.parent / "bin" / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2; exit 1\n")
    with pytest.raises(TrainingError, match="sbatch does not accept the jobs: .*invalid partition specified: gpu"):
        slurm_executor(SlurmConfig("gpu"))([[fake.make_job(0)]], store, fake.train)
    with store.lock(fake.make_job(0)) as work:
        assert os.listdir(work) == ["lock"]


class FakeClock:
    """A clock that moves only in ``sleep``."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def groups_of(fake, store, count):
    jobs = [fake.make_job(seed) for seed in range(count)]
    works = [store.root / "work" / job.id for job in jobs]
    locks = [JobLock(job, work, ExitStack()) for job, work in zip(jobs, works)]
    return [LockedGroup([lock], Assignment([lock.job], fake.train, Policy(), [lock.work])) for lock in locks]


@pytest.mark.slow
def test_a_refused_submission_is_tried_again_with_growing_pauses_while_others_run(fake, slurm, store, clock):
    (slurm / "hold").write_text("PENDING")
    first, *rest = groups_of(fake, store, 3)
    backend = backend_of(slurm_executor(), store.root)
    backend.submit([first])
    (slurm / "refusal").write_text("Batch job submission failed: Socket timed out on send/recv operation")
    backend.submit(rest)
    tries, notes = [], []
    while clock.now < 3000:
        before = (slurm / "submissions").read_text()
        list(backend.poll(5.0))
        notes += backend.take_notes()
        if (slurm / "submissions").read_text() != before:
            tries.append(clock.now)
    pauses = [b - a for a, b in zip([0, *tries], tries)]
    assert len(pauses) > 5 and pauses == sorted(pauses) and pauses[0] < 20 and pauses[-1] == module.LONGEST_PAUSE
    [note] = notes
    assert "Socket timed out" in note
    assert backend.jobs[first].slurm_id == "1000" and not (slurm / "1000" / "state").read_text().startswith("CANC")
    (slurm / "refusal").unlink()
    clock.now += module.LONGEST_PAUSE
    list(backend.poll(1.0))
    assert [backend.jobs[group].slurm_id for group in rest] == ["1001_0", "1001_1"] and backend.waiting == []


@pytest.mark.slow
def test_a_submission_limit_lowers_the_number_of_slots(fake, slurm, store, clock):
    (slurm / "hold").write_text("PENDING")
    (slurm / "limit").write_text("3")
    groups = groups_of(fake, store, 7)
    backend = backend_of(slurm_executor(slots=7), store.root)
    backend.submit(groups)
    for _ in range(60):
        list(backend.poll(5.0))
    assert len(backend.jobs) == 3 and len(backend.waiting) == 4 and backend.capacity() == 4
    assert len((slurm / "submissions").read_text().split()) < 20
    ended = next(iter(backend.jobs))
    (slurm / backend.jobs[ended].slurm_id / "state").write_text("COMPLETED")
    backend.jobs[ended].folder.write_outcome(ended.jobs, WorkerResult([fake.expected(ended.jobs[0])]))
    for _ in range(6):  # the place that is free is taken soon, whatever the pause has grown to
        list(backend.poll(5.0))
    assert len(backend.jobs) == 3 and len(backend.waiting) == 3
    backend.cancel(groups)
    assert backend.waiting == [] and backend.jobs == {}


@pytest.mark.slow
def test_a_submission_limit_of_zero_ends_the_sweep(fake, slurm, store):
    (slurm / "limit").write_text("0")
    with pytest.raises(TrainingError, match="QOSMaxSubmitJobPerUserLimit"):
        slurm_executor()([[fake.make_job(seed)] for seed in range(3)], store, fake.train)


@pytest.mark.slow
def test_a_sweep_trains_all_its_jobs_under_a_limit_of_submissions(fake, slurm, store, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.2)
    (slurm / "limit").write_text("2")
    jobs, notes = [fake.make_job(seed) for seed in range(5)], []
    listener = Listener(lambda event: None, notes.append)
    assert slurm_executor()(fake.alone(jobs), store, fake.train, listener) == Summary(finished=5)
    [note] = notes
    assert "QOSMaxSubmitJobPerUserLimit" in note


@pytest.mark.parametrize(
    "asked",
    [
        {"partition": "gpu\ntouch pwned"},
        {"partition": "gpu\r"},
        {"sbatch": {"account": "me\ntouch pwned"}},
        {"sbatch": {"account\ntouch pwned": "me"}},
        {"sbatch": {"comment": "\x1b[31m"}},
        {"sbatch": {"comment": "\u2028touch pwned"}},
    ],
)
def test_slurm_options_with_control_characters_are_refused(slurm, asked):
    with pytest.raises(ConfigError, match="control characters cannot go into a Slurm script; leave them out"):
        slurm_executor(SlurmConfig(**asked))


@pytest.mark.parametrize("name", ["a\ntouch pwned", "100%", "run-%j", "%x/results", "back\\slash"])
def test_results_folder_names_that_slurm_would_expand_are_refused(fake, slurm, tmp_path, name):
    store = Store.open(tmp_path / name)
    with pytest.raises(ConfigError, match="results .*(control characters|choose a results folder without it)"):
        slurm_executor()([[fake.make_job(0)]], store, fake.train)
    assert not list(slurm.iterdir())


@pytest.mark.slow
def test_jobs_run_as_an_array_and_a_dead_one_fails_with_its_log(fake, slurm, store):
    jobs = [fake.make_job(seed, steps=2, environment=["OMP_NUM_THREADS"]) for seed in range(2)]
    bad = [fake.make_job(8, trouble="raise"), fake.make_job(9, trouble="os._exit")]
    events = []
    summary = slurm_executor(SlurmConfig(cpus_per_job=3))(
        fake.alone([*jobs, *bad]), store, fake.train, on_event=events.append
    )
    assert summary == Summary(finished=2, failed=2)
    stored = results(store)
    assert [stored[job.seed] for job in jobs] == [fake.expected(job) for job in jobs]
    assert stored[8].error.endswith("ValueError: the loss has no gradient")
    assert "Slurm job 1000_3 ended as FAILED; its log is" in stored[9].error
    assert len(list(slurm.glob("script-*"))) == 1 and "--array=0-3%4" in next(slurm.glob("script-*")).read_text()
    told = [event["progress"]["environment"] for event in events if "environment" in event.get("progress", {})]
    assert {"OMP_NUM_THREADS": "3"} in told
    assert {path.name for path in (store.root / "slurm").iterdir()} == {"1000_3_0_log.err", "1000_3_0_log.out"}


@pytest.mark.slow
def test_members_of_a_group_finish_diverge_or_fail_independently(slurm, check_pairs):
    check_pairs(slurm_executor())


@pytest.mark.slow
def test_a_preempted_group_is_requeued_and_resumes_from_its_checkpoints(fake, slurm, store, tmp_path):
    pids, marker = tmp_path / "pids", tmp_path / "preempted"
    setting = {"steps": 30, "pause": 0.01, "pids": str(pids), "held_at": 20, "marker": str(marker)}
    pair = [fake.make_job(seed, **setting) for seed in range(2)]
    signaled, first_steps = [], []

    def preempt(event):
        if "pid" in event.get("progress", {}):
            first_steps.append(event["progress"]["step"])
            wait_until(lambda: len(list(store.root.glob("work/*/checkpoint"))) == 2)
            pid = event["progress"]["pid"]
            if not signaled:
                os.kill(pid, signal.SIGUSR2)
                signaled.append(pid)
            elif pid != signaled[0]:
                marker.touch()

    assert slurm_executor()([pair], store, fake.train, on_event=preempt) == Summary(finished=2)
    assert results(store) == {job.seed: fake.expected(job) for job in pair}
    first, _, second, _ = trained = pids.read_text().split()
    assert first != second and trained == [first, first, second, second] and first_steps[1] > 0


@pytest.mark.slow
def test_ctrl_c_cancels_the_slurm_jobs_and_the_next_sweep_goes_on(fake, slurm, store):
    job = fake.make_job(0, steps=100, pause=0.02)

    def stop(event):
        if event["event"] == "progress":
            wait_until(lambda: next(store.root.glob("work/*/checkpoint"), None))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slurm_executor()([[job]], store, fake.train, on_event=stop)
    assert next(slurm.glob("1000/state")).read_text().startswith("CANCELLED")
    steps = []
    slurm_executor()([[job]], store, fake.train, on_event=lambda e: steps.append(e.get("progress", {}).get("step")))
    assert next(step for step in steps if step is not None) > 0
    assert results(store)[0] == fake.expected(job)


@pytest.mark.slow
def test_time_limits_and_import_errors_of_slurm_jobs_are_reported(fake, slurm, store, monkeypatch):
    limited = fake.make_job(0, steps=1000, pause=0.05)
    assert slurm_executor()([[limited]], store, fake.train, policy=Policy(time_limit=0.5)) == Summary(failed=1)
    assert results(store)[0].error == "stopped after the time limit of 0.5 s"
    monkeypatch.setenv("PYTHONPATH", str(Path(module.__file__).parents[2]))
    with pytest.raises(StoreError, match="cannot import the training function: No module named 'fake_sweep'"):
        slurm_executor()([[fake.make_job(1)]], store, fake.train)
