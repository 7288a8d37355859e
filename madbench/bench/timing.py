"""Timing of several cases in turn, memory kept for a backward pass, and the peak speed of the device."""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import MadbenchError, TrainingError
from madbench.mixers.ops import products
from madbench.training.cost import PeakMemory

MIB = 2**20
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # options of mallopt
ROUND_SECONDS, MOST_CALLS = 0.02, 50  # limits of the time and the number of calls of a case per round on a GPU
LEAST_ROUNDS = 2  # least number of rounds that count


@dataclass(frozen=True)
class Timing:
    """The seconds that one pass takes: the median, the shortest and the longest over several rounds."""

    median: float
    low: float
    high: float

    def milliseconds(self, name: str) -> dict[str, float]:
        """The median, the shortest and the longest time, in milliseconds.

        The keys are the columns ``NAME_ms``, ``NAME_low_ms`` and ``NAME_high_ms``, where NAME is ``name``.
        """
        times = {f"{name}_ms": self.median, f"{name}_low_ms": self.low, f"{name}_high_ms": self.high}
        return {column: 1e3 * seconds for column, seconds in times.items()}


@dataclass(frozen=True)
class TimingLimits:
    """The limits of a measurement.

    ``rounds`` is the number of rounds after a warm-up round. ``end`` is the value of ``time.perf_counter`` at which the
    measurement ends.
    """

    rounds: int
    end: float = math.inf

    @property
    def is_over(self) -> bool:
        return time.perf_counter() > self.end


def time_in_turns(cases: Mapping[Any, Callable[[], Any]], limits: TimingLimits, device: str) -> dict[Any, Timing | str]:
    """Time all cases in rounds. Each round runs all cases in turn, so that a noisy machine slows all of them equally.

    A round runs each case once. On a GPU, it runs a short case several times and takes the mean. The first round is a
    warm-up. The result has one value per case: the times, or the reason why the case cannot be timed, such as ``out of
    memory``.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in cases}
    times: dict[Any, Timing | str] = {}
    calls = dict.fromkeys(cases, 1)
    for round_ in range(1 + limits.rounds):
        if round_ > LEAST_ROUNDS and limits.is_over:
            break
        for name, run in cases.items():
            if name in times:
                continue
            try:
                took = _seconds(run, device, calls[name])
                if not round_ and device != "cpu":  # on a GPU a pass may be far shorter than a wait for the device
                    calls[name] = max(1, min(MOST_CALLS, int(ROUND_SECONDS / _seconds(run, device))))
            except Exception as error:  # many kinds of errors of a kernel or a compiler
                times[name] = reason_unmeasured(error)
                continue
            if round_:
                seconds[name].append(took)
    for name, own_seconds in seconds.items():
        if name not in times:
            times[name] = Timing(statistics.median(own_seconds), min(own_seconds), max(own_seconds))
    return times


def require_timings(times: Mapping[str, Timing | str]) -> dict[str, Timing]:
    """Return the times if all cases were timed. Raises ``TrainingError`` with the first reason why a case was not."""
    measured: dict[str, Timing] = {}
    for name, timing in times.items():
        if isinstance(timing, str):
            raise TrainingError(timing)
        measured[name] = timing
    return measured


def reason_unmeasured(error: Exception) -> str:
    """The reason why a case was not measured, in one line: ``out of memory``, or the first line of the error."""
    if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
        return "out of memory"
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return line if isinstance(error, MadbenchError) else f"{type(error).__name__}: {line}"


def wait(device: str) -> None:
    """Wait until the device has finished its queued work. No effect on the CPU."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def _seconds(run: Callable[[], Any], device: str, calls: int = 1) -> float:
    wait(device)
    began = time.perf_counter()
    for _ in range(calls):
        run()
    wait(device)
    return (time.perf_counter() - began) / calls


def peak_bytes(run: Callable[[], Any], device: str) -> int:
    """The bytes that ``run`` allocates at its peak, beyond those allocated before.

    Live tensors are counted on the CPU, and the memory of torch's allocator on a GPU.
    """
    if device == "cpu":
        memory = PeakMemory()
        with memory:
            run()
        return memory.peak
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    wait(device)
    return torch.cuda.max_memory_allocated(device) - before


def kept_bytes(module: nn.Module, forward: Callable[[], Tensor], device: str = "cpu") -> int:
    """The bytes that a forward pass of ``module`` keeps for its backward pass.

    On the CPU these are the tensors that autograd saves, without parameters. On a GPU it is the growth of the
    allocator's memory, without the output. ``forward`` computes the forward pass.
    """
    if device != "cpu":
        wait(device)
        before = torch.cuda.memory_allocated(device)
        y = forward()
        wait(device)
        return torch.cuda.memory_allocated(device) - before - y.untyped_storage().nbytes()
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    bytes_by_address: dict[int, int] = {}
    storages = []  # the address of a freed storage could be reused

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            bytes_by_address[storage.data_ptr()] = storage.nbytes()
            storages.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(bytes_by_address.values())


def keep_freed_memory() -> None:
    """Let this process keep freed memory instead of returning it to the system. No effect without glibc.

    Workers do so too (:func:`madbench.execute.base.worker_environment`), so that measured times are those of workers.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # a function of glibc
    if mallopt is not None:
        for option, value in (_MMAP_MAX, 0), (_TRIM_THRESHOLD, 10**9):
            mallopt(option, value)


@functools.cache
def ceiling_flops(device: str, dtype: torch.dtype) -> float:
    """The FLOPs per second of a large matrix product, as a practical ceiling for mixers.

    The product is timed five times in ``dtype`` and five times in float32. The shortest time counts.
    """
    size, best = 1024 if device == "cpu" else 8192, math.inf
    for kind in {dtype, torch.float32}:
        a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
        multiply = functools.partial(products.linear, a, b)
        multiply()
        best = min(best, *(_seconds(multiply, device) for _ in range(5)))
    return 2 * size**3 / best
