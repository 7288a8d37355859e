"""The executor on Ray. Each group of jobs is a task of an existing cluster, or of a new cluster on this machine.

Every machine of the cluster needs the driver's version of madbench: installed, or as a source checkout in the same
folder as on the driver's machine.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from madbench.config import short_repr
from madbench.errors import ConfigError, no_effect, require
from madbench.execute.base import Executor, check_counts, source_checkout, worker_environment
from madbench.execute.driver import Backend, LockedGroup, drive
from madbench.execute.messages import (
    Ending,
    JobProgress,
    JobResult,
    Message,
    WorkerFailed,
    WorkerLost,
    WorkerResult,
    WorkerStarted,
)
from madbench.execute.worker import PackedAssignment, throttle, work_remotely
from madbench.jobs import Progress
from madbench.store.runs import Store

REPORT_SECONDS = 1.0
# environment variables that Ray reads when it is imported
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # otherwise Ray reports usage to its makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise it warns about its next version
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # otherwise it prints logs that also come with results
}


@dataclass(frozen=True)
class RayConfig:
    """The Ray cluster, and what each task reserves there. It is the content of the file in ``--on ray:FILE.yaml``."""

    address: str | None = None
    """Cluster: HOST:PORT, ray://HOST:PORT for its client server, auto or local.

    ``auto`` is the cluster that ``ray start`` started on this machine. ``local`` is a new cluster of this machine's
    cores and GPUs that ends with the sweep. The default is the first that exists of ``RAY_ADDRESS``, ``auto`` and
    ``local``. It must be None in a process that is connected to Ray.
    """
    cpus_per_job: int = 1
    """Cores that a Ray task reserves, which is also the number of its threads."""
    gpus_per_job: float | None = None
    """GPUs that a Ray task reserves and sees; 0.5 puts two Ray tasks on one."""
    shared: bool = False
    """True if all machines see the results folder at its path: interrupted jobs resume from checkpoints there.

    Otherwise interrupted jobs begin again.
    """


def ray_executor(config: RayConfig = RayConfig(), slots: int | None = None) -> Executor:
    """Return an executor (:mod:`madbench.execute.base`) that runs each group of jobs as a Ray task.

    At most ``slots`` tasks run or wait at a time, by default slightly more than fit in the cluster.

    Raises ``MissingExtraError`` without ray, and ``ConfigError`` for wrong values. The returned executor raises
    ``ConfigError`` if the cluster cannot be reached, or if none of its machines is large enough.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    require("ray", "executor ray", "ray")
    check_counts(cpus_per_job=config.cpus_per_job, slots=slots)
    gpus = config.gpus_per_job or 0
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise ConfigError(f"gpus_per_job must be a fraction of 1 or a whole number, got {gpus:g}")
    return functools.partial(drive, connect=functools.partial(_connect, config=config, slots=slots))


@contextmanager
def _connect(store: Store, *, config: RayConfig, slots: int | None) -> Iterator[RayBackend]:
    """Connect to a Ray cluster within a ``with`` block, and yield its backend. An existing connection is used and kept.

    Raises ``ConfigError`` if the cluster cannot be reached.
    """
    import ray

    address = config.address
    if ray.is_initialized():
        if address is not None:
            problem = "this process is connected to Ray already; ray.shutdown() first"
            raise no_effect(f"address {short_repr(address)}", because=problem)
        yield RayBackend(config, slots)
        return
    try:
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        if host and port.isdigit():  # Ray would wait minutes for an address that does not answer
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster {short_repr(address)}" if address else "Ray"
        hint = "a cluster that asks for a token needs RAY_AUTH_MODE=token here too"
        raise ConfigError(f"{where} cannot be reached: {' '.join(str(error).split())}; {hint}") from error
    try:
        yield RayBackend(config, slots)
    finally:
        ray.shutdown()


