"""HyperAttention whose scores are products of a query and keys: softmax and linear (Def. G.1, G.3).

A head scores tuples of tokens. The slots of a tuple share one set of keys and values (Def. G.1), or each slot has its
own (Def. G.3). Full coupling tensors are not in this module.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.linear_maps import check_weights
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.recompute import recompute
from madbench.mixers.ops.rope import ROPE_BASE
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.probe import Probe, by_lag
from madbench.papers.interactions.mixers.mixer import FactoredMixer, softmax_over, split_heads
from madbench.papers.interactions.mixers.reference import tuple_reference
from madbench.papers.interactions.mixers.sums import tuple_sums, visibility_mask
from madbench.papers.interactions.mixers.tuples import ALL, STRICT

PROBED_TUPLES = 2**25  # largest number of tuples in a probe, which stores one number per tuple


class HyperAttention(FactoredMixer):
    """Attention whose heads score tuples of tokens (Def. G.1 with shared slots, G.3 with unshared slots)::

        z_iJ = q_i . (k^1_j1 * k^2_j2 * ..) / sqrt(d_qk),    J = (j1, .., j_(n-1)), j1 the newest
        y_i  = concat_h( sum_J softmax_J(z_iJ) (v^1_j1 * v^2_j2 * ..) ) W_o;    linear: z_iJ for softmax_J(z_iJ)

    Slot m of a tuple is the place of its token j_m. The mask is added to the scores; Def. G.1 prints it as a factor.
    W_o is the product of the paper's V^n and W^O. The scale is that of Section 2. With RoPE (ours) the product of keys
    is rotated by the sum of the lags, sum_m (j_m - i). Scores then depend on offsets only, are symmetric in the slots,
    and equal those of RoPE for n = 2. A row without tuples (strict, fewer than n - 1 tokens) is 0. Heads may differ in
    n, as Appendix H proposes. Heads of degree 2 are softmax or linear attention.

    Args:
        d_model: the width d.
        degrees: the degree n of every head, ascending.
        unshared: True if every slot has its own keys and values.
        tuples: the kind of tuples, see :mod:`madbench.papers.interactions.mixers.tuples`.
        r_qk, r_vo: ranks, summed over heads.
        options: see :class:`madbench.papers.interactions.mixers.mixer.InteractionMixer`.

    ``q.weight`` is (r_qk, d). The rows of ``k.weight`` and ``v.weight`` are sorted by head, slot and channel, with one
    slot per head if shared. With m slots per head, there are (1 + m) d r_qk + (1 + m) d r_vo parameters.
    """

    def __init__(
        self, d_model: int, degrees: Sequence[int], unshared: bool, tuples: str, r_qk: int, r_vo: int, **options: Any
    ):
        self.degrees, self.degree, self.tuples = tuple(degrees), max(degrees), tuples
        self.slots = tuple(n - 1 if unshared else 1 for n in degrees)
        self.d_qk, self.d_vo, rows = r_qk // len(degrees), r_vo // len(degrees), sum(self.slots)
        super().__init__(d_model, len(degrees), (r_qk, rows * self.d_qk, rows * self.d_vo, r_vo), **options)

    def name(self) -> str:
        return f"degree n = {self.degree}"

    def _parts(self) -> Iterator[tuple[int, slice]]:
        """Yield each degree, and the slice of the heads that have it."""
        for degree in dict.fromkeys(self.degrees):
            first = self.degrees.index(degree)
            yield degree, slice(first, first + self.degrees.count(degree))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The scaled queries (B, H, T, d_qk), the keys (B, S, T, d_qk) and the values (B, S, T, d_vo) of x (B, T, d).

        S is the number of slots of all heads.
        """
        q = split_heads(self.q(x), self.n_head) * self.d_qk**-0.5
        k, v = (split_heads(of(x), sum(self.slots)) for of in (self.k, self.v))
        return q, k, v

    def rotate_query(self, q: Tensor, position: int) -> Tensor:
        """Rotate the queries q (B, H, T, d_qk) by their positions. The first query is at ``position``.

        The result is complex. The real part of its product with a product of rotated keys is the score with RoPE: q .
        Rot(sum of lags) (product of keys).
        """
        first, second = q.chunk(2, dim=-1)
        turn, conjugate = self._turn(q, position)[:, : self.d_qk // 2].conj(), torch.complex(first, -second)
        half = torch.cat([conjugate[:, heads] * turn ** (degree - 1) for degree, heads in self._parts()], dim=1)
        return torch.cat((half, 1j * half), dim=-1)

    def rotate_key(self, k: Tensor, position: int) -> Tensor:
        """Rotate the keys k (B, S, T, d_qk) of S slots by their positions. The first key is at ``position``.

        The result is complex. Channel c of the key at position t is multiplied by e^(i theta_c t).
        """
        return k * self._turn(k, position)

    def _turn(self, q: Tensor, position: int) -> Tensor:
        """The factors e^(i theta_c t) of RoPE for channels c and positions t from ``position`` on, complex (T, d_qk).

        T is the number of tokens of q (.., T, d_qk). The two halves of the channels have the same factors.
        """
        pair = torch.arange(0, self.d_qk, 2, device=q.device, dtype=torch.float64)
        token = torch.arange(position, position + q.shape[2], device=q.device, dtype=torch.float64)
        angle = torch.outer(token, ROPE_BASE ** (-pair / self.d_qk)).repeat(1, 2)
        return torch.polar(torch.ones_like(angle), angle).to(torch.promote_types(q.dtype, torch.complex64))

    def _by_slot(self, x: Tensor, degree: int, heads: slice) -> list[Tensor]:
        """Select the slots of some heads from x (B, S, T, C), which has the keys or values of the slots of all heads.

        The ``heads`` have the same ``degree`` n. Return one tensor (B, H', T, C) for each of their n - 1 slots. If
        slots are shared, all of them are the same tensor.
        """
        of_one = self.slots[heads.start]
        first, last = sum(self.slots[: heads.start]), sum(self.slots[: heads.stop])
        slots = x[:, first:last].unflatten(1, (-1, of_one)).unbind(2)
        return list(slots) * (degree - 1) if of_one == 1 else list(slots)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, first_row: int) -> Tensor:
        rows = [
            self._weighted_sums(q[:, part[1]], self._by_slot(k, *part), self._by_slot(v, *part), first_row)
            for part in self._parts()
        ]
        return torch.cat(rows, dim=1)

    def _weighted_sums(self, q: Tensor, keys: list[Tensor], values: list[Tensor], first_row: int) -> Tensor:
        """The outputs (B, H', M, d_vo) of H' heads of one degree for M rows: sums of weight times value over tuples.

        ``keys`` and ``values`` have one tensor per slot. ``first_row`` is the position of the first row among the keys.
        Weights are normalized unless the mixer is linear. The output of a row without tuples is 0.
        """
        numerator, denominator, _ = self._sums(q, keys, values, first_row)
        return numerator if self.linear else numerator / denominator.masked_fill(denominator == 0, 1)

    def _sums(
        self, q: Tensor, keys: list[Tensor], values: list[Tensor], first_row: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum of weight times value, the sum of weights, and the largest score over the tuples of each row.

        Their shapes are (B, H', M, d_vo), (B, H', M, 1) and (B, H', M, 1). A weight is exp(score - largest score), or
        the score itself if the mixer is linear; the largest score is then 0. ``first_row`` is the position of the first
        row among the keys.
        """
        *outer, inner = keys
        if len(outer) > 1 and not is_symbolic(inner.shape[2]):
            return self._sums_of_outer_slot(q, keys, values, first_row)
        z = q[:, :, :, None]
        for slot, key in enumerate(outer):
            z = (z if slot == 0 else z.unsqueeze(-2)) * _insert_axes(key, 1 + slot)
        z = wide(_real_product(z, _insert_axes(inner, max(len(outer), 1))))  # (B, H, M, S or 1, .., S)
        seen = visibility_mask(len(keys), self.tuples, inner, self.causal, first_row, q.shape[2])
        seen = seen if outer else seen[:, None]
        axes = tuple(range(3, z.dim()))
        if self.linear:
            weights, top = z.masked_fill(~seen, 0), z.new_zeros(*z.shape[:3], *(1,) * len(axes))
        else:
            weights, top = softmax_over(z, seen, axes)
        with without_autocast(z) if self.linear else contextlib.nullcontext():
            sums = wide(weights @ _insert_axes(values[-1], max(len(outer), 1)))
        for slot in reversed(range(len(outer))):
            sums = (sums * _insert_axes(values[slot], 1 + slot)).sum(-2)
        sums = sums if outer else sums.squeeze(3)
        return sums, weights.sum(axes)[..., None], top.flatten(3)

    def _sums_of_outer_slot(
        self, q: Tensor, keys: list[Tensor], values: list[Tensor], first_row: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The result of :meth:`_sums`, computed by a loop over the tokens that the first slot can have.

        The first slot is the slot of the newest token. In each round its token is fixed, and the sums are over the
        tokens of the other slots only.
        """
        nothing = (0.0, 0.0, 0.0 if self.linear else float("-inf"))
        widths = (values[0].shape[-1], 1, 1)
        sums = [q.real.new_full((*q.shape[:3], width), fill) for width, fill in zip(widths, nothing)]
        for token in range(keys[0].shape[2]):
            older = {ALL: None, STRICT: token}.get(self.tuples, token + 1)
            skipped = min(max(token - first_row, 0), q.shape[2]) if self.causal else 0  # rows before the token
            if older == 0 or skipped == q.shape[2]:
                continue
            of_token = recompute(self._sums_with, q[:, :, skipped:], keys, values, token, older, first_row + skipped)
            of_rows = [F.pad(part, (0, 0, skipped, 0), value=fill) for part, fill in zip(of_token, nothing)]
            sums = _join_sums(sums, of_rows)
        numerator, denominator, top = sums
        return numerator, denominator, top

    def _sums_with(
        self, q: Tensor, keys: list[Tensor], values: list[Tensor], token: int, older: int | None, first_row: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The result of :meth:`_sums` over the tuples whose first slot has the token ``token``.

        The other slots have tokens among the first ``older`` tokens, or among all tokens if ``older`` is None.
        """
        other_keys, other_values = ([inner[:, :, :older] for inner in of[1:]] for of in (keys, values))
        product = q * keys[0][:, :, token, None]
        numerator, denominator, top = self._sums(product, other_keys, other_values, first_row)
        return numerator * values[0][:, :, token, None], denominator, top

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """The share of each token in the tuples of a row, and the matrix W_q^T W_k / sqrt(d_qk) of each slot.

        The share of a token in a slot is the sum of the weights of the row's tuples with the token in this slot. It is
        averaged over slots. Shares are computed only if the mixer is causal and all rows together have at most
        ``PROBED_TUPLES`` tuples. The matrix of a slot is the effect of its token on the row's token if the keys of the
        other slots are 1. There is one matrix (d, d) for each head that has the slot.
        """
        queries, matrices = self.q.weight.unflatten(0, (self.n_head, self.d_qk)), {}
        keys_of_heads = self.k.weight.unflatten(0, (-1, self.d_qk)).split(self.slots)
        for m in range(max(self.slots)):
            of_heads = [(q, k[m]) for q, k in zip(queries, keys_of_heads) if m < len(k)]
            matrices[f"slot {m + 1}"] = torch.stack([q.mT @ k * self.d_qk**-0.5 for q, k in of_heads])
        length = x.shape[1]
        if not self.causal or len(x) * sum(length**n for n in self.degrees) > PROBED_TUPLES:
            return Probe(matrices=matrices)
        rows, keys, _ = self.with_positions(0, 0, *self.project(x))
        shares = [self._shares(rows[:, heads], self._by_slot(keys, n, heads)) for n, heads in self._parts()]
        return Probe(by_lag(torch.cat(shares, dim=1)), matrices=matrices)

    def _shares(self, q: Tensor, keys: list[Tensor]) -> Tensor:
        """The share of each token in the tuples of a row, (B, H', rows, tokens).

        The share of a token in a slot is the sum of the weights of the row's tuples with the token in this slot. It is
        averaged over slots. ``q`` and ``keys`` are those of H' heads of one degree.
        """
        length, shares = q.shape[2], 0
        each = torch.eye(length, dtype=q.real.dtype, device=q.device).expand(*q.shape[:2], -1, -1)
        for m in range(len(keys)):
            values = [each if slot == m else torch.ones_like(each) for slot in range(len(keys))]
            shares = shares + self._weighted_sums(q, keys, values, 0)
        return cast(Tensor, shares) / len(keys)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        check_weights(self, "q", "k", "v", "o")
        return tuple_reference(self, x, rows)

    def block_bytes(self, batch: int, rows: int, length: int) -> int:
        widths = self.d_qk * (1 + self.rope) + self.d_vo
        of_heads = (length * (length + widths) if n > 2 else length for n in self.degrees)
        return 8 * batch * rows * sum(of_heads)

    def prefers_state(self, length: int) -> bool:
        if is_symbolic(length):
            return True
        scores: int = sum(length ** (n - 1) for n in self.degrees)
        return self._state_entries <= scores

    @property
    def _state_entries(self) -> int:
        """The number of entries in the running sums of all heads. A head of degree n has n - 1 sums (d_qk, d_vo)."""
        return sum(n - 1 for n in self.degrees) * self.d_qk * self.d_vo

    def check_state(self) -> None:
        """Do nothing. The running sums, with (n - 1) d_qk d_vo entries per head, are never too large."""

    def state_row_bytes(self, batch: int) -> int:
        return 8 * (1 + self.rope) * batch * self._state_entries

    def _tuple_sums(self, k: Tensor, v: Tensor, state: Sequence[Any] | None) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The sums of prod_m k^m v^m over the tuples of each row, and the running sums after the last row.

        The product is over the slots m of a tuple. Each result is a list with one entry per degree. The sums of an
        entry are (B, H', M, d_qk, d_vo) for H' heads and M rows. The running sums of an entry are a list with one
        tensor (B, H', 1, d_qk, d_vo) per slot. ``state`` has the running sums after earlier rows; None if there are
        none.
        """
        sums, after = [], []
        for i, (degree, heads) in enumerate(self._parts()):
            keys, values = (self._by_slot(of, degree, heads)[: self.slots[heads.start]] for of in (k, v))
            terms = [key[..., None] * value[..., None, :] for key, value in zip(keys, values)]
            if len(terms) == 1 and self.tuples != ALL:
                terms = terms * (degree - 1)
            of_part, running = tuple_sums(terms, self.tuples, 2, None if state is None else state[i])
            sums.append(self._power(of_part, degree, heads))
            after.append(running)
        return sums, after

    def _power(self, sums: Tensor, degree: int, heads: slice) -> Tensor:
        """The sums over the tuples of ``heads``, from the result of :func:`tuple_sums`.

        If slots are shared and tuples are of the kind "all", the n - 1 slots of a head of ``degree`` n have the same
        running sum. The sum over tuples is then its power n - 1. Otherwise ``sums`` are returned as they are.
        """
        return sums ** (degree - 1) if self.slots[heads.start] == 1 and self.tuples == ALL else sums

    def advance(
        self, q: Tensor, k: Tensor, v: Tensor, state: Sequence[Any] | None
    ) -> tuple[Tensor, list[list[Tensor]]]:
        sums, state = self._tuple_sums(k, v, state)
        return self._read(q, sums), state

    def totals(self, k: Tensor, v: Tensor, state: Sequence[Any] | None) -> list[list[Tensor]]:
        return self._tuple_sums(k, v, state)[1]

    def read_totals(self, q: Tensor, state: Sequence[Any]) -> Tensor:
        sums = []
        for part, running in zip(self._parts(), state):
            sums.append(self._power(math.prod(running) if self.tuples == ALL else running[0], *part))
        return self._read(q, sums)

    def _read(self, q: Tensor, sums: Sequence[Tensor]) -> Tensor:
        rows = [(q[:, heads, :, :, None] * of_part).sum(-2).real for (_, heads), of_part in zip(self._parts(), sums)]
        return torch.cat(rows, dim=1)


def _join_sums(first: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    """Combine two results of :meth:`HyperAttention._sums` for the same rows into the result for all their tuples.

    The two sets of tuples must be disjoint.
    """
    top = torch.maximum(first[2], other[2])
    finite = top.masked_fill(top == float("-inf"), 0)
    scales = [(part[2] - finite).exp() for part in (first, other)]
    return [*(first[i] * scales[0] + other[i] * scales[1] for i in range(2)), top]


def _insert_axes(x: Tensor, axes: int) -> Tensor:
    """Insert ``axes`` new axes after the heads: (B, H, S, C) -> (B, H, 1, .., S, C).

    The new axes are those of rows and of the tokens of earlier slots.
    """
    return x[:, :, *(None,) * axes]


def _real_product(a: Tensor, b: Tensor) -> Tensor:
    """The real part of the matrix product a b^T, computed with real products."""
    if a.is_complex():
        a, b = torch.cat((a.real, -a.imag), dim=-1), torch.cat((b.real, b.imag), dim=-1)
    return a @ b.transpose(-1, -2)
