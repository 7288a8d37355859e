"""Queries of this machine's hardware and software, and the choice of device and precision for ``auto``."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from madbench._version import __version__
from madbench.details import GitState
from madbench.errors import ConfigError
from madbench.jobs import Precision
from madbench.mixers.ops.processor import cpuinfo


def resolve_device(device: str, is_here: bool = True) -> str:
    """Return the device to train on. ``auto`` becomes ``cuda`` if this machine has a GPU, else ``cpu``.

    If ``is_here`` is False, jobs train on other machines, where each job sees only its own GPU. Then ``device`` has to
    be ``cpu`` or ``cuda``, and this machine need not have it. Raises ``ConfigError`` for an unknown or missing device.
    """
    if not is_here:
        if device not in ("cpu", "cuda"):
            raise ConfigError(f"device {device!r}: on other machines a job has either cpu or cuda, its own GPU")
        return device
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ConfigError(f"device {device!r} is not known; expected auto, cpu, cuda or cuda:N")
    if device == "cpu":
        return device
    count = _gpu_count()
    if device == "auto":
        return "cuda" if count else "cpu"
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        raise ConfigError(f"device {device!r}: this machine has {count} CUDA devices; use --device cpu or auto")
    return device


def _gpu_count() -> int:
    """The number of GPUs that torch can use here. A CPU build of torch has none, and need not be imported to say so."""
    if version("torch").endswith("+cpu"):
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def resolve_precision(precision: Literal["auto", Precision], device: str, is_here: bool = True) -> Precision:
    """Return the precision to train in.

    ``auto`` becomes ``bfloat16`` if that is faster on ``device``, else ``float32``. bfloat16 is faster on a GPU, and on
    a CPU with units for bfloat16. If ``is_here`` is False, jobs train on other machines, whose CPUs are assumed to have
    no such units. So the result does not depend on the machine that submits jobs.
    """
    if precision != "auto":
        return precision
    return "bfloat16" if device != "cpu" or (is_here and cpu_has_bfloat16_units()) else "float32"


def cpu_has_bfloat16_units() -> bool:
    """True if the CPU has instructions for products of bfloat16 matrices (AMX or AVX-512 BF16 on x86, BF16 on Arm)."""
    return bool(re.search(r"\b(?:amx_bf16|avx512_bf16|bf16)\b", cpuinfo()))


def peak_flops(device_name: str, precision: Precision) -> float | None:
    """The FLOPs per second of a GPU in bfloat16, for dense matrix products, from its datasheet.

    None if ``precision`` is not ``bfloat16``, and for devices whose datasheet is not listed here. ``device_name`` is
    the result of ``torch.cuda.get_device_name``.
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
    """The product name of a GPU or of the CPU, such as ``NVIDIA H200``.

    ``device`` is a torch device, such as ``cuda:1``.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return cpu_name()


@functools.cache
def cpu_name() -> str:
    name = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo(), re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()


def cpu_kind() -> str:
    """The vendor, family and model of the CPU, and the instructions that PyTorch uses: ``AuthenticAMD 25/17, AVX512``.

    They affect rounding, as software versions and the number of threads do. Processors with the same :func:`cpu_name`
    can differ in them. Vendor, family and model are left out if the system does not report them.
    """
    import torch

    fields = [
        re.search(rf"^{name}\s*:\s*(\S+)$", cpuinfo(), re.MULTILINE) for name in ("vendor_id", "cpu family", "model")
    ]
    numbers = "{} {}/{}, ".format(*(field[1] for field in fields if field)) if all(fields) else ""
    return numbers + torch.backends.cpu.get_cpu_capability()


def available_cores() -> int:
    """The number of cores that this process may use, given its CPU affinity and CPU quota. At least 1."""
    return max(1, int(min(len(_own_cores()), cpu_quota())))


def _own_cores() -> set[int]:
    try:
        return set(os.sched_getaffinity(0))
    except AttributeError:
        return set(range(os.cpu_count() or 1))


def cpu_quota(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """The CPU quota of this process in cores, such as 1.5. Infinite if there is none.

    It is the lowest quota among the process's control groups and their parents. ``groups`` is the folder of all control
    groups, and ``own`` is the file that lists the control groups of the process.
    """
    quota = math.inf
    with suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mounts = [groups / name for name in dict.fromkeys((controllers, "cpu"))] if controllers else [groups]
            for mount in mounts:
                inner = mount / path.lstrip("/")
                for folder in (inner, *inner.parents):
                    quota = min(quota, _quota_of(folder))
                    if folder == mount:
                        break
    return quota


def _quota_of(group: Path) -> float:
    """The CPU quota of one control group (cgroup version 1 or 2), in cores. Infinite if it has none."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # without a quota: "max", or negative in version 1
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
    return math.inf


