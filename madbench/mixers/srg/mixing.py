"""R = I + Diag(p) + A Diag(s_t) B^T: diagonal plus low rank mixing of a row's slots (paper, section 2.4, Lemma G.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SequenceMixing(nn.Module):
    """One of R(1), R(2); the matrix is never formed.

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
