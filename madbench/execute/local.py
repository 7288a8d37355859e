"""The executor on this machine: one worker process per slot.

The number of threads and the GPU of a worker are set by its environment variables, because both must be known before
torch is imported.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from multiprocessing import connection, resource_tracker
from typing import Any

from madbench.errors import TrainingError
from madbench.execute.base import (
    Groups,
    OnEvent,
    Policy,
    Summary,
    Train,
    check_counts,
    ignore_event,
    worker_environment,
)
from madbench.execute.driver import ATTEMPTS, Backend, LockedGroup, drive
from madbench.execute.main_module import SAFE_PATH, check_can_start, without_main
from madbench.execute.messages import (
    JobProgress,
    JobResult,
    Message,
    WorkerFailed,
    WorkerLost,
    WorkerResult,
    WorkerStarted,
    WorkerStarting,
)
from madbench.execute.worker import work
from madbench.jobs import Progress, StopTraining
from madbench.store.runs import Store

_TRACKER = {"PYTHONWARNINGS": ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker")))}
"""The environment in which multiprocessing's resource tracker prints no warnings. It would warn of semaphores that
killed workers left behind.
"""
GRACE = 5.0  # seconds for runs to stop and save their state when a sweep ends early


def run_jobs(
    groups: Groups,
    store: Store,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    slots: int = 1,
    threads_per_slot: int = 1,
    devices: Sequence[str] | None = None,
    passive: bool = False,
) -> Summary:
    """Train ``slots`` groups of jobs at a time, each in a process of its own on this machine.

    This is an executor (:mod:`madbench.execute.base`). Slot i sees only the GPU ``devices[i % len(devices)]``, a value
    of ``CUDA_VISIBLE_DEVICES``. If ``passive`` is true, threads sleep while they wait for each other, which suits cores
    that other processes use too. A process in which a job failed is replaced, because its memory or its GPU may be in a
    bad state.

    On Ctrl-C and on any error, runs in progress have ``GRACE`` seconds to write checkpoints, and then the error is
    raised. A second Ctrl-C kills them at once. Workers never outlive this process, however it ends. Raises
    ``StoreError`` if results cannot be written, and ``TrainingError`` if no worker process starts.
    """
    check_counts(slots=slots, threads_per_slot=threads_per_slot)

    def connect(_: Store) -> AbstractContextManager[LocalBackend]:
        return closing(LocalBackend(slots, worker_environment(threads_per_slot, passive), devices or ()))

    return drive(groups, store, train, on_event, policy, connect=connect)


class LocalBackend(Backend):
    """The backend whose workers are processes on this machine, one per slot."""

    def __init__(self, slots: int, environment: Mapping[str, str], devices: Sequence[str]):
        self.slots, self.environment, self.devices = slots, environment, devices
        self.workers: list[WorkerProcess] = []
        self.starting: list[LockedGroup] = []  # groups whose start is not reported yet

    def submit(self, groups: Sequence[LockedGroup]) -> None:
        for group in groups:
            worker = next((worker for worker in self.workers if worker.group is None), None) or self.start()
            worker.group, worker.has_started = group, False
            self.starting.append(group)
            if worker.is_ready:
                worker.send(group.assignment)

    def start(self) -> WorkerProcess:
        slot = min(set(range(self.slots)) - {worker.slot for worker in self.workers})
        device = {"CUDA_VISIBLE_DEVICES": self.devices[slot % len(self.devices)]} if self.devices else {}
        self.workers.append(WorkerProcess(slot, {**self.environment, **device}))
        return self.workers[-1]

    def poll(self, seconds: float) -> Iterator[tuple[LockedGroup, Message]]:
        self.end(worker for worker in self.workers if worker.group is None)  # idle workers are not needed any more
        while self.starting:
            yield self.starting.pop(), WorkerStarting()
        readable = connection.wait([worker.pipe for worker in self.workers], seconds)
        for worker in [worker for worker in self.workers if worker.pipe in readable]:
            group, message = worker.group, worker.receive()
            assert group is not None  # idle workers have ended above
            if isinstance(message, WorkerReady):
                worker.is_ready = True
                worker.send(group.assignment)
                continue
            if message is None:
                self.workers.remove(worker)
                reason, is_killed = worker.end(GRACE)
                if not worker.has_started and group.attempt == ATTEMPTS:
                    raise TrainingError(f"a worker process did not start: {reason}; its output says why")
                is_lost = is_killed or not worker.has_started
                message = WorkerLost(reason) if is_lost else WorkerFailed(reason)
            elif isinstance(message, WorkerStarted):
                worker.has_started, message = True, WorkerStarted(worker.slot)
            elif isinstance(message, WorkerResult):
                worker.group = None
                has_failed = any(record and record.status == "failed" for record in message.records)
                if message.broken or message.error or has_failed:
                    self.end([worker])
            yield group, message

    def last_messages(self) -> Iterator[tuple[LockedGroup, Message]]:
        """Stop all workers, and yield their last messages.

        Workers that train get ``GRACE`` seconds to write their checkpoints. All others are killed at once.
        """
        self.end(worker for worker in self.workers if not worker.has_started)
        deadline = time.monotonic() + GRACE
        for worker in self.workers:
            worker.send(None)
        while self.workers and (remaining := deadline - time.monotonic()) > 0:
            yield from self.poll(remaining)  # read progress too: a worker whose pipe is full cannot stop

    def cancel(self, groups: Iterable[LockedGroup]) -> None:
        cancelled = set(groups)
        self.end(worker for worker in self.workers if worker.group in cancelled)

    def close(self) -> None:
        self.end(self.workers)

    def end(self, workers: Iterable[WorkerProcess]) -> None:
        for worker in list(workers):
            self.workers.remove(worker)
            worker.end()


class WorkerReady:
    """The first message of a worker process: it has started and accepts assignments."""


class WorkerProcess:
    """A process on this machine that trains groups one after the other. It never receives Ctrl-C."""

    def __init__(self, slot: int, environment: Mapping[str, str]):
        check_can_start()
        context = multiprocessing.get_context("spawn")
        with _environment(SAFE_PATH | _TRACKER):
            resource_tracker.ensure_running()  # spawn needs the tracker, and starting it unblocks SIGINT
        self.slot = slot
        self.group: LockedGroup | None = None
        self.is_ready = False  # True if it reads its pipe; a hanging process would block the sender
        self.has_started = False  # True if it has begun to train the group
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name=f"madbench-slot-{slot}")
        try:
            with theirs, without_main(), _environment({**environment, **SAFE_PATH}), _without_interrupts():
                self.process.start()
        except BaseException:
            if self.process.pid is not None:
                self.end()
            raise

    def send(self, assignment: Any) -> None:
        """Send an assignment to the process, or None to make it stop. A dead process is ignored."""
        with suppress(OSError):  # a dead process is noticed at the next read
            self.pipe.send(assignment)

    def receive(self) -> Message | WorkerReady | None:
        """Wait for the next message of the process, and return it.

        None if the process is dead and all messages were read.
        """
        try:
            message: Message | WorkerReady = self.pipe.recv()
            return message
        except (EOFError, OSError):  # OSError: it died halfway through a message
            return None

    def end(self, patience: float = 0.0) -> tuple[str, bool]:
        """Wait up to ``patience`` seconds for the process to end by itself, then kill it.

        Return a text that says how it ended, and whether the signal SIGKILL ended it.
        """
        self.process.join(patience)
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        self.process.close()
        self.pipe.close()
        if code >= 0:
            return f"the process ended with exit code {code}", False
        hint = "; out of memory?" if code == -signal.SIGKILL else f" ({signal.strsignal(-code)})"
        return f"the process ended with signal {-code}{hint}", code == -signal.SIGKILL


def _serve(pipe: connection.Connection) -> None:
    """Train the assignments that arrive through ``pipe``, until None arrives or the parent process is gone.

    Any message that arrives during training stops it. The process first sends ``WorkerReady``. For each assignment it
    sends ``WorkerStarted``, then any number of ``JobProgress`` and ``JobResult``, and at last a ``WorkerResult``.
    """

    def end_with_parent() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()

    def send(job_id: str, progress: Progress) -> None:
        try:
            if pipe.poll():
                raise StopTraining
            pipe.send(JobProgress(job_id, progress))
        except OSError as error:
            raise StopTraining from error

    def hand_in(result: JobResult) -> None:
        with suppress(OSError):  # the driver is gone, and this process ends soon
            pipe.send(result)

    with suppress(EOFError, OSError, StopTraining):
        pipe.send(WorkerReady())
        while (assignment := pipe.recv()) is not None:
            pipe.send(WorkerStarted())
            pipe.send(work(assignment, send, hand_in))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within a ``with`` block, for processes that are started there."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del os.environ[name]
        os.environ.update({name: before[name] for name in changes if name in before})


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Within a ``with`` block, make new processes ignore Ctrl-C, and delay a Ctrl-C in this process to the block's end.

    Ctrl-C is blocked in the signal mask, which a new process inherits. In this process the mask is not enough, because
    another thread may still receive the signal. Python would then raise ``KeyboardInterrupt`` in the block, and the new
    process would get only half of its start data. So the signal's handler is replaced too.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    interrupts: list[int] = []
    has_handler = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number)) if has_handler else None
    try:
        yield
    finally:
        if has_handler:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if interrupts:
            signal.raise_signal(signal.SIGINT)
