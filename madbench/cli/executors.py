"""Options of the verbs that train: on which machines, and with what a job reserves there."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from madbench.cli.options import option
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from madbench.execute.base import Executor


class ExecutorName(str, enum.Enum):
    local = "local"
    ray = "ray"
    slurm = "slurm"


_option = functools.partial(option, rich_help_panel="Other machines")


@dataclass(frozen=True)
class MachineOptions:
    """Options that place jobs."""

    executor: _option(ExecutorName, "Where jobs run: processes of this machine, a Ray cluster, or Slurm.") = (
        ExecutorName.local
    )
    address: _option(
        str | None,
        "ray: the cluster; also ray://HOST:PORT, auto (begun here by ray start) or local (a new one).",
        metavar="HOST:PORT",
        show_default="RAY_ADDRESS, else auto, else local",
    ) = None
    cpus_per_job: _option(int | None, "ray, slurm: cores of a job, and its threads.", show_default="1") = None
    gpus_per_job: _option(
        float | None,
        "ray, slurm: GPUs of a job; with ray 0.5 puts two jobs on one.",
        show_default="1 with --device cuda, else 0",
    ) = None
    shared: _option(
        bool,
        "ray: all machines see the results folder at its path; interrupted jobs resume from checkpoints there.",
        "--shared",
    ) = False
    partition: _option(str | None, "slurm: the partition.") = None
    wall_time: _option(
        int | None,
        "slurm: wall time of a job; at its end the job is queued again and resumes.",
        metavar="MINUTES",
        show_default="60",
    ) = None
    memory: _option(float | None, "slurm: memory of a job.", metavar="GB") = None
    sbatch: _option(
        list[str] | None, "slurm: another option of sbatch, such as account=me; repeatable.", metavar="KEY=VALUE"
    ) = None


_ARGUMENTS = {
    "address": ("address", "ray"),
    "cpus_per_job": ("cpus_per_job", "ray", "slurm"),
    "gpus_per_job": ("gpus_per_job", "ray", "slurm"),
    "shared": ("shared", "ray"),
    "partition": ("partition", "slurm"),
    "wall_time": ("minutes", "slurm"),
    "memory": ("memory_gb", "slurm"),
    "sbatch": ("extra", "slurm"),
}
"""For each option the argument that it is, and the executors that have it."""


@dataclass(frozen=True)
class Placement:
    """Where jobs run, and on what device."""

    executor: Executor | None
    """None for this machine."""
    device: str
    slots: int | None
    """Jobs at a time on this machine; an executor has its own."""


def place(executor: ExecutorName, device: str, slots: int | None, **options: Any) -> Placement:
    """Where the options place jobs; raises ``ConfigError`` for one that has no effect with this executor.

    On other machines ``auto`` is ``cuda`` where a job reserves GPUs, else ``cpu``.
    """
    given: dict[str, Any] = {} if slots is None else {"slots": slots}
    for name, value in options.items():
        argument, *executors = _ARGUMENTS[name]
        if value in (None, []) or value is False:
            continue
        if executor.value not in executors:
            option, others = f"--{name.replace('_', '-')}", " or ".join(f"--executor {other}" for other in executors)
            raise ConfigError(f"{option} has no effect with --executor {executor.value}; it belongs to {others}")
        given[argument] = dict(map(_pair, value)) if name == "sbatch" else value
    if executor is ExecutorName.local:
        return Placement(None, device, slots)
    device, given["gpus_per_job"] = _device(device, given.get("gpus_per_job"))
    if executor is ExecutorName.ray:
        from madbench.execute.ray import ray_executor as make
    else:
        from madbench.execute.submitit import slurm_executor as make
    return Placement(make(**given), device, None)


def _device(device: str, gpus: float | None) -> tuple[str, float]:
    """The device of the workers and the GPUs that a job reserves; each decides the other."""
    if device not in ("auto", "cpu", "cuda"):
        problem = "on other machines a job sees its own GPUs only; expected auto, cpu or cuda"
        raise ConfigError(f"--device {device}: {problem}")
    if gpus is None:
        return ("cuda", 1) if device == "cuda" else ("cpu", 0)
    if gpus and device == "cpu":
        raise ConfigError(f"--gpus-per-job {gpus:g} has no effect with --device cpu")
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda needs GPUs: --gpus-per-job 0 gives a job none")
    return ("cuda" if gpus else "cpu"), gpus


def _pair(word: str) -> tuple[str, str | bool]:
    """``account=me`` -> ``("account", "me")``, ``exclusive`` -> ``("exclusive", True)``."""
    key, separator, value = word.removeprefix("--").partition("=")
    if not key or (separator and not value):
        raise ConfigError(f"--sbatch {word!r}: expected KEY=VALUE, such as account=me, or KEY")
    return key, value if separator else True