def free_cores(busy: float) -> int:
    """The number of cores that this process can use while other processes keep ``busy`` cores busy. At least 1."""
    return max(1, min(available_cores(), round(len(_own_cores()) - busy)))


def load_average() -> float:
    """The average number of processes on this machine that ran or waited over the last minute. Infinite if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return math.inf


def busy_cores(seconds: float = 0.2) -> float:
    """The number of this process's cores that other processes keep busy, such as 0.9. 0 if it is not reported.

    The number is measured twice, for ``seconds`` each, while this process sleeps. The lower result is returned, so a
    short burst does not count.
    """
    looks = [_core_times()]
    for _ in range(2):
        time.sleep(seconds)
        looks.append(_core_times())
    return min(_busy_between(first, second) for first, second in itertools.pairwise(looks))


def _core_times() -> dict[str, tuple[int, int]]:
    """The idle time and the total time of each core that this process may use, by the core's name, such as ``cpu0``.

    Times are in clock ticks since the machine started. Waiting for I/O counts as idle. Empty if the system does not
    report them.
    """
    own, times = {f"cpu{core}" for core in _own_cores()}, {}
    with suppress(OSError, ValueError):
        for name, *ticks in map(str.split, Path("/proc/stat").read_text().splitlines()):
            if name in own:
                idle, waiting = map(int, ticks[3:5])
                times[name] = idle + waiting, sum(map(int, ticks[:8]))
    return times


def _busy_between(first: Mapping[str, tuple[int, int]], second: Mapping[str, tuple[int, int]]) -> float:
    busy = 0.0
    for name in first.keys() & second.keys():
        idle, total = (after - before for before, after in zip(first[name], second[name]))
        busy += 1 - idle / total if total > 0 else 0.0
    return busy


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def environment_threads() -> tuple[int, str] | None:
    """The number of threads that environment variables set, and the setting as text, such as ``OMP_NUM_THREADS=2``.

    The variables are those in ``THREAD_VARIABLES``. If several are set, the lowest number counts. None if no variable
    is set.
    """
    limits = []
    for name in THREAD_VARIABLES:
        first = os.environ.get(name, "").partition(",")[0].strip()  # OpenMP: one number per nesting level
        if first.isdecimal() and int(first) > 0:
            limits.append((int(first), f"{name}={first}"))
    return min(limits, default=None)


def memory_bytes() -> float:
    """The memory of this machine in bytes, or the memory limit of this process's control group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # "max" if there is no limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return float(total) if total > 0 else math.inf


def return_freed_memory() -> None:
    """Return the memory that this process has freed to the system. No effect without glibc.

    Workers keep freed memory (:func:`madbench.execute.base.worker_environment`). This is for memory that was needed
    only once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # a function of glibc
    if trim is not None:
        trim(0)


def versions() -> dict[str, str]:
    """The versions of madbench, Python, torch and numpy, by name in lower case."""
    return {"madbench": __version__, "python": platform.python_version()} | {
        package: version(package) for package in ("torch", "numpy")
    }


@functools.cache
def git_state() -> GitState | None:
    """The git commit of the checkout from which madbench is imported, and under ``dirty`` whether it was changed.

    None if madbench is not imported from a checkout, or if git fails.
    """
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
