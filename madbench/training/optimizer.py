"""AdamW and the one rule for what decays."""

from __future__ import annotations

import torch
from torch import nn


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay acts on a model's parameter: on linear maps, not on what shifts or scales elementwise.

    Linear maps are matrices, embeddings, the conv's taps and the factors A, B of R(1), R(2). Biases, norm gains and
    the diagonals p are not.
    """
    return parameter.ndim >= 2 and not name.endswith(".p")


def make_adamw(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.AdamW:
    """AdamW over all parameters: first the group of those that decay, then the group of those that do not."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name, p) is kind], "weight_decay": decay}
        for kind, decay in ((True, weight_decay), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
