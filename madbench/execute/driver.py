"""The driver of a sweep: one loop that hands groups of jobs to workers and stores their results, for every backend.

Workers only train (:mod:`madbench.execute.worker`). They return records and files to the driver, and only the driver
writes the store. It locks each job in the store, so that two sweeps on one store train different jobs. It locks the
jobs of a group when it hands the group to the backend, and hands over no more groups than the machines can take.

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
from typing import Any, Literal

from madbench.errors import StoreError
from madbench.execute.base import (
    Execution,
    Files,
    Groups,
    JobLock,
    Listener,
    OnEvent,
    Policy,
    Summary,
    Train,
    ignore_event,
)
from madbench.execute.worker import Assignment
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import KEEP, Job, Record
from madbench.labels.trust import importable
from madbench.store.runs import Store

GRACE = 15.0  # seconds after its time limit in which a group may stop by itself before it is cancelled
START_GRACE = 15.0  # seconds after the time limit in which a worker may begin: importing torch takes a while
ATTEMPTS = 3  # how often a task is started if its process is killed or its machine is lost
POLL_SECONDS = 1.0
OPEN_FILES = 1 << 16  # open files of the driver, if the system allows that many


@dataclass(eq=False)
class Task:
    """A group of locked jobs that the driver hands to a backend. One worker trains it."""

    locks: list[JobLock]  # locks of the jobs that are not stored yet
    given: Assignment | None = None  # the worker's assignment at the last attempt
    attempt: int = 1
    slot: int | None = None  # number that the screen shows, set once a worker has begun
    due: float = math.inf  # time of cancellation, on the monotonic clock
    is_training: bool = False  # True if the worker has begun, at this attempt
    is_told: bool = False  # True if the start of its jobs was reported
    drop_results: Callable[[], None] = lambda: None  # deletes the backend's copy of the results once they are stored

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs that the worker was given at the last attempt. Before the first attempt, the locked jobs."""
        return self.given.jobs if self.given else [lock.job for lock in self.locks]

    @property
    def assignment(self) -> Assignment:
        """The worker's input at the last attempt. The task must have been submitted."""
        assert self.given is not None
        return self.given


Kind = Literal["note", "starting", "started", "waiting", "progress", "record", "done", "failed", "lost", "late"]
Told = tuple[Kind, Any]
"""The kind and the value of a message (:data:`Message`)."""
Message = tuple[Task, Kind, Any]
"""A message of a backend to the driver: a task, the kind of message, and a value that depends on the kind.

- ``note``: a sentence for the user. The task can be any.
- ``starting``: the task only waits until its worker has started.
- ``started``: the worker has begun. The value is the slot's number, or None if the driver chooses one.
- ``waiting``: the task is in the queue again.
- ``progress``: the pair of a job's id and the dict that the job reported.
- ``record``: a job's id, its record and its files, sent before the rest of the group has ended.

Four kinds end the task:

- ``done``: the worker's :class:`madbench.execute.worker.WorkerResult`.
- ``failed``: the reason why the worker ended without a result.
- ``lost``: the reason why the worker was ended from outside, such as a lack of memory or a dead machine.
- ``late``: the worker has not begun in time. The driver sends this kind to itself.
"""


class Backend(ABC):
    """The base class of backends. A backend starts workers for tasks and passes their messages to the driver.

    The driver submits a lost task again, so that it is tried at most ``ATTEMPTS`` times.
    """

    shares_folder = True  # True if workers see the results folder at the same path
    slots = 1

    def capacity(self) -> int:
        """The number of tasks that the backend takes at present, including tasks that wait for a free machine."""
        return self.slots

    @abstractmethod
    def submit(self, tasks: Sequence[Task]) -> None:
        """Start or queue the tasks."""

    @abstractmethod
    def poll(self, seconds: float) -> Iterator[Message]:
        """Yield new messages as soon as there are any. Yield nothing if none arrive within ``seconds``."""

    def last_messages(self) -> Iterator[Message]:
        """Yield the last messages before the sweep ends early. Workers may first get time to write checkpoints."""
        return self.poll(0)

    @abstractmethod
    def cancel(self, tasks: Iterable[Task]) -> None:
        """End the workers of the tasks. No more messages about these tasks arrive."""