class RayBackend(Backend):
    """The backend that runs each group as a task on the Ray cluster to which this process is connected.

    Raises ``ConfigError`` if no machine of the cluster has the cores and GPUs that a task reserves.
    """

    def __init__(self, config: RayConfig, slots: int | None):
        import ray

        cpus, gpus = config.cpus_per_job, config.gpus_per_job or 0
        self.cpus, self.gpus, self.most = cpus, gpus, slots
        self.shares_folder = config.shared
        if not self._places():
            need = f"{cpus} CPUs and {gpus:g} GPUs" if gpus else f"{cpus} CPUs"
            has = "; ".join(f"{n.get('CPU', 0):g} CPUs, {n.get('GPU', 0):g} GPUs" for n in self.machines()) or "none"
            raise ConfigError(f"no machine of the Ray cluster has the {need} that a job reserves; there are: {has}")
        environment = worker_environment(cpus)
        if checkout := source_checkout():
            environment["PYTHONPATH"] = f"{checkout}:${{PYTHONPATH}}"  # Ray expands it on the worker
        process = {"runtime_env": {"env_vars": environment}}
        # No retries by Ray: the driver itself submits lost tasks again and counts attempts.
        self.train = ray.remote(_train).options(num_cpus=cpus, num_gpus=gpus, max_retries=0, **process)
        on_this_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        placement = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": on_this_node}
        self.board = ray.remote(_Board).options(**placement, **process).remote()
        self.groups: dict[Any, LockedGroup] = {}  # groups by Ray's references to their tasks

    def capacity(self) -> int:
        room = self._places() * 5 // 4 + 2  # some tasks wait, so that no machine does
        return min(self.most or room, room)

    def machines(self) -> list[dict[str, float]]:
        import ray

        return [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def _places(self) -> int:
        """The number of groups that the machines of the cluster can train at the same time."""
        needs = {"CPU": self.cpus, "GPU": self.gpus}
        return sum(min(int(node.get(name, 0) // n) for name, n in needs.items() if n) for node in self.machines())

    def submit(self, groups: Sequence[LockedGroup]) -> None:
        for group in groups:
            reference = self.train.remote(group.assignment.pack(), self.board, group.jobs[0].id, self.gpus > 0)
            self.groups[reference] = group

    def poll(self, seconds: float) -> Iterator[tuple[LockedGroup, Message]]:
        import ray

        if not self.groups:
            return
        for timeout in (seconds, 0):  # wait for the first end, then take all ended tasks
            done, _ = ray.wait(list(self.groups), num_returns=1 if timeout else len(self.groups), timeout=timeout)
        news: dict[str, Progress | None] = {}
        results: list[JobResult] = []
        with suppress(ray.exceptions.RayError):  # without the board, a sweep only shows less and stores later
            news, results = ray.get(self.board.take.remote(), timeout=5)
        group_of = {job.id: group for group in self.groups.values() for job in group.jobs}
        for job_id, progress in news.items():
            if job_id in group_of:
                yield group_of[job_id], JobProgress(job_id, progress) if progress else WorkerStarted()
        for result in results:
            if result.job_id in group_of:
                yield group_of[result.job_id], result
        for reference in done:
            message = _ending(reference)
            yield self.groups.pop(reference), message

    def cancel(self, groups: Iterable[LockedGroup]) -> None:
        import ray

        cancelled = set(groups)
        for reference in [reference for reference, group in self.groups.items() if group in cancelled]:
            del self.groups[reference]
            ray.cancel(reference, force=True)


class _Board:
    """A Ray actor that keeps the messages of workers until the driver fetches them.

    ``news`` maps the id of each job to its last progress, or to None if the job has only started. ``results`` has
    the results of jobs that ended before the rest of their group.
    """

    def __init__(self) -> None:
        self.news: dict[str, Progress | None] = {}
        self.results: list[JobResult] = []

    def add_news(self, news: dict[str, Progress | None]) -> None:
        self.news |= news

    def hand_in(self, result: JobResult) -> None:
        self.results.append(result)

    def take(self) -> tuple[dict[str, Progress | None], list[JobResult]]:
        news, results = self.news, self.results
        self.news, self.results = {}, []
        return news, results


def _train(packed: PackedAssignment, board: Any, first: str, needs_gpu: bool) -> WorkerResult:
    import ray

    def hand_in(result: JobResult) -> None:
        with suppress(ray.exceptions.RayError):  # the record then comes with the records of its group
            ray.get(board.hand_in.remote(result), timeout=5)  # stored before this worker can die

    board.add_news.remote({first: None})
    return work_remotely(packed, throttle(REPORT_SECONDS, board.add_news.remote), needs_gpu, hand_in)


def _ending(reference: Any) -> Ending:
    """The last message about a group, made from the result or the error of its Ray task, which has ended.

    ``reference`` is Ray's reference to the result.
    """
    import ray

    def line(error: Exception, index: int) -> str:
        return [*filter(None, map(str.strip, str(error).splitlines())), "no reason given"][index]

    try:
        ending: Ending = ray.get(reference)
        return ending
    except ray.exceptions.RuntimeEnvSetupError as error:
        return WorkerResult(broken=f"Ray cannot start workers: {line(error, 0)}")
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError) or "No module named 'madbench" in str(error):
            return WorkerResult(broken=f"a worker cannot import madbench: {line(error, -2)}; install it there")
        return WorkerFailed(str(error))
    except ray.exceptions.RayError as error:
        return WorkerLost(f"{type(error).__name__}: {line(error, 0)}")
