"""Memory that a path would take, checked before it is allocated."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable

import torch
from torch import Tensor

from madbench.errors import TrainingError


def available_bytes(x: Tensor) -> int:
    """Memory of the device of ``x``: on a GPU what is free and what torch holds unused, on the CPU physical."""
    if x.device.type == "cuda":
        unused = torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
        return torch.cuda.mem_get_info(x.device)[0] + unused
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(x: Tensor, needed: int, what: str, fits: str) -> None:
    """Raises ``TrainingError`` where ``needed`` bytes for ``what`` are more than there are; ``fits``: what would do."""
    available = available_bytes(x)
    if needed > available:
        raise TrainingError(f"{what} takes {needed / 1e9:,.1f} GB, and there are {available / 1e9:,.1f} GB; {fits}")


def fitting_length(x: Tensor, bytes_at: Callable[[int], int]) -> int:
    """The longest sequence whose ``bytes_at(T)`` the device of ``x`` has."""
    available, length = available_bytes(x), 1
    while bytes_at(2 * length) <= available:
        length *= 2
    return bisect.bisect_right(range(2 * length), available, lo=length, key=bytes_at) - 1
