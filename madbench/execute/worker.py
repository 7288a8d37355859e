"""The worker side of every executor: one group of jobs, in a process that knows neither store nor driver."""

from __future__ import annotations

import math
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import madbench
from madbench.errors import StoreError
from madbench.execute.base import Policy, Train, failure_text
from madbench.jobs import KEEP, Job, Record, StopTraining

Send = Callable[[str, dict[str, Any]], None]
"""Hands the progress of a job, named by its id, to the driver; it raises ``StopTraining`` when the group is to stop."""


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to train one group."""

    jobs: Sequence[Job]
    train: Train
    policy: Policy
    folders: Sequence[Path] | None
    """The work folders of the jobs, where the worker sees them; None for temporary ones on the worker's machine."""

    def pack(self) -> Packed:
        return madbench.__version__, pickle.dumps(self)


Packed = tuple[str, bytes]
"""The driver's version and an assignment as bytes, so that a worker compares versions before it unpacks them."""


@dataclass(frozen=True)
class Outcome:
    """What a worker returns."""

    records: Sequence[Record] = ()
    """One for each job."""
    files: Sequence[dict[str, bytes]] = ()
    """For each job the files of its run, by their path; empty where the driver sees the work folders."""
    broken: str = ""
    """What is wrong with the worker or its disk. It concerns every job, so the driver ends the sweep with it."""

    @classmethod
    def failure(cls, jobs: Sequence[Job], error: str) -> Outcome:
        """Every job of the group failed with the same error."""
        return cls([Record("failed", error=error)] * len(jobs))

    @property
    def has_failed(self) -> bool:
        return bool(self.broken) or any(record.status == "failed" for record in self.records)


def source_checkout() -> Path | None:
    """The folder that madbench is imported from where that is a checkout; None where it is installed."""
    folder = Path(madbench.__file__).resolve().parents[1]
    return folder if (folder / "pyproject.toml").exists() else None


def work(assignment: Assignment, send: Send) -> Outcome:
    """Trains a group. A training function that raises gives ``failed`` records; only ``StopTraining`` of ``send`` passes."""
    jobs, limit = assignment.jobs, assignment.policy.time_limit
    deadline = math.inf if limit is None else time.monotonic() + limit

    def report(job: Job, progress: dict[str, Any]) -> None:
        send(job.id, progress)
        if time.monotonic() >= deadline:
            raise StopTraining

    try:
        with _folders(assignment) as folders:
            records = assignment.train(jobs, folders, report)
            assert len(records) == len(jobs), f"train gave {len(records)} records for {len(jobs)} jobs"
            return Outcome(records, [] if assignment.folders else [_files(folder / KEEP) for folder in folders])
    except StopTraining:
        if time.monotonic() < deadline:
            raise
        return Outcome.failure(jobs, assignment.policy.overtime)
    except StoreError as error:
        return Outcome(broken=str(error))
    except (Exception, SystemExit) as error:
        return Outcome.failure(jobs, failure_text(error))


def work_remotely(packed: Packed, send: Send, needs_gpu: bool = False) -> Outcome:
    """Unpacks and trains a group on a machine that may lack what it needs; what is broken names the machine."""
    version, content = packed
    try:
        if version != madbench.__version__:
            versions = f"has madbench {madbench.__version__}, and the driver has {version}"
            raise StoreError(f"{versions}; install the same version on all machines")
        if needs_gpu:
            _check_gpu()
        outcome = work(pickle.loads(content), send)
    except ImportError as error:  # of unpacking: one of training is a failed record
        outcome = Outcome(broken=f"cannot import what it is to run: {error}")
    except StoreError as error:
        outcome = Outcome(broken=str(error))
    return replace(outcome, broken=f"worker {platform.node()}: {outcome.broken}") if outcome.broken else outcome


def batched(seconds: float, tell: Callable[[dict[str, dict[str, Any]]], None]) -> Send:
    """Hands the last progress of all jobs, by their ids, to ``tell``, at most every so many seconds."""
    last, news = -math.inf, {}

    def send(job_id: str, progress: dict[str, Any]) -> None:
        nonlocal last
        news[job_id] = progress
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(news)

    return send


def _check_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise StoreError(f"torch {torch.__version__} finds no CUDA device there (CUDA_VISIBLE_DEVICES is {visible!r})")


@contextmanager
def _folders(assignment: Assignment) -> Iterator[Sequence[Path]]:
    for folder in assignment.folders or ():
        if not folder.is_dir():
            raise StoreError(f"{folder}: not found; the results folder must be on a disk that all workers see")
    if assignment.folders is not None:
        yield assignment.folders
        return
    with tempfile.TemporaryDirectory(prefix="madbench-", ignore_cleanup_errors=True) as root:
        folders = [Path(root, job.id) for job in assignment.jobs]
        for folder in folders:
            folder.mkdir()
        yield folders


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
