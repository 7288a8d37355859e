"""The result of ``probe``, an optional method of the mixers of a :class:`madbench.mixers.Family`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Probe:
    """Intermediate values of a mixer for one input, and its learned tables. A missing field is None or empty.

    Row t is the output of token t. In fields of shape (B, H, T, L), the last axis counts back from the row: [..., t, l]
    belongs to the slot or token l steps before row t, and L is the largest number of slots or tokens of a row. An entry
    is zero or False for l > t and outside a window. Tensors other than ``active`` have any floating dtype. No tensor
    has gradients.
    """

    weights: Tensor | None = None
    """(B, H, T, L): the weight of each token's value in the output of its head, before output gates."""
    scores: Tensor | None = None
    """(B, H, T, L): the numbers from which the activation, such as a softmax, computes the weights."""
    active: Tensor | None = None
    """(B, H, T, L) bool: slots that the activation does not set to zero. None if it never does, as with softmax."""
    gates: Mapping[str, Tensor] = field(default_factory=dict)
    """Gates that depend on the input, by name: numbers between 0 and 1, (B, T, ...) each."""
    kernels: Mapping[str, LagKernel] = field(default_factory=dict)
    """Learned linear maps that mix the slots of a row, by name."""
    matrices: Mapping[str, Tensor] = field(default_factory=dict)
    """Learned matrices (H, D, D), by name. Each is a bilinear form of the embeddings of two tokens: the effect of one
    token on another."""


@dataclass(frozen=True)
class LagKernel:
    """A learned matrix I + Diag(p) + A Diag(s) B^T per head, which mixes the L slots of a row.

    The product A Diag(s) B^T has rank R. The layout ``lag`` counts slots back from the row, and ``position`` counts
    slots from the oldest token.
    """

    A: Tensor
    """The left factor of the product A Diag(s) B^T, (H, L, R)."""
    B: Tensor
    """The right factor of the product A Diag(s) B^T, (H, L, R)."""
    p: Tensor
    """The term that is added to 1 on the diagonal of the matrix, (H, L)."""
    s: Tensor
    """The strengths of the R terms of the product, (H, R). They depend on the row, and are given as means over the
    rows."""
    layout: str
    """``lag`` if the index of a slot counts back from the row, ``position`` if it counts from the oldest token."""


def by_lag(rows: Tensor) -> Tensor:
    """Reorder the last axis of ``rows`` (..., T, T), so that it counts tokens back from the row.

    Before, it counts tokens from the oldest. In the result, entry l of row t belongs to the token l steps before token
    t. It is zero if there is no such token.

    >>> by_lag(torch.tensor([[1, 0, 0], [2, 3, 0], [4, 5, 6]])).tolist()
    [[1, 0, 0], [3, 2, 0], [6, 5, 4]]
    """
    length = rows.shape[-1]
    newest_first = F.pad(rows.flip(-1), (0, length))  # row t begins length - 1 - t slots too late
    place = torch.arange(length, device=rows.device)
    start = length - 1 - place[:, None]
    return newest_first.gather(-1, (start + place).expand(*rows.shape[:-1], length))
