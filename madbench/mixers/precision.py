"""Arithmetic inside a mixer that autocast has no say in."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """The tensor in float32 at least: products of factors cancel and grow, and sums are long."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[None]:
    """No autocast on the device of ``x``: products and sums that need the precision of their factors.

    Tensors without data (``meta``), on which costs are counted, know no autocast.
    """
    if x.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)
