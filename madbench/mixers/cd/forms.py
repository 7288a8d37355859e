"""The computed forms of eq. 4: scores s_ij = qbar_i . A_i ... A_(j+1) kbar_j of a whole sequence, and of its blocks.

With A_t = (I - beta_t w_t w_t^T) diag(lambda_t), c_t = sum_(s<=t) log lambda_s, B = diag(beta) and
P(a, b)_ts = sum_r a_tr b_sr exp(c_tr - c_sr) for s <= t (P' for s < t), the scores are

    S = P(qbar, kbar) - P(qbar, w) B E,     (I + P'(w, w) B) E = P'(w, kbar).

An exponent is masked before it is taken, and c is only ever used as a difference that is at most zero for gates below one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


def products(a: Tensor, b: Tensor, log_gate: Tensor | None) -> Tensor:
    """P(a, b): a, b (..., T, n) and log lambda (..., T, 1 or n) -> (..., T, T), zero above the diagonal.

    Within a sub-block of rows exp(c_t - c_s) is evaluated pair by pair. Between sub-blocks it is the product of three
    factors: from the row to its sub-block's start, between, and from the column to its sub-block's end.
    """
    if log_gate is None:
        return (a @ b.mT).tril()
    length = a.shape[-2]
    rows = min(SUB_BLOCK, length)
    a, b, log_gate = (split_rows(x, rows) for x in (a, b, log_gate))
    c = log_gate.double().cumsum(-2)  # from the sub-block's start; double, as it is large where gates close
    end = c[..., -1, :].cumsum(-2)
    start = end - c[..., -1, :]
    near = _near(a, b, c)
    a, b = a * c.to(a.dtype).exp(), b * (c[..., -1:, :] - c).to(b.dtype).exp()
    blocks = range(a.shape[-3])
    is_before = torch.tensor([[j < i for j in blocks] for i in blocks], device=a.device)
    between = masked_exp((start[..., :, None, :] - end[..., None, :, :]).to(a.dtype), is_before[..., None])
    if c.shape[-1] == 1:
        far = a.flatten(-3, -2) @ b.flatten(-3, -2).mT
        far = far.unflatten(-1, (-1, rows)).unflatten(-3, (-1, rows)) * between.squeeze(-1)[..., :, None, :, None]
    else:
        far = a[..., :, None, :, :] * between[..., :, :, None, :] @ b[..., None, :, :, :].mT
        far = far.transpose(-3, -2)
    far.diagonal(dim1=-4, dim2=-2).add_(near.movedim(-3, -1))
    return far.flatten(-2).flatten(-3, -2)[..., :length, :length]


def _near(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """P(a, b) of every sub-block: (..., R, n), c (..., R, 1 or n) -> (..., R, R)."""
    is_seen = torch.ones(2 * c.shape[-2:-1], dtype=torch.bool, device=c.device).tril()
    decay = masked_exp((c[..., :, None, :] - c[..., None, :, :]).to(a.dtype), is_seen[..., None])
    if c.shape[-1] == 1:
        return (a @ b.mT) * decay.squeeze(-1)
    return (a[..., :, None, :] * b[..., None, :, :] * decay).sum(-1)


def split_rows(x: Tensor, rows: int) -> Tensor:
    """(..., T, C) -> (..., T / rows, rows, C), with zeros after the last row where ``rows`` does not divide T."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % rows)).unflatten(-2, (-1, rows))


def scores(d: Dynamics) -> Tensor:
    """s_ij of all rows at once (B, H, T, T), zero above the diagonal; with mirrors O(T^3)."""
    if d.w is None:
        return products(d.q, d.k, d.log_gate)
    qk, qw, wk, system = _mirror_products(d.q, d.k, d.w, d.beta, d.log_gate)
    return qk - qw @ _solve(system, wk)


def _mirror_products(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, log_gate: Tensor | None) -> list[Tensor]:
    """P(q, k), P(q, w) B, P'(w, k) and, below its diagonal, P'(w, w) B."""
    left, right = torch.stack((q, w), dim=-3)[..., :, None, :, :], torch.stack((k, w), dim=-3)[..., None, :, :, :]
    found = products(left, right, None if log_gate is None else log_gate[..., None, None, :, :])
    (qk, qw), (wk, ww) = (half.unbind(-3) for half in found.unbind(-4))
    columns = beta[..., None, :]
    return [qk, qw * columns, wk.tril(-1), ww * columns]


def _solve(system: Tensor, right: Tensor) -> Tensor:
    """(I + system)^-1 right, for a system of which only what is below the diagonal is read."""
    return torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)


def split(d: Dynamics, size: int) -> Blocks:
    """What every block of ``size`` rows does, each on its own."""
    q, k = split_rows(d.q, size), split_rows(d.k, size)
    log_gate = entering = leaving = log_decay = None
    entering_q, leaving_k = q, k
    if d.log_gate is not None:
        log_gate = split_rows(d.log_gate, size)
        c = log_gate.double().cumsum(-2)
        log_decay = c[..., -1, :]
        entering, leaving = c.to(q.dtype).exp(), (c[..., -1:, :] - c).to(q.dtype).exp()
        entering_q, leaving_k = q * entering, k * leaving
    if d.w is None:
        return Blocks(products(q, k, log_gate), entering_q, leaving_k, log_decay, None)
    w, beta = split_rows(d.w, size), split_rows(d.beta[..., None], size).squeeze(-1)
    entering_w, leaving_w = (w, w) if log_gate is None else (w * entering, w * leaving)
    qk, qw, wk, system = _mirror_products(q, k, w, beta, log_gate)
    solved = _solve(system, torch.cat((wk, entering_w), dim=-1))
    removed = torch.cat((qw, (leaving_w * beta[..., None]).mT), dim=-2) @ solved  # from scores and from what leaves
    kept = q.new_ones(q.shape[-1]) if log_decay is None else log_decay.to(q.dtype).exp().expand(*q.shape[:-2], -1)
    kept = kept.expand(*q.shape[:-2], q.shape[-1])
    return Blocks(
        qk - removed[..., :size, :size],
        entering_q - removed[..., :size, size:],
        leaving_k - removed[..., size:, :size].mT,
        None,
        torch.diag_embed(kept) - removed[..., size:, size:],
    )


def chunked(d: Dynamics, size: int, values: Tensor) -> Tensor:
    """sum_j s_ij values_j in time linear in T: values (B, H, T, V) -> (B, H, T, V); id and kernels."""
    length, blocks, values = values.shape[2], split(d, size), split_rows(values, size)
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
    return y.flatten(2, 3)[:, :, :length]


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
