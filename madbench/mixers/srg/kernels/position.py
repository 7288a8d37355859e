"""S, R and G with slots counted from the oldest token, forward and backward, without a T x T tensor in memory.

In the symbols of :mod:`madbench.mixers.srg.parts`, for one head and row t, with sums over the keys i <= t::

    c_t = sum_i z_ti A1_i                h_ti = (1 + p1_i) z_ti + (c_t * s1_t) . B1_i          z_ti = q_t . k_i
    u_t = sum_i a_ti B2_i                o_t = (sum_i (1 + p2_i) a_ti v_i + sum_i ((u_t * s2_t) . A2_i) v_i) / n_t

A slot is a key, so B1 and B2 are further columns of keys and values and the sums with A1 and A2 are linear attention:
flash attention of widths K + R and V + R beside sums that run over tiles of rows. Everything saved is divided by the norm
n_t, of S by the sum of exponentials, so that float16 holds it.

Products whose rounding would spoil gradients take their float32 factors as two 16-bit numbers, the value and the rest:
the hidden score h, whose sign decides in ReLU, and the running sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from madbench.mixers.srg.kernels.tile import (
    FLOOR,
    LOG2_E,
    Mixing,
    activation,
    dot,
    dot_both,
    dot_rest,
    hidden_gradients,
    padded,
    read,
    read_gain,
    read_rank,
    softplus,
    write,
)  # fmt: skip

ROWS, BLOCK = 64, 32  # of a tile of scores: a program has the rows, and goes over blocks of keys


@triton.jit
def hidden(x, y, gain, m, n, MIX: tl.constexpr):
    """h of a tile: x y, and with R(1) gain * x y + m n."""
    z = dot(x, y, tl.zeros((x.shape[0], y.shape[1]), tl.float32))
    if MIX:
        z = dot_both(m, n, z * gain, x.dtype)
    return z


@triton.jit
def sums_kernel(
    N, Y, STATE, T, HEADS, SHARED: tl.constexpr, W: tl.constexpr, WB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    """STATE[tile] = sum over the rows of a tile of n_i y_i^T, (R, W)."""
    tile, head = tl.program_id(0), tl.program_id(1)
    t = tile * P + tl.arange(0, P)
    r, w = tl.arange(0, RP), tl.program_id(2) * WB + tl.arange(0, WB)
    of_table = head % HEADS if SHARED else head
    n = read(N + of_table.to(tl.int64) * T * R, t[None, :], r[:, None], T, R)
    y = read(Y + head.to(tl.int64) * T * W, t[:, None], w[None, :], T, W)
    total = dot_rest(n, y, tl.zeros((RP, WB), tl.float32))
    write(STATE + (head * tl.num_programs(0) + tile).to(tl.int64) * R * W, r[:, None], w[None, :], R, W, total)


@triton.jit
def scan_kernel(STATE, TILES, SIZE, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    """Replaces each tile's sum by that of the tiles before it, or with REVERSE after it."""
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(TILES):
        tile = TILES - 1 - i if REVERSE else i
        pointer = STATE + (tl.program_id(0) * TILES + tile).to(tl.int64) * SIZE + element
        own = tl.load(pointer, mask=element < SIZE, other=0.0)
        tl.store(pointer, total, mask=element < SIZE)
        total += own


