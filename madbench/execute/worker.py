"""The code of a worker, a process that trains groups of jobs.

For each group, a worker gets an :class:`Assignment` and returns a ``WorkerResult`` (:mod:`madbench.execute.messages`).
It accesses neither the store nor the driver.
"""

from __future__ import annotations

import math
import os
import pickle
import platform
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from madbench._version import __version__
from madbench.errors import MadbenchError, StoreError
from madbench.execute.base import Policy, Train, failure_text
from madbench.execute.messages import Files, JobResult, WorkerResult
from madbench.execute.products import with_products
from madbench.files import explain_os_errors
from madbench.identity.scripts import importing_scripts
from madbench.jobs import KEEP, Job, Progress, Record, StopTraining, TrainingCallbacks
from madbench.labels import trust

Send = Callable[[str, Progress], None]  # a progress report by the id of its job; may raise ``StopTraining``
HandIn = Callable[[JobResult], None]  # called when a job ends before the rest of its group


@dataclass(frozen=True)
class Assignment:
    """The input of a worker: a group of jobs, and how to train them."""

    jobs: Sequence[Job]
    train: Train
    policy: Policy
    works: Sequence[Path] | None
    """The work folders of the jobs, in the same order. None if the worker does not see them: it then makes temporary
    folders on its machine."""
    importable_labels: Sequence[str] = ()
    """The labels whose code the worker may import (:mod:`madbench.labels.trust`)."""

    def pack(self) -> PackedAssignment:
        return __version__, pickle.dumps(self)


PackedAssignment = tuple[str, bytes]
"""The driver's version of madbench, and a pickled :class:`Assignment`. The worker compares the versions before it
unpickles.
"""


def work(assignment: Assignment, send: Send, hand_in: HandIn | None = None) -> WorkerResult:
    """Train the group of an assignment in this process, and return its records and files.

    ``send`` is called with the id and the progress of a job. If it raises ``StopTraining``, so does this function.
    ``hand_in`` gets the result of each job that ends before the rest of the group.

    After an error, the unfinished jobs of a group are trained one by one, from their checkpoints. A job that then fails
    gets a record with status ``failed``, with one exception. If the group has several jobs and the error may have
    damaged the process (out of memory, lost GPU), the job gets no record, and another process has to train it. Jobs
    that are unfinished at the time limit, or at a ``StoreError``, get no record either. The result's ``error`` or
    ``broken`` has the reason.
    """
    jobs, limit = assignment.jobs, assignment.policy.time_limit
    deadline = math.inf if limit is None else time.monotonic() + limit
    records_by_id: dict[str, Record] = {}
    error = broken = ""

    def files_of(job: Job) -> Files:
        return _files(works[job.id] / KEEP) if assignment.works is None and job.id in records_by_id else {}

    def progress(job: Job, news: Progress) -> None:
        send(job.id, news)
        if time.monotonic() >= deadline:
            raise StopTraining

    def end(job: Job, record: Record) -> None:
        record = records_by_id[job.id] = with_products(record)
        if hand_in is not None:
            hand_in(JobResult(job.id, record, files_of(job)))

    def train(group: Sequence[Job]) -> tuple[list[Record], str]:
        """Train ``group``, all jobs of the assignment or one of them. Return its records and an empty text.

        After an error, return no records and the error's text. A single job gets a record ``failed`` instead, unless
        the assignment has several jobs and the error may have damaged the process. All jobs get a record ``failed`` if
        the training function returns a wrong number of records. No exception is kept, because it would also keep
        tensors in memory.
        """
        try:
            records = assignment.train(group, [works[job.id] for job in group], TrainingCallbacks(progress, end))
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
        stack.enter_context(trust.allow_only(assignment.importable_labels))
        stack.enter_context(importing_scripts())
        try:
            works = _work_folders(assignment, stack)
            records, error = train(jobs)
            records_by_id.update(zip([job.id for job in jobs], map(with_products, records)))
            for job in [job for job in jobs if job.id not in records_by_id]:
                for record in train([job])[0]:
                    end(job, record)
        except StopTraining:
            if time.monotonic() < deadline:
                raise
            error = assignment.policy.overtime_error
        except StoreError as problem:
            broken = str(problem)
        except Exception as problem:
            error = failure_text(problem)
        return WorkerResult([records_by_id.get(job.id) for job in jobs], [files_of(job) for job in jobs], error, broken)


def _leaves_unsound(error: BaseException) -> bool:
    """True if this process may be unable to train any further job after the error: no memory, or a fault of the GPU."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_OF_PROCESS.search(str(error))))


_OF_PROCESS = re.compile("out of memory|not enough memory|allocate memory|bad_alloc|CUDA", re.IGNORECASE)
"""Matches the messages of errors that may leave the process unable to train: no memory, or an error of the GPU.

torch has no exception class of its own for CPU memory, and not always one for a GPU. The word "memory" alone does not
match, because a mixer may use it in another sense, such as "memory slots".
"""


def _work_folders(assignment: Assignment, stack: ExitStack) -> dict[str, Path]:
    """The work folder of each job, by job id. Temporary folders are removed when ``stack`` is closed.

    Raises ``StoreError`` if a work folder in the store is missing on this machine.
    """
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
    """Unpack an assignment and train its group, on a machine other than the driver's.

    ``packed`` has the driver's version of madbench, and the object that ``unpack`` turns into the assignment. ``send``
    and ``hand_in`` are the arguments of :func:`work`. ``needs_gpu`` is True if the jobs need a GPU. If this
    machine cannot train, ``broken`` of the result has the machine's name and the reason, such as another version of
    madbench or no GPU.
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


def throttle(seconds: float, pass_on: Callable[[dict[str, Progress]], None]) -> Send:
    """Return a :data:`Send` function that collects progress, and calls ``pass_on`` at most once per ``seconds``.

    ``pass_on`` gets the last progress of each job since its previous call, by job id.
    """
    last = -math.inf
    news: dict[str, Progress] = {}

    def send(job_id: str, progress: Progress) -> None:
        nonlocal last, news
        news[job_id] = progress
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            pass_on(news)
            news = {}

    return send
