"""Parts of a mixer other than its projections: activations, slots and mixing.

Slots of a row are ordered by position (oldest first) or by lag (newest first). A block of M query rows whose last row
sees W keys has M x W slots. Row m of the block (0-based) sees W - M + 1 + m keys. In both layouts its valid slots are
therefore the first W - M + 1 + m, and the mask is the same lower triangle.

- position layout: slot l of a row is the key at position l.
- lag layout: slot l of a row is the key l steps before the row itself (paper, section 2.4 and Theorem F.1).

Scores in the lag layout need no gather and no copy. If the keys are stored newest first, followed by a row of zeros,
the product of queries and keys has W + 1 columns. In row m, the key at lag l is in column l + (M - 1 - m), one column
further right than in the row below. Read from element M - 1 on with a row pitch of W in place of W + 1, the memory of
the product *is* the lag layout.

In shapes, H is the number of heads, and H_q that of query heads: 2 H for the bases G and D, otherwise H. M is the
number of rows of a block, W the number of slots, and R or r the rank of R(1) and R(2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import call
from madbench.mixers.ops.precision import wide
from madbench.mixers.ops.tracing import is_symbolic

EPS = 1e-12


@dataclass(frozen=True)
class Projected:
    """Projections of B sequences for attention. ``k`` and ``v`` have one row per key, other tensors one per query.

    There are T queries and S keys, and H heads with H_q sets of scores: 2 H for the bases G and D, otherwise H. K and V
    are the widths of one head, and R is the rank of the mixing matrices R(1) and R(2). Shared keys and values have
    fewer heads until :meth:`madbench.mixers.srg.dynamic_mlp.DynamicMLP.for_each_head` repeats them.
    """

    q: Tensor
    """Queries (B, H_q, T, K), rotated and gated."""
    k: Tensor
    """Keys (B, H_q, S, K), rotated."""
    v: Tensor
    """Values (B, H, S, V)."""
    s1: Tensor | None
    """Strengths (B, H_q, T, R) of R(1), the matrix that mixes scores. None without this mixing."""
    s2: Tensor | None
    """Strengths (B, H, T, R) of R(2), the matrix that mixes activations. None without this mixing."""
    to_registers: Tensor | None
    """Scores (B, H_q, T, registers) of queries with registers. None without registers."""
    contrast: Tensor | None = None
    """Weight (B, H, T, 1) of the second softmax of DIFF V2. None for other labels."""

    def in_float32(self) -> Projected:
        """Return a copy with all tensors in float32."""
        q, k, v = self.q.float(), self.k.float(), self.v.float()
        others = (self.s1, self.s2, self.to_registers, self.contrast)
        return Projected(q, k, v, *(None if tensor is None else tensor.float() for tensor in others))


Seen: TypeAlias = int | Tensor | None
"""Type of a description of the slots that the M rows of a block see.

