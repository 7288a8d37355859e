"""The first pass of gated slot attention: the products of queries with the keys of slots.

The keys of the slots are the columns of a state P, which decay from row to row.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.decays import masked_exp, split_rows

BLOCK = 16  # rows per block; a state is passed from block to block
PAIRS = 4  # rows whose decay is computed pair by pair


def read_slots(q: Tensor, k: Tensor, s: Tensor, log_f: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the products P_t^T q_t (B, H, T, M) of all rows t with M slots, and the last P (B, H, K, M).

    P_t = P_(t-1) Diag(f_t) + k_t s_t^T, where f_t is the decay of each slot, and s_t the strength with which k_t is
    written to it. q and k are (B, H, T, K), s and log f are (B, H, T, M). ``before`` is P before the first row, or None
    for zeros. No exponent is above zero.
    """
    length = q.shape[2]
    if is_symbolic(length) or length <= BLOCK:
        return _read_at_once(q, k, s, log_f.double().cumsum(-2), before)
    q, k, s, log_f = (split_rows(side, BLOCK) for side in (q, k, s, log_f))
    c = log_f.double().cumsum(-2)
    end = c[..., -1:, :]
    inflow = k.mT @ (s * (end - c).to(s.dtype).exp())
    survives, state = end.to(s.dtype).exp(), before
    after: list[Tensor] = []
    for block, new in enumerate(inflow.unbind(2)):
        state = new if state is None else state * survives[:, :, block] + new
        after.append(state)
    states = [torch.zeros_like(after[0]) if before is None else before, *after[:-1]]
    far = (q @ torch.stack(states, dim=2)) * c.to(s.dtype).exp()
    return (_within_blocks(q, k, s, c) + far).flatten(2, 3)[:, :, :length], after[-1]


def _read_at_once(q: Tensor, k: Tensor, s: Tensor, c: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute :func:`read_slots` from all pairs of rows, for a single block and for exported programs.

    c (B, H, T, M) is the sum of log f up to each row.
    """
    lower = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()[..., None]
    decay = masked_exp((c[:, :, :, None] - c[:, :, None]).to(s.dtype), lower)
    y = ((q @ k.mT)[..., None] * decay * s[:, :, None]).sum(-2)
    end = c[:, :, -1:]
    state = k.mT @ (s * (end - c).to(s.dtype).exp())
    if before is None:
        return y, state
    return y + (q @ before) * c.to(s.dtype).exp(), state + before * end.to(s.dtype).exp()


def _within_blocks(q: Tensor, k: Tensor, s: Tensor, c: Tensor) -> Tensor:
    """Compute sum_(j<=t) (q_t . k_j) exp(c_t - c_j) s_j for all rows t within blocks (..., BLOCK, .).

    c is the sum of log f up to each row, where f is the decay. Within parts of ``PAIRS`` rows, the decay is computed
    for each pair of rows. Neighboring parts are then joined two by two until one is left. The decay from a row of the
    first part to a row of the second part is a product of two factors: the decay up to the last row of the first part,
    and the decay after this last row.
    """
    near_q, near_k, near_s, near_c = (split_rows(side, PAIRS) for side in (q, k, s, c))
    lower = torch.ones(PAIRS, PAIRS, dtype=torch.bool, device=q.device).tril()[..., None]
    decay = masked_exp((near_c[..., :, None, :] - near_c[..., None, :, :]).to(s.dtype), lower)
    y = ((near_q @ near_k.mT)[..., None] * decay * near_s[..., None, :, :]).sum(-2)
    y, size = y.flatten(-3, -2), PAIRS
    while size < BLOCK:
        (_, second_q), (first_k, _), (first_s, _), (first_c, second_c) = (
            side.unflatten(-2, (-1, 2, size)).unbind(-3) for side in (q, k, s, c)
        )
        middle = first_c[..., -1:, :]
        early, late = (middle - first_c).to(s.dtype).exp(), (second_c - middle).to(s.dtype).exp()
        joined = (second_q @ first_k.mT) @ (first_s * early) * late
        y = y.unflatten(-2, (-1, 2, size)) + F.pad(joined[..., None, :, :], (0, 0, 0, 0, 1, 0))
        y, size = y.flatten(-4, -2), 2 * size
    return y
