"""Rotations of pairs of channels, in torch: by position as in RoPE, or by angles that depend on the input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from madbench.mixers.ops.precision import wide
from madbench.mixers.ops.rope import ROPE_BASE, rotary_angles, rotate


def rotate_first(position: int, width: int, *sides: Tensor) -> list[Tensor]:
    """Rotate the first ``width`` channels of tensors (B, H, T, n) by position, in pairs (i, i + width / 2).

    The first row is at ``position``. Other channels stay as they are.
    """
    angles = rotary_angles(sides[0][..., :width], position)
    return [torch.cat((rotate(x[..., :width], position, angles=angles), x[..., width:]), dim=-1) for x in sides]


def rotate_pairs(position: int, *sides: Tensor) -> list[Tensor]:
    """Rotate the pairs (2i, 2i + 1) of channels of tensors (..., T, n) by position.

    The first row is at ``position``. The channels change their order: in the result, the first channels of all pairs
    precede the second channels, as in transformers. This does not change the products of queries and keys.
    """
    angles = rotary_angles(wide(sides[0]), position)
    return [rotate(torch.cat((x[..., ::2], x[..., 1::2]), dim=-1), position, angles=angles) for x in sides]


def rotate_by_position(x: Tensor, first: Tensor) -> Tensor:
    """Rotate x (B, H, T, N) by position, in pairs (i, i + N / 2) of its N channels. N is even.

    ``first`` (B,) has the position of the first row of each sequence, as integers.
    """
    width, length = x.shape[-1], x.shape[2]
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = first[:, None] + torch.arange(length, device=x.device)
    angle = position[:, None, :, None] * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return rotate(x, 0, angles=(angle.cos().to(x.dtype), angle.sin().to(x.dtype)))


def total_angle(turns: Tensor, before: Tensor | None) -> Tensor:
    """The angle (..., T, C) of each row in float64: pi times the sum of ``turns`` up to the row, modulo 2 pi.

    ``turns`` is (..., T, C). ``before`` (..., C) is the angle before the first row, which is added to all angles. None
    stands for zero.
    """
    angle = (math.pi * turns.double()).cumsum(-2)
    return (angle if before is None else angle + before[..., None, :]).remainder(2 * math.pi)


def rotate_pairs_by_angle(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate the first A pairs (2i, 2i + 1) of channels of x (..., N) by the angles (..., A).

    A is at most N / 2. Other channels stay as they are.
    """
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    count = 2 * angle.shape[-1]
    first, second = x[..., 0:count:2], x[..., 1:count:2]
    pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return torch.cat((pairs.flatten(-2), x[..., count:].expand(*pairs.shape[:-2], -1)), dim=-1)
