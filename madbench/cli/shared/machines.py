"""The machines on which jobs run: this machine and its GPUs, a Ray cluster, or Slurm."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from madbench.config import from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, did_you_mean
from madbench.execute.base import Executor
from madbench.execute.ray import RayConfig, ray_executor
from madbench.execute.submitit import SlurmConfig, slurm_executor
from madbench.training.devices import resolve_device


def executor_of(on: str | None, device: str, slots: int | None) -> tuple[Executor | None, str]:
    """The executor of ``--on`` and the device of its jobs. The executor is None for this machine.

    On other machines ``auto`` is ``cuda`` if a job reserves GPUs, else ``cpu``. Raises ``ConfigError`` for an unknown
    executor and a wrong file.
    """
    if on is None:
        return None, device
    name, _, where = on.partition(":")
    if name not in ("ray", "slurm"):
        expected = "expected ray, ray:ADDRESS, ray:FILE.yaml, slurm or slurm:FILE.yaml"
        raise ConfigError(f"--on {on}: {expected}{did_you_mean(name, ('ray', 'slurm'))}")
    file = Path(where) if where.endswith((".yaml", ".yml")) else None
    if name == "ray":
        address = on if where.startswith("//") else where or None  # ray://HOST:PORT is an address itself
        ray = from_mapping(RayConfig, read_yaml(file), where) if file else RayConfig(address)
        device, gpus = _device(device, ray.gpus_per_job)
        return ray_executor(replace(ray, gpus_per_job=gpus), slots), device
    if where and not file:
        raise ConfigError(f"--on {on}: expected a file of options, such as slurm:cluster.yaml")
    slurm = from_mapping(SlurmConfig, read_yaml(file), where) if file else SlurmConfig()
    device, gpus = _device(device, slurm.gpus_per_job)
    return slurm_executor(replace(slurm, gpus_per_job=gpus), slots), device


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
