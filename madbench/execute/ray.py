"""The jobs of a sweep as tasks of a Ray cluster: one that is there, or one started on this machine.

Every machine of the cluster needs madbench in the version of the driver: installed, or as a source checkout at the path
that the driver runs from.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from madbench.errors import ConfigError, MissingExtraError
from madbench.execute.base import Executor, OnEvent, Policy, Summary, Train, ignore_event, worker_environment
from madbench.execute.remote import Message, Task, run_remotely
from madbench.execute.remote_worker import Outcome, Packed, at_most_every, source_checkout, work

REPORT_SECONDS = 1.0


def ray_executor(
    address: str | None = None,
    cpus_per_job: int = 1,
    gpus_per_job: float = 0,
    slots: int | None = None,
    shared: bool = False,
) -> Executor:
    """An executor (:mod:`madbench.execute.base`) whose jobs are Ray tasks.

    Args:
        address: ``host:port`` of a cluster, ``ray://host:port`` of its client server, or ``auto`` for the one that
            ``ray start`` began on this machine, or ``local`` for a new one of this machine's cores and GPUs, which
            ends with the sweep; by default the first there is of ``RAY_ADDRESS``, ``auto`` and ``local``. In a process
            that is connected to Ray it must be None.
        cpus_per_job: cores that a job reserves, and threads it computes in.
        gpus_per_job: GPUs that a job reserves and sees; 0.5 puts two jobs on one.
        slots: jobs at a time; by default as many as the cluster holds.
        shared: the results folder is on a disk that all machines see at the same path: jobs keep their checkpoints in
            it, and interrupted ones go on. Otherwise they begin again.

    Raises ``MissingExtraError`` without ray and ``ConfigError`` for what cannot be; the executor itself raises
    ``ConfigError`` where there is no such cluster or none of its machines is large enough.
    """
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingExtraError("executor ray", "ray") from None
    if cpus_per_job < 1:
        raise ConfigError(f"cpus_per_job must be at least 1, got {cpus_per_job}")
    if gpus_per_job < 0 or (gpus_per_job > 1 and gpus_per_job != int(gpus_per_job)):
        raise ConfigError(f"gpus_per_job must be a fraction of 1 or a whole number, got {gpus_per_job:g}")
    if slots is not None and slots < 1:
        raise ConfigError(f"slots must be at least 1, got {slots}")
    return functools.partial(
        _execute, address=address, cpus=cpus_per_job, gpus=gpus_per_job, slots=slots, shared=shared
    )


def _execute(
    jobs: Iterable[Any],
    store: Any,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    address: str | None,
    cpus: int,
    gpus: float,
    slots: int | None,
    shared: bool,
) -> Summary:
    @contextmanager
    def connect() -> Iterator[RayBackend]:
        with _connection(address):
            yield RayBackend(cpus, gpus, slots, shared)

    return run_remotely(jobs, store, train, connect, on_event, policy)


@contextmanager
def _connection(address: str | None) -> Iterator[None]:
    """A connection to Ray, silent; one that the process had already is used and left as it is."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers, and says so
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of its next version
    import ray
    from ray._private import worker

    if is_connected := ray.is_initialized():
        if address is not None:
            raise ConfigError(
                f"address {address!r} has no effect: this process is connected to Ray already; ray.shutdown() first"
            )
    else:
        where = f"the Ray cluster {address!r}" if address else "Ray"
        try:
            _knock(address or "")
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (OSError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"{where} cannot be reached: {said}; a cluster that asks for a token needs RAY_AUTH_MODE=token here too"
            ) from error
    printing = getattr(worker, "_worker_logs_enabled", None)
    worker._worker_logs_enabled = False  # what Ray has to say about a task comes with its result; stdout is the table's
    try:
        yield
    finally:
        if is_connected:
            worker._worker_logs_enabled = printing
        else:
            ray.shutdown()
            worker._worker_logs_enabled = printing


