"""The common interface of all executors.

An :class:`Executor` takes groups of jobs. A group is a sequence of jobs that train together, in one call of ``train``.
The executor trains the jobs selected by ``policy``, in order and each at most once. It stores each run as soon as its
job ends. It calls ``on_event`` with an :class:`Event` when a job is skipped, starts, makes progress or ends. Jobs that
are already stored, or that another process trains, are removed from their group.
"""

from __future__ import annotations

import os
import re
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypedDict, Unpack

from madbench.config import short_repr
from madbench.config.options import EVERY_VERB, option
from madbench.errors import ConfigError
from madbench.execute.messages import JobResult
from madbench.jobs import Job, Progress, Record, Status, TrainingCallbacks
from madbench.store.runs import Store, StoreBusyError

EventKind = Literal["skipped", "started", "progress", "finished", "failed"]
SkipReason = Literal["stored", "failed", "busy"]
"""The reason why a job is skipped: it has a result (``stored``), it failed and is not retried (``failed``), or another
process trains it (``busy``).
"""


class EventDetails(TypedDict, total=False):
    """The fields of an :class:`Event` that only some kinds of events have."""

    reason: SkipReason  # only of kind ``skipped``
    slot: int  # of every kind except ``skipped``
    progress: Progress  # only of kind ``progress``
    record: Record  # only of kinds ``finished`` and ``failed``


class Event(EventDetails):
    """A report that one job of a sweep was skipped, started, made progress, or ended.

    A run that diverged is reported as ``finished``. Its record has the status ``diverged``.
    """

    event: EventKind
    job: Job


OnEvent = Callable[[Event], None]
Groups = Sequence[Sequence[Job]]
Train = Callable[[Sequence[Job], Sequence[Path], TrainingCallbacks], list[Record]]
"""``train(jobs, works, report)`` trains a group and returns one record per job. ``works`` has the jobs' work folders.

The function must be picklable. If it raises an error, the jobs of the group are trained one by one, except jobs whose
records it has already passed to ``report.ended``. A record with status ``failed`` does not affect the other jobs.
"""
LONGEST_REASON = 200  # characters of the last line of a stored error


def ignore_event(event: Event) -> None:
    """Do nothing. The default for arguments named ``on_event``."""


@dataclass(frozen=True)
class Listener:
    """A function for ``on_event`` that can also show sentences to the user, through ``announce``.

    The sentences say how many jobs train at a time, in how many threads, and why a job is delayed.
    """

    on_event: OnEvent
    announce: Callable[[str], object]

    def __call__(self, event: Event) -> None:
        self.on_event(event)


_SECONDS = {"s": 1, "m": 60, "h": 3600}


