"""The jobs of a sweep on this machine: a process a slot, pinned to its threads and device before torch is imported."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from typing import Any

from madbench.errors import ConfigError, StoreError, TrainingError
from madbench.execute.base import OnEvent, Policy, Summary, Train, ignore_event, minutes_or_seconds, worker_environment
from madbench.execute.worker_process import WorkerProcess
from madbench.jobs import JobBase, Record
from madbench.store.runs import Store, StoreBusyError

GRACE = 5.0
"""Seconds a training run has to stop by itself before its process is killed."""
START_LIMIT = 600.0
"""Seconds in which a process must be ready, and again in which a job must begin: imports from a network disk last."""

_START_ATTEMPTS = 3


def run_jobs(
    jobs: Iterable[JobBase],
    store: Store,
    train: Train,
    slots: int = 1,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    threads_per_slot: int = 1,
    devices: Sequence[str] | None = None,
) -> Summary:
    """Trains the jobs without a result in ``store``, in order, ``slots`` at a time; each result is stored at once.

    An executor (:mod:`madbench.execute.base`). ``train(job, work_folder, report) -> Record`` runs in processes of its
    own and must be picklable. A run that raises, whose process dies, or that takes longer than ``policy.time_limit`` is
    stored as ``failed``, and the others go on.
    Slot i sees the GPU ``devices[i % len(devices)]`` only (a value of ``CUDA_VISIBLE_DEVICES``).

    On Ctrl-C, on a ``StoreError`` and on any other error the runs in progress are stopped, keep their checkpoints, and
    the error is raised; a second Ctrl-C kills them at once. Workers never outlive this process, however it ends.
    Raises ``StoreError`` where results cannot be written and ``TrainingError`` where no worker process starts.
    """
    for name, value in {"slots": slots, "threads_per_slot": threads_per_slot}.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    unique = {job.id: job for job in jobs}
    missing = set(unique) if policy.redo else {job.id for job in store.missing(unique.values())}
    sweep = _Sweep(deque(), store, train, on_event, policy, threads_per_slot, devices)
    for job_id, job in unique.items():
        if job_id not in missing:
            sweep.skip(job, "stored")
        elif not policy.retry and policy.skips(store.status(job)):
            sweep.skip(job, "failed")
        else:
            sweep.todo.append(job)
    try:
        sweep.run(slots)
    finally:
        sweep.stop()
    return sweep.summary


@dataclass
class _Sweep:
    """The state of one call of ``run_jobs``."""

    todo: deque[JobBase]
    store: Store
    train: Train
    on_event: OnEvent
    policy: Policy
    threads_per_slot: int
    devices: Sequence[str] | None
    summary: Summary = field(default_factory=Summary)
    workers: list[WorkerProcess] = field(default_factory=list)
    failed_starts: int = 0

    def run(self, slots: int) -> None:
        for slot in range(min(slots, len(self.todo))):
            self.start(slot)
        while self.workers:
            due = min(worker.deadline for worker in self.workers)
            patience = None if due == math.inf else max(0.0, due - time.monotonic())
            readable = connection.wait([worker.pipe for worker in self.workers], patience)
            for worker in [worker for worker in self.workers if worker.pipe in readable]:
                message = worker.receive()
                if message is None:
                    self.bury(worker)
                else:
                    self.handle(worker, *message)
            for worker in [worker for worker in self.workers if worker.deadline <= time.monotonic()]:
                self.hurry(worker)

    def start(self, slot: int) -> None:
        environment = worker_environment(self.threads_per_slot)
        if self.devices:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices[slot % len(self.devices)]
        resource_tracker.ensure_running()  # spawn needs it, and starting it unblocks SIGINT
        worker = WorkerProcess(slot, self.store, self.train, self.policy, environment)
        worker.is_due_in(START_LIMIT)
        self.workers.append(worker)

    def handle(self, worker: WorkerProcess, kind: str, value: Any) -> None:
        if kind == "ready":
            worker.is_ready = True
            self.failed_starts = 0
            self.assign(worker)
        elif kind == "started":
            worker.is_training = True
            worker.is_due_in(self.policy.time_limit)
            self.on_event({"event": "started", "job": worker.job, "slot": worker.slot})
        elif kind == "progress":
            self.on_event({"event": "progress", "job": worker.job, "slot": worker.slot, "progress": value})
        elif kind == "broken":
            raise StoreError(value)
        else:
            job, worker.job, worker.is_training = worker.job, None, False
            if kind == "skipped":
                self.skip(job, value)
            else:
                self.count(job, value, worker.slot)
            if worker.overdue or kind != "skipped" and value.status == "failed":
                worker.is_due_in(GRACE)  # it ends, and another takes its slot
            else:
                self.assign(worker)

    def assign(self, worker: WorkerProcess) -> None:
        job = self.todo.popleft() if self.todo else None
        worker.give(job)
        worker.is_due_in(START_LIMIT if job else GRACE)

    def hurry(self, worker: WorkerProcess) -> None:
        """Stops a worker whose answer is overdue: one that trains may save its state first."""
        if worker.is_training and not worker.overdue:
            worker.overdue = self.policy.overtime
            worker.give(None)
            worker.is_due_in(GRACE)
            return
        if worker.job is not None or not worker.is_ready:
            worker.overdue = worker.overdue or f"nothing began within {minutes_or_seconds(START_LIMIT)}"
        worker.process.kill()
        worker.is_due_in(None)

    def skip(self, job: JobBase, reason: str) -> None:
        if reason == "busy":
            self.summary.busy += 1
        else:
            self.summary.skipped += 1
        self.on_event({"event": "skipped", "job": job, "reason": reason})

    def count(self, job: JobBase, record: Record, slot: int) -> None:
        setattr(self.summary, record.status, getattr(self.summary, record.status) + 1)
        if self.policy.max_failures is not None and self.summary.failed >= self.policy.max_failures:
            self.summary.left += len(self.todo)
            self.todo.clear()
        event = "failed" if record.status == "failed" else "finished"
        self.on_event({"event": event, "job": job, "slot": slot, "record": record})

    def bury(self, worker: WorkerProcess) -> None:
        """Accounts for a worker that has ended, and replaces it while there are jobs."""
        self.workers.remove(worker)
        if not worker.is_ready:
            self.failed_starts += 1
        job, is_ready = worker.job, worker.is_ready
        worker.process.join(GRACE)
        ending = worker.end()
        if not is_ready and self.failed_starts >= _START_ATTEMPTS:
            raise TrainingError(
                f"a worker process did not start: {ending}; in a script, start jobs under if __name__ == '__main__':"
            )
        if job is not None:
            self.record_death(job, worker.slot, ending)
        if self.todo:
            self.start(worker.slot)

    def record_death(self, job: JobBase, slot: int, ending: str) -> None:
        record = Record("failed", error=ending)
        try:
            with self.store.claim(job):
                if self.store.has(job) and not self.policy.redo:  # it died after storing its result
                    record = self.store.read(job.id).record
                else:
                    self.store.finish(job, record)
        except StoreBusyError:
            self.skip(job, "busy")
        else:
            self.count(job, record, slot)

    def stop(self) -> None:
        """Ends all workers: idle ones now, training ones within ``GRACE`` seconds."""
        try:
            training = [worker for worker in self.workers if worker.job is not None]
            for worker in training:
                worker.give(None)
            deadline = time.monotonic() + GRACE
            # Their messages are read and dropped: a worker that cannot write cannot stop.
            while training and (remaining := deadline - time.monotonic()) > 0:
                for pipe in connection.wait([worker.pipe for worker in training], remaining):
                    training = [worker for worker in training if worker.pipe is not pipe or worker.receive()]
        finally:
            while self.workers:
                self.workers.pop().end()
