"""A custom mixer: any torch.nn.Module that maps (B, T, D) to (B, T, D)."""

import torch
from torch import Tensor, nn


class Decay(nn.Module):
    """A weighted sum of past values, gated by the current token. Weights fall with age, at a learned rate per head."""

    def __init__(self, d_model: int, n_head: int):
        super().__init__()
        self.value, self.gate, self.out = (nn.Linear(d_model, d_model) for _ in range(3))
        self.rate = nn.Parameter(torch.linspace(0.0, 4.0, n_head))  # each token multiplies by sigmoid(rate)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        steps = torch.arange(x.shape[1], device=x.device)
        age = (steps[:, None] - steps).clamp(min=0)
        weights = (torch.sigmoid(self.rate)[:, None, None] ** age).tril()  # (H, T, T)
        values = self.value(x).unflatten(-1, (len(self.rate), -1))  # (B, T, H, D / H)
        mixed = torch.einsum("hti,bihv->bthv", weights.to(values.dtype), values).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * mixed)
