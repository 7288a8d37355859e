"""The jobs of a sweep under torchrun: all its processes train one job after the other, together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from madbench.errors import ConfigError, StoreError
from madbench.execute.base import OnEvent, Policy, Summary, ignore_event
from madbench.execute.failure import failure_text
from madbench.jobs import JobBase, Record, StopTraining
from madbench.store.runs import Store, StoreBusyError
from madbench.training.distributed import agree, from_first, is_first, process_group

Verdict = Literal["train", "stored", "failed", "busy", "stop"]


def train_distributed(
    jobs: Iterable[JobBase],
    root: Path,
    train: Callable[..., Record],
    device: str = "cpu",
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
) -> Summary:
    """Trains the jobs without a result in the store at ``root``, in order, each by all processes together.

    Every process calls ``train(job, work_folder, report, device=...)`` with a device of its own, which is ``cpu`` or a
    GPU. The first process alone writes to the store and calls ``on_event``; events, policy and summary are those of
    :mod:`madbench.execute.base`. On SIGINT or SIGTERM in any process all of them stop after the same
    step, with a checkpoint, and raise ``KeyboardInterrupt``. A run that raises is stored as ``failed`` and its error
    ends all processes, which can no longer wait for each other.

    Raises ``ConfigError`` for fewer GPUs than processes and for a time limit, ``StoreError`` where results cannot be
    written.
    """
    if policy.time_limit is not None:
        raise ConfigError("a time limit has no effect under torchrun: give it to the scheduler that starts torchrun")
    with process_group(device) as own_device, _stop_signals() as is_stop_requested:
        store = Store.open(root) if is_first() else None
        team = _Team(store, train, own_device, on_event, policy, is_stop_requested)
        try:
            for job in {job.id: job for job in jobs}.values():
                team.do(job)
            is_stopped = False
        except StopTraining:
            is_stopped = agree(True)  # torchrun ends every process with the first that leaves, and one was saving
    if is_stopped:
        raise KeyboardInterrupt
    return team.summary


@dataclass
class _Team:
    """One process among those that train together; only the first has a store."""

    store: Store | None
    train: Callable[..., Record]
    device: str
    on_event: OnEvent
    policy: Policy
    is_stop_requested: Callable[[], bool]
    summary: Summary = field(default_factory=Summary)

    def do(self, job: JobBase) -> None:
        with ExitStack() as claim:
            verdict, work = from_first(self.begin(job, claim) if self.store else None)
            if verdict == "stop":
                raise StopTraining
            if verdict == "train":
                self.tell(job, "started", slot=0)
                record = self.record(job, work)
                setattr(self.summary, record.status, getattr(self.summary, record.status) + 1)
                self.tell(job, "finished", slot=0, record=record)
            else:
                self.summary.skipped += verdict in ("stored", "failed")
                self.summary.busy += verdict == "busy"
                self.tell(job, "skipped", reason=verdict)

    def begin(self, job: JobBase, claim: ExitStack) -> tuple[Verdict, Path | None]:
        """What all processes do about the job, and its work folder, held until ``claim`` is closed."""
        if self.is_stop_requested():
            return "stop", None
        try:
            work = claim.enter_context(self.store.claim(job, afresh=self.policy.redo))
        except StoreBusyError:
            return "busy", None
        skipped = self.policy.skips(self.store.status(job))
        return (skipped, None) if skipped else ("train", work)

    def record(self, job: JobBase, work: Path) -> Record:
        """Trains and stores."""

        def report(progress: dict[str, Any]) -> None:
            if self.is_stop_requested():
                raise StopTraining
            self.tell(job, "progress", slot=0, progress=progress)

        try:
            record = self.train(job, work, report, device=self.device)
        except StoreError:
            raise
        except Exception as error:
            if self.store:
                self.store.finish(job, Record("failed", error=failure_text(error)))
            raise
        if self.store:
            self.store.finish(job, record, replace=self.policy.redo)
        return record

    def tell(self, job: JobBase, kind: str, **more: Any) -> None:
        if self.store:
            self.on_event({"event": kind, "job": job, **more})


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Makes a request of SIGINT and SIGTERM; gives a function that tells whether there was one."""
    received: list[int] = []
    handled = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda number, _: received.append(number)) for number in handled}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
