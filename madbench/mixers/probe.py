"""What a built mixer shows of itself: the optional method ``probe`` of :class:`madbench.mixers.Family`'s modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Probe:
    """What a mixer computed for one input, and the tables that it learned; a field that it lacks is None or empty.

    The last axis L of what has one row a query counts back from the row: [..., t, l] is the slot or token l steps
    before row t, and zero or False for l > t. Any floating dtype, without gradients.
    """

    weights: Tensor | None = None
    """(B, H, T, L): by how much the value of each token enters the output of its head, output gates left out."""
    scores: Tensor | None = None
    """(B, H, T, L): what the activation is applied to."""
    active: Tensor | None = None
    """(B, H, T, L) bool: slots that the activation lets through; None where it lets all through, as softmax does."""
    gates: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers between 0 and 1 that the input decides, by name; (B, T, ...)."""
    kernels: Mapping[str, LagKernel] = field(default_factory=dict)
    """Learned operators over lags, by name."""
    matrices: Mapping[str, Tensor] = field(default_factory=dict)
    """Learned matrices between two embeddings (H, D, D), by name: how token i acts on token j."""


@dataclass(frozen=True)
class LagKernel:
    """R = I + Diag(p) + A Diag(s) B^T over the slots of a row, which are counted by lag or from the oldest token."""

    A: Tensor  # (H, L, R)
    B: Tensor  # (H, L, R)
    p: Tensor  # (H, L)
    s: Tensor  # (H, R) mean strengths over the rows of the input
    layout: str  # ``lag`` or ``position``


def by_lag(rows: Tensor) -> Tensor:
    """(..., T, S) with slots counted from the oldest token -> (..., T, S) by lag.

    >>> by_lag(torch.tensor([[1, 0, 0], [2, 3, 0], [4, 5, 6]])).tolist()
    [[1, 0, 0], [3, 2, 0], [6, 5, 4]]
    """
    length = rows.shape[-1]
    newest_first = F.pad(rows.flip(-1), (0, length))  # row t begins length - 1 - t slots later than it should
    place = torch.arange(length, device=rows.device)
    start = length - 1 - place[:, None]
    return newest_first.gather(-1, (start + place).expand(*rows.shape[:-1], length))
