"""Where a number comes from: budget, path, versions, device, code."""

from __future__ import annotations

import functools
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch

import madbench
from madbench.jobs import Job
from madbench.suites.trial import Trial
from madbench.training.devices import cpu_name


def provenance(job: Job, trial: Trial, device: str) -> dict[str, Any]:
    """Everything about a run that is not its job and not its result."""
    details: dict[str, Any] = {
        "model_parameters": sum(p.numel() for p in trial.model.parameters()),
        "mixer_parameters": sum(p.numel() for p in trial.mixer.parameters()),
        "seeds": {stream: job.derived_seed(stream) for stream in trial.streams},
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "git": git_state(),
    }
    allocation = getattr(trial.mixer, "allocation", None)
    if allocation is not None:
        details |= {
            "ranks": dict(allocation.ranks),
            "budget": allocation.target,
            "budget_ratio": allocation.ratio,
        }
    resolve_path = getattr(trial.mixer, "resolve_path", None)
    if resolve_path is not None:
        details["path"] = resolve_path(*trial.batch_shape)
    return details


def versions() -> dict[str, str]:
    return {
        "madbench": madbench.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def device_name(device: str) -> str:
    """What the hardware calls itself."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


@functools.cache
def git_state() -> dict[str, Any] | None:
    """Commit and cleanliness of the checkout this package runs from; ``None`` when it is not in one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
