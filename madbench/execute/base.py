"""The common interface of executors: they take groups of jobs, store runs and report events, on any machines.

A group is a sequence of jobs that train together, in one call of ``train``. An :class:`Executor` trains the jobs
selected by ``policy``, in order, each at most once, and stores each result immediately. Jobs that are already stored or
in training elsewhere are left out of their group. ``on_event`` gets an :class:`Event` for each job.

A worker (:func:`work`) is a process that trains one group and knows neither store nor driver.
"""

from __future__ import annotations

import math
import os
import pickle
import platform
import re
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack

from madbench._version import __version__
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.files import explain_os_errors
from madbench.identity.scripts import importing_scripts
from madbench.jobs import KEEP, Job, Record, Report, Status, StopTraining
from madbench.labels import trust
from madbench.store.runs import Store, StoreBusyError

EventKind = Literal["skipped", "started", "progress", "finished", "failed"]
Skipped = Literal["stored", "failed", "busy"]
"""Why a job is skipped: it has a result, it failed and is not retried, or another process is training it."""


class EventDetails(TypedDict, total=False):
    """The fields of an event that depend on its kind."""

    reason: Skipped  # of ``skipped``
    slot: int  # of every kind but ``skipped``
    progress: dict[str, Any]  # of ``progress``: what the training loop reported
    record: Record  # of ``finished`` and ``failed``


class Event(EventDetails):
    """A step of a job in a sweep. A diverged run is ``finished``."""

    event: EventKind
    job: Job


OnEvent = Callable[[Event], None]
Groups = Sequence[Sequence[Job]]
Train = Callable[[Sequence[Job], Sequence[Path], Report], list[Record]]
"""``train(jobs, works, report)``: a picklable function that returns one record per job. ``works`` are their folders.

If it raises an error, the jobs of the group are trained one by one, except the jobs that it has already ended by a call
of ``report.ended``. A ``failed`` record concerns only its own job.
"""
Send = Callable[[str, dict[str, Any]], None]  # a progress report by the id of its job; may raise ``StopTraining``
Files = Mapping[str, bytes]  # files of a run, by path
HandIn = Callable[[str, Record, Files], None]
"""A function that gets the id, record and files of a job that ended before its group (see :class:`WorkerResult`).
"""
LONGEST_REASON = 200  # characters of the last line of a stored error


def ignore_event(event: Event) -> None:
    """An ``on_event`` that shows nothing."""


@dataclass(frozen=True)
class Listener:
    """An ``on_event`` that also receives sentences for the user.

    The sentences tell the number of jobs at a time, their threads, and the reason of delays.
    """

    on_event: OnEvent
    announce: Callable[[str], object]

    def __call__(self, event: Event) -> None:
        self.on_event(event)


@dataclass(frozen=True)
class Policy:
    """The policy for stored results, failures and runs that take too long."""

    redo: bool = False  # train every job from its start; its earlier result stays until the new one replaces it
    retry: bool = True  # retry jobs that are stored as failed, from their checkpoints
    max_failures: int | None = None  # failures after which no further job starts
    time_limit: float | None = None
    """Seconds after which a job is stopped and stored as failed, with its checkpoint.

    Unfinished jobs of a group then resume alone, with the same limit.
    """

    def __post_init__(self) -> None:
        check_counts(max_failures=self.max_failures)
        if self.time_limit is not None and not self.time_limit > 0:
            raise ConfigError(f"time_limit must be a number of seconds above 0, got {self.time_limit}")

    def skips(self, status: Status | None) -> Literal["stored", "failed"] | None:
        """The reason why a job with this status in the store is skipped; None if it is to be trained."""
        if self.redo or status is None or (status == "failed" and self.retry):
            return None
        return "failed" if status == "failed" else "stored"

    @property
    def overtime(self) -> str:
        """The error text of jobs stopped at the time limit."""
        return f"stopped after {self._limit}"

    @property
    def never_began(self) -> str:
        """The error text of jobs whose worker was killed at the time limit before it trained anything."""
        return f"the worker process had not begun to train after {self._limit}"

    @property
    def _limit(self) -> str:
        assert self.time_limit is not None
        limit = f"{self.time_limit / 60:g} min" if self.time_limit % 60 == 0 else f"{self.time_limit:g} s"
        return f"the time limit of {limit}"


@dataclass
class Summary:
    """The numbers of jobs by outcome."""

    finished: int = 0
    diverged: int = 0
    failed: int = 0
    skipped: int = 0  # already in the store, with a result or as a failure that is not retried
    busy: int = 0  # in training by another process
    left: int = 0  # not started, because ``max_failures`` was reached

    def __add__(self, other: Summary) -> Summary:
        return Summary(**{name: value + vars(other)[name] for name, value in vars(self).items()})


class Executor(Protocol):
    """A function that trains jobs on some machines (see above)."""

    def __call__(
        self, groups: Groups, store: Store, train: Train, on_event: OnEvent = ..., policy: Policy = ...
    ) -> Summary: ...


