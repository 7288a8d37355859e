"""Functions for the reference loops of operators, on single rows. They share no code with the layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def convolved(x: Tensor, taps: Tensor, bias: Tensor | None = None) -> Tensor:
    """SiLU of the causal convolution of x (T, C) with taps (C, 1, taps). The last tap applies to the current token."""
    rows = []
    for t in range(len(x)):
        row = torch.zeros_like(x[t]) if bias is None else bias
        for lag in range(taps.shape[-1]):
            if lag <= t:
                row = row + taps[:, 0, taps.shape[-1] - 1 - lag] * x[t - lag]
        rows.append(row * torch.sigmoid(row))
    return torch.stack(rows)


def softplus(x: Tensor) -> Tensor:
    """ln(1 + e^x)."""
    return torch.logaddexp(x, torch.zeros_like(x))


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6), for one vector."""
    return x / torch.sqrt((x * x).sum() + 1e-6)


def normed(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """RMSNorm of one vector, with a gain."""
    return x / torch.sqrt((x * x).mean() + eps) * gain


def rotated(x: Tensor, position: int) -> Tensor:
    """One vector of even width n, with pair (i, i + n/2) rotated by the angle position / 10000^(2i/n)."""
    half = len(x) // 2
    turned = [torch.zeros(()) for _ in range(2 * half)]
    for i in range(half):
        angle = position / 10000 ** (2 * i / len(x))
        turned[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        turned[i + half] = x[i] * math.sin(angle) + x[i + half] * math.cos(angle)
    return torch.stack(turned)


def rotated_pairs(x: Tensor, position: int) -> Tensor:
    """One vector of even width n, with pair (2i, 2i + 1) rotated by the angle position / 10000^(2i/n)."""
    angles = [position / 10000 ** (2 * i / len(x)) for i in range(len(x) // 2)]
    pairs = zip(x[::2], x[1::2], angles, strict=True)
    turned = [
        (a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)) for a, b, angle in pairs
    ]
    return torch.stack([number for pair in turned for number in pair])
