"""The arithmetic of one tile: some sequences, a block of rows, every slot those rows see; gradients by hand.

A tile is worked on in place, in memory that the next tile takes over, so that its many passes meet the cache. Its
sheets, (heads, N, M, W) for N sequences, M rows and W slots, are the scores and all that is made of them. In the lag
layout one memory is read in two ways, as in :mod:`madbench.mixers.srg.parts`: with a row pitch of W + 1 columns are
keys, newest first, and with a row pitch of W they are lags. One blank row after the M of each sequence keeps the second
pitch throughout, so that a product with a head's table is a single product of (N (M + 1), W). Blank rows and masked
slots are zero.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from madbench.mixers.srg.parts import EPS

THIN = 16
"""Columns below which a product is several times as fast when it is computed transposed."""


class Tables(NamedTuple):
    """R = Diag(gain) + A Diag(s) B^T of every head at W slots, gain = 1 + p; or the gradients of the three.

    A and B lie transposed: products of long rows are faster than those of thin ones.
    """

    A: Tensor  # (heads, r, W)
    B: Tensor  # (heads, r, W)
    gain: Tensor  # (heads, 1, W)

    @property
    def transposed(self) -> Tables:
        return Tables(self.B, self.A, self.gain)

    def up_to(self, slots: int) -> Tables:
        return Tables(*(table[..., :slots] for table in self))


class Operands(NamedTuple):
    """What a tile, or a group of sequences, is made of; or the gradients of that. Of G the first H heads of q gate."""

    q: Tensor  # (H_q N, M, K)
    k: Tensor  # (H_q N, W, K), by lag (H_q N, W + 1, K) newest first
    v: Tensor  # (H N, W, V), by lag (H N, W + 1, V) newest first
    s1: Tensor | None  # (H_q, r, N, M)
    s2: Tensor | None  # (H, r, N, M)
    mix1: Tables | None
    mix2: Tables | None


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left right to a total (N, A, B). Into a part of a larger tensor, ``baddbmm_`` goes matrix by matrix."""
    if total.is_contiguous():
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)