@dataclass(eq=False)
class JobLock:
    """A job claimed by this process. No other process may train it until the lock is closed."""

    job: Job
    work: Path  # its work folder
    lock: ExitStack
    result: tuple[Record, Files] | None = None  # its result while it is being stored

    def close(self) -> None:
        self.lock.close()


@dataclass
class Execution:
    """One call of an executor: its store, its policy, and the outcomes of its jobs."""

    store: Store
    policy: Policy
    on_event: OnEvent
    summary: Summary = field(default_factory=Summary)

    def missing(self, groups: Groups) -> deque[list[Job]]:
        """The groups, from which skipped and repeated jobs are removed. The store is read once."""
        unique = {job.id: job for group in groups for job in group}
        statuses = {job_id: record.status for job_id, record in self.store.records(unique).items()}

        def is_missing(job: Job) -> bool:
            return bool(unique.pop(job.id, None)) and not self.skip(job, self.policy.skips(statuses.get(job.id)))

        return deque(filter(None, ([job for job in group if is_missing(job)] for group in groups)))

    def claim(self, job: Job) -> JobLock | None:
        """Claim a job. None, with a report, if another process trains it or it needs no training."""
        with ExitStack() as lock:
            try:
                work = lock.enter_context(self.store.claim(job, self.policy.redo))
            except StoreBusyError:
                self.skip(job, "busy")
                return None
            if self.skip(job, self.policy.skips(self.store.status(job))):
                return None
            return JobLock(job, work, lock.pop_all())

    def skip(self, job: Job, reason: Skipped | None) -> bool:
        """Report and count the job as skipped if there is a reason. True if it is skipped."""
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
    """Raise ``ConfigError`` for a number below 1."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")


def worker_environment(threads: int, passive: bool = False) -> dict[str, str]:
    """The environment of a training process. It must be set before torch is imported.

    With ``passive``, threads sleep while they wait for each other. By default they spin for a while, and on a busy core
    this blocks the thread that they wait for.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # By default glibc returns freed memory to the kernel in every step: a quarter of a small model's training time.
    keep_memory = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
    chosen = {name: os.environ.get(name, value) for name, value in keep_memory.items()}
    if passive and threads > 1 and not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        chosen["OMP_WAIT_POLICY"] = "PASSIVE"
    return dict.fromkeys(names, str(threads)) | chosen


def failure_text(error: BaseException) -> str:
    """The traceback of ``error``. Its last line is a short summary, which is added if necessary."""
    text = "".join(traceback.format_exception(error)).rstrip()
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    short = ": ".join([type(error).__name__, *said[:1]])
    if type(error).__name__ == "OutOfMemoryError":  # torch's message has the whole state of the allocator
        wanted = ". ".join(short.split(". ")[:2]).removesuffix(".")
        short = f"{wanted}; fewer jobs at a time (--slots) or a smaller model need less"
    if len(short) > LONGEST_REASON:
        short = f"{short[: LONGEST_REASON - 3]}..."
    return text if text.splitlines()[-1].endswith(short) else f"{text}\n{short}"


def reason(record: Record) -> str:
    """The last line of a record's error."""
    return (record.error.strip().splitlines() or ["no reason given"])[-1]


@dataclass(frozen=True)
class Assignment:
    """The input of a worker for one group."""

    jobs: Sequence[Job]
    train: Train
    policy: Policy
    works: Sequence[Path] | None
    """The jobs' work folders, if the worker sees them; None for temporary folders on the worker's machine."""
    importable: Sequence[str] = ()
    """The labels whose code the worker may import (:mod:`madbench.labels.trust`)."""

    def pack(self) -> Packed:
        return __version__, pickle.dumps(self)


Packed = tuple[str, bytes]
"""The driver's version and an assignment as bytes. A worker compares versions before it unpacks the assignment."""


@dataclass(frozen=True)
class WorkerResult:
    """The result of a worker for one group."""

    records: Sequence[Record | None] = ()  # one per job, None if it did not end; or empty
    files: Sequence[Files] = ()  # files of each run; empty if the driver sees the work folders
    error: str = ""  # why a job has no record; the worker is then replaced
    broken: str = ""
    """The fault of the worker or its disk. It concerns every job, so the driver ends the sweep with this message."""


