"""The driver of a sweep: one loop, whatever it is that starts workers.

Workers only train (:mod:`madbench.execute.base`). Their records, and the files of their runs, come back to the driver,
which alone writes the store, under the store's claim of each job: of two sweeps at once on one store each trains its
own jobs. The driver claims a group when it hands it to the backend, and hands over no more than the machines can take.

A record is stored when its job has ended, whatever becomes of the rest of its group. A group that fails as a whole is
taken apart: those of its jobs that have not ended are trained alone, each in a sound process, so that only the job that
is to blame fails.

Where workers see the results folder (``Backend.shares_folder``) a job trains in its own work folder in the store, and
an interrupted job resumes from its checkpoint wherever it runs next. Elsewhere it trains in a temporary folder of the
worker's machine, which is lost with it: an interrupted job begins again.
"""

from __future__ import annotations

import math
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from madbench.errors import StoreError
from madbench.execute.base import (
    Assignment,
    Claim,
    Execution,
    Groups,
    Listener,
    OnEvent,
    Policy,
    Summary,
    Train,
    ignore_event,
)
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import KEEP, Job, Record
from madbench.mixers.my.sources import importable
from madbench.store.runs import Store

GRACE = 15.0  # seconds beyond its time limit that a group has to stop by itself before its task is cancelled
START_GRACE = 15.0  # seconds beyond the time limit that a worker has to begin: importing torch takes a while
ATTEMPTS = 3  # how often a task is begun whose process is killed or whose machine is lost
POLL_SECONDS = 1.0
OPEN_FILES = 1 << 16  # that the driver may have at a time, where the system lets it


@dataclass(eq=False)
class Task:
    """A group of jobs that the driver has claimed and hands to a backend, for one worker."""

    claims: list[Claim]  # of the jobs that are not stored yet
    assignment: Assignment | None = None  # what the worker was handed, at the last attempt
    attempt: int = 1
    slot: int | None = None  # a number for the screen, from when it is known to train
    due: float = math.inf  # when it is cancelled, on the monotonic clock
    is_training: bool = False  # whether the worker has begun, at this attempt
    is_told: bool = False  # whether the start of its jobs was told
    drop_results: Callable[[], None] = lambda: None  # of the backend, which keeps what could be lost until it is stored

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs that the worker was handed."""
        return self.assignment.jobs if self.assignment else [claim.job for claim in self.claims]


Kind = Literal["note", "starting", "started", "waiting", "progress", "record", "done", "failed", "lost", "late"]
Message = tuple[Task, Kind, Any]
"""``note`` comes with a sentence for the user, whatever its task. ``starting`` comes where the task waits for nothing
but its worker to come up, ``started`` with a slot or None, ``progress`` with a job's id and the reported dict,
``record`` with a job's id, its record and the files of its run, before the rest of its group has ended, and ``waiting``
when the task is back in the queue. ``done`` comes with an
:class:`madbench.execute.base.Outcome`, ``failed`` with why the worker ended without one, ``lost`` with how it was ended
from outside, as where memory is short or its machine dies; these three end the task, as does ``late``, the driver's
own, for a worker that has not begun in time."""


class Backend:
    """What starts workers. A task that is lost is submitted again, in all ``ATTEMPTS`` times."""

    shares_folder = True  # whether workers see the results folder where the driver sees it
    slots = 1

    def capacity(self) -> int:
        """Tasks that it takes at a time, now: those that can run, and some to wait for them."""
        return self.slots

    def submit(self, tasks: Sequence[Task]) -> None:
        """Starts tasks, or queues them."""

    def poll(self, seconds: float) -> Iterator[Message]:
        """What has happened, as soon as anything has, or nothing after ``seconds``."""

    def last_messages(self) -> Iterator[Message]:
        """What has happened, when the sweep is about to end early; workers may be given time to save their state."""
        return self.poll(0)

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Ends tasks, of which no message comes any more."""


def drive(
    groups: Groups,
    store: Store,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    connect: Callable[[Store], AbstractContextManager[Backend]],
) -> Summary:
    """Trains the jobs without a result in ``store``, in order, with the workers behind ``connect(store)``.

    An executor (:mod:`madbench.execute.base`), once ``connect`` is given; it is called when there is anything to do.
    A job that raises, whose process dies or that takes longer than ``policy.time_limit`` is stored as ``failed``; of a
    group the jobs that have not ended then are trained alone first, from their checkpoints. A group or job whose
    process is killed from outside or whose machine is lost is tried again, ``ATTEMPTS`` times in all, and so is one
    whose process on this machine hangs before it begins to train, where there is a time limit.

    On Ctrl-C, on a ``StoreError`` and on any other error, results that have arrived are stored, tasks are cancelled and
    the error is raised. Raises ``StoreError`` if results cannot be written, and where a worker reports that it
    cannot train at all: another version of madbench, no corpus, no GPU, a full disk.
    """
    driver = _Driver(store, policy, on_event)
    if todo := driver.missing(groups):
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a claimed job is an open file; 1,024 are usual
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(usual, min(most, OPEN_FILES)), most))
        with connect(store) as backend:
            driver.run(train, backend, todo)
    return driver.summary