def duration(seconds: float) -> str:
    """The text of a duration: ``42 s``, ``3.0 min``, ``2.5 h``, ``4.1 days``. Days are used from 48 h on."""
    for unit, size, least in (("days", 86400, 47.95 * 3600), ("h", 3600, 59.95 * 60), ("min", 60, 59.5)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def seconds_of(text: str) -> float:
    """Convert a time with a unit to seconds: ``"30m"`` gives ``1800.0``. The units are ``s``, ``m`` and ``h``.

    Raises ``ConfigError`` for any other text.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([smh])", text.strip())
    if not match:
        raise ConfigError(f"--time-limit {short_repr(text)}: expected a number and its unit, such as 90s, 30m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


ForceOption = Annotated[bool, option("Train again jobs that are already stored.", "--force", rare="sweep paper")]


@dataclass(frozen=True)
class Policy:
    """The rules for jobs that are already stored, for jobs that fail, and for jobs that take too long."""

    redo: ForceOption = False
    """True to train every job from its start, even if it is stored. The earlier result stays until the new one replaces
    it."""
    retry: bool = True
    """True to retry jobs that are stored as failed, from their checkpoints."""
    max_failures: Annotated[
        int | None, option("Start no further job after this many have failed.", min=1, rare=EVERY_VERB)
    ] = None
    time_limit: Annotated[
        float | None,
        option(
            "Stop a job after this time, such as 90s, 30m or 2h; it counts as failed. Unfinished jobs of a group "
            "(--group) then resume alone, with the same limit.",
            parser=seconds_of,
            metavar="TIME",
            rare=EVERY_VERB,
        ),
    ] = None
    """Seconds of training after which a job is stopped and stored as failed. Its checkpoint is kept.

    The limit applies to a group as a whole. Its unfinished jobs then train one by one from their checkpoints, each with
    the same limit.
    """

    def __post_init__(self) -> None:
        check_counts(max_failures=self.max_failures)
        if self.time_limit is not None and not self.time_limit > 0:
            raise ConfigError(f"time_limit must be a number of seconds above 0, got {self.time_limit}")

    def reason_to_skip(self, status: Status | None) -> Literal["stored", "failed"] | None:
        """The reason to skip a job whose stored run has this ``status``. None if the job is to be trained.

        ``status`` is None if the job has no stored run. The reason is ``failed`` for a failed run, and otherwise
        ``stored``.
        """
        if self.redo or status is None or (status == "failed" and self.retry):
            return None
        return "failed" if status == "failed" else "stored"

    @property
    def overtime_error(self) -> str:
        """The error message for a job that was stopped because it trained longer than the time limit."""
        return f"stopped after {self._limit}"

    @property
    def late_start_error(self) -> str:
        """The error message for a job whose worker was ended because it did not begin within the time limit."""
        return f"the worker process had not begun to train after {self._limit}"

    @property
    def _limit(self) -> str:
        assert self.time_limit is not None
        limit = f"{self.time_limit / 60:g} min" if self.time_limit % 60 == 0 else f"{self.time_limit:g} s"
        return f"the time limit of {limit}"


@dataclass
class Summary:
    """The number of jobs of a sweep per outcome."""

    finished: int = 0
    diverged: int = 0
    failed: int = 0
    skipped: int = 0
    """Number of jobs that are in the store with a result, or as a failure that is not retried."""
    busy: int = 0
    """Number of jobs that another process trains."""
    left: int = 0
    """Number of jobs that were not started, because ``max_failures`` was reached."""

    def __add__(self, other: Summary) -> Summary:
        return Summary(**{name: value + vars(other)[name] for name, value in vars(self).items()})


class Executor(Protocol):
    """A function that trains groups of jobs with ``train`` and stores their runs.

    Returns the number of jobs per outcome. Jobs that ``policy`` excludes, and jobs that another process trains, are
    skipped. ``on_event`` gets an :class:`Event` when a job is skipped, starts, makes progress or ends.
    """

    def __call__(
        self, groups: Groups, store: Store, train: Train, on_event: OnEvent = ..., policy: Policy = ...
    ) -> Summary: ...


@dataclass(eq=False)
class JobLock:
    """The lock of one job in the store. No other process can train the job until :meth:`close` is called."""

    job: Job
    work: Path
    """The work folder of the job."""
    stack: ExitStack
    result: JobResult | None = None
    """The result of the job that has arrived from the worker. None before."""

    def close(self) -> None:
        self.stack.close()


@dataclass
class Execution:
    """One call of an executor: its store, its policy, and the number of jobs per outcome so far."""

    store: Store
    policy: Policy
    on_event: OnEvent
    summary: Summary = field(default_factory=Summary)

    def jobs_to_train(self, groups: Groups) -> deque[list[Job]]:
        """The groups without the jobs that need no training. Groups that would be empty are left out.

        Jobs that are skipped because the store has them are reported. A job that is in several groups stays in the
        first. The store is read once.
        """
        unique = {job.id: job for group in groups for job in group}
        statuses = {job_id: record.status for job_id, record in self.store.records(unique).items()}

        def is_missing(job: Job) -> bool:
            return bool(unique.pop(job.id, None)) and not self.skip(
                job, self.policy.reason_to_skip(statuses.get(job.id))
            )

        return deque(filter(None, ([job for job in group if is_missing(job)] for group in groups)))

    def lock(self, job: Job) -> JobLock | None:
        """Lock a job in the store and return the lock.

        None if another process trains the job, or if the job has been stored meanwhile. The job is then reported as
        skipped.
        """
        with ExitStack() as stack:
            try:
                work = stack.enter_context(self.store.lock(job, self.policy.redo))
            except StoreBusyError:
                self.skip(job, "busy")
                return None
            if self.skip(job, self.policy.reason_to_skip(self.store.status(job))):
                return None
            return JobLock(job, work, stack.pop_all())

    def skip(self, job: Job, reason: SkipReason | None) -> bool:
        """Report and count a job as skipped, and return True. Do nothing and return False if ``reason`` is None."""
        if reason:
            count = "busy" if reason == "busy" else "skipped"
            setattr(self.summary, count, getattr(self.summary, count) + 1)
            self.report("skipped", job, reason=reason)
        return reason is not None

    def finish(self, job: Job, record: Record, slot: int) -> None:
        setattr(self.summary, record.status, getattr(self.summary, record.status) + 1)
        self.report("failed" if record.status == "failed" else "finished", job, slot=slot, record=record)

    def report(self, kind: EventKind, job: Job, **details: Unpack[EventDetails]) -> None:
        self.on_event({"event": kind, "job": job, **details})


def check_counts(**counts: int | None) -> None:
    """Raise ``ConfigError`` if an argument is below 1, such as ``slots=0``. Arguments that are None are ignored."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")


def worker_environment(threads: int, passive: bool = False) -> dict[str, str]:
    """The environment variables of a training process. They must be set before torch is imported.

    They set its number of threads, and make it keep freed memory instead of returning it to the kernel. If ``passive``
    is true, a thread sleeps while it waits for other threads. By default a waiting thread spins for a while. On a busy
    core, it thus takes time from the threads for which it waits. Variables about memory or waiting that the user has
    set are kept.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # By default glibc returns freed memory to the kernel in every step: a quarter of a small model's training time.
    keep_memory = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
    variables = {name: os.environ.get(name, value) for name, value in keep_memory.items()}
    if passive and threads > 1 and not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        variables["OMP_WAIT_POLICY"] = "PASSIVE"
    return dict.fromkeys(names, str(threads)) | variables


def failure_text(error: BaseException) -> str:
    """The traceback of ``error``.

    Its last line is a short summary, which is added if the traceback does not end with it.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    short = ": ".join([type(error).__name__, *lines[:1]])
    if type(error).__name__ == "OutOfMemoryError":  # torch's message has the whole state of the allocator
        allocation = ". ".join(short.split(". ")[:2]).removesuffix(".")
        short = f"{allocation}; fewer jobs at a time (--slots) or a smaller model need less"
    if len(short) > LONGEST_REASON:
        short = f"{short[: LONGEST_REASON - 3]}..."
    return text if text.splitlines()[-1].endswith(short) else f"{text}\n{short}"


def reason(record: Record) -> str:
    """The last line of the error in a record, which summarizes it. ``no reason given`` if there is none."""
    return (record.error.strip().splitlines() or ["no reason given"])[-1]


def source_checkout() -> Path | None:
    """The folder of the source checkout from which madbench is imported. None if madbench is installed as a package."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").exists() else None
