"""The driver of a sweep: one loop, whatever it is that starts workers.

Workers only train (:mod:`madbench.execute.base`). Their records, and the files of their runs, come back to the driver,
which alone writes the store, under the store's claim of each job: of two sweeps at once on one store each trains its
own jobs. The driver claims a group when it hands it to the backend, and hands over no more than the machines can take.

Where workers see the results folder (``Backend.shares_folder``) a job trains in its own work folder in the store, and
an interrupted job resumes from its checkpoint wherever it runs next. Elsewhere it trains in a temporary folder of the
worker's machine, which is lost with it: an interrupted job begins again.
"""

from __future__ import annotations

import itertools
import math
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from madbench.errors import StoreError
from madbench.execute.base import Assignment, Execution, Groups, OnEvent, Outcome, Policy, Summary, Train, ignore_event
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import KEEP, Job
from madbench.store.runs import Store

GRACE = 15.0  # seconds beyond its time limit that a group has to stop by itself before its task is cancelled
ATTEMPTS = 3  # how often a group is trained whose process is killed or whose machine is lost
POLL_SECONDS = 1.0
OPEN_FILES = 1 << 16  # that the driver may have at a time, where the system lets it


@dataclass(eq=False)
class Task:
    """A group of jobs that the driver has claimed and handed to a backend, for one worker."""

    assignment: Assignment
    works: Sequence[Path]  # the jobs' work folders, as the driver sees them
    claims: ExitStack
    attempt: int = 1
    slot: int | None = None  # a number for the screen, from when it is known to train
    due: float = math.inf  # when it is cancelled, on the monotonic clock
    outcome: Outcome | None = None  # what it gave, while that is being stored
    stored: int = 0  # how many of its jobs are stored
    when_stored: Callable[[], None] | None = None  # the backend drops what it has of it, which still is claimed

    @property
    def jobs(self) -> Sequence[Job]:
        return self.assignment.jobs


Kind = Literal["started", "waiting", "progress", "done", "failed", "lost"]
Message = tuple[Task, Kind, Any]
"""``started`` comes with a slot or None, ``progress`` with a job's id and the reported dict, and ``waiting`` when the
task is back in the queue. ``done`` comes with an :class:`Outcome`, ``failed`` with why the worker ended without one,
``lost`` with how it was ended from outside, as where memory is short or its machine dies; these three end the task."""


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
    The jobs of a group that raises, whose process dies or that takes longer than ``policy.time_limit`` are stored as
    ``failed``. A group whose process is killed from outside or whose machine is lost is tried again, from its
    checkpoints, and fails when that has happened ``ATTEMPTS`` times.

    On Ctrl-C, on a ``StoreError`` and on any other error, results that have arrived are stored, tasks are cancelled and
    the error is raised. Raises ``StoreError`` where results cannot be written, and where a worker reports that it
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
        self.train, self.backend, self.todo, self.tasks = train, backend, todo, []
        try:
            self.hand_over()
            while self.tasks:
                for message in self.backend.poll(POLL_SECONDS):
                    self.handle(*message)
                for task in [task for task in self.tasks if task.due <= time.monotonic()]:
                    self.backend.cancel([task])
                    self.end(task, Outcome.failure(task.jobs, self.policy.overtime))
                self.hand_over()
        except BaseException:
            arrived = [(task, "done", task.outcome) for task in self.tasks if task.outcome]
            for task, kind, value in itertools.chain(arrived, self.backend.last_messages()):
                if task in self.tasks and kind == "done" and not value.broken:
                    with suppress(StoreError):
                        self.save(task, value)
            raise
        finally:
            try:
                self.backend.cancel(self.tasks)
            finally:
                for task in self.tasks:
                    task.claims.close()

    def hand_over(self) -> None:
        """Claims and submits as many groups as the backend takes, or none more after too many failures."""
        if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
            waiting = [task for task in self.tasks if task.slot is None]
            self.backend.cancel(waiting)
            for task in waiting:
                self.release(task)
            self.summary.left += sum(map(len, [*(task.jobs for task in waiting), *self.todo]))
            self.todo.clear()
        room = self.backend.capacity() - len(self.tasks) if self.todo else 0
        claimed: list[Task] = []
        while self.todo and len(claimed) < room:
            with ExitStack() as claims:
                jobs, works = self.claim(self.todo.popleft(), claims)
                if jobs:
                    works = [work.absolute() for work in works]
                    folders = works if self.backend.shares_folder else None
                    claimed.append(Task(Assignment(jobs, self.train, self.policy, folders), works, claims.pop_all()))
                    self.tasks.append(claimed[-1])
        if claimed:
            self.backend.submit(claimed)

    def handle(self, task: Task, kind: Kind, value: Any) -> None:
        if kind == "lost" and task.attempt < ATTEMPTS:
            task.attempt, task.due = task.attempt + 1, math.inf
            self.backend.submit([task])
            return
        if task.slot is None:
            taken = {other.slot for other in self.tasks}
            free = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            task.slot = free if kind != "started" or value is None else value
            for job in task.jobs:
                self.tell("started", job, slot=task.slot)
        if kind == "waiting":
            task.due = math.inf
        elif kind in ("started", "progress") and task.due == math.inf and self.policy.time_limit is not None:
            task.due = time.monotonic() + self.policy.time_limit + GRACE
        if kind == "progress":
            job_id, progress = value
            job = next(job for job in task.jobs if job.id == job_id)
            self.tell("progress", job, slot=task.slot, progress=progress)
        elif kind in ("failed", "lost"):
            how_often = f"killed or lost {ATTEMPTS} times, at last: " if kind == "lost" else ""
            self.end(task, Outcome.failure(task.jobs, f"{how_often}{value}"))
        elif kind == "done":
            if value.broken:
                raise StoreError(value.broken)
            self.end(task, value)

    def end(self, task: Task, outcome: Outcome) -> None:
        self.save(task, outcome)
        for job, record in zip(task.jobs, outcome.records):
            self.finish(job, record, task.slot)

    def save(self, task: Task, outcome: Outcome) -> None:
        """Stores the records of a task that are not stored yet, with the files of their runs; frees its jobs."""
        task.outcome, all_files = outcome, outcome.files or itertools.repeat({})
        results = zip(task.jobs, task.works, outcome.records, all_files)
        for job, work, record, files in itertools.islice(results, task.stored, None):
            for name, content in files.items():
                path = work / KEEP / name
                with explain_os_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)
            self.store.finish(job, record, replace=self.policy.redo)
            task.stored += 1
        if task.when_stored:
            task.when_stored()
        self.release(task)

    def release(self, task: Task) -> None:
        self.tasks.remove(task)
        task.claims.close()