class _Driver(Execution):
    """One call of ``drive``."""

    def run(self, train: Train, backend: Backend, todo: deque[list[Job]]) -> None:
        self.train, self.backend, self.todo = train, backend, todo
        self.tasks: list[Task] = []  # with the backend
        self.apart: deque[Task] = deque()  # jobs whose group has failed, claimed as they were
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
                    if kind == "done" and not task.claims:
                        self.tasks.remove(task)
            raise
        finally:
            try:
                self.backend.cancel(self.tasks)
            finally:
                for task in [*self.tasks, *self.apart]:
                    self.release(task)

    def hand_over(self) -> None:
        """Claims and submits as many groups as the backend takes, or none more after too many failures."""
        if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
            waiting = [task for task in self.tasks if task.slot is None]
            self.backend.cancel(waiting)
            self.tasks = [task for task in self.tasks if task not in waiting]
            for task in [*waiting, *self.apart]:
                self.summary.left += len(task.claims)
                self.release(task)
            self.summary.left += sum(map(len, self.todo))
            self.todo.clear()
            self.apart.clear()
        room = self.backend.capacity() - len(self.tasks) if self.todo or self.apart else 0
        ready: list[Task] = []
        while (self.todo or self.apart) and len(ready) < room:
            task = self.apart.popleft() if self.apart else Task([])
            self.tasks.append(task)
            for job in [] if task.claims else self.todo.popleft():
                if claim := self.claim(job):
                    task.claims.append(claim)
            if task.claims:
                ready.append(task)
            else:
                self.tasks.remove(task)
        self.submit(ready)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Hands the jobs of tasks that are not stored yet to the backend."""
        for task in tasks:
            jobs, works = zip(*((claim.job, claim.work.absolute()) for claim in task.claims))
            folders = works if self.backend.shares_folder else None
            code = importable({job.label for job in jobs})
            task.assignment = Assignment(jobs, self.train, self.policy, folders, code)
            task.is_training, task.due = False, math.inf
        if tasks:
            self.backend.submit(tasks)

    def limit_from_now(self, grace: float) -> float:
        return math.inf if self.policy.time_limit is None else time.monotonic() + self.policy.time_limit + grace

    def handle(self, task: Task, kind: Kind, value: Any) -> None:
        if kind == "note":
            if isinstance(self.on_event, Listener):
                self.on_event.announce(value)
            return
        if kind in ("lost", "late") and task.attempt < ATTEMPTS and task.claims:
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
            for claim in self.take_records(task, kind, value):
                self.end(task, claim)
            if kind == "done" and value.broken:
                raise StoreError(value.broken)
            if kind == "done" and task.claims:
                self.fail(task, value.error)
            elif kind == "done":
                task.drop_results()
                self.tasks.remove(task)

    def take_records(self, task: Task, kind: Kind, value: Any) -> list[Claim]:
        """Remembers what arrived of jobs that are not stored yet; gives these."""
        arrived = {}
        if kind == "record":
            job_id, record, files = value
            arrived[job_id] = record, files
        elif kind == "done":
            arrived = {job.id: result for job, *result in zip(task.jobs, value.records, value.files) if result[0]}
        claims = [claim for claim in task.claims if claim.job.id in arrived]
        for claim in claims:
            claim.result = arrived[claim.job.id]
        return claims

    def end(self, task: Task, claim: Claim) -> None:
        """Stores and tells the result of a job."""
        self.store_result(task, claim)
        self.finish(claim.job, claim.result[0], task.slot)

    def fail(self, task: Task, error: str, has_begun: bool = True) -> None:
        """Ends a task whose worker gave no more: a job alone has failed, those of a group are trained alone.

        Of a group that has not begun no job is to blame, and all have failed.
        """
        if len(task.jobs) > 1 and has_begun:
            self.apart += [Task([claim], is_told=task.is_told) for claim in task.claims]
            task.drop_results()
        else:
            for claim in list(task.claims):
                claim.result = Record("failed", error=error), {}
                self.end(task, claim)
        self.tasks.remove(task)

    def store_arrived(self) -> None:
        """Stores the results that have arrived and are not stored yet, as far as that is possible."""
        for task in self.tasks:
            for claim in [claim for claim in task.claims if claim.result]:
                with suppress(StoreError):
                    self.store_result(task, claim)

    def store_result(self, task: Task, claim: Claim) -> None:
        """Stores the record of a job with the files of its run, and frees the job."""
        record, files = claim.result
        for name, content in files.items():
            path = claim.work / KEEP / name
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        self.store.finish(claim.job, record, replace=self.policy.redo)
        task.claims.remove(claim)
        if not task.claims:
            task.drop_results()
        claim.close()

    def release(self, task: Task) -> None:
        """Frees the jobs of a task for others."""
        for claim in task.claims:
            claim.close()
