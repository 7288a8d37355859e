"""The jobs of a sweep on other machines: one driver loop, whatever it is that starts tasks there.

Workers only train (:mod:`madbench.execute.remote_worker`). Their records, and the files that a run keeps, come back to
the driver, which alone writes the store, under the store's claim of the job: of two sweeps at once on one store each
does its own jobs. The driver claims a job when it hands it to the backend, and hands over what the machines can take.

Where the workers see the results folder (``Backend.shares_folder``) a job trains in its own work folder in the store,
and a job that was interrupted goes on from its checkpoint wherever it runs next. Elsewhere it trains in a temporary
folder of the worker's machine, whose checkpoints go with it: an interrupted job begins again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from madbench.errors import StoreError
from madbench.execute.base import OnEvent, Policy, Summary, Train, ignore_event
from madbench.execute.remote_worker import Assignment, Outcome
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import JobBase, Record
from madbench.store.runs import KEEP, Store, StoreBusyError

GRACE = 15.0
"""Seconds beyond its time limit that a job has to stop by itself before its task is cancelled."""
ATTEMPTS = 3
"""How often a job is given to a machine that is lost with it."""
POLL_SECONDS = 1.0


@dataclass(eq=False)
class Task:
    """A job that the driver has claimed and handed to a backend."""

    assignment: Assignment
    work: Path
    """Its work folder, as the driver sees it."""
    claim: ExitStack
    attempt: int = 1
    slot: int | None = None
    """A number for the screen, from when it is known to train."""
    due: float = math.inf
    """When it is cancelled."""

    @property
    def job(self) -> JobBase:
        return self.assignment.job


Kind = Literal["started", "waiting", "progress", "done", "failed", "lost"]
Message = tuple[Task, Kind, Any]
"""``started`` comes before the others, and again after ``waiting``, which says that the task was put back in the queue.
``progress`` comes with the reported dict, ``done`` with an :class:`Outcome`, ``failed`` with why the process of the
task ended without one, and ``lost`` with what became of its machine; these three end the task."""


class Backend(Protocol):
    """What starts tasks on other machines. A task is handed over again, at most ``ATTEMPTS`` times, when it is lost."""

    shares_folder: bool
    """Whether workers see the results folder where the driver sees it."""

    def capacity(self) -> int:
        """Tasks that it takes at a time, now: those that can run, and some to wait for them."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Starts tasks, or queues them."""

    def poll(self, seconds: float) -> Iterable[Message]:
        """What has happened, as soon as anything has, or nothing after ``seconds``."""

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Ends tasks, of which no message comes any more."""


Connect = Callable[[], AbstractContextManager[Backend]]


def run_remotely(
    jobs: Iterable[JobBase],
    store: Store,
    train: Train,
    connect: Connect,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
) -> Summary:
    """Trains the jobs without a result in ``store``, in order, on the machines behind ``connect()``.

    An executor (:mod:`madbench.execute.base`), once ``connect`` is given; it is called when there is anything to do.
    A run that raises, whose process dies or that takes longer than ``policy.time_limit`` is stored as ``failed``. A job
    whose machine is lost is tried again, and stored as ``failed`` when that has happened ``ATTEMPTS`` times.

    On Ctrl-C, on a ``StoreError`` and on any other error, results that have arrived are stored, tasks are cancelled and
    the error is raised. Raises ``StoreError`` where results cannot be written, and where a worker says that it cannot
    train at all: another madbench, no corpus, no GPU, a full disk.
    """
    unique = list({job.id: job for job in jobs}.values())
    missing = {job.id for job in (unique if policy.redo else store.missing(unique))}
    driver = _Driver(store, train, on_event, policy)
    for job in unique:
        status = store.status(job) if job.id in missing and not policy.retry else None
        if reason := "stored" if job.id not in missing else policy.skips(status):
            driver.skip(job, reason)
        else:
            driver.todo.append(job)
    if driver.todo:
        with connect() as backend:
            driver.run(backend)
    return driver.summary


@dataclass
class _Driver:
    """The state of one call of ``run_remotely``."""

    store: Store
    train: Train
    on_event: OnEvent
    policy: Policy
    todo: deque[JobBase] = field(default_factory=deque)
    tasks: list[Task] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)

    def run(self, backend: Backend) -> None:
        try:
            self.hand_over(backend)
            while self.tasks:
                for task, kind, value in backend.poll(POLL_SECONDS):
                    self.handle(backend, task, kind, value)
                for task in [task for task in self.tasks if task.due <= time.monotonic()]:
                    backend.cancel([task])
                    self.finish(task, Outcome(Record("failed", error=self.policy.overtime)))
                if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
                    self.leave_the_rest(backend)
                self.hand_over(backend)
        except BaseException:
            with suppress(StoreError):
                for task, kind, value in backend.poll(0):
                    if task in self.tasks and kind == "done" and value.record:
                        self.save(task, value)
            raise
        finally:
            try:
                backend.cancel(self.tasks)
            finally:
                for task in self.tasks:
                    task.claim.close()

    def hand_over(self, backend: Backend) -> None:
        if not self.todo:
            return
        room = backend.capacity() - len(self.tasks)
        claimed = []
        while self.todo and len(claimed) < room:
            if task := self.claim(self.todo.popleft(), backend):
                claimed.append(task)
        if claimed:
            backend.submit(claimed)

    def claim(self, job: JobBase, backend: Backend) -> Task | None:
        claim = ExitStack()
        try:
            work = claim.enter_context(self.store.claim(job, self.policy.redo, backend.shares_folder)).absolute()
        except StoreBusyError:
            self.skip(job, "busy")
            return None
        if reason := self.policy.skips(self.store.status(job)):
            claim.close()
            self.skip(job, reason)
            return None
        folder = work if backend.shares_folder else None
        task = Task(Assignment(job, self.train, self.policy, folder), work, claim)
        self.tasks.append(task)
        return task

    def handle(self, backend: Backend, task: Task, kind: Kind, value: Any) -> None:
        if kind == "lost":
            self.lose(backend, task, value)
            return
        if task.slot is None:
            self.start(task)
        if kind == "started" and self.policy.time_limit is not None:
            task.due = time.monotonic() + self.policy.time_limit + GRACE
        elif kind == "waiting":
            task.due = math.inf
        elif kind == "progress":
            self.on_event({"event": "progress", "job": task.job, "slot": task.slot, "progress": value})
        elif kind == "failed":
            self.finish(task, Outcome(Record("failed", error=value)))
        elif kind == "done":
            if value.broken:
                raise StoreError(value.broken)
            self.finish(task, value)

    def start(self, task: Task) -> None:
        taken = {other.slot for other in self.tasks}
        task.slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        self.on_event({"event": "started", "job": task.job, "slot": task.slot})

    def lose(self, backend: Backend, task: Task, reason: str) -> None:
        if task.attempt == ATTEMPTS:
            if task.slot is None:
                self.start(task)
            self.finish(task, Outcome(Record("failed", error=f"lost {ATTEMPTS} times, at last: {reason}")))
            return
        task.attempt += 1
        task.due = math.inf
        backend.submit([task])

    def finish(self, task: Task, outcome: Outcome) -> None:
        self.save(task, outcome)
        record = outcome.record
        setattr(self.summary, record.status, getattr(self.summary, record.status) + 1)
        event = "failed" if record.status == "failed" else "finished"
        self.on_event({"event": event, "job": task.job, "slot": task.slot, "record": record})

    def save(self, task: Task, outcome: Outcome) -> None:
        for name, content in outcome.files.items():
            path = task.work / KEEP / name
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        self.store.finish(task.job, outcome.record, replace=self.policy.redo)
        self.release(task)

    def leave_the_rest(self, backend: Backend) -> None:
        """Starts nothing more: jobs that are training end, those that wait for a machine are left."""
        waiting = [task for task in self.tasks if task.slot is None]
        backend.cancel(waiting)
        for task in waiting:
            self.release(task)
        self.summary.left += len(waiting) + len(self.todo)
        self.todo.clear()

    def release(self, task: Task) -> None:
        self.tasks.remove(task)
        task.claim.close()

    def skip(self, job: JobBase, reason: str) -> None:
        if reason == "busy":
            self.summary.busy += 1
        else:
            self.summary.skipped += 1
        self.on_event({"event": "skipped", "job": job, "reason": reason})
