"""The parent's side of a worker: its process, its pipe, the job it was given, and until when an answer is due."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from madbench.execute.base import Policy, Train
from madbench.execute.worker import work
from madbench.jobs import JobBase
from madbench.store.runs import Store


class WorkerProcess:
    """A process that runs :func:`madbench.execute.worker.work`. It never receives Ctrl-C."""

    def __init__(self, slot: int, store: Store, train: Train, policy: Policy, environment: Mapping[str, str]):
        context = multiprocessing.get_context("spawn")
        self.slot = slot
        self.job: JobBase | None = None
        self.is_ready = False
        self.is_training = False
        self.overdue = ""
        """Why it was told to stop before it was done; empty where it was not."""
        self.deadline = math.inf
        """When it must have answered, on the monotonic clock."""
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, store.root, train, policy)
        self.process = context.Process(target=work, args=arguments, name=f"madbench-slot-{slot}")
        try:
            with _sigint_blocked(), _environment(environment):
                self.process.start()
        finally:
            theirs.close()

    def is_due_in(self, seconds: float | None) -> None:
        """Starts the clock of the next answer; None for no limit."""
        self.deadline = math.inf if seconds is None else time.monotonic() + seconds

    def give(self, job: JobBase | None) -> None:
        """Hands the job over; None tells the process to stop."""
        self.job = job or self.job
        with suppress(OSError):  # a dead process shows at the next read
            self.pipe.send(job)

    def receive(self) -> tuple[str, Any] | None:
        """The next message, or None once the process has ended and everything was read."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):  # OSError: it died halfway through a message
            return None

    def end(self) -> str:
        """Kills the process if it is still there, frees what belongs to it, and says how it ended."""
        self.process.kill()
        self.process.join()
        exit_code = self.process.exitcode
        self.process.close()
        self.pipe.close()
        return self.overdue or _ending(exit_code)


def _ending(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "the process ended with signal 9; out of memory?"
    if exit_code < 0:
        return f"the process ended with signal {-exit_code} ({signal.strsignal(-exit_code)})"
    return f"the process ended with exit code {exit_code}"


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """A process started inside never receives Ctrl-C; one pressed meanwhile arrives here afterwards."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
