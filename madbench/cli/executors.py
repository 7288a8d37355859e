"""Options of ``madbench sweep`` that place jobs on other machines."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, Literal

from madbench.cli.parameters import option
from madbench.errors import ConfigError
from madbench.execute.base import Executor
from madbench.execute.ray import ray_executor
from madbench.execute.submitit import slurm_executor

_option = functools.partial(option, rich_help_panel="Other machines")


@dataclass(frozen=True)
class MachineOptions:
    """Options that place jobs."""

    executor: _option(
        Literal["local", "ray", "slurm"], "Where jobs run: processes of this machine, a Ray cluster, or Slurm."
    ) = "local"
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

    def place(self, device: str, slots: int | None) -> tuple[Executor | None, str, int | None]:
        """The executor, the device, and the jobs at a time on this machine; no executor is this machine.

        On other machines ``auto`` is ``cuda`` where a job reserves GPUs, else ``cpu``. Raises ``ConfigError`` for an
        option that has no effect with this executor.
        """
        given: dict[str, Any] = {} if slots is None else {"slots": slots}
        for flag, value in vars(self).items():
            if flag == "executor" or value in (None, []) or value is False:
                continue
            name = _ARGUMENTS.get(flag, flag)
            owners = [owner for owner, make in _EXECUTORS.items() if name in inspect.signature(make).parameters]
            if self.executor not in owners:
                belongs = " or ".join(f"--executor {owner}" for owner in owners)
                problem = f"has no effect with --executor {self.executor}; it belongs to {belongs}"
                raise ConfigError(f"--{flag.replace('_', '-')} {problem}")
            given[name] = dict(map(_pair, value)) if flag == "sbatch" else value
        if self.executor == "local":
            return None, device, slots
        device, given["gpus_per_job"] = _device(device, self.gpus_per_job)
        return _EXECUTORS[self.executor](**given), device, None


_EXECUTORS = {"ray": ray_executor, "slurm": slurm_executor}
_ARGUMENTS = {"wall_time": "minutes", "memory": "memory_gb", "sbatch": "extra"}
"""The arguments of executors that are not called as their options are."""


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
