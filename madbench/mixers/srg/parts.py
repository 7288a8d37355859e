"""What a mixer is made of beside its projections: activations, rotary positions, short convolutions, slots and mixing.

Slots of a row are by position (oldest first) or by lag (newest first). A block of M query rows, the last of which sees
W keys, has M x W slots. Row m of the block (0-based) sees W - M + 1 + m keys, so in either layout its valid slots are
the first W - M + 1 + m, and the mask is the same lower triangle.

- position layout: slot l of a row is the key at position l.
- lag layout: slot l of a row is the key l steps before the row itself (paper, section 2.4 and Theorem F.1).

With the keys stored newest first, the key at lag l of row m is column l + (M - 1 - m): each row is the row below it,
shifted by one. Read with a row pitch one shorter, the product's memory *is* the lag layout: no gather and no copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.precision import wide
from madbench.mixers.srg.budget import CONV_TAPS
from madbench.mixers.srg.short_conv import ConvolveInBlocks, convolve, padded
from madbench.mixers.tracing import is_symbolic, is_traced

EPS = 1e-12
ROPE_BASE = 10000.0


@dataclass(frozen=True)
class Projected:
    """What the rows of a block and the tokens they see became; every field but ``k``, ``v`` has one row a query."""

    q: Tensor  # (B, H_q, T, K), rotated and gated
    k: Tensor  # (B, H_q, S, K), rotated
    v: Tensor  # (B, H, S, V)
    s1: Tensor | None  # (B, H_q, T, R) strengths of R(1)
    s2: Tensor | None  # (B, H, T, R) strengths of R(2)
    to_registers: Tensor | None  # (B, H_q, T, registers) scores

    def in_float32(self) -> Projected:
        """The same numbers as float32."""
        return Projected(*(None if tensor is None else tensor.float() for tensor in vars(self).values()))


def activate(
    base: str, h: Tensor, first_row: int | None, contrast: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Hidden scores (B, heads, M, W) -> activations (B, H, M, W) and the norm (B, H, M, 1) still to divide by.

    S is softmax, R is ReLU of L2Norm, L is L2Norm alone, G is Softplus times ReLU of L2Norm (paper, eq. 11) and
    takes 2H heads: the first H gate, the last H scale; so does D, the first softmax less ``contrast`` times the
    second. Slots a row cannot see come out as zero; with ``first_row`` None there are none. L2Norm divides a row by
    one positive number and everything after it is linear, so R, L and G return the row unnormalised together with
    its norm, and the caller divides the (much shorter) output row instead (paper, Lemma B.2).
    """
    if base in ("S", "D"):
        if first_row is not None and first_row < h.shape[-1] - 1:
            visible = torch.ones(h.shape[-2:], dtype=torch.bool, device=h.device).tril(first_row)
            h = h.masked_fill(~visible, float("-inf"))
        a = h.softmax(-1)
        if base == "D":
            first, second = a.chunk(2, dim=-3)
            a = first - contrast * second
        return a, None
    if base in ("R", "L"):
        h = masked(h, first_row)
        return F.relu(h) if base == "R" else h, _norm(h)
    gate, scale = h.chunk(2, dim=-3)
    gate = masked(gate, first_row)
    return F.softplus(scale) * F.relu(gate), _norm(gate)


def masked(x: Tensor, first_row: int | None) -> Tensor:
    """x (..., M, W) with 0 in the slots that a row cannot see, of which there are none if ``first_row`` is None."""
    return x if first_row is None else x.tril(first_row)


def _norm(h: Tensor) -> Tensor:
    """The norm in float32 at least: EPS and a long sum are beyond bfloat16."""
    return wide(h).square().sum(-1, keepdim=True).add(EPS).sqrt()


