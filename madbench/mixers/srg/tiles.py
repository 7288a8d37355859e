"""The arithmetic of one tile: N sequences, a block of M rows, and the W slots that the rows see. Gradients by hand.

A tile is computed in place, in memory that the next tile reuses, so that its many passes stay in the cache. Its sheets
(heads, N, M, W) are the scores and everything computed from them.

In the lag layout the same memory is read in two ways, as in :mod:`madbench.mixers.srg.parts`. If the row pitch is
W + 1, columns are keys, newest first. If it is W, columns are lags. The first reading takes M more numbers per
sequence, so each sequence has a blank row of W numbers after its M rows. By lag, all sequences of a head are therefore
one matrix (N (M + 1), W), which is multiplied by the head's table in a single product. Blank rows and masked slots are
zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from madbench.mixers.ops import products
from madbench.mixers.srg.parts import EPS

THIN = 16
"""Number of columns below which a product is several times as fast if it is computed transposed."""


class Tables(NamedTuple):
    """The tables of R = Diag(gain) + A Diag(s) B^T for every head and W slots, or their gradients. gain is 1 + p.

    A and B are stored transposed: products of long rows are faster than those of thin ones.
    """

    A: Tensor  # (heads, r, W)
    B: Tensor  # (heads, r, W)
    gain: Tensor  # (heads, 1, W)

    @property
    def transposed(self) -> Tables:
        return Tables(self.B, self.A, self.gain)

    def up_to(self, slots: int) -> Tables:
        return Tables(*(table[..., :slots] for table in self))


class Mixing(NamedTuple):
    """The strengths and the tables of a mixing matrix R(1) or R(2), or their gradients."""

    s: Tensor  # (heads, r, N, M)
    tables: Tables


class Operands(NamedTuple):
    """The inputs of a tile, or of a group of N sequences, or the gradients of these inputs.

    There are M rows, W keys, and H heads with H_q sets of scores: 2 H for base G, otherwise H. For G, the first H heads
    of q are the gate and the last H the scale. K and V are widths of a head, and r is the rank of the mixing.
    """

    q: Tensor  # (H_q N, M, K)
    k: Tensor  # (H_q N, W, K), by lag (H_q N, W + 1, K) newest first
    v: Tensor  # (H N, W, V), by lag (H N, W + 1, V) newest first
    mix1: Mixing | None  # R(1), for H_q sets of scores
    mix2: Mixing | None  # R(2), for H heads


class Sheet:
    """A tensor (heads, N, M, W) with one number per head, sequence, row and slot of a tile, such as the scores.

    It is a view of ``memory``, which other sheets may also use.
    """

    def __init__(self, memory: Tensor, shape: tuple[int, int, int, int], by_lag: bool):
        heads, self.entries, self.rows, slots = shape
        self.memory, self.shape, self.by_lag, self.pitch = memory, shape, by_lag, self.rows + by_lag
        start, width = (self.rows - 1) * by_lag, slots + by_lag
        of_head = self.entries * self.pitch * slots
        self.flat = memory[start : start + heads * of_head].view(heads, -1, slots)
        """Rows by slot, (heads, N M, W), or in the lag layout (heads, N (M + 1), W), for products with tables."""
        size = (heads * self.entries, self.rows, width)
        self.keys = memory.as_strided(size, (self.pitch * slots, width, 1))
        """Rows by key, (heads N, M, W), or in the lag layout (heads N, M, W + 1), for products with q, k and v."""
        of_sequences = self.flat.view(-1, self.pitch, slots)
        self.diagonal = of_sequences[:, : self.rows, slots - self.rows :]
        self.blanks = (memory[:start], of_sequences[:, self.rows :]) if by_lag else ()

    @staticmethod
    def numbers(heads: int, entries: int, rows: int, slots: int) -> int:
        """The number of elements that the memory of a sheet of this shape needs."""
        return heads * entries * (rows + 1) * slots + rows

    def halves(self) -> tuple[Self, Self]:
        """Sheets of the first and of the second half of the heads."""
        heads, entries, rows, slots = self.shape
        offset = heads // 2 * entries * self.pitch * slots
        shape = heads // 2, entries, rows, slots
        return type(self)(self.memory, shape, self.by_lag), type(self)(self.memory[offset:], shape, self.by_lag)

    def mask(self) -> Self:
        """Set slots that a row does not see to zero, and also the blank rows between sequences in the lag layout.

        Return this sheet.
        """
        for blank in self.blanks:
            blank.zero_()
        self.diagonal.tril_()
        return self

    def fill(self, left: Tensor, right: Tensor) -> Self:
        """Write the product ``left right^T`` to this sheet by keys, and mask it. Return this sheet.

        The factors are q and k for scores, or the gradient of the output and v for the gradient of the weights.
        """
        products.multiply_batches(left, right.mT, self.keys)
        return self.mask()

    def of_rows(self, x: Tensor) -> Tensor:
        """View x, whose last axis has one number per row of :attr:`flat`, as (..., N, M): by sequence and row.

        In the lag layout, :attr:`flat` has a blank row after each sequence. Its numbers are left out.
        """
        return x.view(*x.shape[:-1], self.entries, self.pitch)[..., : self.rows]

    def mix(self, y: Sheet, s: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """Write the product y R with the mixing matrix R to this sheet, which may be y itself.

        ``s`` (heads, r, N, M) are the strengths. Values in masked slots are undefined afterward. Return (y A)^T, before
        and after it is multiplied by s, for :meth:`unmix`.
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
        """Convert this sheet from the gradient of y R, zero in masked slots, to that of y. Return the gradient of s.

        ``inner`` is the result of :meth:`mix` for y. The gradients of the tables are added to ``grads``. ``work`` and
        ``inner`` are overwritten.
        """
        product, strengthened = inner
        grad = torch.bmm(tables.B, self.flat.mT)
        products.add_batches(strengthened, self.flat, grads.B)
        grads.gain.add_(torch.mul(self.flat, y.flat, out=work.flat).sum(1, keepdim=True))
        grad_s = self.of_rows(product.mul_(grad))
        self.of_rows(grad).mul_(s)
        products.add_batches(grad, y.flat, grads.A)
        self.flat.mul_(tables.gain).baddbmm_(grad.mT, tables.A)
        return grad_s