def source_checkout() -> Path | None:
    """The folder of the source checkout that madbench is imported from; None if it is installed."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").exists() else None


def work(assignment: Assignment, send: Send, hand_in: HandIn | None = None) -> WorkerResult:
    """Train a group. Raises ``StopTraining`` from ``send``.

    After an error, the unfinished jobs of a group are trained one by one, from their checkpoints. If a job fails again
    and the process may be unsound (out of memory, lost GPU), the job gets no record: another process has to train it.
    ``hand_in`` gets the records of jobs that end before their group.
    """
    jobs, limit = assignment.jobs, assignment.policy.time_limit
    deadline = math.inf if limit is None else time.monotonic() + limit
    ended: dict[str, Record] = {}
    error = broken = ""

    def files_of(job: Job) -> Files:
        return _files(works[job.id] / KEEP) if assignment.works is None and job.id in ended else {}

    def progress(job: Job, news: dict[str, Any]) -> None:
        send(job.id, news)
        if time.monotonic() >= deadline:
            raise StopTraining

    def end(job: Job, record: Record) -> None:
        ended[job.id] = record
        if hand_in is not None:
            hand_in(job.id, record, files_of(job))

    def train(group: Sequence[Job]) -> tuple[list[Record], str]:
        """Return the records, or the reason why there are none.

        The error is freed here, together with the memory it holds.
        """
        try:
            records = assignment.train(group, [works[job.id] for job in group], Report(progress, end))
        except (StoreError, StopTraining, KeyboardInterrupt):
            raise
        except BaseException as problem:  # mixers of other packages may raise anything, even SystemExit
            text = failure_text(problem)
            is_of_job = len(group) == 1 and not (len(jobs) > 1 and _leaves_unsound(problem))
            return [Record("failed", error=text)] if is_of_job else [], text
        if len(records) != len(group):
            fault = f"train gave {len(records)} records for {len(group)} jobs"
            records = [Record("failed", error=fault)] * len(group)
        return records, ""

    with ExitStack() as stack:
        stack.enter_context(trust.allow_only(assignment.importable))
        stack.enter_context(importing_scripts())
        try:
            works = _work_folders(assignment, stack)
            records, error = train(jobs)
            ended.update(zip([job.id for job in jobs], records))
            for job in [job for job in jobs if job.id not in ended]:
                for record in train([job])[0]:
                    end(job, record)
        except StopTraining:
            if time.monotonic() < deadline:
                raise
            error = assignment.policy.overtime
        except StoreError as problem:
            broken = str(problem)
        except Exception as problem:
            error = failure_text(problem)
        return WorkerResult([ended.get(job.id) for job in jobs], [files_of(job) for job in jobs], error, broken)


def _leaves_unsound(error: BaseException) -> bool:
    """True if a process may be unable to train anything after this error."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_OF_PROCESS.search(str(error))))


_OF_PROCESS = re.compile("memory|CUDA")  # torch has no special exception for CPU memory, and not always one for a GPU


def _work_folders(assignment: Assignment, stack: ExitStack) -> dict[str, Path]:
    """A folder for each job, by its id. Temporary folders are removed when ``stack`` is closed."""
    ids = [job.id for job in assignment.jobs]
    if assignment.works is None:
        with explain_os_errors(Path(tempfile.gettempdir())):
            temporary = tempfile.TemporaryDirectory(prefix="madbench-", ignore_cleanup_errors=True)
            root = Path(stack.enter_context(temporary))
            for job_id in ids:
                (root / job_id).mkdir()
        return {job_id: root / job_id for job_id in ids}
    for folder in assignment.works:
        if not folder.is_dir():
            raise StoreError(f"{folder}: not found; the results folder must be on a disk that all workers see")
    return dict(zip(ids, assignment.works))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def work_remotely(
    packed: tuple[str, Any],
    send: Send,
    needs_gpu: bool = False,
    hand_in: HandIn | None = None,
    unpack: Callable[[Any], Assignment] = pickle.loads,
) -> WorkerResult:
    """Unpack and train a group on another machine.

    If the machine cannot train, ``broken`` in the result has its name and the reason. ``packed`` is a pair of the
    driver's version and the input of ``unpack``, which returns the assignment.
    """
    version, content = packed
    try:
        if version != __version__:
            versions = f"has madbench {__version__}, and the driver has {version}"
            raise StoreError(f"{versions}; install the same version on all machines")
        if needs_gpu:
            import torch

            if not torch.cuda.is_available():
                visible = f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
                raise StoreError(f"torch {torch.__version__} finds no CUDA device there ({visible})")
        outcome = work(unpack(content), send, hand_in)
    except ImportError as error:  # an error of unpacking; an error of training gives a failed record
        outcome = WorkerResult(broken=f"cannot import the training function: {error}")
    except MadbenchError as error:
        outcome = WorkerResult(broken=str(error))
    return replace(outcome, broken=f"worker {platform.node()}: {outcome.broken}") if outcome.broken else outcome


def now_and_then(seconds: float, pass_on: Callable[[dict[str, dict[str, Any]]], None]) -> Send:
    """Return a ``send`` that calls ``pass_on`` with new progress by job id, at most once in ``seconds``."""
    last = -math.inf
    news: dict[str, dict[str, Any]] = {}

    def send(job_id: str, progress: dict[str, Any]) -> None:
        nonlocal last, news
        news[job_id] = progress
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            pass_on(news)
            news = {}

    return send
