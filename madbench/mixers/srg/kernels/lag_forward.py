"""The forward kernels of the lag layout; :mod:`madbench.mixers.srg.kernels.lag` has the equations."""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.lag_tile import by_key, by_lag, hidden, read_gamma, scores, skew
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
    """c of the P rows from ``start``: the sum of z A1 over lags."""
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
def gate_sums(c, C, S1, t, T, R: tl.constexpr, RP: tl.constexpr):
    """Stores c; returns gamma = c * s1."""
    r = tl.arange(0, RP)
    write(C, t[:, None], r[None, :], T, R, c)
    return c * read(S1, t[:, None], r[None, :], T, R)


@triton.jit
def sums_kernel(
    Q, K, S1, A1, B1, P1, B2, C, U, NORM, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr,
    RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """c, u and the norm: a program has P rows of one head."""
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    t, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    kind: tl.constexpr = Q.dtype.element_ty
    q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
    gamma, gamma_scale = 0.0, 0.0
    if MIX1:
        c = mixed_scores(q, K + gate * T * KW, A1 + head * T * R, start, T, KW, KP, R, RP)
        gamma = gate_sums(c, C + gate * T * R, S1 + gate * T * R, t, T, R, RP)
    newer = scores(q, K + gate * T * KW, start, T, KW, KP)
    if BASE == "G" and MIX2:
        scale = gate + H
        q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
        newer_scale = scores(q_scale, K + scale * T * KW, start, T, KW, KP)
    if BASE == "G" and MIX1:
        scale = gate + H
        q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
        c = mixed_scores(q_scale, K + scale * T * KW, A1 + (head + H) * T * R, start, T, KW, KP, R, RP)
        gamma_scale = gate_sums(c, C + scale * T * R, S1 + scale * T * R, t, T, R, RP)
    u, total = tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    largest = tl.full((P,), float("-inf"), tl.float32)
    for first in range(0, start + 1, P):
        lag = first + tl.arange(0, P)
        visible = lag[None, :] <= t[:, None]
        older = scores(q, K + gate * T * KW, start - first - P, T, KW, KP)
        h = hidden(by_lag(newer, older), gamma, B1 + head * T * R, P1 + head * T, lag, T, MIX1, R, RP, kind)
        newer = older
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
        if BASE == "G" and MIX2:
            older_scale = scores(q_scale, K + scale * T * KW, start - first - P, T, KW, KP)
            z = by_lag(newer_scale, older_scale)
            newer_scale = older_scale
            of_table = head + H
            a *= softplus(hidden(z, gamma_scale, B1 + of_table * T * R, P1 + of_table * T, lag, T, MIX1, R, RP, kind))
        if MIX2:
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
    """o: a program has P rows of one head, and BLOCKS blocks of VB columns."""
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r, w = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VB)
    t = start + m
    kind: tl.constexpr = Q.dtype.element_ty
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
    gamma = read_gamma(C + gate * T * R, S1 + gate * T * R, t, T, MIX1, R, RP)
    newer = scores(q, K + gate * T * KW, start, T, KW, KP)
    if BASE == "G":
        scale = gate + H
        q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
        gamma_scale = read_gamma(C + scale * T * R, S1 + scale * T * R, t, T, MIX1, R, RP)
        newer_scale = scores(q_scale, K + scale * T * KW, start, T, KW, KP)
    mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
    outputs = ()
    for _ in tl.static_range(BLOCKS):
        outputs = outputs + (tl.zeros((P, VB), tl.float32),)
    before = tl.zeros((P, P), kind)
    for first in range(0, start + 1, P):
        lag = first + m
        visible = lag[None, :] <= t[:, None]
        older = scores(q, K + gate * T * KW, start - first - P, T, KW, KP)
        h = hidden(by_lag(newer, older), gamma, B1 + head * T * R, P1 + head * T, lag, T, MIX1, R, RP, kind)
        newer = older
        h_scale = 0.0
        if BASE == "G":
            older_scale = scores(q_scale, K + scale * T * KW, start - first - P, T, KW, KP)
            z = by_lag(newer_scale, older_scale)
            newer_scale = older_scale
            of_table = head + H
            h_scale = hidden(z, gamma_scale, B1 + of_table * T * R, P1 + of_table * T, lag, T, MIX1, R, RP, kind)
        a, h = activation(h, h_scale, visible, norm, BASE)
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
