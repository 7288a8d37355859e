"""Precision of arithmetic inside a mixer, independent of autocast."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return x in float32, or unchanged if its dtype is wider. For long sums and for products that cancel or grow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[None]:
    """Disable autocast on the device of ``x``, for products and sums that need the precision of their inputs.

    Do nothing on the device ``meta``, which autocast does not support. Costs are counted on this device.
    """
    if x.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)
