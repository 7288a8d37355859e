"""Precision of arithmetic inside a mixer, independent of autocast."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return x in float32, or unchanged if its dtype is wider.

    Use it for long sums, and for products whose terms cancel or whose values grow.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[None]:
    """A context in which autocast is disabled on the device of ``x``, for arithmetic in the precision of its inputs.

    On the device ``meta``, which autocast does not support, the context does nothing. Costs are counted on this device.
    """
    if x.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)
