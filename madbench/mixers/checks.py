"""Checks that a mixer of any family passes, at a small size in float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from madbench.mixers import Check, Family, Size

if TYPE_CHECKING:
    from torch import Tensor, nn

SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # paper: every label fits
ROUNDING = 1e-9


def sample(family: Family, label: Any, path: str = "auto") -> tuple[nn.Module, Tensor]:
    """A small mixer of the label, always the same, with weights that show, and an input."""
    import torch

    settings = family.Settings()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = family.build(family.solve(label, SMALL, settings), settings, path).double()
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return mixer.eval().requires_grad_(False), torch.randn(2, SMALL.max_len, SMALL.d_model).double()


def difference(given: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to ``expected``."""
    return float((given - expected).norm() / expected.norm().clamp(min=1e-30))


def general_checks(family: Family, label: Any) -> Iterable[Check]:
    """Exact parameter count, causality, and decoding step by step where the mixer has a ``step``."""

    def parameters() -> float:
        mixer, _ = sample(family, label)
        allocation = family.solve(label, SMALL, family.Settings())
        return abs(sum(parameter.numel() for parameter in mixer.parameters()) - allocation.total)

    def causality() -> float:
        mixer, x = sample(family, label)
        changed = x.clone()
        changed[:, 5:] += 1
        return difference(mixer(changed)[:, :5], mixer(x)[:, :5])

    def steps() -> float:
        import torch

        mixer, x = sample(family, label)
        cache, rows = None, []
        for token in x.unbind(1):
            row, cache = mixer.step(token, cache)
            rows.append(row)
        return difference(torch.stack(rows, dim=1), mixer(x))

    yield Check("parameters", "The module has exactly the parameters of its allocation.", "the budget", parameters)
    yield Check("causality", "Later tokens do not change earlier outputs.", "causal mixing", causality, ROUNDING)
    if hasattr(sample(family, label)[0], "step"):
        yield Check("steps", "Decoding token by token gives the parallel outputs.", "decoding", steps, ROUNDING)
