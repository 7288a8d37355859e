"""Decay per channel between the rows of a block, by halves: with fewer products than pair by pair, and as exact."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAF = 4  # rows whose decay is computed pair by pair


class HalvedDecay:
    """exp(c_t - c_s) per channel for all rows s <= t, c_t = sum_(s<=t) log lambda_s, from log lambda (..., T, n).

    The rows are halved again and again, down to a few. Between the rows t of a second half and s of the first, whose
    last row is m, the decay is exp(c_t - c_m) exp(c_m - c_s): a matrix product, and no exponent is above zero.
    """

    def __init__(self, log_gate: Tensor, like: Tensor):
        self.length, dtype = like.shape[-2], like.dtype
        self.rows = LEAF
        while self.rows < self.length:
            self.rows *= 2
        c = F.pad(log_gate, (0, 0, 0, self.rows - self.length)).double().cumsum(-2)
        leaves = c.unflatten(-2, (-1, LEAF))
        pairs = (leaves[..., :, None, :] - leaves[..., None, :, :]).to(dtype)
        mask = torch.ones(LEAF, LEAF, dtype=torch.bool, device=c.device).tril()[..., None]
        self.near = pairs.masked_fill(~mask, -torch.inf).exp()
        self.halves: list[tuple[Tensor, Tensor]] = []
        size = LEAF
        while size < self.rows:
            first, second = c.unflatten(-2, (-1, 2, size)).unbind(-3)
            middle = first[..., -1:, :]
            self.halves.append(((second - middle).to(dtype).exp(), (middle - first).to(dtype).exp()))
            size *= 2

    def products(self, a: Tensor, b: Tensor, is_strict: bool = False) -> Tensor:
        """sum_r a_tr b_sr exp(c_tr - c_sr) for s <= t, or s < t if strict: a, b (..., T, n) -> (..., T, T)."""
        a, b = (F.pad(side, (0, 0, 0, self.rows - self.length)) for side in (a, b))
        rows, columns = a.unflatten(-2, (-1, LEAF)), b.unflatten(-2, (-1, LEAF))
        square = (rows[..., :, None, :] * columns[..., None, :, :] * self.near).sum(-1)
        square = square.tril(-1) if is_strict else square
        size = LEAF
        for late, early in self.halves:
            second = a.unflatten(-2, (-1, 2, size))[..., 1, :, :] * late
            first = b.unflatten(-2, (-1, 2, size))[..., 0, :, :] * early
            upper, lower = square.unflatten(-3, (-1, 2)).unbind(-3)
            square = torch.cat((F.pad(upper, (0, size)), torch.cat((second @ first.mT, lower), dim=-1)), dim=-2)
            size *= 2
        return square.squeeze(-3)[..., : self.length, : self.length]
