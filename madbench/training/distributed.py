"""Communication between the processes that ``torchrun`` starts to train one run together.

Without torchrun there is one process. The functions that sum, share or broadcast then return their argument.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from madbench.errors import ConfigError
from madbench.training.processes import FROM_TORCHRUN

TIMEOUT = timedelta(minutes=10)  # longest wait for other processes: longer than writing a checkpoint

PATIENCE = 10.0  # seconds of waiting for other processes before a message


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Within a ``with`` block, join the process group of torchrun.

    Yield the device of this process, ``cpu`` or ``cuda:N``. Processes communicate by gloo on the CPU and by NCCL on
    GPUs. The group is left only if the block ends without an error. After an error the other processes may still wait
    for this one, and torchrun ends them. Raises ``ConfigError`` if this machine has fewer GPUs than processes, or if
    the other processes do not join.
    """
    backend = "gloo"
    if device != "cpu":
        device, backend = _own_gpu(device), "cpu:gloo,cuda:nccl"
    with _told_waiting():
        store, rank, count = _meeting_place()
        store = dist.PrefixStore(f"group-{next(_groups)}", store)  # addresses of an earlier group are stale
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    yield device
    dist.destroy_process_group()


_groups = itertools.count()


@contextmanager
def _told_waiting() -> Iterator[None]:
    """Print a message on stderr if the ``with`` block, in which processes join, takes longer than ``PATIENCE`` seconds.

    Raises ``ConfigError`` if the other processes do not join.
    """
    place = ":".join(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT"))
    process = f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}"
    left_over = f"without torchrun, unset {', '.join(sorted(FROM_TORCHRUN))}, which another program left"
    limit = f"{TIMEOUT.total_seconds() / 60:g} min"
    words = f"{process} waits up to {limit} for the others at {place}; {left_over}"
    timer = threading.Timer(PATIENCE, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    except (RuntimeError, ValueError) as error:  # torch's errors for timeouts and for wrong variables
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{process} does not find the others at {place}: {reason}; {left_over}") from error
    finally:
        timer.cancel()


@functools.cache
def _meeting_place() -> tuple[dist.Store, int, int]:
    """The key-value store that torchrun's processes share, the rank of this process, and the number of processes."""
    place: tuple[dist.Store, int, int] = next(dist.rendezvous("env://", timeout=TIMEOUT))
    return place


def _own_gpu(device: str) -> str:
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if device != "cuda":
        raise ConfigError(f"device {device!r} has no effect under torchrun, where process n takes GPU n; use cuda")
    if index >= count:
        raise ConfigError(
            f"process {index} of this machine has no GPU: there are {count}; start {count} with torchrun "
            f"--nproc-per-node {count}, or train with --device cpu"
        )
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def size() -> int:
    """The number of processes in the process group. 1 if this process is in no group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def share(items: np.ndarray) -> np.ndarray:
    """The part of ``items`` (N, ...) that this process handles: about N / :func:`size` consecutive items."""
    return np.array_split(items, size())[dist.get_rank()] if size() > 1 else items


def total(values: Tensor) -> Tensor:
    """Sum ``values`` over all processes, in place, and return them. The host does not wait for a GPU."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def agree(flag: bool) -> bool:
    """True if ``flag`` is True in any process. The processes wait here for each other, but not for their GPUs.

    Every process has to call this function.
    """
    if size() == 1:
        return flag
    return bool(total(torch.tensor(int(flag))))


def from_first(value: Any) -> Any:
    """Return, in every process, the ``value`` that the first process passed. It is sent as a pickle.

    Every process has to call this function.
    """
    if size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, device=torch.device("cpu"))
    return box[0]
