"""Decay per channel between the rows of a block, by halves: with fewer products than pair by pair, and as exact."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALL = 2  # rows of a half up to which products are computed pair by pair: a small matrix product costs more


class HalvedDecay:
    """exp(c_t - c_s) per channel for all rows s <= t, c_t = sum_(s<=t) log lambda_s, from log lambda (..., T, n).

    The rows are halved again and again, down to single rows. Between the rows t of a second half and s of the first,
    whose last row is m, the decay is exp(c_t - c_m) exp(c_m - c_s): a matrix product, and no exponent is above zero.
    """

    def __init__(self, log_gate: Tensor, like: Tensor):
        self.length, dtype = like.shape[-2], like.dtype
        self.rows = 1
        while self.rows < self.length:
            self.rows *= 2
        c = self._padded(log_gate).double().cumsum(-2)
        self.halves: list[tuple[Tensor, Tensor | None]] = []
        size = 1
        while size < self.rows:
            first, second = c.unflatten(-2, (-1, 2, size)).unbind(-3)
            middle = first[..., -1:, :]
            early = None if size == 1 else (middle - first).to(dtype).exp()  # a single row is the last one
            self.halves.append(((second - middle).to(dtype).exp(), early))
            size *= 2

    def products(self, a: Tensor, b: Tensor, is_strict: bool = False) -> Tensor:
        """sum_r a_tr b_sr exp(c_tr - c_sr) for s <= t, or s < t if strict: a, b (..., T, n) -> (..., T, T)."""
        a, b = self._padded(a), self._padded(b)
        own = (a * b).sum(-1)[..., None, None]
        square = torch.zeros_like(own) if is_strict else own
        size = 1
        for late, early in self.halves:
            second = a.unflatten(-2, (-1, 2, size))[..., 1, :, :] * late
            first = b.unflatten(-2, (-1, 2, size))[..., 0, :, :]
            first = first if early is None else first * early
            if size <= SMALL:
                lower = (second[..., :, None, :] * first[..., None, :, :]).sum(-1)
            else:
                lower = second @ first.mT
            of_first, of_second = square.unflatten(-3, (-1, 2)).unbind(-3)
            square = torch.cat((F.pad(of_first, (0, size)), torch.cat((lower, of_second), dim=-1)), dim=-2)
            size *= 2
        return square.squeeze(-3)[..., : self.length, : self.length]

    def _padded(self, x: Tensor) -> Tensor:
        return x if self.rows == self.length else F.pad(x, (0, 0, 0, self.rows - self.length))
