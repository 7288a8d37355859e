"""The worker side of an executor on other machines: one job, in a process that knows neither store nor driver."""

from __future__ import annotations

import math
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import madbench
from madbench.errors import StoreError
from madbench.execute.base import Policy, Train
from madbench.execute.failure import failure_text
from madbench.jobs import JobBase, Record, StopTraining
from madbench.store.runs import KEEP

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to train one job."""

    job: JobBase
    train: Train
    policy: Policy
    folder: Path | None
    """The job's work folder in the store, where the worker sees it; None for a temporary one of the worker's own."""

    def pack(self) -> Packed:
        return Packed(madbench.__version__, pickle.dumps(self))


@dataclass(frozen=True)
class Packed:
    """An assignment as bytes, so that a worker sets its environment and compares versions before it unpacks them."""

    version: str
    content: bytes


@dataclass(frozen=True)
class Outcome:
    """What a worker hands back."""

    record: Record | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    """The files to keep, by their path; none where the driver sees the worker's folder."""
    broken: str = ""
    """What is wrong with the worker or its disk. It concerns every job, so the driver ends the sweep with it."""


def source_checkout() -> Path | None:
    """The folder that madbench is imported from where that is a checkout; None where it is installed."""
    folder = Path(madbench.__file__).resolve().parents[1]
    return folder if (folder / "pyproject.toml").exists() else None


def work(packed: Packed, report: Report, needs_gpu: bool = False) -> Outcome:
    """Trains the job of an assignment. It never raises; a job that does is a ``failed`` record."""
    if packed.version != madbench.__version__:
        return _broken(f"has madbench {madbench.__version__}, and the driver has {packed.version}; install the same")
    try:
        assignment: Assignment = pickle.loads(packed.content)
    except ImportError as error:
        return _broken(f"cannot import what it is to run: {error}")
    if needs_gpu and (lacking := _gpu_problem()):
        return _broken(lacking)
    limit = math.inf if assignment.policy.time_limit is None else assignment.policy.time_limit
    deadline = time.monotonic() + limit

    def watched(progress: dict[str, Any]) -> None:
        report(progress)
        if time.monotonic() >= deadline:
            raise StopTraining

    try:
        with _folder(assignment.folder) as folder:
            record = assignment.train(assignment.job, folder, watched)
            return Outcome(record, {} if assignment.folder else _files(folder / KEEP))
    except StopTraining:
        return Outcome(Record("failed", error=assignment.policy.overtime))
    except StoreError as error:
        return _broken(str(error))
    except (Exception, SystemExit) as error:
        return Outcome(Record("failed", error=failure_text(error)))


def at_most_every(seconds: float, report: Report) -> Report:
    """``report``, but for calls that come less than ``seconds`` after the last one that went through."""
    last = -math.inf

    def throttled(progress: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            report(progress)

    return throttled


def _broken(problem: str) -> Outcome:
    return Outcome(broken=f"worker {platform.node()}: {problem}")


def _gpu_problem() -> str:
    import torch

    if torch.cuda.is_available():
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"torch {torch.__version__} finds no CUDA device there (CUDA_VISIBLE_DEVICES is {visible!r})"


@contextmanager
def _folder(shared: Path | None) -> Iterator[Path]:
    if shared is None:
        with tempfile.TemporaryDirectory(prefix="madbench-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    elif shared.is_dir():
        yield shared
    else:
        raise StoreError(f"{shared}: not there; the results folder must be on a disk that all workers see at its path")


def _files(kept: Path) -> dict[str, bytes]:
    return {str(path.relative_to(kept)): path.read_bytes() for path in kept.rglob("*") if path.is_file()}
