"""The arithmetic of one tile: some sequences of one head, a block of rows, every slot those rows see; gradients by hand.

A tile is worked on in place, in memory that the next tile takes over, so that its many passes meet the cache. Its sheets,
(N, M, W) for N sequences, M rows and W slots, are the scores and all that is made of them. In the lag layout one memory is
read in two ways, as in :mod:`madbench.mixers.srg.parts`: with a row pitch of W + 1 columns are keys, newest first, and with
a row pitch of W they are lags. One blank row after each sequence keeps the second pitch throughout, so that a product with
a table, which all sequences share, is a single product of (N (M + 1), W). Blank rows and masked slots are zero.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from madbench.mixers.srg.parts import EPS


class Tables(NamedTuple):
    """R = Diag(gain) + A Diag(s) B^T of one head at W slots, gain = 1 + p; or the gradients of the three.

    A and B lie transposed: products of long rows are faster than those of thin ones.
    """

    A: Tensor  # (r, W)
    B: Tensor  # (r, W)
    gain: Tensor  # (W,)

    @property
    def transposed(self) -> Tables:
        return Tables(self.B, self.A, self.gain)


class Operands(NamedTuple):
    """What a tile is made of, in lists with one item a query head: of G the gate, then the scale. Or the gradients."""

    q: list[Tensor]  # (N, M, K)
    k: list[Tensor]  # (N, W, K), by lag (N, W + 1, K) newest first
    v: Tensor  # (N, W, V), by lag (N, W + 1, V) newest first
    s1: list[Tensor | None]  # (N, M, r)
    s2: Tensor | None  # (N, M, r)
    mix1: list[Tables | None]
    mix2: Tables | None


@functools.cache
def _future(rows: int, device: torch.device) -> Tensor:
    """(M, M), true where one of the last M slots is beyond what the row sees."""
    return torch.ones(rows, rows, dtype=torch.bool, device=device).triu(1)


class Sheet:
    """One (N, M, W) tensor of a tile."""

    def __init__(self, memory: Tensor, shape: tuple[int, int, int], by_lag: bool):
        entries, self.rows, slots = shape
        self.pitch = self.rows + by_lag
        start, width = (self.rows - 1) * by_lag, slots + by_lag
        self.flat = memory[start : start + entries * self.pitch * slots].view(-1, slots)
        """(N M, W), by lag (N (M + 1), W): rows by slot, for products with tables."""
        self.keys = memory.as_strided((entries, self.rows, width), (self.pitch * slots, width, 1))
        """(N, M, W), by lag (N, M, W + 1): rows by key, for products with q, k and v."""
        of_sequences = self.flat.view(entries, self.pitch, slots)
        self.diagonal = of_sequences[:, : self.rows, slots - self.rows :]
        self.blanks = (memory[:start], of_sequences[:, self.rows :]) if by_lag else ()

    @staticmethod
    def size(entries: int, rows: int, slots: int) -> int:
        """Numbers that its memory holds."""
        return entries * (rows + 1) * slots + rows

    def mask(self) -> Sheet:
        """Zeros where a row does not see, and between sequences."""
        for blank in self.blanks:
            blank.zero_()
        self.diagonal.tril_()
        return self

    def fill(self, left: Tensor, right: Tensor) -> Sheet:
        """left right^T, masked: q and k, or the gradient of o and v."""
        torch.bmm(left, right.transpose(1, 2), out=self.keys)
        return self.mask()

    def of_rows(self, x: Tensor) -> Tensor:
        """x with as many rows as ``flat`` -> (N, M, ...) without those of blanks."""
        return x.view(-1, self.pitch, x.shape[1])[:, : self.rows]

    def mix(self, s: Tensor, tables: Tables) -> None:
        """y R in place of y; what it leaves in masked slots has no meaning."""
        inner = self.flat @ tables.A.t()
        self.of_rows(inner).mul_(s)
        self.flat.mul_(tables.gain).addmm_(inner, tables.B)

    def mix_into(self, y: Sheet, s: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """y R of another sheet, as :meth:`mix`; returns y A before and after its product with s."""
        inner = y.flat @ tables.A.t()
        strengthened = inner.clone()
        self.of_rows(strengthened).mul_(s)
        torch.mm(strengthened, tables.B, out=self.flat).addcmul_(y.flat, tables.gain)
        return inner, strengthened

    def unmix(
        self, y: Sheet, inner: tuple[Tensor, Tensor], s: Tensor, tables: Tables, grads: Tables, work: Sheet
    ) -> Tensor:
        """From the gradient of y R, masked, to that of y in its place; adds those of the tables, returns that of s."""
        product, strengthened = inner
        grad = self.flat @ tables.B.t()
        grads.B.addmm_(strengthened.t(), self.flat)
        grads.gain.add_(torch.mul(self.flat, y.flat, out=work.flat).sum(0))
        grad_s = self.of_rows(grad * product)
        self.of_rows(grad).mul_(s)
        grads.A.addmm_(grad.t(), y.flat)
        self.flat.mul_(tables.gain).addmm_(grad, tables.A)
        return grad_s


class Tile:
    """The passes over the sheets of one shape, for one base activation."""

    FORWARD = {"S": 1, "R": 1, "G": 2}  # sheets
    BACKWARD = {"S": 5, "R": 5, "G": 8}

    def __init__(self, memory: list[Tensor], shape: tuple[int, int, int], by_lag: bool, base: str):
        self.base, self.heads = base, 2 if base == "G" else 1
        self.future = _future(shape[1], memory[0].device)
        self.sheets = [Sheet(part, shape, by_lag) for part in memory]

    def forward(self, x: Operands) -> tuple[Tensor, Tensor | None]:
        """Outputs of the rows (N, M, V), and under R and G what they were divided by (N, M, 1)."""
        hidden = self.sheets[: self.heads]
        for sheet, q, k, s, tables in zip(hidden, x.q, x.k, x.s1, x.mix1):
            sheet.fill(q, k)
            if tables:
                sheet.mix(s, tables)
        a, norm = hidden[0], None
        if self.base == "S":
            self._softmax(a, a)
        else:
            a.diagonal.tril_()
            norm = a.of_rows(torch.linalg.vector_norm(a.flat, dim=-1, keepdim=True)).square().add_(EPS).sqrt_()
            a.flat.relu_()
        if self.base == "G":
            scale = hidden[1].flat
            a.flat.mul_(torch._C._nn.softplus(scale, out=scale))
        if x.mix2:
            a.mix(x.s2, x.mix2.transposed)
            a.mask()
        o = torch.bmm(a.keys, x.v)
        return (o if norm is None else o.div_(norm)), norm

    def backward(self, x: Operands, o: Tensor, norm: Tensor | None, grad_o: Tensor, grads: Operands) -> None:
        """From the gradient of the outputs, those of the operands: q's and the strengths' set, all others added to."""
        heads = self.heads
        scores, hidden = self.sheets[:heads], self.sheets[heads : 2 * heads]
        a, grad, work, *others = self.sheets[2 * heads :]
        inner1 = []
        for z, h, q, k, s, tables in zip(scores, hidden, x.q, x.k, x.s1, x.mix1):
            z.fill(q, k)
            inner1.append(h.mix_into(z, s, tables) if tables else None)
        hidden = hidden if x.mix1[0] else scores
        along = None
        if self.base == "S":
            self._softmax(hidden[0], a)
        else:
            hidden[0].diagonal.tril_()
            torch.clamp_min(hidden[0].flat, 0, out=a.flat)
            along = a.flat.new_zeros(len(a.flat), 1)
            torch.div((grad_o * o).sum(-1, keepdim=True), norm.square(), out=a.of_rows(along))
            grad_o = grad_o / norm
        if self.base == "G":
            a.flat.mul_(torch._C._nn.softplus(hidden[1].flat, out=others[0].flat))
        if x.mix2:
            inner2 = grad.mix_into(a, x.s2, x.mix2.transposed)
        read = grad if x.mix2 else a
        grads.v.baddbmm_(read.mask().keys.transpose(1, 2), grad_o)
        grad.fill(grad_o, x.v)
        if x.mix2:
            tables = x.mix2.transposed, grads.mix2.transposed
            grads.s2.copy_(grad.unmix(a, inner2, x.s2, *tables, work))
        for i, of_head in enumerate(self._deactivate(grad, hidden, a, along, others)):
            if x.mix1[i]:
                inner = inner1[i], x.s1[i], x.mix1[i], grads.mix1[i]
                grads.s1[i].copy_(of_head.unmix(scores[i], *inner, work))
            columns = of_head.mask().keys
            grads.q[i].copy_(torch.bmm(columns, x.k[i]))
            grads.k[i].baddbmm_(columns.transpose(1, 2), x.q[i])

    def _softmax(self, h: Sheet, a: Sheet) -> None:
        h.diagonal.masked_fill_(self.future, float("-inf"))
        torch.softmax(h.flat, dim=-1, out=a.flat)
        a.mask()

    def _deactivate(
        self, grad: Sheet, hidden: list[Sheet], a: Sheet, along: Tensor | None, others: list[Sheet]
    ) -> list[Sheet]:
        """From the gradient of a those of the hidden scores, zero in masked slots."""
        da, h = grad.flat, hidden[0].flat
        if self.base == "S":
            da.mul_(a.flat)
            da.addcmul_(a.flat, da.sum(-1, keepdim=True), value=-1)
            return [grad]
        if self.base == "R":
            _through_relu(da, h).addcmul_(h, along, value=-1)
            return [grad]
        of_gate = others[0]  # holds the softplus
        _through_relu(of_gate.flat.mul_(da), h).addcmul_(h, along, value=-1)
        da.mul_(h.relu_()).mul_(hidden[1].flat.sigmoid_())
        return [of_gate, grad]


def _through_relu(grad: Tensor, h: Tensor) -> Tensor:
    """grad where h > 0, elsewhere zero; in place."""
    return torch.ops.aten.threshold_backward.grad_input(grad, h, 0, grad_input=grad)
