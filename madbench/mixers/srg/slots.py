"""Slots of a row: by position (oldest first) or by lag (newest first), and the products that lead in and out of them.

A block of M query rows, the last of which sees W keys, has M x W slots. Row m of the block (0-based) sees W - M + 1 + m
keys, so in either layout its valid slots are the first W - M + 1 + m, and the mask is the same lower triangle.

- position layout: slot l of a row is the key at position l.
- lag layout: slot l of a row is the key l steps before the row itself (paper, section 2.4 and Theorem F.1).

With the keys stored newest first, the key at lag l of row m is column l + (M - 1 - m): each row is the row below it,
shifted by one. Read with a row pitch one shorter, the product's memory *is* the lag layout: no gather and no copy.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def newest_first(x: Tensor) -> Tensor:
    """(..., S, C) in position order -> (..., S + 1, C): newest row first, then one row of zeros.

    The last W + 1 rows belong to the first W positions, so one reversed tensor serves every block.
    """
    return F.pad(x.flip(-2), (0, 0, 0, 1))


def lag_scores(q: Tensor, k_newest_first: Tensor) -> Tensor:
    """q (..., M, K), keys (..., W + 1, K) from :func:`newest_first` -> scores (..., M, W), slot l = lag l.

    Slots beyond a row's oldest key hold other rows' scores: mask before use.
    """
    rows, slots = q.shape[-2], k_newest_first.shape[-2] - 1
    product = q @ k_newest_first.transpose(-1, -2)
    return product.flatten(-2)[..., rows - 1 : rows - 1 + rows * slots].unflatten(-1, (rows, slots))


def lag_readout(w: Tensor, v_newest_first: Tensor) -> Tensor:
    """weights (..., M, W) by lag, zero in masked slots; values (..., W + 1, V) -> (..., M, V)."""
    rows, slots = w.shape[-2:]
    by_column = F.pad(w.flatten(-2), (rows - 1, 1)).unflatten(-1, (rows, slots + 1))
    return by_column @ v_newest_first


class SequenceMixing(nn.Module):
    """R = I + Diag(p) + A Diag(s_t) B^T, one of R(1), R(2) (paper, section 2.4, Lemma G.1); the matrix is never formed.

    ``A``, ``B`` (heads, L, r) and ``p`` (heads, L) are stored for the maximum length and sliced to the slots at hand,
    so that slot 0 keeps its row at every length. ``s_t = sigmoid(gate(x_t))``. Parameters: heads L (2r + 1) in the
    tables, d heads r + heads r in the gate.
    """

    def __init__(self, d_model: int, heads: int, max_len: int, rank: int):
        super().__init__()
        self.heads = heads
        self.A = nn.Parameter(torch.empty(heads, max_len, rank))
        self.B = nn.Parameter(torch.empty(heads, max_len, rank))
        self.p = nn.Parameter(torch.empty(heads, max_len))
        self.gate = nn.Linear(d_model, heads * rank)

    def strengths(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> s (B, heads, T, R)."""
        return torch.sigmoid(self.gate(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def right(self, y: Tensor, s: Tensor) -> Tensor:
        """y R: y (B, heads, M, W), s (B, heads, M, R) -> (B, heads, M, W)."""
        return self._mix(y, self.A, s, self.B)

    def right_transposed(self, y: Tensor, s: Tensor) -> Tensor:
        """y R^T, shapes as in :meth:`right`."""
        return self._mix(y, self.B, s, self.A)

    def _mix(self, y: Tensor, into: Tensor, s: Tensor, out_of: Tensor) -> Tensor:
        slots = y.shape[-1]
        low_rank = ((y @ into[:, :slots]) * s) @ out_of[:, :slots].transpose(-1, -2)
        return y * (1 + self.p[:, None, :slots]) + low_rank
