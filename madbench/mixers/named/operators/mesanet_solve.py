"""The queries of a Mesa layer: q*_t = (P_t + Diag(ridge))^(-1) q_t for P_t = alpha_t P_(t-1) + beta_t k_t k_t^T.

Each row has its own matrix. It is computed from the matrix before the row's block and from the rows of the block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from madbench.mixers.ops.recompute import recompute
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.decays import masked_exp, split_rows

BLOCK = 16  # rows per block; P is passed from block to block
MOST_KEPT = 2**25  # numbers of the matrices of all rows that are kept for the backward pass; more are recomputed


def solve_queries(
    q: Tensor, k: Tensor, beta: Tensor, log_alpha: Tensor, ridge: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return q*_t = (P_t + Diag(ridge))^(-1) q_t (B, H, T, K) of all rows t, and the last P (B, H, K, K).

    P_t = alpha_t P_(t-1) + beta_t k_t k_t^T. q and k are (B, H, T, K), beta and ``log_alpha`` are (B, H, T), and the
    ridge is (H, K) and positive. ``before`` is P before the first row, or None for zeros.
    """
    length, width = q.shape[2:]
    is_single = is_symbolic(length)
    size = length if is_single else min(BLOCK, length)
    q, k = split_rows(q, size), split_rows(k, size)
    beta, log_alpha = (split_rows(side[..., None], size) for side in (beta, log_alpha))
    c = log_alpha.double().cumsum(-2)
    leaving, survives = (c[..., -1:, :] - c).to(k.dtype).exp(), c[..., -1:, :].to(k.dtype).exp()
    inflow = k.mT @ (k * beta * leaving)
    state, states = torch.zeros_like(inflow[:, :, 0]) if before is None else before, []
    for survive, new in zip(survives.unbind(2), inflow.unbind(2)):
        states.append(state)
        state = survive * state + new
    rows = (q, k, beta, c, torch.stack(states, dim=2))
    if is_single or q.numel() * width <= MOST_KEPT:
        solved = _solve(*rows, ridge)
    else:
        blocks = zip(*(side.split(1, dim=2) for side in rows))
        solved = torch.cat([recompute(_solve, *block, ridge) for block in blocks], dim=2)
    return solved.flatten(2, 3)[:, :, :length], state


def _solve(q: Tensor, k: Tensor, beta: Tensor, c: Tensor, start: Tensor, ridge: Tensor) -> Tensor:
    """Return the solved queries (B, H, Z, C, K) of :func:`solve_queries` for Z blocks of C rows.

    q and k are (B, H, Z, C, K), beta is (B, H, Z, C, 1), and the ridge is (H, K). ``start`` (B, H, Z, K, K) is the
    matrix P before each block. c (B, H, Z, C, 1) is the sum of log alpha from the first row of the block up to each
    row.
    """
    mask = torch.ones(c.shape[-2], c.shape[-2], dtype=torch.bool, device=c.device).tril()
    decay = masked_exp((c - c.mT).to(k.dtype), mask)
    squares = (k[..., :, None] * (beta * k)[..., None, :]).flatten(-2)
    matrices = decay @ squares + c.to(k.dtype).exp() * start.flatten(-2)[..., None, :]
    matrices = torch.unflatten(matrices, -1, start.shape[-2:]) + torch.diag_embed(ridge)[:, None, None]
    solution: Tensor = torch.linalg.solve(matrices, q[..., None])
    return solution.squeeze(-1)
