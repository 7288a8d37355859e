"""Where a number comes from: budget, path, versions, device, code."""

from __future__ import annotations

import functools
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

import madbench
from madbench.jobs import JobBase
from madbench.training.devices import cpu_name


def provenance(
    job: JobBase, streams: Sequence[str], model: nn.Module, mixer: nn.Module, device: str, batch_shape: tuple[int, int]
) -> dict[str, Any]:
    """Everything about a run of any kind that is not its job and not its result.

    ``streams`` are the sources of randomness that the run draws from, ``mixer`` is one of the model's and
    ``batch_shape`` (B, T) that of what it is given in training.
    """
    details: dict[str, Any] = {
        "model_parameters": sum(p.numel() for p in model.parameters()),
        "mixer_parameters": sum(p.numel() for p in mixer.parameters()),
        "seeds": {stream: job.derived_seed(stream) for stream in streams},
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "git": git_state(),
    }
    allocation = getattr(mixer, "allocation", None)
    if allocation is not None:
        ranks = allocation.ranks
        details |= {
            "ranks": {"qk": ranks.qk, "vo": ranks.vo, "mix": ranks.mix},
            "mixer_parameters_published": allocation.published_total,
            "budget": allocation.target,
            "budget_ratio": allocation.ratio,
            "path": mixer.resolve_path(*batch_shape),
        }
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
