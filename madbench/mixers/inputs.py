"""What a mixer takes: sequences of vectors, and nothing that computes something else without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from madbench.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor


def check_sequences(x: Tensor, label: object) -> None:
    """Raises ``TrainingError`` unless x is (B, T, D), T at least 1, of floating-point numbers.

    Most operators would take the tokens of a single sequence (T, D) for heads or for a batch, and round to integers.
    """
    if x.dim() != 3 or not x.is_floating_point():
        advice = "; of a single sequence x[None] is a batch" if x.dim() == 2 else ""
        expected = "expected (B, T, D) of floating-point numbers"
        raise TrainingError(f"{label}: {expected}, got {tuple(x.shape)} of {x.dtype}{advice}")
    if x.shape[1] == 0:
        raise TrainingError(f"{label}: 0 tokens; a sequence has at least one")