def rotate(
    x: Tensor, first_position: int, style: str = "rotation", angles: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Rotary position embedding (Su et al. 2021): x (..., T, K), K even; row t is at position ``first_position + t``.

    ``style="rotation"``: every pair turns by one angle, so scores depend on the offset of two positions only.
    ``style="mispaired"``: the angles are laid out for half-split pairs and applied to interleaved pairs
    (2i, 2i + 1), as the paper's public code does; the two coordinates of a pair turn by different angles.
    ``angles`` are those of :func:`rotary_angles` where they are at hand.
    """
    cos, sin = angles or rotary_angles(x, first_position)
    if style == "rotation":
        first, second = x.chunk(2, dim=-1)
        quarter_turn = torch.cat((-second, first), dim=-1)
    else:
        first, second = x[..., 0::2], x[..., 1::2]
        quarter_turn = torch.stack((-second, first), dim=-1).flatten(-2)
    return (x * cos + quarter_turn * sin).to(x.dtype)


def rotary_angles(x: Tensor, first_position: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, K) by which :func:`rotate` turns x (..., T, K)."""
    length, width = x.shape[-2:]
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = torch.arange(first_position, first_position + length, device=x.device, dtype=torch.float64)
    angle = torch.outer(position, frequency)
    angle = torch.cat((angle, angle), dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return angle.cos().to(dtype), angle.sin().to(dtype)


class ShortConv(nn.Module):
    """Depthwise causal convolution without a bias: y_t = sum_j w[:, j] x_{t - 3 + j}.

    The last of the four taps meets the current token. ``weight`` is (D, 4).
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, CONV_TAPS))

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """x (B, T, D), the three inputs before it (B, 3, D) or zeros -> (B, T, D)."""
        length = x.shape[1]
        in_blocks = x.device.type == "cpu" and x.dtype == self.weight.dtype and not is_traced()
        if before is None and length > 1 and in_blocks:
            return ConvolveInBlocks.apply(x, self.weight)
        if length == 1:
            return (padded(x, before) * self.weight.T).sum(1, keepdim=True)
        return convolve(x, self.weight, before)


class Contrast(nn.Module):
    """lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_init, the weight of D's second softmax (Ye et al. 2024, eq. 2).

    The four vectors, (K,) each for the width of one QK head, are shared by all heads.
    """

    def __init__(self, width: int, lambda_init: float):
        super().__init__()
        self.lambda_init = lambda_init
        for name in ("q1", "k1", "q2", "k2"):
            setattr(self, name, nn.Parameter(torch.empty(width)))

    def forward(self) -> Tensor:
        """A scalar."""
        return (self.q1 @ self.k1).exp() - (self.q2 @ self.k2).exp() + self.lambda_init


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


def turned(z: Tensor, first_row: int) -> Tensor:
    """(..., M, W) of rows from ``first_row`` on, all of which see W keys, by position -> by lag, and back.

    Slot l of row t is the key at position (t - l) mod W: the lags of a causal row, then the keys behind it, the last
    one first.
    """
    rows, slots = (torch.arange(size, device=z.device) for size in z.shape[-2:])
    index = (first_row + rows[:, None] - slots) % len(slots)
    return z.gather(-1, index.expand(z.shape))


def appended(z: Tensor, registers: Tensor, last: int) -> Tensor:
    """Slots of tokens (..., M, W) and of k registers (..., M, k) -> (..., M, W + k), registers behind a row's tokens.

    The first row sees ``last`` + 1 tokens, each further row one more, up to W. What stands beyond has no meaning.
    """
    slots = torch.arange(z.shape[-1] + registers.shape[-1], device=z.device)
    behind = slots - _seen(*z.shape[-2:], last, z.device)
    index = torch.where(behind < 0, slots, z.shape[-1] + behind.clamp(0, registers.shape[-1] - 1))
    return torch.cat((z, registers), dim=-1).gather(-1, index.expand(*z.shape[:-1], -1))


def parted(w: Tensor, registers: int, last: int) -> tuple[Tensor, Tensor]:
    """What :func:`appended` puts together: slots of tokens (..., M, W), zero beyond those seen, and of registers."""
    rows, tokens = w.shape[-2], w.shape[-1] - registers
    index = _seen(rows, tokens, last, w.device) + torch.arange(registers, device=w.device)
    return w[..., :tokens].tril(last), w.gather(-1, index.expand(*w.shape[:-1], -1))


def _seen(rows: int, tokens: int, last: int, device: torch.device) -> Tensor:
    """Tokens that each row of a block sees, (M, 1)."""
    return (last + 1 + torch.arange(rows, device=device)[:, None]).clamp(max=tokens)


def mix(y: Tensor, into: Tensor, s: Tensor, out_of: Tensor, gain: Tensor) -> Tensor:
    """y (Diag(gain) + into Diag(s) out_of^T): y (B, heads, M, W), s (B, heads, M, R) -> (B, heads, M, W).

    ``into`` and ``out_of`` are (heads, W, R), ``gain`` is (heads, 1, W).
    """
    if y.shape[-2] == 1:  # of all sequences together they are one block, so that the tables are read once
        y, s = y[:, :, 0].transpose(0, 1), s[:, :, 0].transpose(0, 1)
        return (y * gain + torch.bmm(torch.bmm(y, into) * s, out_of.mT)).transpose(0, 1)[:, :, None]
    return y * gain + ((y @ into) * s) @ out_of.transpose(-1, -2)


Tables = tuple[Tensor, Tensor, Tensor]
"""A and B (heads, L, r) and p (heads, L) of a :class:`SequenceMixing`."""


class SequenceMixing(nn.Module):
    """R = I + Diag(p) + A Diag(s_t) B^T, one of R(1), R(2) (paper, section 2.4, Lemma G.1); the matrix is never formed.

    ``A``, ``B`` (heads, L, r) and ``p`` (heads, L) are stored for the maximum length and sliced to the slots at hand,
    so that slot 0 keeps its row at every length; with ``is_from_end`` the last slot does, whatever the length.
    ``s_t = sigmoid(gate(x_t))``. Parameters: heads L (2r + 1) in the tables, d heads r + heads r in the gate.
    """

    def __init__(self, d_model: int, heads: int, max_len: int, rank: int, is_from_end: bool = False):
        super().__init__()
        self.heads, self.is_from_end = heads, is_from_end
        self.A = nn.Parameter(torch.empty(heads, max_len, rank))
        self.B = nn.Parameter(torch.empty(heads, max_len, rank))
        self.p = nn.Parameter(torch.empty(heads, max_len))
        self.gate = nn.Linear(d_model, heads * rank)

    def tables(self, slots: int) -> Tables:
        """Those whose first rows are of ``slots`` slots; there may be more behind them."""
        tables = (self.A, self.B, self.p)
        return tuple(table[:, table.shape[1] - slots :] for table in tables) if self.is_from_end else tables

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
        into, out_of, p = (_rows(table, y.shape[-1], self.is_from_end) for table in (into, out_of, self.p))
        if p.dtype != y.dtype:
            into, out_of, p = (table.to(torch.promote_types(table.dtype, y.dtype)) for table in (into, out_of, p))
        return mix(y, into, s, out_of, 1 + p[:, None])


def _rows(table: Tensor, slots: int, is_from_end: bool) -> Tensor:
    """The rows (heads, ``slots``, ...) of a table; as a copy in a program for all lengths, which the longest may be."""
    first = table.shape[1] - slots if is_from_end else 0
    if is_symbolic(slots):
        return table.index_select(1, first + torch.arange(slots, device=table.device))
    return table[:, first : first + slots]
