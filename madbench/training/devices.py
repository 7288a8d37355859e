"""What hardware and software there is, and what to use of it."""

from __future__ import annotations

import functools
import math
import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import madbench
from madbench.errors import ConfigError
from madbench.jobs import Precision


def resolve_device(device: str, is_here: bool = True) -> str:
    """``auto`` becomes ``cuda`` where there is one; raises ``ConfigError`` for a device that is not there.

    That of another machine, where jobs see no GPU but their own, is ``cpu`` or ``cuda``, and not looked for.
    """
    if not is_here:
        if device not in ("cpu", "cuda"):
            raise ConfigError(f"device {device!r}: on other machines a job has either cpu or cuda, its own GPU")
        return device
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ConfigError(f"device {device!r} is not known; expected auto, cpu, cuda or cuda:N")
    if device == "cpu":
        return device
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        raise ConfigError(f"device {device!r}: this machine has {count} CUDA devices; use --device cpu or auto")
    return device


def resolve_precision(precision: str, device: str, is_here: bool = True) -> Precision:
    """``auto`` becomes bfloat16 where matrix products in it are faster: on a GPU and on CPUs with units for it.

    CPUs of other machines are taken to have none, so that what is trained does not depend on where it is asked for.
    """
    if precision != "auto":
        return precision
    return "bfloat16" if device != "cpu" or (is_here and cpu_has_bfloat16_units()) else "float32"


def cpu_has_bfloat16_units() -> bool:
    """Whether the processor multiplies bfloat16 matrices in hardware (AMX or AVX-512 BF16; Arm BF16)."""
    return bool(re.search(r"\b(?:amx_bf16|avx512_bf16|bf16)\b", _cpuinfo()))


def peak_flops(device_name: str, precision: Precision) -> float | None:
    """Dense matrix FLOPs a second of a GPU, as its datasheet has them; None for any other device and for float32.

    ``device_name`` is what ``torch.cuda.get_device_name`` gives.
    """
    teraflops = _BFLOAT16_TERAFLOPS.get(device_name) if precision == "bfloat16" else None
    return None if teraflops is None else teraflops * 1e12


# NVIDIA's datasheets and architecture whitepapers: bfloat16 tensor cores, float32 accumulation, without sparsity.
_BFLOAT16_TERAFLOPS = {
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA A30": 165,
    "NVIDIA A10": 125,
    "NVIDIA A40": 149.7,
    "NVIDIA RTX A6000": 154.8,
    "NVIDIA GeForce RTX 3090": 71,
    "NVIDIA GeForce RTX 4090": 165.2,
    "NVIDIA L4": 121,
    "NVIDIA L40": 181,
    "NVIDIA L40S": 362,
    "NVIDIA H100 80GB HBM3": 989.5,
    "NVIDIA H100 PCIe": 756.5,
    "NVIDIA H200": 989.5,
    "NVIDIA GH200 480GB": 989.5,
}


def device_name(device: str) -> str:
    """What the hardware calls itself."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return cpu_name()


@functools.cache
def cpu_name() -> str:
    name = re.search(r"^model name\s*:\s*(\S.*)$", _cpuinfo(), re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def available_cores() -> int:
    """Cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1


def memory_bytes() -> float:
    """Memory of this machine, or of the control group that the process is confined to."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # "max" where there is no limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return float(total) if total > 0 else math.inf


def versions() -> dict[str, str]:
    """Those that decide the numbers of a run."""
    return {"madbench": madbench.__version__, "python": platform.python_version()} | {
        package: version(package) for package in ("torch", "numpy")
    }


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