class Tile:
    """The forward and backward pass of one tile: ``shape`` (N, M, W) is the number of sequences, rows and slots.

    ``heads`` is H. ``memory`` has one tensor per sheet: five for a backward pass, or one for a forward pass alone.
    """

    def __init__(self, base: str, heads: int, shape: tuple[int, int, int], by_lag: bool, memory: list[Tensor]):
        self.base = base
        counts = self.heads(base, heads, backward=len(memory) > 1)
        sheets = [Sheet(part, (count, *shape), by_lag) for part, count in zip(memory, counts)]
        self.halves = {id(sheet): sheet.halves() if base == "G" else (sheet, sheet) for sheet in sheets[:4]}
        self.keeps = len(sheets) > 1
        if self.keeps:
            self.scores, self.hidden, self.grad, self.work, self.a = sheets
        else:  # everything computed from the scores overwrites them
            self.scores = self.hidden = self.grad = self.work = sheets[0]
            self.a, _ = self._halves(sheets[0])
        self.inner1: Any  # the results of :meth:`Sheet.mix`, or twice None
        self.inner2: Any
        self.inner1 = self.inner2 = (None, None)
        """The results of :meth:`Sheet.mix` for the mixing matrices R(1) and R(2), which the backward pass reads."""

    @staticmethod
    def heads(base: str, heads: int, backward: bool) -> list[int]:
        """The number of heads of each sheet that a tile needs: five sheets for a backward pass, or else one.

        ``heads`` is the number H of heads of the mixer.
        """
        query_heads = 2 * heads if base == "G" else heads
        return [query_heads] * 4 + [heads] if backward else [query_heads]

    def forward(self, x: Operands) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of the rows (H N, M, V), and the norm (H, N, M) to divide them by, or None for base S.

        If the tile was built with memory for a backward pass, its sheets (:class:`Sheet`, tensors of scores and of what
        is computed from them) keep the values that :meth:`backward` reads.
        """
        weights, norm = self._fill(x)
        o = x.v.new_empty(len(x.v), x.q.shape[1], x.v.shape[-1])
        products.multiply_batches(weights.keys, x.v, o)
        return o, norm

    def backward(
        self, x: Operands, grad_o: Tensor, along: Tensor | None, grads: Operands, is_filled: bool = False
    ) -> None:
        """Compute the gradients of the operands ``x``.

        ``grad_o`` is the gradient of the outputs before the division by the norm. ``along`` (H, N, M) is the gradient
        of the norm, divided by the norm, or None for base S. The gradients of q and of the strengths are written to
        ``grads``; those of k, v and the tables are added to it. ``is_filled`` is true if the sheets are still as
        :meth:`forward` left them; otherwise they are computed again.
        """
        if not is_filled:
            self._fill(x, has_norm=False)
        z, h, a = self.scores, self.hidden if x.mix1 else self.scores, self.a
        (gate, scale), (of_gate, of_a) = self._halves(h), self._halves(self.grad)
        read = of_a if x.mix2 else a
        products.add_batches(read.keys.mT, grad_o, grads.v)
        of_a.fill(grad_o, x.v)
        if x.mix2 and grads.mix2:
            work, _ = self._halves(self.work)
            tables = x.mix2.tables.transposed, grads.mix2.tables.transposed
            grads.mix2.s.copy_(of_a.unmix(a, self.inner2, x.mix2.s, *tables, work))
        if along is None:
            of_a.flat.mul_(a.flat)
            of_a.flat.addcmul_(a.flat, of_a.flat.sum(-1, keepdim=True), value=-1)
        else:
            self._through_norm(gate, scale, of_gate, of_a, along)
        if x.mix1 and grads.mix1:
            grads.mix1.s.copy_(self.grad.unmix(z, self.inner1, x.mix1.s, x.mix1.tables, grads.mix1.tables, self.work))
        self.inner1 = self.inner2 = (None, None)  # kept for every tile, they would need much memory
        columns = self.grad.mask().keys
        if x.q.shape[-1] < THIN:
            grads.q.copy_(torch.bmm(x.k.mT, columns.mT).mT)
            grads.k.add_(torch.bmm(x.q.mT, columns).mT)
        else:
            grads.q.copy_(torch.bmm(columns, x.k))
            products.add_batches(columns.mT, x.q, grads.k)

    def _fill(self, x: Operands, has_norm: bool = True) -> tuple[Sheet, Tensor | None]:
        """Compute all sheets of the forward pass. Return the sheet of weights, which multiply v, and the norm.

        The norm is (H, N, M), or None for base S and if ``has_norm`` is false.
        """
        z, h, a, norm = self.scores.fill(x.q, x.k), self.scores, self.a, None
        if x.mix1:
            h, self.inner1 = self.hidden, self.hidden.mix(z, x.mix1.s, x.mix1.tables)
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
            a.flat.mul_(cast(Any, torch._C._nn).softplus(scale.flat, out=softplus.flat))
        if x.mix2:
            self.inner2 = weights.mix(a, x.mix2.s, x.mix2.tables.transposed)
        if not self.keeps:
            self.inner1 = self.inner2 = (None, None)  # kept for every tile, they would need much memory
        return (weights if x.mix2 else a).mask(), norm

    def _halves(self, sheet: Sheet) -> tuple[Sheet, Sheet]:
        """The sheets of the gate and of the scale. For base G they are the two halves of ``sheet``, which has scores.

        For S and R, both are ``sheet`` itself.
        """
        return self.halves[id(sheet)]

    def _softmax(self, h: Sheet, a: Sheet) -> None:
        rows = h.rows
        future = torch.ones(rows, rows, dtype=torch.bool, device=h.flat.device).triu_(1)
        h.diagonal.masked_fill_(future, float("-inf"))
        torch.softmax(h.flat, dim=-1, out=a.flat)
        a.mask()

    def _through_norm(self, gate: Sheet, scale: Sheet, of_gate: Sheet, of_a: Sheet, along: Tensor) -> None:
        """Backward pass of the activation and of the norm, in place. ``of_a`` is the gradient of the activations.

        For R, ``of_a`` becomes the gradient of the hidden scores. For G, ``of_gate``, which contains the softplus,
        becomes the gradient of the gate, and ``of_a`` becomes the gradient of the scale. ``along`` is the gradient of
        the norm, divided by the norm.
        """
        h, da = gate.flat, of_a.flat
        by_row = h.new_zeros(*h.shape[:2])
        gate.of_rows(by_row).copy_(along)
        of_h = da if self.base == "R" else of_gate.flat.mul_(da)
        torch.ops.aten.threshold_backward.grad_input(of_h, h, 0, grad_input=of_h)
        of_h.addcmul_(h, by_row[..., None])
        if self.base == "G":
            da.mul_(h.relu_()).mul_(scale.flat.sigmoid_())
