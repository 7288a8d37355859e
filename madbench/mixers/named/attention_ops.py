"""Operations that several named operators with a growing cache share, in torch: scores, positions and norms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.cd.parts import split_heads
from madbench.mixers.precision import wide
from madbench.mixers.srg.parts import rotary_angles, rotate


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """scale q k^T in float32 or wider: q (B, H, M, K), k (B, H, N, K) -> (B, H, M, N)."""
    return (wide(q) * scale) @ wide(k).mT


def future(z: Tensor, first: int | None) -> Tensor | None:
    """The mask of the tokens that rows of z (..., M, N) do not see. None if all rows see all tokens.

    Row m sees the first ``first`` + 1 + m tokens.
    """
    if first is None:
        return None
    return torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).triu(first + 1)


def softmax(z: Tensor, first: int | None) -> Tensor:
    """The softmax of scores over the tokens that each row sees, see :func:`future`."""
    mask = future(z, first)
    return (z if mask is None else z.masked_fill(mask, -math.inf)).softmax(-1)


def head_norm(x: Tensor, heads: int, gain: Tensor, eps: float) -> Tensor:
    """RMSNorm of each head, in float32 or wider: (B, T, H n) -> (B, H, T, n). The gain is (n,) or (H n,)."""
    x = split_heads(wide(x), heads)
    normed = F.rms_norm(x, x.shape[-1:], None, eps)
    return normed * (gain if gain.shape[0] == x.shape[-1] else gain.view(heads, 1, -1)).to(x.dtype)


def rotate_first(position: int, width: int, *sides: Tensor) -> list[Tensor]:
    """Rotates the first ``width`` channels of each (B, H, T, n) by position, in halves. The rest is unchanged."""
    angles = rotary_angles(sides[0][..., :width], position)
    return [torch.cat((rotate(x[..., :width], position, angles=angles), x[..., width:]), dim=-1) for x in sides]


def rotate_pairs(position: int, *sides: Tensor) -> list[Tensor]:
    """Rotates the pairs (2i, 2i + 1) of channels of each (..., T, n) by position.

    In the result the first halves of all pairs come first, as in transformers. Products of two sides do not change.
    """
    angles = rotary_angles(wide(sides[0]), position)
    return [rotate(torch.cat((x[..., ::2], x[..., 1::2]), dim=-1), position, angles=angles) for x in sides]
