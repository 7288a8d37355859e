"""Validation of a mixer's input, so that a wrong shape or dtype raises an error instead of wrong numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from madbench.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor


def check_sequences(x: Tensor, label: object) -> None:
    """Raise ``TrainingError`` unless x has the shape (B, T, D) with T >= 1 and a floating-point dtype.

    The message begins with ``label``. Without this check, most operators would read the tokens of a single sequence
    (T, D) as heads or as a batch, and would round outputs to integers for an input of integers.
    """
    if x.dim() != 3 or not x.is_floating_point():
        advice = "; use x[None] to make a batch of a single sequence" if x.dim() == 2 else ""
        expected = "expected (B, T, D) of floating-point numbers"
        raise TrainingError(f"{label}: {expected}, got {tuple(x.shape)} of {x.dtype}{advice}")
    if x.shape[1] == 0:
        raise TrainingError(f"{label}: 0 tokens; a sequence has at least one")
