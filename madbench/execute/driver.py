"""The driver of a sweep: one loop that hands groups of jobs to workers and stores their results, for every backend.

Workers only train (:mod:`madbench.execute.worker`). They return records and files to the driver, and only the driver
writes the store. The driver locks each job in the store, so that two sweeps on one store train different jobs. It locks
the jobs of a group when it hands the group to the backend, and hands over no more groups than the machines can take.

A record is stored when its job has ended, even if the rest of its group fails. If the worker of a group fails, the
group's unfinished jobs are trained one by one. Then only the job that caused the failure fails.

If workers see the results folder (``Backend.shares_folder``), a job trains in its work folder in the store, and an
interrupted job resumes from its checkpoint on any worker. Otherwise a job trains in a temporary folder of the worker's
machine, and an interrupted job begins again.
"""

from __future__ import annotations

import math
import resource
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from madbench.errors import StoreError
from madbench.execute.base import (
    Execution,
    Groups,
    JobLock,
    Listener,
    OnEvent,
    Policy,
    Summary,
    Train,
    ignore_event,
)
from madbench.execute.messages import (
    GroupRequeued,
    JobProgress,
    JobResult,
    Message,
    WorkerFailed,
    WorkerLate,
    WorkerLost,
    WorkerResult,
    WorkerStarted,
    WorkerStarting,
)
from madbench.execute.worker import Assignment
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import KEEP, Job, Record
from madbench.labels.trust import importable_labels
from madbench.store.runs import Store

GRACE = 15.0  # seconds after its time limit in which a group may stop by itself before it is cancelled
START_GRACE = 15.0  # seconds after the time limit in which a worker may begin: importing torch takes a while
ATTEMPTS = 3  # how often a group is started if its process is killed or its machine is lost
POLL_SECONDS = 1.0
OPEN_FILES = 1 << 16  # open files of the driver, if the system allows that many


