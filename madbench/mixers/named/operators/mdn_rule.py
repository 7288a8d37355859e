"""A delta rule with momentum, in blocks: the recurrence of :mod:`madbench.mixers.named.operators.mdn`.

    e_t = v_t - S_(t-1)^T p_t,    M_t = mu_t M_(t-1) - k_t e_t^T,    S_t = alpha_t S_(t-1) - beta_t M_t

Within a block that starts after S_0 and M_0, with a(t, j) = alpha_(j+1) ... alpha_t and m(j, s) = mu_(s+1) ... mu_j,

    S_t = a(t, 0) S_0 - f(t, 0) M_0 + sum_(s<=t) F(t, s) k_s e_s^T,    F(t, s) = sum_(s<=j<=t) a(t, j) beta_j m(j, s)
    f(t, 0) = sum_(1<=j<=t) a(t, j) beta_j m(j, 0)

F is computed as a product of three matrices: of a, of beta on the diagonal, and of m. No digits are lost, because all
factors are positive, and no a or m is above one. The errors e solve a triangular system, because e_t reads earlier
errors only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.decays import masked_exp, split_rows


def momentum_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor,
    log_alpha: Tensor,
    log_mu: Tensor,
    beta: Tensor,
    before: tuple[Tensor, Tensor] | None,
    size: int,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute the delta rule with momentum of the docstring of this module, in blocks of rows.

    Return the reads S_t^T q_t (B, H, T, V) of all rows t, and the last S and M, (B, H, K, V) each.

    Args:
        q: the queries (B, H, T, K).
        k: the keys (B, H, T, K) with which errors are written, k_t in the recurrence.
        v: the values (B, H, T, V).
        p: the keys (B, H, T, K) with which S is read for the errors, p_t in the recurrence.
        log_alpha: the logarithms of alpha_t (B, H, T).
        log_mu: the logarithms of mu_t (B, H, T).
        beta: the factors beta_t (B, H, T).
        before: S and M before the first row. None if both are zero.
        size: the number of rows per block.
    """
    length, keys = q.shape[2], q.shape[3]
    size = length if is_symbolic(length) else min(size, length)
    q, k, v, p = (split_rows(side, size) for side in (q, k, v, p))
    log_alpha, log_mu, beta = (split_rows(side[..., None], size) for side in (log_alpha, log_mu, beta))
    alphas, mus = log_alpha.double().cumsum(-2), log_mu.double().cumsum(-2)
    of_alpha, of_mu = _between_rows(alphas, q.dtype), _between_rows(mus, q.dtype)
    kept, passed = alphas.to(q.dtype).exp(), mus.to(q.dtype).exp()  # a(t, 0) and m(t, 0)
    from_momentum = of_alpha @ (beta * passed)  # f(t, 0)
    written = of_alpha @ (beta * of_mu)  # F

    system = _row_before(written) * (p @ k.mT)
    read = torch.cat((v, p * _row_before(kept, first=1.0), -p * _row_before(from_momentum)), dim=-1)
    solved = torch.linalg.solve_triangular(system, read, upper=False, unitriangular=True)
    own, reading = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]

    added = torch.cat((written[..., -1:, :].mT * k, -of_mu[..., -1:, :].mT * k), dim=-1)
    last = (each[..., -1:, :].unbind(2) for each in (kept, from_momentum, passed))
    if before is None:
        before = 2 * (torch.zeros_like(k[:, :, 0, :1].mT @ v[:, :, 0, :1]),)
    state = torch.cat(before, dim=-2)
    errors, states = [], []
    blocks = zip(own.unbind(2), reading.unbind(2), added.mT.unbind(2), *last)
    for own_errors, read_state, add, keep, lose, passes in blocks:
        states.append(state)
        errors.append(own_errors - read_state @ state)
        memory, momentum = state.split(keys, dim=-2)
        state = torch.cat((keep * memory - lose * momentum, passes * momentum), dim=-2) + add @ errors[-1]
    queries = torch.cat((q * kept, -q * from_momentum), dim=-1)
    y = (written * (q @ k.mT)) @ torch.stack(errors, dim=2) + queries @ torch.stack(states, dim=2)
    memory, momentum = state.split(keys, dim=-2)
    return y.flatten(2, 3)[:, :, :length], (memory, momentum)


def _between_rows(total: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix (..., T, T) of exp(c_t - c_s) for s <= t, else 0, where ``total`` (..., T, 1) has the sums c."""
    mask = torch.ones(total.shape[-2], total.shape[-2], dtype=torch.bool, device=total.device).tril()
    return masked_exp((total - total.mT).to(dtype), mask)


def _row_before(x: Tensor, first: float = 0.0) -> Tensor:
    """Shift x (..., T, C) by one row: row t is row t - 1 of x, and row 0 is the constant ``first``."""
    return F.pad(x, (0, 0, 1, -1), value=first)
