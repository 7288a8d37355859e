"""What checks measure: small mixers whose weights show, and how far what they compute is from what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUNDING = 1e-9


class Residual(float):
    """A residual that says of what it is, such as of which gradient at which length."""

    where: str

    def __new__(cls, value: float, where: str) -> Residual:
        residual = super().__new__(cls, value)
        residual.where = where
        return residual


def filled(build: Callable[[], nn.Module], std: float = 0.3, batch: int = 2) -> tuple[nn.Module, Tensor]:
    """The mixer of ``build`` in float64, with equal weights at every call, and an input (batch, max_len, d_model)."""
    import torch

    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        torch.manual_seed(0)
        mixer = build().double()
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=std)
        size = mixer.allocation.size
        return mixer.eval().requires_grad_(False), torch.randn(batch, size.max_len, size.d_model).double()


def difference(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to ``expected``."""
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-30))


def largest(*residuals: float) -> float:
    """The largest residual; NaN where one is NaN."""
    import torch

    return float(torch.tensor(residuals, dtype=torch.float64).max())


def decoded(mixer: nn.Module, x: Tensor, cache: Any = None, **options: Any) -> Tensor:
    """The rows of x (B, T, D) by one step a token, after what the cache holds."""
    import torch

    rows = []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache, **options)
        rows.append(row)
    return torch.stack(rows, dim=1)