- int: the index of the last slot that the first row sees. Each further row sees one more slot.
- Tensor: a mask (M, W), True for the slots that a row sees.
- None: every row sees all slots.
"""


def activate(
    base: str, h: Tensor, seen: Seen, contrast: Tensor | None = None, sink: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Apply the activation of a base to hidden scores h (B, heads, M, W) of M rows and W slots.

    Return activations (B, H, M, W), and the norm (B, H, M, 1) by which they must still be divided. The norm is None for
    S and D. ``seen`` tells which slots a row sees; the activations of all other slots are zero.

    - S: softmax.
    - R: ReLU of L2Norm. L: L2Norm.
    - G: Softplus times ReLU of L2Norm (paper, eq. 11). h has 2 H heads: the first H are the gate, which L2Norm and ReLU
      read, and the last H the scale.
    - D: the first softmax minus ``contrast`` times the second. h has 2 H heads, H per softmax.

    ``contrast`` is a scalar or (B, H, M, 1). ``sink`` (heads,) adds a logit to the denominator of each softmax.

    L2Norm divides a row by one positive number, and everything after it is linear. R, L and G therefore return the row
    undivided, together with its norm. The caller divides the output row, which is much shorter (paper, Lemma B.2).
    """
    if base in ("S", "D"):
        if isinstance(seen, Tensor) or (seen is not None and seen < h.shape[-1] - 1):
            visible = torch.ones(h.shape[-2:], dtype=torch.bool, device=h.device)
            h = h.masked_fill(~mask_slots(visible, seen), float("-inf"))
        if sink is None:
            a = h.softmax(-1)
        else:
            a = torch.cat((h, sink[:, None, None].expand(*h.shape[:-1], 1)), dim=-1).softmax(-1)[..., :-1]
        if base == "D":
            first, second = a.chunk(2, dim=-3)
            a = first - cast(Tensor, contrast) * second
        return a, None
    if base in ("R", "L"):
        h = mask_slots(h, seen)
        return F.relu(h) if base == "R" else h, _norm(h)
    gate, scale = h.chunk(2, dim=-3)
    gate = mask_slots(gate, seen)
    return F.softplus(scale) * F.relu(gate), _norm(gate)


def mask_slots(x: Tensor, seen: Seen) -> Tensor:
    """Return x (..., M, W) of M rows and W slots with zeros in the slots that a row cannot see. See :data:`Seen`."""
    if isinstance(seen, Tensor):
        return x.masked_fill(~seen, 0)
    return x if seen is None else x.tril(seen)


def in_window(rows: int, tokens: int, first_row: int, window: int, causal: bool, device: torch.device) -> Tensor:
    """A mask (rows, tokens), True for the tokens that each row sees. The first row is token ``first_row``.

    A row sees the ``window`` tokens up to its own or, if not causal, all tokens at a distance below ``window``.
    """
    visible = torch.ones(rows, tokens, dtype=torch.bool, device=device)
    return visible.tril(first_row if causal else first_row + window - 1).triu(first_row - window + 1)


def _norm(h: Tensor) -> Tensor:
    """The L2 norm of h over its last axis, sqrt(sum h^2 + EPS), with the last axis kept as size 1.

    Computed in float32 or wider, because 16 bits are too inexact for EPS and a long sum.
    """
    return wide(h).square().sum(-1, keepdim=True).add(EPS).sqrt()


class Contrast(nn.Module):
    """The scalar lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_init, the weight of the second softmax of base D.

    All heads share the four vectors, (K,) each, where K is the width of one QK head. From Ye et al. 2024, eq. 2.
    """

    if TYPE_CHECKING:
        q1: nn.Parameter
        k1: nn.Parameter
        q2: nn.Parameter
        k2: nn.Parameter

    def __init__(self, width: int, lambda_init: float):
        super().__init__()
        self.lambda_init = lambda_init
        for name in ("q1", "k1", "q2", "k2"):
            setattr(self, name, nn.Parameter(torch.empty(width)))

    def forward(self) -> Tensor:
        """The scalar lambda, by which the second softmax is multiplied before it is subtracted."""
        return (self.q1 @ self.k1).exp() - (self.q2 @ self.k2).exp() + self.lambda_init


def exclude(o: Tensor, v: Tensor) -> Tensor:
    """Remove from o (..., V) its component along v (..., V). If v is zero, o is unchanged and gradients are finite.

    The direction is v / max(|v|, EPS), in float32 or wider. The code of the Marin project adds 1e-6 to |v|^2 instead.
    """
    direction = F.normalize(wide(v), dim=-1, eps=EPS)
    wider = wide(o)
    return (wider - (wider * direction).sum(-1, keepdim=True) * direction).to(o.dtype)


def newest_first(x: Tensor) -> Tensor:
    """Reverse x (..., S, C), so that the newest row is first, and append a row of zeros: (..., S + 1, C).

    For any W, the last W + 1 rows of the result equal the result for the first W rows of x. A caller that computes
    blocks of rows can therefore reverse the keys once, and slice the result for the keys that each block sees.
    """
    return F.pad(x.flip(-2), (0, 0, 0, 1))


