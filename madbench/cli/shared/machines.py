"""The machines on which jobs run: this machine and its GPUs, a Ray cluster, or Slurm."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madbench.config import from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, did_you_mean
from madbench.execute.base import Executor
from madbench.training.devices import resolve_device


@dataclass(frozen=True)
class RayConfig:
    """The file of ``--on ray:FILE.yaml``."""

    address: str | None = None
    """Cluster: HOST:PORT, ray://HOST:PORT, auto or local."""
    cpus_per_job: int = 1
    """Cores of a job, and its threads."""
    gpus_per_job: float | None = None
    """GPUs of a job; 0.5 puts two jobs on one."""
    shared: bool = False
    """True if all machines see the results folder at its path: interrupted jobs resume from checkpoints there."""

    def executor(self, gpus: float, slots: int | None) -> Executor:
        from madbench.execute.ray import ray_executor

        return ray_executor(self.address, self.cpus_per_job, gpus, slots, self.shared)


@dataclass(frozen=True)
class SlurmConfig:
    """The file of ``--on slurm:FILE.yaml``."""

    partition: str | None = None
    """Partition of the jobs."""
    minutes: int = 60
    """Wall time of a job; at its end the job is queued again and resumes."""
    cpus_per_job: int = 1
    """Cores of a job, and its threads."""
    gpus_per_job: float | None = None
    """GPUs of a job."""
    memory_gb: float | None = None
    """Memory of a job."""
    sbatch: dict[str, Any] = field(default_factory=dict)
    """Other options of sbatch by their long names, such as {account: me}."""

    def executor(self, gpus: float, slots: int | None) -> Executor:
        from madbench.execute.submitit import SLOTS, slurm_executor

        limit = SLOTS if slots is None else slots
        return slurm_executor(self.partition, self.minutes, self.cpus_per_job, gpus, self.memory_gb, limit, self.sbatch)


CONFIGS: dict[str, type[RayConfig] | type[SlurmConfig]] = {"ray": RayConfig, "slurm": SlurmConfig}


def executor_of(on: str | None, device: str, slots: int | None) -> tuple[Executor | None, str]:
    """The executor of ``--on`` and the device of its jobs. The executor is None for this machine.

    On other machines ``auto`` is ``cuda`` if a job reserves GPUs, else ``cpu``. Raises ``ConfigError`` for an unknown
    executor and a wrong file.
    """
    if on is None:
        return None, device
    name, _, where = on.partition(":")
    if name not in CONFIGS:
        expected = "expected ray, ray:ADDRESS, ray:FILE.yaml, slurm or slurm:FILE.yaml"
        raise ConfigError(f"--on {on}: {expected}{did_you_mean(name, CONFIGS)}")
    config: RayConfig | SlurmConfig
    if where.endswith((".yaml", ".yml")):
        config = from_mapping(CONFIGS[name], read_yaml(Path(where)), where)
    elif name == "ray":  # ray://HOST:PORT is an address itself
        config = RayConfig(on if where.startswith("//") else where or None)
    elif where:
        raise ConfigError(f"--on {on}: expected a file of options, such as slurm:cluster.yaml")
    else:
        config = SlurmConfig()
    device, gpus = _device(device, config.gpus_per_job)
    return config.executor(gpus, slots), device


def _device(device: str, gpus: float | None) -> tuple[str, float]:
    """The device of the jobs and the number of GPUs that a job reserves.

    If ``gpus`` is None, the device determines it. With the device ``auto``, ``gpus`` determines the device.
    """
    if device not in ("auto", "cpu", "cuda"):
        problem = "on other machines a job sees its own GPUs only; expected auto, cpu or cuda"
        raise ConfigError(f"--device {device}: {problem}")
    if gpus is None:
        return ("cuda", 1) if device == "cuda" else ("cpu", 0)
    if gpus and device == "cpu":
        raise ConfigError(f"gpus_per_job {gpus:g} has no effect with --device cpu")
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda needs GPUs, but gpus_per_job is 0")
    return ("cuda" if gpus else "cpu"), gpus


def gpus_of(text: str, device: str) -> list[str]:
    """Values of CUDA_VISIBLE_DEVICES for ``"0,1"``. Numbers count the GPUs that this process sees."""
    gpus = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,4}", gpu) for gpu in gpus) or len(set(gpus)) < len(gpus):
        raise ConfigError(f"--devices {short_repr(text)}: expected numbers of GPUs, each once, such as 0,1")
    if device not in ("auto", "cuda"):
        raise ConfigError(f"--devices {text}: has no effect with --device {device}")
    for gpu in gpus:
        resolve_device(f"cuda:{gpu}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [visible[int(gpu)] for gpu in gpus] if visible != [""] else gpus
