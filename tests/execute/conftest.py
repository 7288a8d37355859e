"""Fixtures for executors: stand-ins for training and for Slurm, and a store."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from pathlib import Path

import pytest

from madbench.execute.base import Summary
from madbench.store.runs import Store

HERE = Path(__file__).parent
# scripts of their own: Slurm's programs, and what torchrun starts
collect_ignore = ["fake_slurm.py", "torchrun_pairs.py"]


@pytest.fixture
def fake(monkeypatch):
    """The module of the fake training run, importable by worker processes too."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("fake_sweep")


@pytest.fixture
def slurm(fake, monkeypatch, tmp_path):
    """A fake Slurm that runs every job at once on this machine. Returns the folder of its jobs."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *filter(None, sys.path)]))
    jobs, programs = tmp_path / "jobs", tmp_path / "bin"
    jobs.mkdir()
    programs.mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel", "scontrol"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_slurm.py"} {name} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(jobs))
    monkeypatch.setattr("madbench.execute.submitit.ASK_SECONDS", 0.5)
    monkeypatch.setattr("madbench.execute.slurm_job.OUTCOME_SECONDS", 0)
    submitit = pytest.importorskip("submitit")
    monkeypatch.setattr(submitit.SlurmJob, "watcher", type(submitit.SlurmJob.watcher)(delay_s=600))  # knows no job yet
    yield jobs
    for pid in jobs.glob("*/pid"):
        with contextlib.suppress(OSError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.fixture
def check_pairs(fake, store):
    """Train groups of two with an executor, while another process holds one member, and check how each job ended."""

    def check(executor) -> None:
        groups, events = fake.pairs(), []
        jobs = [job for group in groups for job in group]
        with Store(store.root).lock(jobs[5]):
            summary = executor(groups, store, fake.train, on_event=events.append)
        assert summary == Summary(finished=4, diverged=1, failed=2, busy=1)
        stored = {run.job.seed: run.record for run in store.runs()}
        for job in [*jobs[:5], jobs[6]]:
            assert stored[job.seed] == fake.expected(job)
        assert set(stored) == {0, 1, 2, 3, 4, 6, 7}
        assert stored[7].error.endswith("ValueError: the loss has no gradient")
        for job in jobs:
            mine = [event for event in events if event["job"] == job]
            steps = [event["progress"]["step"] for event in mine if event["event"] == "progress"]
            kinds = [event["event"] for event in mine if event["event"] != "progress"]
            ending = "failed" if job.seed in (2, 7) else "finished"
            assert kinds == (["skipped"] if job.seed == 5 else ["started", ending]) and steps == sorted(steps)
        assert executor(groups, store, fake.train) == Summary(finished=1, failed=2, skipped=5)

    return check