def lag_scores(q: Tensor, k_newest_first: Tensor) -> Tensor:
    """The scores (..., M, W) of M queries q (..., M, K) with W keys, ordered by lag. The last query is at the last key.

    Slot l of a row is the score with the key l steps before the row. ``k_newest_first`` (..., W + 1, K) is the result
    of :func:`newest_first` for the keys. Slots beyond the oldest key contain scores of other rows and must be masked.
    """
    rows, slots = q.shape[-2], k_newest_first.shape[-2] - 1
    product = q @ k_newest_first.transpose(-1, -2)
    return torch.unflatten(product.flatten(-2)[..., rows - 1 : rows - 1 + rows * slots], -1, (rows, slots))


def lag_readout(w: Tensor, v_newest_first: Tensor) -> Tensor:
    """The sums (..., M, V) of W values, weighted by w (..., M, W), whose slots are ordered by lag as in ``lag_scores``.

    ``v_newest_first`` (..., W + 1, V) is the result of :func:`newest_first` for the values. The weights of masked slots
    must be zero.
    """
    rows, slots = w.shape[-2:]
    by_column = torch.unflatten(F.pad(w.flatten(-2), (rows - 1, 1)), -1, (rows, slots + 1))
    return by_column @ v_newest_first


def swap_position_and_lag(z: Tensor, first_row: int) -> Tensor:
    """Convert the last axis of z (..., M, W) from position to lag order, or from lag to position order.

    The M rows start at position ``first_row``, and all of them see all W keys. In lag order, slot l of row t is the key
    at position (t - l) mod W: first the keys up to row t, then the keys after row t, both with the newest first.
    """
    rows, slots = (torch.arange(size, device=z.device) for size in z.shape[-2:])
    index = (first_row + rows[:, None] - slots) % len(slots)
    return z.gather(-1, index.expand(z.shape))


def append_slots(z: Tensor, registers: Tensor, last: int) -> Tensor:
    """Insert k register slots (..., M, k) in each row of z (..., M, W), behind the last token that the row sees.

    The first row sees ``last`` + 1 tokens, and each further row one more, up to W. The result is (..., M, W + k), and
    its values behind the registers are undefined.
    """
    slots = torch.arange(z.shape[-1] + registers.shape[-1], device=z.device)
    behind = slots - _seen(z.shape[-2], z.shape[-1], last, z.device)
    index = torch.where(behind < 0, slots, z.shape[-1] + behind.clamp(0, registers.shape[-1] - 1))
    return torch.cat((z, registers), dim=-1).gather(-1, index.expand(*z.shape[:-1], -1))


def split_slots(w: Tensor, registers: int, last: int) -> tuple[Tensor, Tensor]:
    """Split w (..., M, W + k) into token slots (..., M, W) and register slots (..., M, k). Inverse of ``append_slots``.

    The k registers are behind the last token that a row sees. The first row sees ``last`` + 1 tokens, and each further
    row one more, up to W. Slots of tokens that a row does not see are zero.
    """
    rows, tokens = w.shape[-2], w.shape[-1] - registers
    index = _seen(rows, tokens, last, w.device) + torch.arange(registers, device=w.device)
    return w[..., :tokens].tril(last), w.gather(-1, index.expand(*w.shape[:-1], -1))


def _seen(rows: int, tokens: int, last: int, device: torch.device) -> Tensor:
    """The number of tokens that each row sees, (rows, 1): ``last`` + 1 for the first row, then one more per row."""
    return (last + 1 + torch.arange(rows, device=device)[:, None]).clamp(max=tokens)


