"""Options of the verbs that train: on which machines, and with what a job reserves there."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.errors import ConfigError

if TYPE_CHECKING:
    from madbench.execute.base import Executor


class ExecutorName(str, enum.Enum):
    local = "local"
    ray = "ray"
    slurm = "slurm"


def _option(help: str, **settings: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Other machines", **settings)


ExecutorOption = Annotated[ExecutorName, _option("Where jobs run: processes of this machine, a Ray cluster, or Slurm.")]
AddressOption = Annotated[
    str | None,
    _option(
        "ray: the cluster; also ray://HOST:PORT, auto (begun here by ray start) or local (a new one).",
        metavar="HOST:PORT",
        show_default="RAY_ADDRESS, else auto, else local",
    ),
]
CpusPerJobOption = Annotated[
    int | None, _option("ray, slurm: cores of a job, and its threads.", min=1, show_default="1")
]
GpusPerJobOption = Annotated[
    float | None,
    _option(
        "ray, slurm: GPUs of a job; with ray 0.5 puts two jobs on one.",
        min=0,
        show_default="1 with --device cuda, else 0",
    ),
]
SharedOption = Annotated[
    bool,
    _option("ray: all machines see the results folder at its path; interrupted jobs resume from checkpoints there."),
]
PartitionOption = Annotated[str | None, _option("slurm: the partition.")]
WallTimeOption = Annotated[
    int | None,
    _option(
        "slurm: wall time of a job; at its end the job is queued again and resumes.",
        min=1,
        metavar="MINUTES",
        show_default="60",
    ),
]
MemoryOption = Annotated[float | None, _option("slurm: memory of a job.", metavar="GB")]
SbatchOption = Annotated[
    list[str] | None,
    _option("slurm: another option of sbatch, such as account=me; repeatable.", metavar="KEY=VALUE"),
]

_EXECUTORS = {
    "address": ["ray"],
    "cpus_per_job": ["ray", "slurm"],
    "gpus_per_job": ["ray", "slurm"],
    "shared": ["ray"],
    "partition": ["slurm"],
    "wall_time": ["slurm"],
    "memory": ["slurm"],
    "sbatch": ["slurm"],
}
"""The executors that each option is for."""


@dataclass(frozen=True)
class Placement:
    """Where jobs run, and on what device."""

    executor: Executor | None
    """None for this machine."""
    device: str
    slots: int | None
    """Jobs at a time on this machine; an executor has its own."""

    @property
    def is_remote(self) -> bool:
        return self.executor is not None


def place(executor: ExecutorName, device: str, slots: int | None, **options: Any) -> Placement:
    """Where the options place jobs; raises ``ConfigError`` for one that has no effect with this executor.

    On other machines ``auto`` is ``cuda`` where a job reserves GPUs, else ``cpu``.
    """
    given = {name: value for name, value in options.items() if value not in (None, []) and value is not False}
    for name in given:
        if executor.value not in _EXECUTORS[name]:
            option, others = f"--{name.replace('_', '-')}", " or ".join(f"--executor {n}" for n in _EXECUTORS[name])
            raise ConfigError(f"{option} has no effect with --executor {executor.value}; it belongs to {others}")
    if executor is ExecutorName.local:
        return Placement(None, device, slots)
    device, gpus = _device(device, given.get("gpus_per_job"))
    common: dict[str, Any] = {"cpus_per_job": given.get("cpus_per_job", 1), "gpus_per_job": gpus}
    if slots is not None:
        common["slots"] = slots
    if executor is ExecutorName.ray:
        from madbench.execute.ray import ray_executor

        made = ray_executor(given.get("address"), shared="shared" in given, **common)
    else:
        from madbench.execute.submitit import slurm_executor

        minutes = {"minutes": given["wall_time"]} if "wall_time" in given else {}
        extra = _pairs(given.get("sbatch", []))
        made = slurm_executor(given.get("partition"), memory_gb=given.get("memory"), extra=extra, **common, **minutes)
    return Placement(made, device, None)


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


def _pairs(words: list[str]) -> dict[str, Any]:
    """``["account=me", "exclusive"]`` -> ``{"account": "me", "exclusive": True}``."""
    pairs: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.removeprefix("--").partition("=")
        if not key or (separator and not value):
            raise ConfigError(f"--sbatch {word!r}: expected KEY=VALUE, such as account=me, or KEY")
        pairs[key] = value if separator else True
    return pairs
