"""What a mixer of any family has to hold, at a small size in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from madbench.labels import family_of, parse
from madbench.mixers import Size

SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # paper: every label fits
ROUNDING = 1e-9


def sample(label: str, path: str = "auto") -> tuple[Any, nn.Module, Tensor]:
    """The allocation and a small mixer of the label, always the same, with weights that show, and an input."""
    family = family_of(label)
    allocation = family.solve(parse(label), SMALL, family.Settings())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = family.build(allocation, family.Settings(), path).double()
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return allocation, mixer.eval().requires_grad_(False), torch.randn(2, SMALL.max_len, SMALL.d_model).double()


def difference(given: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to ``expected``."""
    return float((given - expected).norm() / expected.norm().clamp(min=1e-30))


def check_mixer(label: str) -> None:
    """Exact parameter count, causality, and decoding token by token."""
    allocation, mixer, x = sample(label)
    assert sum(parameter.numel() for parameter in mixer.parameters()) == allocation.total
    changed = x.clone()
    changed[:, 5:] += 1
    assert difference(mixer(changed)[:, :5], mixer(x)[:, :5]) <= ROUNDING
    cache, rows = None, []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache)
        rows.append(row)
    assert difference(torch.stack(rows, dim=1), mixer(x)) <= ROUNDING