def mix(y: Tensor, into: Tensor, s: Tensor, out_of: Tensor, gain: Tensor) -> Tensor:
    """Multiply the rows of y by a mixing matrix: y (Diag(gain) + into Diag(s) out_of^T), in the shape of y.

    y is (B, heads, M, W), s (B, heads, M, R), ``into`` and ``out_of`` (heads, W, R), and ``gain`` (heads, 1, W).
    """
    return y * gain + ((y @ into) * s) @ out_of.transpose(-1, -2)


Tables = tuple[Tensor, Tensor, Tensor]
"""Type of the tables of a :class:`SequenceMixing`: A and B, each (heads, L, r), and the diagonal p (heads, L).

L is the maximum number of slots and r the rank.
"""


class SequenceMixing(nn.Module):
    """The mixing matrix R = I + Diag(p) + A Diag(s_t) B^T of token t: R(1) or R(2) (paper, section 2.4, Lemma G.1).

    Products with R are computed from the factors; R itself is never formed. The tables ``A``, ``B`` (heads, L, r) and
    ``p`` (heads, L) are stored for L = ``max_len`` slots and sliced to the slots of an input. At every length, slot 0
    uses the first row of the tables or, if ``is_from_end`` is true, the last slot uses their last row. The strengths of
    token t are ``s_t = sigmoid(gate(x_t))``.

    Parameters: heads L (2r + 1) in the tables, heads r (d_model + 1) in the gate.
    """

    starts_at_zero = ("p",)

    def __init__(self, d_model: int, heads: int, max_len: int, rank: int, is_from_end: bool = False):
        super().__init__()
        self.heads, self.is_from_end = heads, is_from_end
        self.A = nn.Parameter(torch.empty(heads, max_len, rank))
        self.B = nn.Parameter(torch.empty(heads, max_len, rank))
        self.p = nn.Parameter(torch.empty(heads, max_len))
        self.gate = nn.Linear(d_model, heads * rank)

    def tables(self, slots: int) -> Tables:
        """Return the tables A, B and p for an input of ``slots`` slots, starting with the row that slot 0 uses.

        The results may have more than ``slots`` rows.
        """
        if not self.is_from_end:
            return self.A, self.B, self.p
        A, B, p = (table[:, table.shape[1] - slots :] for table in (self.A, self.B, self.p))
        return A, B, p

    def strengths(self, x: Tensor) -> Tensor:
        """The strengths s (B, heads, T, r) of the tokens x (B, T, D), each between 0 and 1."""
        return split_heads(torch.sigmoid(call(self.gate, x)), self.heads)

    def right(self, y: Tensor, s: Tensor) -> Tensor:
        """Multiply each row of y (B, heads, M, W) by the matrix R of the row's token: y R, in the same shape.

        A row has W slots. s (B, heads, M, r) are the strengths of the tokens of the M rows.
        """
        return self._mix(y, self.A, s, self.B)

    def right_transposed(self, y: Tensor, s: Tensor) -> Tensor:
        """Multiply each row of y by the transpose of R: y R^T, with shapes as in :meth:`right`."""
        return self._mix(y, self.B, s, self.A)

    def _mix(self, y: Tensor, into: Tensor, s: Tensor, out_of: Tensor) -> Tensor:
        into, out_of, p = (_rows(table, y.shape[-1], self.is_from_end) for table in (into, out_of, self.p))
        if p.dtype != y.dtype:
            into, out_of, p = (table.to(torch.promote_types(table.dtype, y.dtype)) for table in (into, out_of, p))
        return mix(y, into, s, out_of, 1 + p[:, None])


def _rows(table: Tensor, slots: int, is_from_end: bool) -> Tensor:
    """The rows (heads, slots, ...) of a table (heads, L, ...) that an input of ``slots`` slots uses.

    They are the last rows if ``is_from_end`` is true, otherwise the first. The result is a view of the table. If
    ``slots`` is symbolic, as in exported programs, it is a copy.
    """
    first = table.shape[1] - slots if is_from_end else 0
    if is_symbolic(slots):
        return table.index_select(1, first + torch.arange(slots, device=table.device))
    return table[:, first : first + slots]
