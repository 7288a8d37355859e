"""Rotary position embedding (Su et al. 2021), also with the mispaired angles of a published code."""

from __future__ import annotations

import torch
from torch import Tensor

ROPE_BASE = 10000.0


def rotate(
    x: Tensor, first_position: int, style: str = "rotation", angles: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Apply rotary position embedding (Su et al. 2021) to x (..., T, K), K even. Row t is at ``first_position + t``.

    ``style="rotation"``: every pair is rotated by one angle, so scores depend on the offset of two positions only.
    ``style="mispaired"``: angles laid out for half-split pairs are applied to interleaved pairs (2i, 2i + 1), as in the
    public code of one paper. The two coordinates of a pair are then rotated by different angles.

    ``angles`` is the result of :func:`rotary_angles`, if already computed. If it has fewer channels than x, only the
    first channels are rotated.
    """
    cos, sin = angles or rotary_angles(x, first_position)
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], first_position, style, (cos, sin)), x[..., width:]), dim=-1)
    if style == "rotation":
        first, second = x.chunk(2, dim=-1)
        quarter_turn = torch.cat((-second, first), dim=-1)
    else:
        first, second = x[..., 0::2], x[..., 1::2]
        quarter_turn = torch.stack((-second, first), dim=-1).flatten(-2)
    return (x * cos + quarter_turn * sin).to(x.dtype)


def rotary_angles(x: Tensor, first_position: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (T, K), of the angles by which :func:`rotate` rotates x (..., T, K).

    Row t of x is at position ``first_position + t``. The results are in float32 or wider.
    """
    length, width = x.shape[-2:]
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = torch.arange(first_position, first_position + length, device=x.device, dtype=torch.float64)
    angle = torch.outer(position, frequency)
    angle = torch.cat((angle, angle), dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return angle.cos().to(dtype), angle.sin().to(dtype)
