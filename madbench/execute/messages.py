"""The messages about a group of jobs that the driver of a sweep handles.

The worker that trains the group, or the backend, sends them. Only :class:`WorkerLate` is made by the driver itself.

:class:`WorkerResult`, :class:`WorkerFailed`, :class:`WorkerLost` and :class:`WorkerLate` end an attempt to train the
group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from madbench.jobs import Progress, Record

Files = Mapping[str, bytes]  # files of a run, by path


@dataclass(frozen=True)
class WorkerStarting:
    """The message that a group has a slot, and that its worker process is about to start."""


@dataclass(frozen=True)
class WorkerStarted:
    """The message that a worker has begun to train a group."""

    slot: int | None = None
    """Number of the slot, which the screen shows. If None, the driver chooses one."""


@dataclass(frozen=True)
class GroupRequeued:
    """The message that a group waits in the backend's queue again, for example because Slurm has requeued its job."""


@dataclass(frozen=True)
class JobProgress:
    """The progress of one job in training."""

    job_id: str
    progress: Progress


@dataclass(frozen=True)
class JobResult:
    """The result of one job that ended before the rest of its group."""

    job_id: str
    record: Record
    files: Files = field(default_factory=dict)
    """Files of the run: path in its folder to content. Empty if the driver sees the work folders, which have them."""


@dataclass(frozen=True)
class WorkerResult:
    """The result of an attempt to train a group: records and files of its jobs."""

    records: Sequence[Record | None] = ()
    """One record per job, in the order of the group. None for a job that did not end. Empty if the worker could not
    train."""
    files: Sequence[Files] = ()
    """Files of each run, in the order of :attr:`records`. Empty if the driver sees the work folders with the files."""
    error: str = ""
    """The reason why a job has no record. Empty if all jobs have one. After an error, a new process replaces the worker
    if it is on this machine."""
    broken: str = ""
    """A fault of the worker's machine, such as a full disk. It would affect every job, so the driver ends the sweep
    with this message.
    """


@dataclass(frozen=True)
class WorkerFailed:
    """The message that a worker has ended without a result, for the given reason."""

    reason: str


@dataclass(frozen=True)
class WorkerLost:
    """The message that a worker was ended from outside, for example because memory ran out or its machine died."""

    reason: str


@dataclass(frozen=True)
class WorkerLate:
    """The message that a worker has not begun to train within the time limit.

    The driver makes it and ends the worker.
    """

    reason: str


Ending = WorkerResult | WorkerFailed | WorkerLost
"""The last message of an attempt to train a group. After :class:`WorkerLost` the group may be submitted again."""
Message = WorkerStarting | WorkerStarted | GroupRequeued | JobProgress | JobResult | Ending | WorkerLate
