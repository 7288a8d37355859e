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


PANEL = "Other machines"

ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(help="Where jobs run: processes of this machine, a Ray cluster, or Slurm.", rich_help_panel=PANEL),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="ray: the cluster; also ray://HOST:PORT, auto (begun here by ray start) or local (a new one).",
        show_default="RAY_ADDRESS, else auto, else local",
        rich_help_panel=PANEL,
    ),
]
CpusPerJobOption = Annotated[
    int | None,
    typer.Option(min=1, help="ray, slurm: cores of a job, and its threads.", show_default="1", rich_help_panel=PANEL),
]
GpusPerJobOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="ray, slurm: GPUs of a job; with ray 0.5 puts two jobs on one.",
        show_default="1 with --device cuda, else 0",
        rich_help_panel=PANEL,
    ),
]
SharedOption = Annotated[
    bool,
    typer.Option(
        "--shared",
        help="ray: all machines see the results folder at its path; interrupted jobs go on from checkpoints there.",
        rich_help_panel=PANEL,
    ),
]
PartitionOption = Annotated[str | None, typer.Option(help="slurm: the partition.", rich_help_panel=PANEL)]
WallTimeOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="MINUTES",
        help="slurm: wall time of a job; at its end the job is queued again and goes on.",
        show_default="60",
        rich_help_panel=PANEL,
    ),
]
MemoryOption = Annotated[
    float | None, typer.Option(metavar="GB", help="slurm: memory of a job.", rich_help_panel=PANEL)
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="slurm: another option of sbatch, such as account=me; repeatable.",
        rich_help_panel=PANEL,
    ),
]


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


def place(
    executor: ExecutorName,
    device: str,
    slots: int | None,
    *,
    address: str | None = None,
    cpus_per_job: int | None = None,
    gpus_per_job: float | None = None,
    shared: bool = False,
    partition: str | None = None,
    wall_time: int | None = None,
    memory: float | None = None,
    sbatch: list[str] | None = None,
) -> Placement:
    """What the options ask for; raises ``ConfigError`` for one that has no effect with this executor.

    On other machines ``auto`` is ``cuda`` where a job reserves GPUs, else ``cpu``.
    """
    given = {
        "--address": address,
        "--cpus-per-job": cpus_per_job,
        "--gpus-per-job": gpus_per_job,
        "--shared": shared or None,
        "--partition": partition,
        "--wall-time": wall_time,
        "--memory": memory,
        "--sbatch": sbatch or None,
    }
    understood = {
        "local": set(),
        "ray": {"--address", "--cpus-per-job", "--gpus-per-job", "--shared"},
        "slurm": {"--cpus-per-job", "--gpus-per-job", "--partition", "--wall-time", "--memory", "--sbatch"},
    }
    for option, value in given.items():
        if value is not None and option not in understood[executor.value]:
            of = " or ".join(f"--executor {name}" for name, options in understood.items() if option in options)
            raise ConfigError(f"{option} has no effect with --executor {executor.value}; it belongs to {of}")
    if executor is ExecutorName.local:
        return Placement(None, device, slots)
    device, gpus = _device(device, gpus_per_job)
    common = {"cpus_per_job": cpus_per_job or 1, "gpus_per_job": gpus}
    if executor is ExecutorName.ray:
        from madbench.execute.ray import ray_executor

        return Placement(ray_executor(address, slots=slots, shared=shared, **common), device, None)
    from madbench.execute.submitit import slurm_executor

    chosen: dict[str, Any] = {"minutes": wall_time, "slots": slots}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return Placement(
        slurm_executor(partition, memory_gb=memory, extra=_pairs(sbatch or []), **common, **chosen), device, None
    )


def _device(device: str, gpus: float | None) -> tuple[str, float]:
    """The device of the workers and the GPUs that a job reserves; each decides the other."""
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"--device {device}: on other machines a job sees its own GPUs only; expected auto, cpu or cuda"
        )
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
