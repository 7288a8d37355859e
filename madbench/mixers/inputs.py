"""Validation of a mixer's input, so that a wrong shape or dtype raises an error instead of wrong numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from madbench.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor


def check_sequences(x: Tensor, label: object, width: int | None = None) -> None:
    """Raise ``TrainingError`` unless x has the shape (B, T, ``width``) with T >= 1 and a floating-point dtype.

    If ``width`` is None, every width is accepted. The message begins with ``label``. Without this check, most operators
    would read the tokens of a single sequence (T, D) as heads or as a batch, and would round outputs to integers for an
    input of integers.
    """
    if x.dim() != 3 or not x.is_floating_point():
        advice = "; use x[None] to make a batch of a single sequence" if x.dim() == 2 else ""
        expected = "expected (B, T, D) of floating-point numbers"
        raise TrainingError(f"{label}: {expected}, got {tuple(x.shape)} of {x.dtype}{advice}")
    if x.shape[1] == 0:
        raise TrainingError(f"{label}: 0 tokens; a sequence has at least one")
    _check_width(x, label, width)


def check_tokens(x: Tensor, label: object, width: int | None = None) -> None:
    """Raise ``TrainingError`` unless x has the shape (B, ``width``): one token of each sequence, to be decoded.

    If ``width`` is None, every width is accepted. The message begins with ``label``.
    """
    if x.dim() != 2:
        raise TrainingError(f"{label}: a step takes one token of each sequence, (B, D), not {tuple(x.shape)}")
    _check_width(x, label, width)


def _check_width(x: Tensor, label: object, width: int | None) -> None:
    if width is not None and x.shape[-1] != width:
        raise TrainingError(f"{label}: tokens of width {x.shape[-1]}, but the mixer was built for width {width}")
