"""Channels of projections as heads."""

from __future__ import annotations

import torch
from torch import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split channels into heads, (B, T, heads * C) -> (B, heads, T, C)."""
    if x.shape[1] == 1:
        return x.view(len(x), heads, 1, x.shape[-1] // heads)
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)