def drive(
    groups: Groups,
    store: Store,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    connect: Callable[[Store], AbstractContextManager[Backend]],
) -> Summary:
    """Train the jobs without a result in ``store``, in order, with the workers of a backend.

    With ``connect`` bound to a value, this function is an executor (:mod:`madbench.execute.base`). ``connect(store)``
    opens the backend, and is called only if there are jobs to train.

    A job is stored as ``failed`` if it raises an error, if its process dies, or if it takes longer than
    ``policy.time_limit``. If this happens to a group, its unfinished jobs are trained one by one, from their
    checkpoints. A group or job is tried again, at most ``ATTEMPTS`` times, if its process is killed from outside or its
    machine is lost. With a time limit, it is also tried again if its process on this machine has not begun to train in
    time.

    On Ctrl-C and on any error, results that have arrived are stored, tasks are cancelled and the error is raised.
    Raises ``StoreError`` if results cannot be written, or if a worker cannot train at all: another version of madbench,
    no corpus, no GPU, a full disk.
    """
    driver = _Driver(store, policy, on_event)
    if todo := driver.missing(groups):
        # a locked job is an open file; the usual limit is 1,024
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(usual, min(most, OPEN_FILES)), most))
        with connect(store) as backend:
            driver.run(train, backend, todo)
    return driver.summary


