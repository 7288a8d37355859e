"""The messages that the driver of a sweep handles about a group of jobs.

The group's worker and the backend send them. Only :class:`WorkerLate` is made by the driver itself.

:class:`WorkerResult`, :class:`WorkerFailed`, :class:`WorkerLost` and :class:`WorkerLate` end the group's attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from madbench.jobs import Record

Files = Mapping[str, bytes]  # files of a run, by path


@dataclass(frozen=True)
class WorkerStarting:
    """The group has a slot, and its worker process is about to start."""


@dataclass(frozen=True)
class WorkerStarted:
    """The worker has begun to train the group."""

    slot: int | None = None
    """Number that the screen shows. None if the driver chooses one."""


@dataclass(frozen=True)
class GroupRequeued:
    """The group waits in the queue of the backend again, for example because a cluster has requeued its job."""


@dataclass(frozen=True)
class JobProgress:
    """The progress of one job."""

    job_id: str
    progress: dict[str, Any]
    """The dict that the training loop reported."""


@dataclass(frozen=True)
class JobResult:
    """The result of one job, sent before the rest of its group has ended."""

    job_id: str
    record: Record
    files: Files = field(default_factory=dict)
    """Files of the run. Empty if the driver sees the work folders."""


@dataclass(frozen=True)
class WorkerResult:
    """The result of a worker: records and files of the jobs of its group."""

    records: Sequence[Record | None] = ()
    """One record per job, or None for a job that did not end. Empty if the worker could not train."""
    files: Sequence[Files] = ()
    """Files of each run. Empty if the driver sees the work folders."""
    error: str = ""
    """The reason why a job has no record. The worker is then replaced."""
    broken: str = ""
    """A fault of the worker's machine, such as a full disk. It would affect every job, so the driver ends the sweep
    with this message.
    """


@dataclass(frozen=True)
class WorkerFailed:
    """The worker has ended without a result."""

    reason: str


@dataclass(frozen=True)
class WorkerLost:
    """The worker was ended from outside, for example for lack of memory or because its machine is dead."""

    reason: str


@dataclass(frozen=True)
class WorkerLate:
    """The worker has not begun in time. The driver itself makes this message."""

    reason: str


Ending = WorkerResult | WorkerFailed | WorkerLost
"""The last message of an attempt to train a group. After :class:`WorkerLost` the group may be submitted again."""
Message = WorkerStarting | WorkerStarted | GroupRequeued | JobProgress | JobResult | Ending | WorkerLate
