"""The machines on which jobs run: this machine and its GPUs, a Ray cluster, or Slurm."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from madbench.config import from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, no_effect, suggestion
from madbench.execute.base import Executor
from madbench.execute.ray import RayConfig, ray_executor
from madbench.execute.submitit import SlurmConfig, slurm_executor
from madbench.training.devices import resolve_device


def executor_of(on: str | None, device: str, slots: int | None) -> tuple[Executor | None, str]:
    """The executor that ``--on`` names, and the device of its jobs.

    ``on`` is None for this machine. The executor is then None and the device unchanged. On other machines the device
    ``auto`` becomes ``cuda`` if a job reserves GPUs, otherwise ``cpu``. ``slots`` is the number of jobs at a time.
    Raises ``ConfigError`` for an unknown executor, an invalid file, and a device that contradicts the reserved GPUs.
    """
    if on is None:
        return None, device
    name, _, where = on.partition(":")
    if name not in ("ray", "slurm"):
        expected = "expected ray, ray:ADDRESS, ray:FILE.yaml, slurm or slurm:FILE.yaml"
        raise ConfigError(f"--on {on}: {expected}{suggestion(name, ('ray', 'slurm'))}")
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
    """The device of jobs on another machine, and the number of GPUs that a job reserves.

    ``gpus`` is the number in the file of the executor. If it is None, a job reserves one GPU with the device ``cuda``,
    and otherwise none. The device ``auto`` becomes ``cuda`` if a job reserves a GPU, otherwise ``cpu``. Raises
    ``ConfigError`` if the device and the number contradict each other.
    """
    if device not in ("auto", "cpu", "cuda"):
        problem = "on other machines a job sees its own GPUs only; expected auto, cpu or cuda"
        raise ConfigError(f"--device {device}: {problem}")
    if gpus is None:
        return ("cuda", 1) if device == "cuda" else ("cpu", 0)
    if gpus and device == "cpu":
        raise no_effect(f"gpus_per_job {gpus:g}", "with --device cpu")
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda needs GPUs, but gpus_per_job is 0")
    return ("cuda" if gpus else "cpu"), gpus


def gpus_of(text: str, device: str) -> list[str]:
    """The values of ``CUDA_VISIBLE_DEVICES``, one per GPU, for the text of ``--devices``, such as ``"0,1"``.

    The numbers in the text count the GPUs that this process sees. Raises ``ConfigError`` for other text, for a GPU that
    does not exist, and if ``device`` is not a GPU.
    """
    gpus = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,4}", gpu) for gpu in gpus) or len(set(gpus)) < len(gpus):
        raise ConfigError(f"--devices {short_repr(text)}: expected numbers of GPUs, each once, such as 0,1")
    if device not in ("auto", "cuda"):
        raise no_effect(f"--devices {text}", f"with --device {device}")
    for gpu in gpus:
        resolve_device(f"cuda:{gpu}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [visible[int(gpu)] for gpu in gpus] if visible != [""] else gpus
