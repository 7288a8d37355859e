"""The processes that ``torchrun`` started to train one run together, and what they tell each other.

Without torchrun there is one process, and every function here does the obvious thing for it.
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

TIMEOUT = timedelta(minutes=10)  # how long a process waits for the others: longer than a checkpoint takes to write

PATIENCE = 10.0  # seconds of waiting for the others after which the user is told

_FROM_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}


def is_distributed() -> bool:
    """Whether torchrun started this process."""
    return os.environ.keys() >= _FROM_TORCHRUN


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Joins torchrun's processes; gives this process's own device, ``cpu`` or ``cuda:N``.

    Processes talk over gloo on the CPU and over NCCL on GPUs. The group is left in order only when the block ends
    without an error: after one, the other processes may be waiting for an answer, and torchrun ends them.
    Raises ``ConfigError`` where this machine has fewer GPUs than processes.
    """
    backend = "gloo"
    if device != "cpu":
        device, backend = _own_gpu(device), "cpu:gloo,cuda:nccl"
    with _told_waiting():
        store, rank, count = _meeting_place()
        store = dist.PrefixStore(f"group-{next(_groups)}", store)  # the addresses of an earlier group are not good
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    yield device
    dist.destroy_process_group()


_groups = itertools.count()


@contextmanager
def _told_waiting() -> Iterator[None]:
    """Say on stderr what the block waits for, if it takes long; raise ``ConfigError`` if the others do not come."""
    place = ":".join(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT"))
    process = f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}"
    left_over = f"without torchrun, unset {', '.join(sorted(_FROM_TORCHRUN))}, which another program left"
    limit = f"{TIMEOUT.total_seconds() / 60:g} min"
    words = f"{process} waits up to {limit} for the others at {place}; {left_over}"
    timer = threading.Timer(PATIENCE, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    except (RuntimeError, ValueError) as error:  # of torch, for what does not answer and for variables that are wrong
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{process} does not find the others at {place}: {reason}; {left_over}") from error
    finally:
        timer.cancel()


@functools.cache
def _meeting_place() -> tuple[dist.Store, int, int]:
    """Where torchrun's processes find each other, this one's rank, and how many they are."""
    return next(dist.rendezvous("env://", timeout=TIMEOUT))


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
    """Processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def planned_size() -> int:
    """Processes that torchrun started, before they have joined; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def is_first() -> bool:
    """Whether this is the process that writes files and shows progress, or the only one."""
    return not is_distributed() or int(os.environ["RANK"]) == 0


def share(items: np.ndarray) -> np.ndarray:
    """This process's part of ``items`` (N, ...): consecutive, the parts of all processes differing by one at most."""
    return np.array_split(items, size())[dist.get_rank()] if size() > 1 else items


def total(values: Tensor) -> Tensor:
    """The sum over all processes of ``values``, in place and without waiting for the device."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def agree(flag: bool) -> bool:
    """Whether ``flag`` holds in any process; all of them wait here for each other, not for their devices."""
    if size() == 1:
        return flag
    return bool(total(torch.tensor(int(flag))))


def from_first(value: Any) -> Any:
    """What the first process passed; it must pickle."""
    if size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, device=torch.device("cpu"))
    return box[0]
