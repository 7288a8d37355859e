"""A sample of a user's module, for ``madbench run my:mean`` and as a starting point."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GatedMean(nn.Module):
    """The mean of the values so far, gated by the current token.

    An example of a user's module, with the label ``my:mean``.
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.value, self.gate, self.out = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of x: (B, T, D) -> (B, T, D)."""
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        total = self.value(x).cumsum(1, dtype=torch.promote_types(x.dtype, torch.float32))
        y: Tensor = self.out(torch.sigmoid(self.gate(x)) * (total / count).to(x.dtype))
        return y