class Sheet:
    """One (heads, N, M, W) tensor of a tile."""

    def __init__(self, memory: Tensor, shape: tuple[int, int, int, int], by_lag: bool):
        heads, self.entries, self.rows, slots = shape
        self.memory, self.shape, self.by_lag, self.pitch = memory, shape, by_lag, self.rows + by_lag
        start, width = (self.rows - 1) * by_lag, slots + by_lag
        of_head = self.entries * self.pitch * slots
        self.flat = memory[start : start + heads * of_head].view(heads, -1, slots)
        """(heads, N M, W), by lag (heads, N (M + 1), W): rows by slot, for products with tables."""
        size = (heads * self.entries, self.rows, width)
        self.keys = memory.as_strided(size, (self.pitch * slots, width, 1))
        """(heads N, M, W), by lag (heads N, M, W + 1): rows by key, for products with q, k and v."""
        of_sequences = self.flat.view(-1, self.pitch, slots)
        self.diagonal = of_sequences[:, : self.rows, slots - self.rows :]
        self.blanks = (memory[:start], of_sequences[:, self.rows :]) if by_lag else ()

    @staticmethod
    def numbers(heads: int, entries: int, rows: int, slots: int) -> int:
        """How many its memory holds."""
        return heads * entries * (rows + 1) * slots + rows

    def halves(self) -> tuple[Self, Self]:
        """The first half of the heads, and the second."""
        heads, *shape = self.shape
        offset = heads // 2 * self.entries * self.pitch * shape[-1]
        first, second = (
            type(self)(part, (heads // 2, *shape), self.by_lag) for part in (self.memory, self.memory[offset:])
        )
        return first, second

    def mask(self) -> Self:
        """Zeros where a row does not see, and between sequences."""
        for blank in self.blanks:
            blank.zero_()
        self.diagonal.tril_()
        return self

    def fill(self, left: Tensor, right: Tensor) -> Self:
        """left right^T, masked: q and k, or the gradient of o and v."""
        torch.bmm(left, right.mT, out=self.keys)
        return self.mask()

    def of_rows(self, x: Tensor) -> Tensor:
        """x (..., as many as ``flat`` has rows) -> (..., N, M) without those of blanks."""
        return x.view(*x.shape[:-1], self.entries, self.pitch)[..., : self.rows]

    def mix(self, y: Sheet, s: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """y R of another sheet or its own, and (y A)^T before and after its product with s.

        What it leaves in masked slots has no meaning.
        """
        inner = torch.bmm(tables.A, y.flat.mT)
        strengthened = inner.clone()
        self.of_rows(strengthened).mul_(s)
        if y is self:
            self.flat.mul_(tables.gain).baddbmm_(strengthened.mT, tables.B)
        else:
            torch.bmm(strengthened.mT, tables.B, out=self.flat).addcmul_(y.flat, tables.gain)
        return inner, strengthened

    def unmix(
        self, y: Sheet, inner: tuple[Tensor, Tensor], s: Tensor, tables: Tables, grads: Tables, work: Sheet
    ) -> Tensor:
        """From the gradient of y R, masked, to that of y in its place; adds those of the tables, returns that of s."""
        product, strengthened = inner
        grad = torch.bmm(tables.B, self.flat.mT)
        add_product(grads.B, strengthened, self.flat)
        grads.gain.add_(torch.mul(self.flat, y.flat, out=work.flat).sum(1, keepdim=True))
        grad_s = self.of_rows(product.mul_(grad))
        self.of_rows(grad).mul_(s)
        add_product(grads.A, grad, y.flat)
        self.flat.mul_(tables.gain).baddbmm_(grad.mT, tables.A)
        return grad_s


class Tile:
    """The passes over sheets of one shape, (N, M, W), for one base activation."""

    def __init__(self, base: str, heads: int, shape: tuple[int, int, int], by_lag: bool, memory: list[Tensor]):
        self.base = base
        if base == "S":
            self.future = torch.ones(shape[1], shape[1], dtype=torch.bool, device=memory[0].device).triu(1)
        counts = self.heads(base, heads, backward=len(memory) > 1)
        sheets = [Sheet(part, (count, *shape), by_lag) for part, count in zip(memory, counts)]
        self.halves = {id(sheet): sheet.halves() if base == "G" else (sheet, sheet) for sheet in sheets[:4]}
        scores = sheets[0]  # without a backward pass all that is made of them takes their place
        self.scores, self.hidden, self.grad, self.work, self.a = sheets if sheets[1:] else [scores] * 4 + [None]
        self.keeps, self.a = self.a is not None, self.a or self._halves(scores)[0]
        self.inner1 = self.inner2 = (None, None)
        """(y A)^T of R(1) and of R(2), before and after its product with the strengths."""

    @staticmethod
    def heads(base: str, heads: int, backward: bool) -> list[int]:
        """How many heads each sheet has."""
        query_heads = 2 * heads if base == "G" else heads
        return [query_heads] * 4 + [heads] if backward else [query_heads]

    def forward(self, x: Operands) -> tuple[Tensor, Tensor | None]:
        """Outputs of the rows (H N, M, V), under R and G not yet divided by their norm (H, N, M).

        With sheets for a backward pass, what :meth:`backward` reads stays in them.
        """
        weights, norm = self._fill(x)
        return torch.bmm(weights.keys, x.v), norm

    def backward(
        self, x: Operands, grad_o: Tensor, along: Tensor | None, grads: Operands, is_filled: bool = False
    ) -> None:
        """From the gradients of the outputs before they are divided and of their norm over the norm (H, N, M), those
        of the operands: q's and the strengths' are set, all others added to. ``is_filled``: the sheets are as
        :meth:`forward` left them."""
        if not is_filled:
            self._fill(x, has_norm=False)
        z, h, a = self.scores, self.hidden if x.mix1 else self.scores, self.a
        (gate, scale), (of_gate, of_a) = self._halves(h), self._halves(self.grad)
        read = of_a if x.mix2 else a
        add_product(grads.v, read.keys.mT, grad_o)
        of_a.fill(grad_o, x.v)
        if x.mix2:
            work, _ = self._halves(self.work)
            tables = x.mix2.transposed, grads.mix2.transposed
            grads.s2.copy_(of_a.unmix(a, self.inner2, x.s2, *tables, work))
        if self.base == "S":
            of_a.flat.mul_(a.flat)
            of_a.flat.addcmul_(a.flat, of_a.flat.sum(-1, keepdim=True), value=-1)
        else:
            self._through_norm(gate, scale, of_gate, of_a, along)
        if x.mix1:
            grads.s1.copy_(self.grad.unmix(z, self.inner1, x.s1, x.mix1, grads.mix1, self.work))
        self.inner1 = self.inner2 = (None, None)  # of every tile they would be much
        columns = self.grad.mask().keys
        if x.q.shape[-1] < THIN:
            grads.q.copy_(torch.bmm(x.k.mT, columns.mT).mT)
            grads.k.add_(torch.bmm(x.q.mT, columns).mT)
        else:
            grads.q.copy_(torch.bmm(columns, x.k))
            add_product(grads.k, columns.mT, x.q)

    def _fill(self, x: Operands, has_norm: bool = True) -> tuple[Sheet, Tensor | None]:
        """Writes all sheets; returns that of the weights, which v is read with, and of R and G the norm (H, N, M)."""
        z, h, a, norm = self.scores.fill(x.q, x.k), self.scores, self.a, None
        if x.mix1:
            h, self.inner1 = self.hidden, self.hidden.mix(z, x.s1, x.mix1)
        gate, scale = self._halves(h)
        softplus, weights = self._halves(self.grad) if self.keeps else (scale, a)
        if self.base == "S":
            self._softmax(gate, a)
        else:
            gate.diagonal.tril_()
            if has_norm:
                norm = gate.of_rows(torch.linalg.vector_norm(gate.flat, dim=-1)).square().add_(EPS).sqrt_()
            torch.clamp_min(gate.flat, 0, out=a.flat)
        if self.base == "G":
            a.flat.mul_(torch._C._nn.softplus(scale.flat, out=softplus.flat))
        if x.mix2:
            self.inner2 = weights.mix(a, x.s2, x.mix2.transposed)
        if not self.keeps:
            self.inner1 = self.inner2 = (None, None)  # of every tile they would be much
        return (weights if x.mix2 else a).mask(), norm

    def _halves(self, sheet: Sheet) -> tuple[Sheet, Sheet]:
        """Gate and scale of G; the sheet itself, twice, under S and R."""
        return self.halves[id(sheet)]

    def _softmax(self, h: Sheet, a: Sheet) -> None:
        h.diagonal.masked_fill_(self.future, float("-inf"))
        torch.softmax(h.flat, dim=-1, out=a.flat)
        a.mask()

    def _through_norm(self, gate: Sheet, scale: Sheet, of_gate: Sheet, of_a: Sheet, along: Tensor) -> None:
        """R: of_a becomes the gradient of the hidden scores. G: of_gate, which comes with the softplus, and of_a do."""
        h, da = gate.flat, of_a.flat
        by_row = h.new_zeros(*h.shape[:2])
        gate.of_rows(by_row).copy_(along)
        of_h = da if self.base == "R" else of_gate.flat.mul_(da)
        torch.ops.aten.threshold_backward.grad_input(of_h, h, 0, grad_input=of_h)
        of_h.addcmul_(h, by_row[..., None])
        if self.base == "G":
            da.mul_(h.relu_()).mul_(scale.flat.sigmoid_())
