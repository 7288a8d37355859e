"""Decays between the rows of a block: exp(c_t - c_s), with c_t = sum_(s<=t) log lambda_s. No exponent is above zero."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.tracing import is_symbolic

SUB_BLOCK = 16  # rows whose decay is computed pair by pair
SMALL = 2  # largest half, in rows, whose products are computed pair by pair: a small matrix product costs more


def masked_exp(exponent: Tensor, mask: Tensor) -> Tensor:
    """exp(exponent) where the mask is true, else 0.

    Where the mask is false, the gradient is zero, even if the exponential overflows there.
    """
    return exponent.masked_fill(~mask, -math.inf).exp()


class Decay:
    """The decays from all rows s to all later rows t: exp(c_t - c_s), where c_t is the sum of ``log_gate`` up to row t.

    ``log_gate`` (..., T, 1 or n) has the logarithms of gates, per row or per row and channel. If it is None, all
    decays are 1. Within a sub-block of rows the decay is computed pair by pair. Between sub-blocks it is a product of
    three factors: from s to the end of its sub-block, over the sub-blocks in between, and from the start of the
    sub-block of t to t.
    """

    def __init__(self, log_gate: Tensor | None, like: Tensor):
        self.log_gate, self.length, dtype = log_gate, like.shape[-2], like.dtype
        if log_gate is None:
            return
        self.rows = self.length if is_symbolic(self.length) else min(SUB_BLOCK, self.length)
        c = split_rows(log_gate, self.rows).double().cumsum(-2)  # double, because it is large if gates close
        total = c[..., -1:, :]
        end = total.squeeze(-2).cumsum(-2)
        self.entering, self.leaving = c.to(dtype).exp(), (total - c).to(dtype).exp()
        self.near = masked_exp((c[..., :, None, :] - c[..., None, :, :]).to(dtype), _lower(self.rows, 0, c)[..., None])
        between = (end - total.squeeze(-2))[..., :, None, :] - end[..., None, :, :]
        self.between = masked_exp(between.to(dtype), _lower(end.shape[-2], -1, c)[..., None])

    def products(self, a: Tensor, b: Tensor, is_strict: bool = False) -> Tensor:
        """The products of the rows of a and b with decay: the matrix (..., T, T) of sum_r a_tr b_sr exp(c_tr - c_sr).

        a and b are (..., T, n), r is a channel, and c is the sum of ``log_gate`` up to a row. Entries with s > t are 0.
        If ``is_strict``, the diagonal is 0, too.
        """
        if self.log_gate is None:
            return (a @ b.mT).tril(-is_strict)
        a, b = split_rows(a, self.rows), split_rows(b, self.rows)
        is_scalar = self.near.shape[-1] == 1
        if is_scalar:
            near = (a @ b.mT) * self.near.squeeze(-1)
        else:
            near = (a[..., :, None, :] * b[..., None, :, :] * self.near).sum(-1)
        near = near.tril(-1) if is_strict else near
        if self.length == self.rows:
            return near.squeeze(-3)
        a, b = a * self.entering, b * self.leaving
        if is_scalar:
            far = a.flatten(-3, -2) @ b.flatten(-3, -2).mT
            far = far.unflatten(-1, (-1, self.rows)).unflatten(-3, (-1, self.rows))
            far = far * self.between.squeeze(-1)[..., :, None, :, None]
        else:
            far = a[..., :, None, :, :] * self.between[..., :, :, None, :] @ b[..., None, :, :, :].mT
            far = far.transpose(-3, -2)
        far.diagonal(dim1=-4, dim2=-2).add_(near.movedim(-3, -1))
        return far.flatten(-2).flatten(-3, -2)[..., : self.length, : self.length]


def _lower(size: int, diagonal: int, like: Tensor) -> Tensor:
    """The mask (size, size) of the lower triangle: with its diagonal if ``diagonal`` is 0, without it if it is -1."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).tril(diagonal)


def split_rows(x: Tensor, rows: int) -> Tensor:
    """Split rows into Z blocks of ``rows`` rows: (..., T, C) -> (..., Z, rows, C).

    The end of the last block is filled with zeros.
    """
    if is_symbolic(rows):
        return x.unsqueeze(-3)  # a single block with all rows
    return torch.unflatten(F.pad(x, (0, 0, 0, -x.shape[-2] % rows)), -2, (-1, rows))


class HalvedDecay:
    """The decays from all rows s to all later rows t: exp(c_t - c_s), where c_t is the sum of ``log_gate`` up to row t.

    ``log_gate`` (..., T, n) is the logarithm of each row's gate, per channel. The decays are as exact as those of
    :class:`Decay`. The rows are halved again and again, down to single rows. If m is the last row of a first half, the
    decay from a row s of this half to a row t of the second half is exp(c_t - c_m) exp(c_m - c_s). The sum over
    channels is then a matrix product, and for gates up to 1 no exponent is above zero.
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
        """The products of the rows of a and b with decay: the matrix (..., T, T) of sum_r a_tr b_sr exp(c_tr - c_sr).

        a and b are (..., T, n), r is a channel, and c is the sum of ``log_gate`` up to a row. Entries with s > t are 0.
        If ``is_strict``, the diagonal is 0, too.
        """
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