class _Driver(Execution):
    """One call of :func:`drive`: its tasks, and the groups that are not handed over yet."""

    def run(self, train: Train, backend: Backend, todo: deque[list[Job]]) -> None:
        """Train the groups ``todo`` on the backend.

        Each round handles new messages, cancels overdue tasks, and hands over as many groups as the backend takes. A
        task that is overdue and has begun to train has failed. A task that has not begun in time is ``late``, and may
        be tried again.

        On any error, results that have arrived are stored and the error is raised again. In every case, the remaining
        tasks are cancelled and their jobs are unlocked.
        """
        self.train, self.backend, self.todo = train, backend, todo
        self.tasks: list[Task] = []  # tasks handed to the backend
        self.apart: deque[Task] = deque()  # jobs of failed groups, which are still locked
        try:
            self.hand_over()
            while self.tasks:
                for message in self.backend.poll(POLL_SECONDS):
                    self.handle(*message)
                for task in [task for task in self.tasks if task.due <= time.monotonic()]:
                    self.backend.cancel([task])
                    if task.is_training:
                        self.fail(task, self.policy.overtime)
                    else:
                        self.handle(task, "late", self.policy.never_began)
                self.hand_over()
        except BaseException:
            self.store_arrived()
            for task, kind, value in self.backend.last_messages():
                if task in self.tasks and self.take_records(task, kind, value):
                    self.store_arrived()
                    if kind == "done" and not task.locks:
                        self.tasks.remove(task)
            raise
        finally:
            try:
                self.backend.cancel(self.tasks)
            finally:
                for task in [*self.tasks, *self.apart]:
                    self.release(task)

    def hand_over(self) -> None:
        """Lock as many groups as the backend takes, and submit them.

        After ``policy.max_failures`` failures, waiting tasks are cancelled and no more groups are submitted.
        """
        if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
            waiting = [task for task in self.tasks if task.slot is None]
            self.backend.cancel(waiting)
            self.tasks = [task for task in self.tasks if task not in waiting]
            for task in [*waiting, *self.apart]:
                self.summary.left += len(task.locks)
                self.release(task)
            self.summary.left += sum(map(len, self.todo))
            self.todo.clear()
            self.apart.clear()
        room = self.backend.capacity() - len(self.tasks) if self.todo or self.apart else 0
        ready: list[Task] = []
        while (self.todo or self.apart) and len(ready) < room:
            task = self.apart.popleft() if self.apart else Task([])
            self.tasks.append(task)
            for job in [] if task.locks else self.todo.popleft():
                if lock := self.lock(job):
                    task.locks.append(lock)
            if task.locks:
                ready.append(task)
            else:
                self.tasks.remove(task)
        self.submit(ready)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit tasks to the backend, with an assignment for the jobs of each task that are not stored yet."""
        for task in tasks:
            jobs, works = zip(*((lock.job, lock.work.absolute()) for lock in task.locks))
            folders = works if self.backend.shares_folder else None
            code = importable({job.label for job in jobs})
            task.given = Assignment(jobs, self.train, self.policy, folders, code)
            task.is_training, task.due = False, math.inf
        if tasks:
            self.backend.submit(tasks)

    def limit_from_now(self, grace: float) -> float:
        return math.inf if self.policy.time_limit is None else time.monotonic() + self.policy.time_limit + grace

    def handle(self, task: Task, kind: Kind, value: Any) -> None:
        """Handle one message of the backend (:data:`Message`).

        A task that is lost or late is submitted again, up to ``ATTEMPTS`` attempts. When a worker begins, its task gets
        a slot, and its jobs are reported as started. Records are stored at once. If a worker fails, its task is ended
        by :meth:`fail`.

        Raises ``StoreError`` if the worker's machine cannot train at all.
        """
        if kind == "note":
            if isinstance(self.on_event, Listener):
                self.on_event.announce(value)
            return
        if kind in ("lost", "late") and task.attempt < ATTEMPTS and task.locks:
            task.attempt += 1
            self.submit([task])
            return
        if kind == "starting":
            task.due = self.limit_from_now(START_GRACE)
            return
        if task.slot is None:
            taken = {other.slot for other in self.tasks}
            free = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            task.slot = free if kind != "started" or value is None else value
            for job in () if task.is_told else task.jobs:
                self.report("started", job, slot=task.slot)
            task.is_told = True
        if kind == "waiting":
            task.is_training, task.due = False, math.inf
        elif kind in ("started", "progress") and not task.is_training:
            task.is_training, task.due = True, self.limit_from_now(GRACE)
        if kind == "progress":
            job_id, progress = value
            job = next(job for job in task.jobs if job.id == job_id)
            self.report("progress", job, slot=task.slot, progress=progress)
        elif kind in ("failed", "lost", "late"):
            how_often = "" if kind == "failed" else f"killed or lost {ATTEMPTS} times, at last: "
            self.fail(task, f"{how_often}{value}", has_begun=kind != "late")
        elif kind in ("record", "done"):
            for lock in self.take_records(task, kind, value):
                self.end(task, lock)
            if kind == "done" and value.broken:
                raise StoreError(value.broken)
            if kind == "done" and task.locks:
                self.fail(task, value.error)
            elif kind == "done":
                task.drop_results()
                self.tasks.remove(task)

    def take_records(self, task: Task, kind: Kind, value: Any) -> list[JobLock]:
        """Attach the records in a message to their jobs. Return the locks of the jobs that got a record.

        Only messages of kind ``record`` and ``done`` have records. Records of jobs that are already stored are ignored.
        """
        arrived: dict[str, tuple[Record, Files]] = {}
        if kind == "record":
            job_id, record, files = value
            arrived[job_id] = record, files
        elif kind == "done":
            ended = zip(task.jobs, value.records, value.files)
            arrived = {job.id: (record, files) for job, record, files in ended if record}
        locks = [lock for lock in task.locks if lock.job.id in arrived]
        for lock in locks:
            lock.result = arrived[lock.job.id]
        return locks

    def end(self, task: Task, lock: JobLock) -> None:
        """Store the result of a job that has ended, and report it."""
        record = self.store_result(task, lock)
        assert task.slot is not None  # set at its first message
        self.finish(lock.job, record, task.slot)

    def fail(self, task: Task, error: str, has_begun: bool = True) -> None:
        """End a task whose worker stopped with an error.

        The jobs of a group are trained one by one later. A single job is stored as failed. If the worker stopped before
        it began to train (``has_begun`` is False), no job is the cause, and all jobs of the task are stored as failed.
        """
        if len(task.jobs) > 1 and has_begun:
            self.apart += [Task([lock], is_told=task.is_told) for lock in task.locks]
            task.drop_results()
        else:
            for lock in list(task.locks):
                lock.result = Record("failed", error=error), {}
                self.end(task, lock)
        self.tasks.remove(task)

    def store_arrived(self) -> None:
        """Store the results that have arrived but are not stored yet. Errors of the store are ignored."""
        for task in self.tasks:
            for lock in [lock for lock in task.locks if lock.result]:
                with suppress(StoreError):
                    self.store_result(task, lock)

    def store_result(self, task: Task, lock: JobLock) -> Record:
        """Store the record of a job and the files of its run, unlock the job, and return the record."""
        assert lock.result is not None
        record, files = lock.result
        for name, content in files.items():
            path = lock.work / KEEP / name
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        self.store.finish(lock.job, record, replace=self.policy.redo)
        task.locks.remove(lock)
        if not task.locks:
            task.drop_results()
        lock.close()
        return record

    def release(self, task: Task) -> None:
        """Unlock the jobs of a task."""
        for lock in task.locks:
            lock.close()
