"""The executor under torchrun: all processes together train one job after the other."""

from __future__ import annotations

import functools
import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext

from madbench.errors import StoreError, no_effect
from madbench.execute.base import Execution, Groups, OnEvent, Policy, Summary, Train, failure_text, ignore_event
from madbench.execute.products import with_products
from madbench.jobs import Job, Progress, Record, StopTraining, TrainingCallbacks
from madbench.store.runs import Store
from madbench.training.distributed import agree, from_first, process_group
from madbench.training.processes import is_first


def train_distributed(
    groups: Groups,
    store: Store,
    train: Callable[..., list[Record]],
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    device: str = "cpu",
) -> Summary:
    """Train the jobs without a result in ``store``, one after the other, each with all processes of torchrun together.

    This is an executor (:mod:`madbench.execute.base`). Every process calls ``train(jobs, works, report, device=...)``
    with one job and its own device: ``cpu``, or one GPU. Only the first process writes to ``store`` and calls
    ``on_event``.

    On SIGINT or SIGTERM in any process, all processes write a checkpoint after the same step, stop, and raise
    ``KeyboardInterrupt``. A job that raises an error is stored as ``failed``, and the error ends all processes, because
    they can no longer wait for each other. For this reason the jobs of a group train one by one.

    Raises ``ConfigError`` if there are fewer GPUs than processes, and if the policy has a time limit. Raises
    ``StoreError`` if results cannot be written.
    """
    if policy.time_limit is not None:
        raise no_effect("a time limit", "under torchrun", "give it to the scheduler that starts torchrun")
    with process_group(device) as own_device, _stop_signals() as is_stop_requested:
        execution = Execution(store, policy, on_event if is_first() else ignore_event)
        training = functools.partial(train, device=own_device)
        try:
            for job in itertools.chain.from_iterable(groups):
                _train_job(job, execution, training, is_stop_requested)
            is_stopped = False
        except StopTraining:
            is_stopped = agree(True)  # torchrun ends all processes when the first leaves, and one may be saving
    if is_stopped:
        raise KeyboardInterrupt
    return execution.summary


def _train_job(job: Job, execution: Execution, train: Train, is_stop_requested: Callable[[], bool]) -> None:
    def report(job: Job, progress: Progress) -> None:
        if is_stop_requested():
            raise StopTraining
        execution.report("progress", job, slot=0, progress=progress)

    if from_first(is_stop_requested()):
        raise StopTraining
    lock = execution.lock(job) if is_first() else None
    with closing(lock) if lock else nullcontext():
        work = from_first(lock and lock.work)
        if work is None:
            return
        execution.report("started", job, slot=0)
        failure = None
        try:
            [record] = train(
                [job], [work], TrainingCallbacks(report, ended=lambda job, record: None)
            )  # its group is one job
        except StoreError:
            raise
        except Exception as error:
            failure, record = error, Record("failed", error=failure_text(error))
        if is_first():
            record = with_products(record)
            execution.store.finish(job, record, replace=execution.policy.redo)
        execution.finish(job, record, slot=0)
        if failure:
            raise failure


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Within a ``with`` block, record SIGINT and SIGTERM instead of acting on them.

    Yield a function that returns True once such a signal has arrived.
    """
    received: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda number, _: received.append(number)) for number in signals}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
