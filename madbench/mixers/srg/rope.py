"""Rotary position embedding (Su et al. 2021), base 10000, on half-split pairs (i, i + K/2)."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10000.0
STYLES = ("rotation", "mispaired")


def rotate(x: Tensor, first_position: int, style: str = "rotation") -> Tensor:
    """x (..., T, K), K even; row t is at position ``first_position + t``.

    ``style="rotation"``: every pair turns by one angle, so scores depend on the offset of two positions only.
    ``style="mispaired"``: the angles are laid out for half-split pairs and applied to interleaved pairs
    (2i, 2i + 1), as the paper's public code does; the two coordinates of a pair turn by different angles.
    """
    length, width = x.shape[-2:]
    frequency = BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = torch.arange(first_position, first_position + length, device=x.device, dtype=torch.float64)
    angle = torch.outer(position, frequency)
    angle = torch.cat((angle, angle), dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    if style == "rotation":
        first, second = x.chunk(2, dim=-1)
        quarter_turn = torch.cat((-second, first), dim=-1)
    else:
        first, second = x[..., 0::2], x[..., 1::2]
        quarter_turn = torch.stack((-second, first), dim=-1).flatten(-2)
    return (x * cos + quarter_turn * sin).to(x.dtype)
