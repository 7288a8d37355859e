"""A mixer of one's own: any torch.nn.Module that maps (B, T, D) to (B, T, D)."""

import torch
from torch import Tensor, nn


class Decay(nn.Module):
    """Sum of the values so far, each fading with its age at a learned rate per head, gated by the current token."""

    def __init__(self, d_model: int, n_head: int):
        super().__init__()
        self.value, self.gate, self.out = (nn.Linear(d_model, d_model) for _ in range(3))
        self.rate = nn.Parameter(torch.linspace(0.0, 4.0, n_head))  # sigmoid(rate) is left of a value a token later

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        steps = torch.arange(x.shape[1], device=x.device)
        age = (steps[:, None] - steps).clamp(min=0)
        weights = (torch.sigmoid(self.rate)[:, None, None] ** age).tril()  # (H, T, T)
        values = self.value(x).unflatten(-1, (len(self.rate), -1))  # (B, T, H, D / H)
        mixed = torch.einsum("hti,bihv->bthv", weights.to(values.dtype), values).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * mixed)
