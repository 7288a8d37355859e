"""Depthwise causal convolution over the last four inputs, no bias, no activation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNEL = 4


class ShortConv(nn.Module):
    """y_t = sum_j w[:, j] x_{t - 3 + j}: the last of the four taps meets the current token. ``weight`` is (D, 4)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, KERNEL))

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """x (B, T, D), the three inputs before it (B, 3, D) or zeros -> (B, T, D)."""
        length = x.shape[1]
        padded = F.pad(x, (0, 0, KERNEL - 1, 0)) if before is None else torch.cat((before, x), dim=1)
        taps = self.weight.unbind(-1)
        return sum(padded[:, j : j + length] * tap for j, tap in enumerate(taps))