@triton.jit
def read_sums_kernel(
    X, Y, N, STATE, OUT, T, HEADS, SHARED: tl.constexpr, REVERSE: tl.constexpr, W: tl.constexpr, WB: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """OUT_t = sum over i <= t, or with REVERSE i >= t, of (x_t . y_i) n_i, (T, R)."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    m, r = tl.arange(0, P), tl.arange(0, RP)
    t = tile * P + m
    of_table = head % HEADS if SHARED else head
    z, total = tl.zeros((P, P), tl.float32), tl.zeros((P, RP), tl.float32)
    for start in range(0, W, WB):
        w = start + tl.arange(0, WB)
        x = read(X + head * T * W, t[:, None], w[None, :], T, W)
        z = dot(x, read(Y + head * T * W, t[None, :], w[:, None], T, W), z)
        state = read(STATE + (head * tl.num_programs(0) + tile) * R * W, r[None, :], w[:, None], R, W)
        high = state.to(x.dtype)
        total = dot(x, high, total)
        if x.dtype != tl.float32:
            total = dot(x, (state - high.to(tl.float32)).to(x.dtype), total)
    visible = m[None, :] >= m[:, None] if REVERSE else m[None, :] <= m[:, None]
    n = read(N + of_table * T * R, t[:, None], r[None, :], T, R)
    total = dot_both(tl.where(visible, z, 0.0), n, total, X.dtype.element_ty)
    write(OUT + head * T * R, t[:, None], r[None, :], T, R, total)


@triton.jit
def add_sums(
    total, m, N, Y, STATE, start, w, T, REVERSE: tl.constexpr, W: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """total_t + sum over i <= t, or with REVERSE i >= t, of (m_t . n_i) y_i, for the P rows from ``start``; m (P, RP)."""
    r = tl.arange(0, RP)
    t = start + tl.arange(0, P)
    kind: tl.constexpr = Y.dtype.element_ty
    total = dot_both(m, read(STATE, r[:, None], w[None, :], R, W), total, kind)
    for first in range(0, P, S):
        i = start + first + tl.arange(0, S)
        n = read(N, i[None, :], r[:, None], T, R)
        weight = dot(m.to(kind), n.to(kind), tl.zeros((P, S), tl.float32))
        visible = i[None, :] >= t[:, None] if REVERSE else i[None, :] <= t[:, None]
        total = dot(tl.where(visible, weight, 0.0).to(kind), read(Y, i[:, None], w[None, :], T, W), total)
    return total


@triton.jit
def forward_kernel(
    Q, K, V, GAMMA, B1, P1, S2, A2, B2, P2, STATE, OUT, U, NORM, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """A program has P rows of one head and VB columns of its output, and goes over the keys S at a time."""
    tile, bh = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    t, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    w = tl.program_id(2) * VB + tl.arange(0, VB)
    kind: tl.constexpr = Q.dtype.element_ty
    q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
    m = read_rank(GAMMA + gate * T * R, t[:, None], r[None, :], T, R, MIX1)
    if BASE == "G":
        q_scale = read(Q + (gate + H) * T * KW, t[:, None], d[None, :], T, KW)
        m_scale = read_rank(GAMMA + (gate + H) * T * R, t[:, None], r[None, :], T, R, MIX1)
    o, u, total = tl.zeros((P, VB), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    largest = tl.full((P,), float("-inf"), tl.float32)
    for first in range(0, tl.minimum(start + P, T), S):
        i = first + tl.arange(0, S)
        n = read_rank(B1 + head * T * R, i[None, :], r[:, None], T, R, MIX1)
        k = read(K + gate * T * KW, i[None, :], d[:, None], T, KW)
        h = hidden(q, k, read_gain(P1 + head * T, i[None, :], T, MIX1), m, n, MIX1)
        if BASE == "S":
            h = tl.where(i[None, :] <= t[:, None], h * LOG2_E, float("-inf"))
            above = tl.maximum(largest, tl.max(h, 1))
            a, shrink = tl.exp2(h - above[:, None]), tl.exp2(largest - above)
            largest, total = above, total * shrink + tl.sum(a, 1)
            o *= shrink[:, None]
            u *= shrink[:, None]
        else:
            h = tl.where(i[None, :] <= t[:, None], h, 0.0)
            total += tl.sum(h * h, 1)
            a = tl.maximum(h, 0.0)
        if BASE == "G":
            n = read_rank(B1 + (head + H) * T * R, i[None, :], r[:, None], T, R, MIX1)
            k = read(K + (gate + H) * T * KW, i[None, :], d[:, None], T, KW)
            gain = read_gain(P1 + (head + H) * T, i[None, :], T, MIX1)
            a *= softplus(hidden(q_scale, k, gain, m_scale, n, MIX1))
        if MIX2:
            u = dot(a.to(kind), read(B2 + head * T * R, i[:, None], r[None, :], T, R).to(kind), u)
            a *= read_gain(P2 + head * T, i[None, :], T, MIX2)
        o = dot(a.to(kind), read(V + bh * T * VW, i[:, None], w[None, :], T, VW), o)
    norm = total if BASE == "S" else tl.sqrt(total + FLOOR)
    o, u = o / norm[:, None], u / norm[:, None]
    if MIX2:
        mu = u * read(S2 + bh * T * R, t[:, None], r[None, :], T, R)
        state = STATE + (bh * tl.num_programs(0) + tile) * R * VW
        o = add_sums(o, mu, A2 + head * T * R, V + bh * T * VW, state, start, w, T, False, VW, R, RP, P, S)
    write(OUT + bh * T * VW, t[:, None], w[None, :], T, VW, o)
    if tl.program_id(2) == 0:
        if MIX2:
            write(U + bh * T * R, t[:, None], r[None, :], T, R, u)
        saved = largest + tl.log2(total) if BASE == "S" else norm
        tl.store(NORM + bh * T + t, saved, mask=t < T)


@triton.jit
def delta_kernel(OUT, DO, DELTA, T, VW: tl.constexpr, WB: tl.constexpr, P: tl.constexpr):
    """DELTA_t = o_t . do_t."""
    bh = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * P + tl.arange(0, P)
    total = tl.zeros((P,), tl.float32)
    for start in range(0, VW, WB):
        w = start + tl.arange(0, WB)
        o = read(OUT + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32)
        total += tl.sum(o * read(DO + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32), 1)
    tl.store(DELTA + bh * T + t, total, mask=t < T)


@triton.jit
def finish_queries(
    dq, dm, S1, A1, K, STATE, DQ, DGAMMA, start, d, T, MIX: tl.constexpr, KW: tl.constexpr, R: tl.constexpr,
    RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    t, r = start + tl.arange(0, P), tl.arange(0, RP)
    if MIX:
        write(DGAMMA, t[:, None], r[None, :], T, R, dm)
        dc = dm * read(S1, t[:, None], r[None, :], T, R)
        dq = add_sums(dq, dc, A1, K, STATE, start, d, T, False, KW, R, RP, P, S)
    write(DQ, t[:, None], d[None, :], T, KW, dq)


@triton.jit
def queries_kernel(
    Q, K, V, GAMMA, S1, A1, B1, P1, DU, B2, P2, STATE, DO, DELTA, NORM, DQ, DGAMMA, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Gradients of q and gamma: a program has P rows of one head and goes over the keys S at a time."""
    tiles = tl.num_programs(0)
    tile, bh = tiles - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    t, d, r, w = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VP)
    kind: tl.constexpr = Q.dtype.element_ty
    q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
    do = read(DO + bh * T * VW, t[:, None], w[None, :], T, VW)
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
    dq, dm = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32)
    m = read_rank(GAMMA + gate * T * R, t[:, None], r[None, :], T, R, MIX1)
    if MIX2:
        du = read(DU + bh * T * R, t[:, None], r[None, :], T, R).to(kind)
    if BASE == "G":
        q_scale = read(Q + (gate + H) * T * KW, t[:, None], d[None, :], T, KW)
        m_scale = read_rank(GAMMA + (gate + H) * T * R, t[:, None], r[None, :], T, R, MIX1)
        dq_scale, dm_scale = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32)
    for first in range(0, tl.minimum(start + P, T), S):
        i = first + tl.arange(0, S)
        k = read(K + gate * T * KW, i[None, :], d[:, None], T, KW)
        n = read_rank(B1 + head * T * R, i[None, :], r[:, None], T, R, MIX1)
        gain = read_gain(P1 + head * T, i[None, :], T, MIX1)
        h_scale = 0.0
        if BASE == "G":
            k_scale = read(K + (gate + H) * T * KW, i[None, :], d[:, None], T, KW)
            n_scale = read_rank(B1 + (head + H) * T * R, i[None, :], r[:, None], T, R, MIX1)
            gain_scale = read_gain(P1 + (head + H) * T, i[None, :], T, MIX1)
            h_scale = hidden(q_scale, k_scale, gain_scale, m_scale, n_scale, MIX1)
        h = hidden(q, k, gain, m, n, MIX1)
        a, h = activation(h, h_scale, i[None, :] <= t[:, None], norm, BASE)
        g = dot(do, read(V + bh * T * VW, i[None, :], w[:, None], T, VW), tl.zeros((P, S), tl.float32))
        if MIX2:
            b2 = read(B2 + head * T * R, i[None, :], r[:, None], T, R).to(kind)
            g = dot(du, b2, g * read_gain(P2 + head * T, i[None, :], T, MIX2))
        dh, dh_scale = hidden_gradients(g, a, h, h_scale, delta, norm, BASE)
        dq = dot((dh * gain).to(kind), tl.trans(k), dq)
        if MIX1:
            dm = dot(dh.to(kind), tl.trans(n.to(kind)), dm)
        if BASE == "G":
            dq_scale = dot((dh_scale * gain_scale).to(kind), tl.trans(k_scale), dq_scale)
            if MIX1:
                dm_scale = dot(dh_scale.to(kind), tl.trans(n_scale.to(kind)), dm_scale)
    finish_queries(
        dq, dm, S1 + gate * T * R, A1 + head * T * R, K + gate * T * KW, STATE + (gate * tiles + tile) * R * KW,
        DQ + gate * T * KW, DGAMMA + gate * T * R, start, d, T, MIX1, KW, R, RP, P, S,
    )  # fmt: skip
    if BASE == "G":
        gate, head = gate + H, head + H
        finish_queries(
            dq_scale, dm_scale, S1 + gate * T * R, A1 + head * T * R, K + gate * T * KW,
            STATE + (gate * tiles + tile) * R * KW, DQ + gate * T * KW, DGAMMA + gate * T * R, start, d, T, MIX1, KW, R,
            RP, P, S,
        )  # fmt: skip