def _knock(address: str) -> None:
    """Raises ``OSError`` where nothing answers at ``host:port``, for which Ray would wait minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


class RayBackend:
    """Tasks of the cluster that this process is connected to (:class:`madbench.execute.remote.Backend`).

    Raises ``ConfigError`` where no machine of it has what a job reserves.
    """

    def __init__(self, cpus: int, gpus: float, slots: int | None, shared: bool):
        import ray

        self.cpus, self.gpus, self.slots, self.shares_folder = cpus, gpus, slots, shared
        if not self._places():
            need = f"{cpus} CPUs" + f" and {gpus:g} GPUs" * (gpus > 0)
            has = "; ".join(f"{n.get('CPU', 0):g} CPUs, {n.get('GPU', 0):g} GPUs" for n in self._machines()) or "none"
            raise ConfigError(f"no machine of the Ray cluster has the {need} that a job reserves; there are: {has}")
        environment = worker_environment(cpus)
        if checkout := source_checkout():
            environment["PYTHONPATH"] = f"{checkout}:${{PYTHONPATH}}"  # Ray expands it on the worker
        process = {"runtime_env": {"env_vars": environment}}
        self.train = ray.remote(_train).options(
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=0,  # the driver hands lost tasks over again, and counts
            **process,
        )
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        board = ray.remote(_Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here, **process)
        self.board = board.remote()
        self.numbers = itertools.count()
        self.numbered: dict[int, Task] = {}
        self.running: dict[Any, int] = {}
        self.started: set[int] = set()

    def capacity(self) -> int:
        places = self._places()
        capacity = places + max(2, places // 4)  # some wait, so that no machine does
        return capacity if self.slots is None else min(self.slots, capacity)

    def _places(self) -> int:
        machines = [
            min(node.get("CPU", 0) // self.cpus, node.get("GPU", 0) // self.gpus if self.gpus else float("inf"))
            for node in self._machines()
        ]
        return int(sum(machines))

    def _machines(self) -> list[dict[str, float]]:
        import ray

        return [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            number = next(self.numbers)
            reference = self.train.remote(task.assignment.pack(), self.board, number, self.gpus > 0)
            self.numbered[number], self.running[reference] = task, number

    def poll(self, seconds: float) -> Iterator[Message]:
        import ray

        if not self.running:
            return
        done, _ = ray.wait(list(self.running), timeout=seconds, fetch_local=False)
        if done:
            done, _ = ray.wait(list(self.running), num_returns=len(self.running), timeout=0, fetch_local=False)
        for reference in done:
            kind, value = _result(reference)
            number = self.running[reference]
            yield self.numbered[number], kind, value
            del self.running[reference], self.numbered[number]  # not before the result is stored
        yield from self._news()

    def _news(self) -> Iterator[Message]:
        import ray

        try:
            news = ray.get(self.board.take.remote(), timeout=5)
        except ray.exceptions.RayError:  # without its board a sweep only shows less
            return
        for number, progress in news.items():
            if task := self.numbered.get(number):
                if number not in self.started:
                    self.started.add(number)
                    yield task, "started", None
                if progress:
                    yield task, "progress", progress

    def cancel(self, tasks: Iterable[Task]) -> None:
        import ray

        cancelled = set(tasks)
        for reference, number in list(self.running.items()):
            if self.numbered[number] in cancelled:
                del self.running[reference], self.numbered[number]
                ray.cancel(reference, force=True)


class _Board:
    """An actor that keeps the last progress of each task until the driver asks for it."""

    def __init__(self):
        self.news: dict[int, dict[str, Any]] = {}

    def tell(self, number: int, progress: dict[str, Any]) -> None:
        self.news[number] = progress or self.news.get(number, {})

    def take(self) -> dict[int, dict[str, Any]]:
        news, self.news = self.news, {}
        return news


def _train(packed: Packed, board: Any, number: int, needs_gpu: bool) -> Outcome:
    def report(progress: dict[str, Any]) -> None:
        board.tell.remote(number, progress)

    report({})
    return work(packed, at_most_every(REPORT_SECONDS, report), needs_gpu)


def _result(reference: Any) -> tuple[str, Any]:
    """How a task ended that has ended."""
    import ray

    try:
        return "done", ray.get(reference)
    except ray.exceptions.RuntimeEnvSetupError as error:
        return "done", Outcome(broken=f"Ray cannot start workers: {_first_line(error)}")
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError) or "No module named 'madbench" in str(error):
            return "done", Outcome(broken=f"a worker cannot import madbench: {_last_line(error)}; install it there")
        return "failed", str(error)
    except ray.exceptions.RayError as error:
        return "lost", f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no reason given")
