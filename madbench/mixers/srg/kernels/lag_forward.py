"""The forward kernels of the lag layout. :mod:`madbench.mixers.srg.kernels.lag` has the equations and symbols."""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.lag_tile import (
    by_key,
    by_lag,
    hidden_of_lags,
    newest_scores,
    read_gamma,
    read_rows,
    scores,
    skew,
)
from madbench.mixers.srg.kernels.tile import (
    FLOOR,
    LOG2_E,
    activation,
    dot,
    dot_both,
    read,
    read_gain,
    softplus,
    write,
)


@triton.jit
def mixed_scores(q, K, A1, start, T, KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr):
    """Return the sums over lags l of the scores z_tl times A1_l, (P, RP), for the P rows t from ``start``."""
    P: tl.constexpr = q.shape[0]
    r, c = tl.arange(0, RP), tl.zeros((P, RP), tl.float32)
    newer = scores(q, K, start, T, KW, KP)
    for first in range(0, start + 1, P):
        older = scores(q, K, start - first - P, T, KW, KP)
        lag = first + tl.arange(0, P)
        c = dot_both(by_lag(newer, older), read(A1, lag[:, None], r[None, :], T, R), c, q.dtype)
        newer = older
    return c


@triton.jit
def sums_kernel(
    Q, K, S1, A1, B1, P1, B2, C, U, NORM, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr,
    RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the norms to NORM, and the sums over lags that the mixings need to C and U.

    If MIX1 is true, C gets the sums of scores times A1. If MIX2 is true, U gets the sums of activations times B2,
    divided by the norm. For base S, NORM gets the log2 of the sum of exponentials. One program computes P rows of one
    head.
    """
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    t, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    kind: tl.constexpr = Q.dtype.element_ty
    q, gamma, newer = (), (), ()
    for branch in tl.static_range(2 if BASE == "G" else 1):
        rows = (gate + branch * H) * T
        of_branch, product = read(Q + rows * KW, t[:, None], d[None, :], T, KW), 0.0
        if MIX1:
            c = mixed_scores(of_branch, K + rows * KW, A1 + (head + branch * H) * T * R, start, T, KW, KP, R, RP)
            write(C + rows * R, t[:, None], r[None, :], T, R, c)
            product = c * read(S1 + rows * R, t[:, None], r[None, :], T, R)
        if branch == 0 or MIX2:  # only u needs the scale branch
            q, gamma = q + (of_branch,), gamma + (product,)
            newer = newer + (scores(of_branch, K + rows * KW, start, T, KW, KP),)
    u, total = tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    largest = tl.full((P,), float("-inf"), tl.float32)
    for first in range(0, start + 1, P):
        lag = first + tl.arange(0, P)
        visible = lag[None, :] <= t[:, None]
        z, hs, newer = hidden_of_lags(q, newer, gamma, K, B1, P1, gate, head, H, start, first, T, MIX1, KW, KP, R, RP)
        h = hs[0]
        if BASE == "S":
            h = tl.where(visible, h * LOG2_E, float("-inf"))
            above = tl.maximum(largest, tl.max(h, 1))
            a, shrink = tl.exp2(h - above[:, None]), tl.exp2(largest - above)
            largest, total = above, total * shrink + tl.sum(a, 1)
            u *= shrink[:, None]
        else:
            h = tl.where(visible, h, 0.0)
            total += tl.sum(h * h, 1)
            a = tl.maximum(h, 0.0)
        if MIX2:
            if BASE == "G":
                a *= softplus(hs[1])
            u = dot(a.to(kind), read(B2 + head * T * R, lag[:, None], r[None, :], T, R).to(kind), u)
    norm = total if BASE == "S" else tl.sqrt(total + FLOOR)
    if MIX2:
        write(U + bh * T * R, t[:, None], r[None, :], T, R, u * (1.0 / norm)[:, None])
    saved = largest + tl.log2(total) if BASE == "S" else norm
    tl.store(NORM + bh * T + t, saved, mask=t < T)


@triton.jit
def readout_kernel(
    Q, K, V, C, S1, B1, P1, U, S2, A2, P2, NORM, OUT, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, BLOCKS: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the attention output to OUT. C, U and NORM are the results of :func:`sums_kernel`.

    One program computes P rows of one head, in BLOCKS blocks of VB columns.
    """
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, r, w = tl.arange(0, P), tl.arange(0, RP), tl.arange(0, VB)
    t = start + m
    kind: tl.constexpr = Q.dtype.element_ty
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    q, gamma = read_rows(Q, C, S1, gate, H, t, T, 2 if BASE == "G" else 1, MIX1, KW, KP, R, RP)
    newer = newest_scores(q, K, gate, H, start, T, KW, KP)
    mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
    outputs = ()
    for _ in tl.static_range(BLOCKS):
        outputs = outputs + (tl.zeros((P, VB), tl.float32),)
    before = tl.zeros((P, P), kind)
    for first in range(0, start + 1, P):
        lag = first + m
        z, h, newer = hidden_of_lags(q, newer, gamma, K, B1, P1, gate, head, H, start, first, T, MIX1, KW, KP, R, RP)
        a, selecting = activation(h, lag[None, :] <= t[:, None], norm, BASE)
        if MIX2:
            a *= read_gain(P2 + head * T, lag[None, :], T, MIX2)
            a = dot(mu.to(kind), read(A2 + head * T * R, lag[None, :], r[:, None], T, R).to(kind), a)
        weights = skew(a.to(kind))
        of_keys = by_key(weights, before)
        before = weights
        i = start - first + m
        sums = ()
        for block in tl.static_range(BLOCKS):
            v = read(V + bh * T * VW, i[:, None], (block * VB + w)[None, :], T, VW)
            sums = sums + (dot(of_keys, v, outputs[block]),)
        outputs = sums
    for block in tl.static_range(BLOCKS):
        write(OUT + bh * T * VW, t[:, None], (block * VB + w)[None, :], T, VW, outputs[block])
