"""Precision of arithmetic inside a mixer, independent of autocast."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Converts the tensor to float32 or wider, because products cancel and grow, and sums are long."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[None]:
    """Disables autocast on the device of ``x``, for products and sums that need the precision of their factors.

    Does nothing for tensors without data (``meta``), with which costs are counted: autocast does not support them.
    """
    if x.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)