@triton.jit
def finish_slots(
    dx, dn, X, A, P_, M, Y, STATE, DX, DB, DP, start, w, T, MIX: tl.constexpr, IS_FIRST, W: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """From the gradients of (1 + p) x and b those of x, p and b, x being keys or values."""
    i, r = start + tl.arange(0, P), tl.arange(0, RP)
    if MIX:
        x = read(X, i[:, None], w[None, :], T, W).to(tl.float32)
        tl.store(DP + i, tl.sum(x * dx, 1), mask=i < T)
        if IS_FIRST:
            write(DB, i[:, None], r[None, :], T, R, dn)
        dx *= read_gain(P_, i[:, None], T, MIX)
        a = read(A, i[:, None], r[None, :], T, R)
        dx = add_sums(dx, a, M, Y, STATE, start, w, T, True, W, R, RP, P, S)
    write(DX, i[:, None], w[None, :], T, W, dx)


@triton.jit
def keys_kernel(
    Q, K, V, GAMMA, A1, B1, P1, DC, DU, B2, P2, STATE, DO, DELTA, NORM, DK, DB, DP, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Gradients of k, B1 and p1: a program has P keys of one head and goes over the rows S at a time."""
    tile, bh, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    i, d, r, w = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VP)
    kind: tl.constexpr = Q.dtype.element_ty
    k = read(K + gate * T * KW, i[:, None], d[None, :], T, KW)
    v = read(V + bh * T * VW, i[:, None], w[None, :], T, VW)
    b1 = read_rank(B1 + head * T * R, i[:, None], r[None, :], T, R, MIX1)
    gain = read_gain(P1 + head * T, i[:, None], T, MIX1)
    dk, db = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32)
    if MIX2:
        b2 = read(B2 + head * T * R, i[:, None], r[None, :], T, R).to(kind)
        gain_2 = read_gain(P2 + head * T, i[:, None], T, MIX2)
    if BASE == "G":
        k_scale = read(K + (gate + H) * T * KW, i[:, None], d[None, :], T, KW)
        b1_scale = read_rank(B1 + (head + H) * T * R, i[:, None], r[None, :], T, R, MIX1)
        gain_scale = read_gain(P1 + (head + H) * T, i[:, None], T, MIX1)
        dk_scale, db_scale = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32)
    for first in range(start, T, S):
        t = first + tl.arange(0, S)
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[None, :]
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[None, :]
        q = read(Q + gate * T * KW, t[None, :], d[:, None], T, KW)
        m = read_rank(GAMMA + gate * T * R, t[None, :], r[:, None], T, R, MIX1)
        h_scale = 0.0
        if BASE == "G":
            q_scale = read(Q + (gate + H) * T * KW, t[None, :], d[:, None], T, KW)
            m_scale = read_rank(GAMMA + (gate + H) * T * R, t[None, :], r[:, None], T, R, MIX1)
            h_scale = hidden(k_scale, q_scale, gain_scale, b1_scale, m_scale, MIX1)
        h = hidden(k, q, gain, b1, m, MIX1)
        a, h = activation(h, h_scale, i[:, None] <= t[None, :], norm, BASE)
        g = dot(v, read(DO + bh * T * VW, t[None, :], w[:, None], T, VW), tl.zeros((P, S), tl.float32))
        if MIX2:
            du = read(DU + bh * T * R, t[None, :], r[:, None], T, R).to(kind)
            g = dot(b2, du, g * gain_2)
        dh, dh_scale = hidden_gradients(g, a, h, h_scale, delta, norm, BASE)
        dk = dot(dh.to(kind), tl.trans(q), dk)
        if MIX1:
            db = dot(dh.to(kind), tl.trans(m.to(kind)), db)
        if BASE == "G":
            dk_scale = dot(dh_scale.to(kind), tl.trans(q_scale), dk_scale)
            if MIX1:
                db_scale = dot(dh_scale.to(kind), tl.trans(m_scale.to(kind)), db_scale)
    finish_slots(
        dk, db, K + gate * T * KW, A1 + head * T * R, P1 + head * T, DC + gate * T * R, Q + gate * T * KW,
        STATE + (gate * tiles + tile) * R * KW, DK + gate * T * KW, DB + gate * T * R, DP + gate * T, start, d, T, MIX1,
        True, KW, R, RP, P, S,
    )  # fmt: skip
    if BASE == "G":
        gate, head = gate + H, head + H
        finish_slots(
            dk_scale, db_scale, K + gate * T * KW, A1 + head * T * R, P1 + head * T, DC + gate * T * R,
            Q + gate * T * KW, STATE + (gate * tiles + tile) * R * KW, DK + gate * T * KW, DB + gate * T * R,
            DP + gate * T, start, d, T, MIX1, True, KW, R, RP, P, S,
        )  # fmt: skip


@triton.jit
def values_kernel(
    Q, K, V, GAMMA, B1, P1, MU, DU, A2, P2, STATE, DO, NORM, DV, DB, DP, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Gradients of v, B2 and p2: a program has P keys of one head and VB columns, and goes over the rows S at a time.

    That of p2 is a sum over columns; DP has one part for each VB of them.
    """
    tile, bh, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    i, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    w = tl.program_id(2) * VB + tl.arange(0, VB)
    kind: tl.constexpr = Q.dtype.element_ty
    k = read(K + gate * T * KW, i[:, None], d[None, :], T, KW)
    b1 = read_rank(B1 + head * T * R, i[:, None], r[None, :], T, R, MIX1)
    gain = read_gain(P1 + head * T, i[:, None], T, MIX1)
    dv, db = tl.zeros((P, VB), tl.float32), tl.zeros((P, RP), tl.float32)
    if BASE == "G":
        k_scale = read(K + (gate + H) * T * KW, i[:, None], d[None, :], T, KW)
        b1_scale = read_rank(B1 + (head + H) * T * R, i[:, None], r[None, :], T, R, MIX1)
        gain_scale = read_gain(P1 + (head + H) * T, i[:, None], T, MIX1)
    for first in range(start, T, S):
        t = first + tl.arange(0, S)
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[None, :]
        q = read(Q + gate * T * KW, t[None, :], d[:, None], T, KW)
        m = read_rank(GAMMA + gate * T * R, t[None, :], r[:, None], T, R, MIX1)
        h_scale = 0.0
        if BASE == "G":
            q_scale = read(Q + (gate + H) * T * KW, t[None, :], d[:, None], T, KW)
            m_scale = read_rank(GAMMA + (gate + H) * T * R, t[None, :], r[:, None], T, R, MIX1)
            h_scale = hidden(k_scale, q_scale, gain_scale, b1_scale, m_scale, MIX1)
        h = hidden(k, q, gain, b1, m, MIX1)
        a, h = activation(h, h_scale, i[:, None] <= t[None, :], norm, BASE)
        dv = dot(a.to(kind), read(DO + bh * T * VW, t[:, None], w[None, :], T, VW), dv)
        if MIX2:
            db = dot(a.to(kind), read(DU + bh * T * R, t[:, None], r[None, :], T, R).to(kind), db)
    part = tl.program_id(2) * tl.num_programs(1) + bh
    finish_slots(
        dv, db, V + bh * T * VW, A2 + head * T * R, P2 + head * T, MU + bh * T * R, DO + bh * T * VW,
        STATE + (bh * tiles + tile) * R * VW, DV + bh * T * VW, DB + bh * T * R, DP + part * T, start, w, T, MIX2,
        tl.program_id(2) == 0, VW, R, RP, P, S,
    )  # fmt: skip


class Launch:
    """How the kernels are cut for tensors of these shapes: tiles, padded widths and their grids."""

    def __init__(self, base: str, q: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None):
        self.base, self.has = base, (mix1 is not None, mix2 is not None)
        self.batch, self.query_heads, self.length, self.k_width = q.shape
        self.heads, self.v_width = v.shape[1], v.shape[3]
        self.rank = mix1[1].shape[2] if mix1 else mix2[1].shape[2] if mix2 else 1
        self.rows = min(ROWS, padded(self.length))
        self.tiles = triton.cdiv(self.length, self.rows)
        self.block = min(BLOCK, self.rows)
        self.warps = max(1, self.rows // 16)
        self.columns = min(256, padded(self.v_width))
        self.parts = triton.cdiv(self.v_width, self.columns)

    def __call__(self, kernel, *tensors: Tensor | None, columns: bool) -> None:
        """Runs one of the four kernels of flash attention, in parts of the columns of v or with all of them at once."""
        grid = (self.tiles, self.batch * self.heads, self.parts if columns else 1)
        tensors = [tensors[0] if tensor is None else tensor for tensor in tensors]
        wide = {"VB": self.columns} if columns else {"VP": padded(self.v_width)}
        kernel[grid](
            *tensors, self.length, self.heads, BASE=self.base, MIX1=self.has[0], MIX2=self.has[1], KW=self.k_width,
            KP=padded(self.k_width), VW=self.v_width, **wide, R=self.rank, RP=padded(self.rank), P=self.rows,
            S=self.block, num_warps=self.warps, num_stages=2,
        )  # fmt: skip

    def sums(self, n: Tensor, y: Tensor, reverse: bool = False) -> Tensor:
        """Before each tile, or with ``reverse`` after it, the sum of n_i y_i^T: (B, heads, tiles, R, W)."""
        heads, width, block = y.shape[1], y.shape[3], min(128, padded(y.shape[3]))
        state = y.new_empty(self.batch, heads, self.tiles, self.rank, width, dtype=torch.float32)
        grid = (self.tiles, self.batch * heads, triton.cdiv(width, block))
        sizes = {"W": width, "WB": block, "R": self.rank, "RP": padded(self.rank), "P": self.rows}
        sums_kernel[grid](n, y, state, self.length, heads, SHARED=n.dim() == 3, **sizes)
        size = self.rank * width
        scan_kernel[(self.batch * heads, triton.cdiv(size, 256))](
            state, self.tiles, size, REVERSE=reverse, BLOCK=256, num_warps=2
        )
        return state

    def read_sums(self, x: Tensor, y: Tensor, n: Tensor, state: Tensor, reverse: bool = False) -> Tensor:
        """Over i <= t, or with ``reverse`` i >= t, the sum of (x_t . y_i) n_i: (B, heads, T, R)."""
        heads, width, block = y.shape[1], y.shape[3], min(128, padded(y.shape[3]))
        out = x.new_empty(self.batch, heads, self.length, self.rank, dtype=torch.float32)
        sizes = {"W": width, "WB": block, "R": self.rank, "RP": padded(self.rank), "P": self.rows}
        grid = (self.tiles, self.batch * heads)
        read_sums_kernel[grid](
            x, y, n, state, out, self.length, heads, SHARED=n.dim() == 3, REVERSE=reverse, **sizes, num_warps=self.warps
        )
        return out

    def delta(self, o: Tensor, do: Tensor) -> Tensor:
        """o_t . do_t: (B, H, T)."""
        delta = o.new_empty(o.shape[:3], dtype=torch.float32)
        block = min(128, padded(self.v_width))
        delta_kernel[(self.tiles, self.batch * self.heads)](
            o, do, delta, self.length, VW=self.v_width, WB=block, P=self.rows, num_warps=self.warps
        )
        return delta


def forward(
    base: str, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """q, k (B, H_q, T, K), v (B, H, T, V) -> o (B, H, T, V) over its norm, and what :func:`backward` takes as ``saved``.

    H_q is 2 H for G, first the gates' heads, then the scales'. q of S comes scaled by K^-1/2. Saved are the norms (of S
    the binary logarithm of the sum), (B, H, T), then c with R(1) and u over the norm with R(2): (B, heads, T, R).
    """
    launch = Launch(base, q, v, mix1, mix2)
    o, norm = torch.empty_like(v), v.new_empty(v.shape[:3], dtype=torch.float32)
    gamma = b1 = p1 = s2 = a2 = b2 = p2 = state = u = None
    saved = [norm]
    if mix1:
        s1, a1, b1, p1 = mix1
        c = launch.read_sums(q, k, a1, launch.sums(a1, k))
        gamma = c * s1
        saved.append(c)
    if mix2:
        s2, a2, b2, p2 = mix2
        state, u = launch.sums(a2, v), torch.empty_like(s2)
        saved.append(u)
    launch(forward_kernel, q, k, v, gamma, b1, p1, s2, a2, b2, p2, state, o, u, norm, columns=True)
    return o, tuple(saved)


def backward(
    base: str, do: Tensor, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None, o: Tensor,
    saved: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor, Tensor, Mixing | None, Mixing | None]:  # fmt: skip
    """Gradients of q, k, v and of the four tensors of each mixing from that of o, in the order of :func:`forward`."""
    launch = Launch(base, q, v, mix1, mix2)
    norm, c, u = saved[0], saved[1] if mix1 else None, saved[-1]
    dq, dk, dv, delta = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), launch.delta(o, do)
    gamma = s1 = a1 = b1 = p1 = dc = dgamma = db1 = dp1 = before_q = after_k = None
    mu = du = a2 = b2 = p2 = db2 = dp2 = after_v = None
    if mix2:
        s2, a2, b2, p2 = mix2
        of_mu = launch.read_sums(do, v, a2, launch.sums(a2, v))
        mu, du, ds2 = u * s2, of_mu * s2, of_mu * u
        after_v, db2, dp2 = launch.sums(mu, do, True), torch.empty_like(u), norm.new_empty(launch.parts, *norm.shape)
        da2 = launch.read_sums(v, do, mu, after_v, True)
    if mix1:
        s1, a1, b1, p1 = mix1
        gamma, before_q = c * s1, launch.sums(a1, k)
        dgamma, db1, dp1 = torch.empty_like(c), torch.empty_like(c), torch.empty_like(c[..., 0])
    values = (q, k, v, gamma, b1, p1, mu, du, a2, p2, after_v, do, norm, dv, db2, dp2)
    launch(values_kernel, *values, columns=True)
    queries = (q, k, v, gamma, s1, a1, b1, p1, du, b2, p2, before_q, do, delta, norm, dq, dgamma)
    launch(queries_kernel, *queries, columns=False)
    if mix1:
        dc, ds1 = dgamma * s1, dgamma * c
        after_k = launch.sums(dc, q, True)
        da1 = launch.read_sums(k, q, dc, after_k, True)
    keys = (q, k, v, gamma, a1, b1, p1, dc, du, b2, p2, after_k, do, delta, norm, dk, db1, dp1)
    launch(keys_kernel, *keys, columns=False)
    of_mix1 = (ds1, da1.sum(0), db1.sum(0), dp1.sum(0)) if mix1 else None
    of_mix2 = (ds2, da2.sum(0), db2.sum(0), dp2.sum((0, 1))) if mix2 else None
    return dq, dk, dv, of_mix1, of_mix2
