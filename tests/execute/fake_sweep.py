"""A fake training run, which counts steps, keeps a checkpoint, and fails as the setting of its job says.

As a program, ``fake_sweep.py ROOT JOBS PIDS [GRACE]`` runs a sweep of such jobs in two slots. With GRACE, the jobs do
not respond to signals. The file ``PIDS.stopping`` appears once the sweep has to stop. The jobs wait at their tenth step
for the file ``PIDS.go``.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

from madbench.errors import StoreError
from madbench.execute import local
from madbench.files import write_atomically
from madbench.jobs import Job, Record, TrainingCallbacks
from madbench.models.shapes import ModelConfig
from madbench.store.runs import Store
from madbench.suites.tokens import TrainingConfig

AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
LOST_GPUS: list[int] = []  # as of a process whose GPU is lost: nothing trains in it any more


def make_job(seed: int, **setting) -> Job:
    return Job("mad", "compression", "S", "1", setting, ModelConfig(), {}, TrainingConfig(), seed)


def jobs_of_sweep(count: int, pids, **setting) -> list[Job]:
    """The jobs of the sweep that this file runs as a program."""
    setting = {"steps": 20, "pause": 0.01, "pids": str(pids), "held_at": 10, "marker": f"{pids}.go"} | setting
    return [make_job(seed, **setting) for seed in range(count)]


def next_state(state: int) -> int:
    return (state * 6364136223846793005 + 1442695040888963407) % 2**53


def alone(jobs: list[Job]) -> list[list[Job]]:
    """Groups of one job each."""
    return [[job] for job in jobs]


def pairs() -> list[list[Job]]:
    """Four groups of two jobs: in the first and third both finish, in the second one fails and one diverges, in the
    fourth one raises an error."""
    endings = {2: {"status": "failed", "error": "no gradient"}, 3: {"status": "diverged"}, 7: {"trouble": "raise"}}
    jobs = [make_job(seed, steps=3, **endings.get(seed, {})) for seed in range(8)]
    return [jobs[first : first + 2] for first in range(0, 8, 2)]


def expected(job: Job) -> Record:
    """The result of an uninterrupted run."""
    state = job.seed
    for _ in range(job.setting.get("steps", 1)):
        state = next_state(state)
    return Record(job.setting.get("status", "finished"), {"state": state}, error=job.setting.get("error", ""))


def train(jobs, works, report):
    """Train the jobs step by step in turn."""
    records = {}
    if len(jobs) > 1 and any(job.setting.get("trouble") == "too large together" for job in jobs):
        raise MemoryError
    for round in itertools.zip_longest(*map(train_one, jobs, works, itertools.repeat(report))):
        for index, record in enumerate(round):
            if record:
                records[index] = record
                if len(jobs) > 1 and isinstance(report, TrainingCallbacks):
                    report.ended(jobs[index], record)
    return [records[index] for index in range(len(jobs))]


def train_with_a_lock(jobs, works, report):
    """Train as ``train``, beside a semaphore that the worker never removes."""
    locks.append(multiprocessing.get_context("spawn").Lock())
    return train(jobs, works, report)


locks = []


def train_in_turn(jobs, works, report):
    """Train one job after the other."""
    return [list(train_one(job, work, report))[-1] for job, work in zip(jobs, works)]


def train_one(job, work, report):
    """Train one job. Yields None after each step and finally a record."""
    setting = job.setting
    checkpoint = work / "checkpoint"
    if "pids" in setting:
        with open(setting["pids"], "a") as file:
            file.write(f"{os.getpid()}\n")
    environment = {name: os.environ.get(name) for name in setting.get("environment", ())}
    step, state = map(int, checkpoint.read_text().split()) if checkpoint.exists() else (0, job.seed)
    process = {"pid": os.getpid(), "environment": environment, "at_import": AT_IMPORT}
    report(job, {"step": step, **process, "cores": sorted(os.sched_getaffinity(0))})
    if LOST_GPUS:
        raise RuntimeError("CUDA error: the launch timed out and was terminated")
    while step < setting.get("steps", 1):
        while setting.get("held_at") == step and not Path(setting["marker"]).exists():
            time.sleep(0.01)
            report(job, {"step": step})
        if step == setting.get("at", 0):
            misbehave(setting.get("trouble"), setting)
        time.sleep(setting.get("pause", 0))
        step, state = step + 1, next_state(state)
        write_atomically(checkpoint, f"{step} {state}".encode())
        report(job, {"step": step})
        yield
    yield Record(setting.get("status", "finished"), {"state": state}, error=setting.get("error", ""))


def misbehave(trouble, setting):
    if trouble == "raise":
        raise ValueError("the loss has no gradient")
    if trouble == "out of memory":
        raise MemoryError
    if trouble == "torch out of memory":
        import torch

        torch.empty(2**60)
    if trouble == "memory slots":
        raise RuntimeError("the memory has 3 slots, and d_model needs 4")
    if trouble == "sys.exit":
        sys.exit(0)
    if trouble == "no Exception":
        raise GeneratorExit("cancelled")
    if trouble == "disk full":
        raise StoreError("results: no space left")
    if trouble == "killed once" and not Path(setting["marker"]).exists():
        Path(setting["marker"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "segmentation fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if trouble == "os._exit":
        os._exit(3)
    if trouble == "once" and not Path(setting["marker"]).exists():
        Path(setting["marker"]).touch()
        raise ValueError("only the first time")
    if trouble == "lost GPU":
        LOST_GPUS.append(0)
        raise RuntimeError("CUDA error: the launch timed out and was terminated")
    if trouble == "unresponsive":
        time.sleep(60)


if __name__ == "__main__":
    root, n_jobs, pids, *grace = sys.argv[1:]
    local.GRACE = float(grace[0]) if grace else local.GRACE
    last_messages = local.LocalBackend.last_messages

    def told_to_stop(backend):
        Path(f"{pids}.stopping").touch()
        return last_messages(backend)

    local.LocalBackend.last_messages = told_to_stop
    sweep = jobs_of_sweep(int(n_jobs), pids, **({"trouble": "unresponsive"} if grace else {}))
    local.run_jobs(alone(sweep), Store.open(root), importlib.import_module("fake_sweep").train, slots=2)  # by name
