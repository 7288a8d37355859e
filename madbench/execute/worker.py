"""The worker side of every executor: one job, in a process that knows neither store nor driver."""

from __future__ import annotations

import math
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import madbench
from madbench.errors import StoreError
from madbench.execute.base import Policy, Report, Train, failure_text
from madbench.jobs import KEEP, Job, Record, StopTraining


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to train one job."""

    job: Job
    train: Train
    policy: Policy
    work: Path | None
    """The job's work folder, where the worker sees it; None for a temporary one on the worker's machine."""

    def pack(self) -> Packed:
        return madbench.__version__, pickle.dumps(self)


Packed = tuple[str, bytes]
"""The driver's version and an assignment as bytes, so that a worker compares versions before it unpacks them."""


@dataclass(frozen=True)
class Outcome:
    """What a worker returns."""

    record: Record | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Those of the run, by their path; none where the driver sees the work folder."""
    broken: str = ""
    """What is wrong with the worker or its disk. It concerns every job, so the driver ends the sweep with it."""

    @classmethod
    def failure(cls, error: str) -> Outcome:
        return cls(Record("failed", error=error))

    @property
    def has_failed(self) -> bool:
        return bool(self.broken) or self.record.status == "failed"


def source_checkout() -> Path | None:
    """The folder that madbench is imported from where that is a checkout; None where it is installed."""
    folder = Path(madbench.__file__).resolve().parents[1]
    return folder if (folder / "pyproject.toml").exists() else None


def work(assignment: Assignment, send: Report) -> Outcome:
    """Trains a job. A training function that raises gives a ``failed`` record; only ``StopTraining`` of ``send`` passes."""
    limit, folder = assignment.policy.time_limit, assignment.work
    deadline = math.inf if limit is None else time.monotonic() + limit

    def report(progress: dict[str, Any]) -> None:
        send(progress)
        if time.monotonic() >= deadline:
            raise StopTraining

    try:
        if folder is not None:
            if not folder.is_dir():
                raise StoreError(f"{folder}: not found; the results folder must be on a disk that all workers see")
            return Outcome(assignment.train(assignment.job, folder, report))
        with tempfile.TemporaryDirectory(prefix="madbench-", ignore_cleanup_errors=True) as temporary:
            record, kept = assignment.train(assignment.job, Path(temporary), report), Path(temporary, KEEP)
            files = {str(path.relative_to(kept)): path.read_bytes() for path in kept.rglob("*") if path.is_file()}
            return Outcome(record, files)
    except StopTraining:
        if time.monotonic() < deadline:
            raise
        return Outcome.failure(assignment.policy.overtime)
    except StoreError as error:
        return Outcome(broken=str(error))
    except (Exception, SystemExit) as error:
        return Outcome.failure(failure_text(error))


def work_remotely(packed: Packed, send: Report, needs_gpu: bool = False) -> Outcome:
    """Unpacks and trains a job on a machine that may lack what it needs; what is broken names the machine."""
    version, content = packed
    try:
        if version != madbench.__version__:
            versions = f"has madbench {madbench.__version__}, and the driver has {version}"
            raise StoreError(f"{versions}; install the same version on all machines")
        if needs_gpu:
            import torch

            if not torch.cuda.is_available():
                visible = f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
                raise StoreError(f"torch {torch.__version__} finds no CUDA device there ({visible})")
        outcome = work(pickle.loads(content), send)
    except ImportError as error:  # of unpacking: one of training is a failed record
        outcome = Outcome(broken=f"cannot import what it is to run: {error}")
    except StoreError as error:
        outcome = Outcome(broken=str(error))
    return replace(outcome, broken=f"worker {platform.node()}: {outcome.broken}") if outcome.broken else outcome


def now_and_then(seconds: float, tell: Report) -> Report:
    """A report that ``tell`` gets at most every so many seconds."""
    last = -math.inf

    def report(progress: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(progress)

    return report