@dataclass(eq=False)
class LockedGroup:
    """A group of jobs that the driver has locked and hands to a backend. One worker trains it at a time."""

    locks: list[JobLock]
    """Locks of the jobs that are not stored yet."""
    last_assignment: Assignment | None = None
    """The input of the worker at the last attempt. None before the first attempt."""
    attempt: int = 1
    slot: int | None = None
    """Number of the slot, which the screen shows. None until a worker has begun."""
    due: float = math.inf
    """Time on the monotonic clock at which the time limit is over and the group is cancelled. Infinite if no limit."""
    is_training: bool = False
    """True if the worker of the present attempt has begun to train."""
    is_start_reported: bool = False
    """True if the jobs of the group have been reported as started."""
    drop_results: Callable[[], None] = lambda: None
    """Function that deletes the backend's copy of the results. It is called once they are stored."""

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs that were assigned at the last attempt. Before the first attempt, the jobs that are locked."""
        return self.last_assignment.jobs if self.last_assignment else [lock.job for lock in self.locks]

    @property
    def assignment(self) -> Assignment:
        """The input of the worker at the last attempt. Only available after the group was submitted."""
        assert self.last_assignment is not None
        return self.last_assignment


class Backend(ABC):
    """The base class of backends. A backend starts workers for groups and passes their messages to the driver.

    A backend does not retry. If the worker of a group is lost, the driver submits the group again, for at most
    ``ATTEMPTS`` attempts in all.
    """

    shares_folder = True  # True if workers see the results folder at the same path
    slots = 1

    def capacity(self) -> int:
        """The number of groups that the backend can hold now: those in training, and those that wait for a machine."""
        return self.slots

    @abstractmethod
    def submit(self, groups: Sequence[LockedGroup]) -> None:
        """Start training the groups, or queue them."""

    @abstractmethod
    def poll(self, seconds: float) -> Iterator[tuple[LockedGroup, Message]]:
        """Wait up to ``seconds`` for messages of workers.

        Yield each message with its group, or nothing if none arrive.
        """

    def take_notes(self) -> list[str]:
        """Return the sentences for the user that were added since the last call."""
        return []

    def last_messages(self) -> Iterator[tuple[LockedGroup, Message]]:
        """Yield the last messages before the sweep ends early. Workers may first get time to write checkpoints."""
        return self.poll(0)

    @abstractmethod
    def cancel(self, groups: Iterable[LockedGroup]) -> None:
        """End the workers of the groups. :meth:`poll` yields no more messages about these groups."""


def drive(
    groups: Groups,
    store: Store,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    connect: Callable[[Store], AbstractContextManager[Backend]],
) -> Summary:
    """Train the jobs of ``groups`` that have no result in ``store``, in order, with the workers of a backend.

    ``connect(store)`` opens the backend. It is called only if there are jobs to train. A partial of this function with
    ``connect`` set is an executor (:mod:`madbench.execute.base`).

    A job is stored as ``failed`` if it raises an error, if its process dies, or if it takes longer than
    ``policy.time_limit``. If this happens to a group of several jobs, its unfinished jobs are trained one by one, from
    their checkpoints. A group is tried again, for at most ``ATTEMPTS`` attempts, if its process is killed from outside
    or its machine is lost. With a time limit, a group on this machine is also tried again if its process has not begun
    to train in time.

    On Ctrl-C and on any error, results that have arrived are stored, groups are cancelled and the error is raised.
    Raises ``StoreError`` if results cannot be written, or if a worker cannot train at all: another version of madbench,
    no corpus, no GPU, a full disk.
    """
    driver = _Driver(store, policy, on_event)
    if todo := driver.jobs_to_train(groups):
        # a locked job is an open file; the usual limit is 1,024
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(usual, min(most, OPEN_FILES)), most))
        with connect(store) as backend:
            driver.run(train, backend, todo)
    return driver.summary


class _Driver(Execution):
    """One call of :func:`drive`. It holds the groups that the backend has, and those that are still to hand over."""

    def run(self, train: Train, backend: Backend, todo: deque[list[Job]]) -> None:
        """Train the groups ``todo`` on the backend.

        Each round handles new messages, cancels overdue groups, and hands over as many groups as the backend takes. An
        overdue group that has begun to train has failed. An overdue group that has not begun may be tried again
        (``WorkerLate``).

        On any error, results that have arrived are stored and the error is raised again. In every case, the remaining
        groups are cancelled and their jobs are unlocked.
        """
        self.train, self.backend, self.todo = train, backend, todo
        self.groups: list[LockedGroup] = []  # groups handed to the backend
        self.split_groups: deque[LockedGroup] = deque()  # jobs of failed groups, which are still locked
        try:
            self.hand_over()
            while self.groups:
                for group, message in self.backend.poll(POLL_SECONDS):
                    self.handle(group, message)
                if isinstance(self.on_event, Listener):
                    for note in self.backend.take_notes():
                        self.on_event.announce(note)
                for group in [group for group in self.groups if group.due <= time.monotonic()]:
                    self.backend.cancel([group])
                    if group.is_training:
                        self.fail(group, self.policy.overtime_error)
                    else:
                        self.handle(group, WorkerLate(self.policy.late_start_error))
                self.hand_over()
        except BaseException:
            self.store_arrived()
            for group, message in self.backend.last_messages():
                if group in self.groups and self.take_records(group, message):
                    self.store_arrived()
                    if isinstance(message, WorkerResult) and not group.locks:
                        self.groups.remove(group)
            raise
        finally:
            try:
                self.backend.cancel(self.groups)
            finally:
                for group in [*self.groups, *self.split_groups]:
                    self.release(group)

    def hand_over(self) -> None:
        """Lock as many of the remaining groups as the backend takes, and submit them.

        After ``policy.max_failures`` failures, groups that have not begun are cancelled and no more groups are
        submitted.
        """
        if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
            waiting = [group for group in self.groups if group.slot is None]
            self.backend.cancel(waiting)
            self.groups = [group for group in self.groups if group not in waiting]
            for group in [*waiting, *self.split_groups]:
                self.summary.left += len(group.locks)
                self.release(group)
            self.summary.left += sum(map(len, self.todo))
            self.todo.clear()
            self.split_groups.clear()
        room = self.backend.capacity() - len(self.groups) if self.todo or self.split_groups else 0
        ready: list[LockedGroup] = []
        while (self.todo or self.split_groups) and len(ready) < room:
            group = self.split_groups.popleft() if self.split_groups else LockedGroup([])
            self.groups.append(group)
            for job in [] if group.locks else self.todo.popleft():
                if lock := self.lock(job):
                    group.locks.append(lock)
            if group.locks:
                ready.append(group)
            else:
                self.groups.remove(group)
        self.submit(ready)

    def submit(self, groups: Sequence[LockedGroup]) -> None:
        """Submit groups to the backend. The assignment of a group has the jobs of the group that are not stored yet."""
        for group in groups:
            jobs, works = zip(*((lock.job, lock.work.absolute()) for lock in group.locks))
            folders = works if self.backend.shares_folder else None
            code = importable_labels({job.label for job in jobs})
            group.last_assignment = Assignment(jobs, self.train, self.policy, folders, code)
            group.is_training, group.due = False, math.inf
        if groups:
            self.backend.submit(groups)

    def limit_from_now(self, grace: float) -> float:
        return math.inf if self.policy.time_limit is None else time.monotonic() + self.policy.time_limit + grace

    def handle(self, group: LockedGroup, message: Message) -> None:
        """Handle one message of the backend about a group (:mod:`madbench.execute.messages`).

        A group whose worker is lost or late is submitted again, up to ``ATTEMPTS`` attempts. When a worker begins, its
        group gets a slot, and its jobs are reported as started. Records are stored at once. If a worker fails,
        :meth:`fail` ends the group.

        Raises ``StoreError`` if the worker's machine cannot train at all.
        """
        if isinstance(message, WorkerLost | WorkerLate) and group.attempt < ATTEMPTS and group.locks:
            group.attempt += 1
            self.submit([group])
            return
        if isinstance(message, WorkerStarting):
            group.due = self.limit_from_now(START_GRACE)
            return
        if group.slot is None:
            group.slot = self.begin(group, message.slot if isinstance(message, WorkerStarted) else None)
        if isinstance(message, WorkerStarted | JobProgress) and not group.is_training:
            group.is_training, group.due = True, self.limit_from_now(GRACE)
        match message:
            case WorkerStarted():
                pass  # nothing else follows from it
            case GroupRequeued():
                group.is_training, group.due = False, math.inf
            case JobProgress(job_id, progress):
                job = next(job for job in group.jobs if job.id == job_id)
                self.report("progress", job, slot=group.slot, progress=progress)
            case WorkerFailed(reason):
                self.fail(group, reason)
            case WorkerLost(reason) | WorkerLate(reason):
                error = f"killed or lost {ATTEMPTS} times, at last: {reason}"
                self.fail(group, error, has_begun=isinstance(message, WorkerLost))
            case JobResult():
                self.end_jobs(group, message)
            case WorkerResult():
                self.end_jobs(group, message)
                if message.broken:
                    raise StoreError(message.broken)
                if group.locks:
                    self.fail(group, message.error)
                else:
                    group.drop_results()
                    self.groups.remove(group)

    def begin(self, group: LockedGroup, slot: int | None) -> int:
        """Report the jobs of a group as started in a slot, unless they were reported before. Return the slot.

        If ``slot`` is None, the lowest free number is used.
        """
        if slot is None:
            used_slots = {other.slot for other in self.groups}
            slot = next(number for number in range(len(used_slots) + 1) if number not in used_slots)
        for job in () if group.is_start_reported else group.jobs:
            self.report("started", job, slot=slot)
        group.is_start_reported = True
        return slot

    def take_records(self, group: LockedGroup, message: Message) -> list[JobLock]:
        """Attach each record in a message to the lock of its job. Return the locks that got a record.

        Records of jobs that are already stored are ignored. A message without records attaches nothing.
        """
        results: list[JobResult] = []
        if isinstance(message, JobResult):
            results = [message]
        elif isinstance(message, WorkerResult):
            by_job = zip(group.jobs, message.records, message.files)
            results = [JobResult(job.id, record, files) for job, record, files in by_job if record]
        by_id = {result.job_id: result for result in results}
        locks = [lock for lock in group.locks if lock.job.id in by_id]
        for lock in locks:
            lock.result = by_id[lock.job.id]
        return locks

    def end_jobs(self, group: LockedGroup, message: JobResult | WorkerResult) -> None:
        """Store and report each job of a group whose record is in the message."""
        for lock in self.take_records(group, message):
            self.end(group, lock)

    def end(self, group: LockedGroup, lock: JobLock) -> None:
        """Store the result of one job of a group, unlock the job, and report it as finished.

        ``lock`` is the lock of the job. Its field ``result`` must be set.
        """
        record = self.store_result(group, lock)
        assert group.slot is not None  # set at its first message
        self.finish(lock.job, record, group.slot)

    def fail(self, group: LockedGroup, error: str, has_begun: bool = True) -> None:
        """End a group whose worker stopped with an error.

        If the group has several jobs, its unfinished jobs are trained one by one later. A single job is stored as
        failed. If the worker stopped before it began to train (``has_begun`` is False), no job is the cause, and all
        jobs of the group are stored as failed.
        """
        if len(group.jobs) > 1 and has_begun:
            self.split_groups += [
                LockedGroup([lock], is_start_reported=group.is_start_reported) for lock in group.locks
            ]
            group.drop_results()
        else:
            for lock in list(group.locks):
                lock.result = JobResult(lock.job.id, Record("failed", error=error))
                self.end(group, lock)
        self.groups.remove(group)

    def store_arrived(self) -> None:
        """Store the results that have arrived from workers and are not stored yet. Errors of the store are ignored.

        These are the results that :meth:`take_records` attached to locks.
        """
        for group in self.groups:
            for lock in [lock for lock in group.locks if lock.result]:
                with suppress(StoreError):
                    self.store_result(group, lock)

    def store_result(self, group: LockedGroup, lock: JobLock) -> Record:
        """Store the record of a job and the files of its run, and unlock the job. Return the record."""
        assert lock.result is not None
        record = lock.result.record
        for name, content in lock.result.files.items():
            path = lock.work / KEEP / name
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        self.store.finish(lock.job, record, replace=self.policy.redo)
        group.locks.remove(lock)
        if not group.locks:
            group.drop_results()
        lock.close()
        return record

    def release(self, group: LockedGroup) -> None:
        for lock in group.locks:
            lock.close()
