"""The computed forms of eq. 4: scores s_ij = qbar_i . A_i ... A_(j+1) kbar_j of a whole sequence, and of its blocks.

With A_t = (I - beta_t w_t w_t^T) diag(lambda_t), c_t = sum_(s<=t) log lambda_s, B = diag(beta) and
P(a, b)_ts = sum_r a_tr b_sr exp(c_tr - c_sr) for s <= t (P' for s < t), the scores are

    S = P(qbar, kbar) - P(qbar, w) B E,     (I + P'(w, w) B) E = P'(w, kbar)
      = P(qbar, kbar) - R B P'(w, kbar),    R (I + B P'(w, w)) = P(qbar, w)

and just R diag(|kbar|) where the mirrors are along the keys, kbar = |kbar| w.
An exponent is masked before it is taken, and c is only ever used as a difference that is at most zero for gates below
one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.tracing import is_symbolic

SUB_BLOCK = 16  # rows whose decay is evaluated pair by pair


@dataclass(frozen=True)
class Dynamics:
    """The rows of a sequence as eq. 3 and eq. 4 read them, float32 at least."""

    q: Tensor  # (B, H, T, n) qbar
    k: Tensor  # (B, H, T, n) kbar
    v: Tensor  # (B, H, T, V)
    log_gate: Tensor | None  # (B or 1, H or 1, T, 1 or n) log lambda
    w: Tensor | None  # (B, H, T, n) directions of the mirrors, of length 1
    beta: Tensor | None  # (B, H, T) their strengths
    length: Tensor | None = None  # (B, H, T) of kbar where w is its direction
    row_log: Tensor | None = None  # (B, H, T) the scores of a row lack a factor e^row_log
    log_norm: Tensor | None = None  # (B, H, T) log eta of wx and pow


@dataclass(frozen=True)
class Blocks:
    """What blocks of C rows do to the states that enter them; an axis of blocks before the rows."""

    scores: Tensor  # (B, H, Z, C, C) between rows of one block
    queries: Tensor  # (B, H, Z, C, n) scores with the keys before the block are their products with those
    keys: Tensor  # (B, H, Z, C, n) as they leave the block
    log_decay: Tensor | None  # (B, H, Z, 1 or n) of a state, in double precision
    transition: Tensor | None  # (B, H, Z, n, n) of a state, where there are mirrors: decay included


def masked_exp(exponent: Tensor, mask: Tensor) -> Tensor:
    """exp where the mask holds and 0 elsewhere, with a zero gradient there whatever the exponent is."""
    return exponent.masked_fill(~mask, -math.inf).exp()


class Decay:
    """exp(c_t - c_s) for all rows s <= t, of log lambda (..., T, 1 or n), or 1 where there is no gate.

    Within a sub-block of rows it is evaluated pair by pair. Between sub-blocks it is the product of three factors: from
    the row to its sub-block's start, between, and from the column to its sub-block's end. A sub-block has
    ``sub_block`` rows, ``SUB_BLOCK`` unless given.
    """

    def __init__(self, log_gate: Tensor | None, like: Tensor, sub_block: int = 0):
        self.log_gate, self.length, dtype = log_gate, like.shape[-2], like.dtype
        if log_gate is None:
            return
        self.rows = self.length if is_symbolic(self.length) else min(sub_block or SUB_BLOCK, self.length)
        c = split_rows(log_gate, self.rows).double().cumsum(-2)  # double, as it is large where gates close
        total = c[..., -1:, :]
        end = total.squeeze(-2).cumsum(-2)
        self.entering, self.leaving = c.to(dtype).exp(), (total - c).to(dtype).exp()
        self.near = masked_exp((c[..., :, None, :] - c[..., None, :, :]).to(dtype), _lower(self.rows, 0, c)[..., None])
        between = (end - total.squeeze(-2))[..., :, None, :] - end[..., None, :, :]
        self.between = masked_exp(between.to(dtype), _lower(end.shape[-2], -1, c)[..., None])

    def products(self, a: Tensor, b: Tensor, is_strict: bool = False) -> Tensor:
        """P(a, b), or P' where strict: a, b (..., T, n) -> (..., T, T), zero above the diagonal."""
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
    """Mask (size, size) of what is below the diagonal, for ``diagonal`` 0 with it, for -1 without."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).tril(diagonal)


def split_rows(x: Tensor, rows: int) -> Tensor:
    """(..., T, C) -> (..., T / rows, rows, C), with zeros after the last row where ``rows`` does not divide T."""
    if is_symbolic(rows):
        return x.unsqueeze(-3)  # all of them
    return F.pad(x, (0, 0, 0, -x.shape[-2] % rows)).unflatten(-2, (-1, rows))


def scores(d: Dynamics) -> Tensor:
    """s_ij of all rows at once (B, H, T, T), with mirrors in O(T^3). A mask removes what is above the diagonal."""
    if d.w is None and d.log_gate is None:
        return d.q @ d.k.mT
    decay = Decay(d.log_gate, d.q)
    if d.w is None:
        return decay.products(d.q, d.k)
    mirrored = _past_mirrors(decay, d.w, d.beta, decay.products(d.q, d.w))
    if d.length is not None:
        return mirrored * d.length[..., None, :]
    written = decay.products(d.w, d.k, is_strict=True)
    return decay.products(d.q, d.k) - mirrored * d.beta[..., None, :] @ written


def _past_mirrors(decay: Decay, w: Tensor, beta: Tensor, rows: Tensor) -> Tensor:
    """rows (I + B P'(w, w))^-1: rows (..., M, T) that meet one direction a column meet it as mirrors since left it."""
    system = beta[..., None] * decay.products(w, w)
    return torch.linalg.solve_triangular(system, rows, upper=False, left=False, unitriangular=True)


def split(d: Dynamics, size: int, sub_block: int = 0) -> Blocks:
    """The blocks of ``size`` rows, each on its own; see :class:`Decay` for ``sub_block``."""
    q, k = split_rows(d.q, size), split_rows(d.k, size)
    log_gate = log_decay = None
    queries, keys = q, k
    if d.log_gate is not None:
        log_gate = split_rows(d.log_gate, size)
        c = log_gate.double().cumsum(-2)
        log_decay = c[..., -1, :]
        entering, leaving = c.to(q.dtype).exp(), (c[..., -1:, :] - c).to(q.dtype).exp()
        queries, keys = q * entering, k * leaving
    decay = Decay(log_gate, q, sub_block)
    if d.w is None:
        return Blocks(decay.products(q, k), queries, keys, log_decay, None)
    w, beta = split_rows(d.w, size), split_rows(d.beta[..., None], size)
    entering_w, leaving_w = (w, w) if log_gate is None else (w * entering, w * leaving)
    rows = torch.cat((decay.products(q, w), leaving_w.mT), dim=-2)
    mirrored = _past_mirrors(decay, w, beta.squeeze(-1), rows)  # of scores, then of what leaves the block
    removed = mirrored @ (beta * entering_w)
    if d.length is not None:
        written = mirrored * split_rows(d.length[..., None], size).mT
    else:
        written = torch.cat((decay.products(q, k), keys.mT), dim=-2)
        written = written - mirrored @ (beta * decay.products(w, k, is_strict=True))
    survives = (
        torch.ones_like(q[..., 0, :]) if log_decay is None else log_decay.to(q.dtype).exp().expand_as(q[..., 0, :])
    )
    return Blocks(
        written[..., :size, :],
        queries - removed[..., :size, :],
        written[..., size:, :].mT,
        None,
        torch.diag_embed(survives) - removed[..., size:, :],
    )


def chunked(d: Dynamics, size: int, values: Tensor, sub_block: int = 0) -> tuple[Tensor, Tensor]:
    """sum_j s_ij values_j in time linear in T: values (B, H, T, V) -> (B, H, T, V); id and kernels.

    Also returns the state after the last row (B, H, n, V).
    """
    length, blocks, values = values.shape[2], split(d, size, sub_block), split_rows(values, size)
    inflow = blocks.keys.mT @ values
    decay = None if blocks.log_decay is None else blocks.log_decay.to(values.dtype).exp()[..., None].unbind(2)
    transition = None if blocks.transition is None else blocks.transition.unbind(2)
    state, states = torch.zeros_like(inflow[:, :, 0]), []
    for block, new in enumerate(inflow.unbind(2)):
        states.append(state)
        if transition is not None:
            state = transition[block] @ state
        elif decay is not None:
            state = decay[block] * state
        state = state + new
    y = blocks.scores @ values + blocks.queries @ torch.stack(states, dim=2)
    return y.flatten(2, 3)[:, :, :length], state


def evolved_keys(d: Dynamics, blocks: Blocks | None = None) -> Tensor:
    """The keys after the last row, h_Tj: (B, H, T, n). With mirrors, ``blocks`` are those of :func:`split`."""
    if d.w is not None:
        return _keys_after_blocks(blocks)[:, :, : d.k.shape[2]]
    if d.log_gate is None:
        return d.k
    c = d.log_gate.double().cumsum(-2)
    return d.k * (c[..., -1:, :] - c).to(d.k.dtype).exp()


def _keys_after_blocks(blocks: Blocks) -> Tensor:
    """The keys of all blocks as they leave the last one, (B, H, Z C, n)."""
    *before, last = blocks.keys.unbind(2)
    keys, passed = [last], None
    for of_block, transition in zip(reversed(before), reversed(blocks.transition.unbind(2))):
        passed = transition if passed is None else passed @ transition
        keys.append(of_block @ passed.mT)
    return torch.cat(keys[::-1], dim=2)


def block_scores(blocks: Blocks, block: int) -> Tensor:
    """s_ij of the rows of one block with every key up to its last: (B, H, C, (block + 1) C)."""
    queries, parts = blocks.queries[:, :, block], [blocks.scores[:, :, block]]
    if blocks.transition is not None:
        for other in reversed(range(block)):
            parts.append(queries @ blocks.keys[:, :, other].mT)
            queries = queries @ blocks.transition[:, :, other]
    elif block:
        keys = blocks.keys[:, :, :block]
        if blocks.log_decay is not None:
            passed = blocks.log_decay.cumsum(2)
            keys = keys * (passed[:, :, block - 1, None] - passed[:, :, :block]).to(keys.dtype).exp()[..., None, :]
        parts.append(queries @ keys.flatten(2, 3).mT)
    return torch.cat(parts[::-1], dim=-1)


def evolve(state: Tensor, d: Dynamics) -> Tensor:
    """A_t applied to the columns of a state (B, H, n, V), of the one row of ``d``."""
    if d.log_gate is not None:
        state = state * d.log_gate.exp().mT
    if d.w is not None:
        state = state - (d.beta[..., None] * d.w).mT @ (d.w @ state)
    return state
