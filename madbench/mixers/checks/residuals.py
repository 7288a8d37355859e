"""Helpers of checks: small mixers with random weights, and distances between computed and expected tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madbench.mixers.mixer import Mixer

ROUNDING = 1e-9


class Residual(float):
    """The residual of a check: a number with the attribute ``where``.

    ``where`` is its location as text, such as ``gradient of q.weight at 33 tokens``.
    """

    where: str

    def __new__(cls, value: float, where: str) -> Residual:
        residual = super().__new__(cls, value)
        residual.where = where
        return residual


def filled_mixer(build: Callable[[], nn.Module], std: float = 0.3, batch: int = 2) -> tuple[Mixer, Tensor]:
    """Return the mixer that ``build`` constructs, in float64, and an input (``batch``, max_len, d_model).

    All parameters are normally distributed with standard deviation ``std``. Parameters and input are the same in every
    call. The parameters do not require gradients.
    """
    import torch

    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        torch.manual_seed(0)
        mixer = cast("Mixer", build().double())
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=std)
        size = mixer.allocation.size
        return mixer.eval().requires_grad_(False), torch.randn(batch, size.max_len, size.d_model).double()


def difference(actual: Tensor, expected: Tensor) -> float:
    """The norm of ``actual - expected`` divided by the norm of ``expected``."""
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-30))


def maximum(*residuals: float) -> float:
    """The largest residual. NaN if any residual is NaN."""
    import torch

    return float(torch.tensor(residuals, dtype=torch.float64).max())


def decode_tokens(mixer: nn.Module, x: Tensor, cache: Any = None, **options: Any) -> Tensor:
    """Decode x (B, T, D) with one step per token, starting from ``cache``. Return the outputs (B, T, D).

    ``cache`` is None at the start of a sequence. ``options`` are passed to ``mixer.step``.
    """
    import torch

    rows = []
    for token in x.unbind(1):
        row, cache = cast("Mixer", mixer).step(token, cache, **options)
        rows.append(row)
    return torch.stack(rows, dim=1)
