"""What executors share: jobs in, stored runs out, the same events on the way, whatever machines do the work.

An executor is called as ``executor(jobs, store, train, on_event=..., policy=...)`` and gives a :class:`Summary`. It trains
the jobs that ``policy`` asks for, in order, each at most once, and stores each result at once. ``on_event`` gets
``{"event": kind, "job": job, ...}``: ``skipped`` (with ``reason``: ``stored``, ``failed`` for a stored failure that is
not to be tried again, or ``busy`` for a job that another process is at work on), ``started`` (with ``slot``),
``progress`` (with ``slot`` and the reported dict as ``progress``), ``finished`` and ``failed`` (with ``slot`` and
``record``; a diverged run is finished).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from madbench.errors import ConfigError
from madbench.jobs import JobBase, Record, Status

Event = dict[str, Any]
OnEvent = Callable[[Event], None]
Train = Callable[[JobBase, Path, Callable[[dict[str, Any]], None]], Record]
"""``train(job, work, report)``: a picklable function; ``report`` raises ``StopTraining`` when the run is to end."""
Executor = Callable[..., "Summary"]


def ignore_event(event: Event) -> None:
    """An ``on_event`` that shows nothing."""


@dataclass(frozen=True)
class Policy:
    """What becomes of results that are there already, and of jobs that fail or do not end."""

    redo: bool = False
    """Train every job from its start; its earlier result stays until the new one replaces it."""
    retry: bool = True
    """Try jobs again that are stored as failed, from their checkpoints."""
    max_failures: int | None = None
    """Failures after which no further job starts."""
    time_limit: float | None = None
    """Seconds after which a job is stopped and stored as failed; its checkpoint stays."""

    def __post_init__(self):
        if self.max_failures is not None and self.max_failures < 1:
            raise ConfigError(f"max_failures must be at least 1, got {self.max_failures}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ConfigError(f"time_limit must be a number of seconds above 0, got {self.time_limit}")

    def skips(self, status: Status | None) -> Literal["stored", "failed"] | None:
        """Why a job with this status in the store is left alone; None where it is to be trained."""
        if self.redo or status is None or (status == "failed" and self.retry):
            return None
        return "failed" if status == "failed" else "stored"

    @property
    def overtime(self) -> str:
        """The error of a job that was stopped at the time limit."""
        return f"stopped after the time limit of {minutes_or_seconds(self.time_limit)}"


@dataclass
class Summary:
    """How many jobs ended in which way."""

    finished: int = 0
    diverged: int = 0
    failed: int = 0
    skipped: int = 0
    """Already in the store, with a result or as a failure that is not to be tried again."""
    busy: int = 0
    """Left to another process that is at work on them."""
    left: int = 0
    """Not started, because ``max_failures`` was reached."""


def minutes_or_seconds(seconds: float) -> str:
    """``30 min``, ``90 s``."""
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds:g} s"


def worker_environment(threads: int) -> dict[str, str]:
    """Environment of a process that trains; it must be there before torch is imported."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # By default glibc gives freed memory back to the kernel in every step, a quarter of a small model's time.
    keep_memory = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
    chosen = {name: os.environ.get(name, value) for name, value in keep_memory.items()}
    return dict.fromkeys(names, str(threads)) | chosen
