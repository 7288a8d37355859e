"""The backward kernels of the lag layout; :mod:`madbench.mixers.srg.kernels.lag` has the equations.

g is the gradient of a over its norm. Each kernel has the sums of one kind to itself, so that none is added to from two
programs: those over lags (:func:`mixed_gradients_kernel`, :func:`rows_kernel`), over the rows that see a key
(:func:`columns_kernel`), and over the rows that have a lag (:func:`lags_kernel`). Tables are shared by the sequences of
a batch; their gradients come out one a sequence, and are summed after.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.lag_tile import by_key, by_lag, hidden, products, read_gamma, scores, skew
from madbench.mixers.srg.kernels.tile import (
    activation,
    dot,
    dot_both,
    hidden_gradients,
    read,
    read_gain,
    read_rank,
    write,
)


@triton.jit
def mixed_gradients_kernel(
    V, U, S2, A2, OUT, DO, DELTA, DU, DS2, T, H,
    MIX2: tl.constexpr, VW: tl.constexpr, VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """delta_t = o_t . do_t, and the gradients of u and s2: a program has P rows of one head."""
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    m, r = tl.arange(0, P), tl.arange(0, RP)
    t = start + m
    delta = tl.zeros((P,), tl.float32)
    for first in range(0, VW, VB):
        w = first + tl.arange(0, VB)
        o = read(OUT + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32)
        delta += tl.sum(o * read(DO + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32), 1)
    tl.store(DELTA + bh * T + t, delta, mask=t < T)
    if MIX2:
        kind: tl.constexpr = V.dtype.element_ty
        dmu = tl.zeros((P, RP), tl.float32)
        newer = products(DO + bh * T * VW, V + bh * T * VW, t, start, T, VW, VB, P)
        for first in range(0, start + 1, P):
            older = products(DO + bh * T * VW, V + bh * T * VW, t, start - first - P, T, VW, VB, P)
            dw = by_lag(newer, older)
            newer = older
            a2 = read(A2 + head * T * R, (first + m)[:, None], r[None, :], T, R)
            dmu = dot(dw.to(kind), a2.to(kind), dmu)
        u = read(U + bh * T * R, t[:, None], r[None, :], T, R)
        s2 = read(S2 + bh * T * R, t[:, None], r[None, :], T, R)
        write(DU + bh * T * R, t[:, None], r[None, :], T, R, dmu * s2)
        write(DS2 + bh * T * R, t[:, None], r[None, :], T, R, dmu * u)


@triton.jit
def activation_gradient(
    dw, du, B2, P2, lag, T, MIX: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, kind: tl.constexpr
):
    """g of a tile by lag from the gradient of w."""
    if MIX:
        b2 = read(B2, lag[None, :], tl.arange(0, RP)[:, None], T, R)
        dw = dot(du.to(kind), b2.to(kind), dw * read_gain(P2, lag[None, :], T, MIX))
    return dw


@triton.jit
def add_mixed_keys(dq, dc, A1, K, start, T, KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr):
    """dq_t + sum over lags of (dc_t . A1_l) k_(t-l), for the P rows from ``start``."""
    P: tl.constexpr = dq.shape[0]
    m, d, r = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    kind: tl.constexpr = K.dtype.element_ty
    before = tl.zeros((P, P), kind)
    for first in range(0, start + 1, P):
        a1 = read(A1, (first + m)[None, :], r[:, None], T, R)
        weights = skew(dot(dc.to(kind), a1.to(kind), tl.zeros((P, P), tl.float32)).to(kind))
        k = read(K, (start - first + m)[:, None], d[None, :], T, KW)
        dq = dot(by_key(weights, before), k, dq)
        before = weights
    return dq


@triton.jit
def finish_rows(
    dq, dgamma, C, S1, A1, K, DQ, DC, DS1, start, T, MIX: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Stores the gradients of q, c and s1 from that of gamma."""
    t, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    if MIX:
        dc = dgamma * read(S1, t[:, None], r[None, :], T, R)
        write(DC, t[:, None], r[None, :], T, R, dc)
        write(DS1, t[:, None], r[None, :], T, R, dgamma * read(C, t[:, None], r[None, :], T, R))
        dq = add_mixed_keys(dq, dc, A1, K, start, T, KW, KP, R, RP)
    write(DQ, t[:, None], d[None, :], T, KW, dq)


@triton.jit
def rows_kernel(
    Q, K, V, C, S1, A1, B1, P1, DU, B2, P2, NORM, DO, DELTA, DQ, DC, DS1, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Gradients of q, c and s1: a program has P rows of one head."""
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    t = start + m
    kind: tl.constexpr = Q.dtype.element_ty
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
    q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
    gamma = read_gamma(C + gate * T * R, S1 + gate * T * R, t, T, MIX1, R, RP)
    newer = scores(q, K + gate * T * KW, start, T, KW, KP)
    dq, dgamma, before = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P, P), kind)
    if BASE == "G":
        scale, of_table = gate + H, head + H
        q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
        gamma_scale = read_gamma(C + scale * T * R, S1 + scale * T * R, t, T, MIX1, R, RP)
        newer_scale = scores(q_scale, K + scale * T * KW, start, T, KW, KP)
        dq_scale, dgamma_scale = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32)
        before_scale = tl.zeros((P, P), kind)
    du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
    newer_dw = products(DO + bh * T * VW, V + bh * T * VW, t, start, T, VW, VB, P)
    for first in range(0, start + 1, P):
        lag, i = first + m, start - first + m
        older = scores(q, K + gate * T * KW, start - first - P, T, KW, KP)
        h = hidden(by_lag(newer, older), gamma, B1 + head * T * R, P1 + head * T, lag, T, MIX1, R, RP, kind)
        newer = older
        h_scale = 0.0
        if BASE == "G":
            older_scale = scores(q_scale, K + scale * T * KW, start - first - P, T, KW, KP)
            z = by_lag(newer_scale, older_scale)
            newer_scale = older_scale
            h_scale = hidden(z, gamma_scale, B1 + of_table * T * R, P1 + of_table * T, lag, T, MIX1, R, RP, kind)
        a, h = activation(h, h_scale, lag[None, :] <= t[:, None], norm, BASE)
        older_dw = products(DO + bh * T * VW, V + bh * T * VW, t, start - first - P, T, VW, VB, P)
        dw = by_lag(newer_dw, older_dw)
        newer_dw = older_dw
        g = activation_gradient(dw, du, B2 + head * T * R, P2 + head * T, lag, T, MIX2, R, RP, kind)
        dh, dh_scale = hidden_gradients(g, a, h, h_scale, delta, norm, BASE)
        if MIX1:
            b1 = read(B1 + head * T * R, lag[:, None], r[None, :], T, R)
            dgamma = dot(dh.to(kind), b1.to(kind), dgamma)
        weights = skew((dh * read_gain(P1 + head * T, lag[None, :], T, MIX1)).to(kind))
        k = read(K + gate * T * KW, i[:, None], d[None, :], T, KW)
        dq = dot(by_key(weights, before), k, dq)
        before = weights
        if BASE == "G":
            if MIX1:
                b1 = read(B1 + of_table * T * R, lag[:, None], r[None, :], T, R)
                dgamma_scale = dot(dh_scale.to(kind), b1.to(kind), dgamma_scale)
            weights = skew((dh_scale * read_gain(P1 + of_table * T, lag[None, :], T, MIX1)).to(kind))
            k = read(K + scale * T * KW, i[:, None], d[None, :], T, KW)
            dq_scale = dot(by_key(weights, before_scale), k, dq_scale)
            before_scale = weights
    finish_rows(
        dq, dgamma, C + gate * T * R, S1 + gate * T * R, A1 + head * T * R, K + gate * T * KW, DQ + gate * T * KW,
        DC + gate * T * R, DS1 + gate * T * R, start, T, MIX1, KW, KP, R, RP, P,
    )  # fmt: skip
    if BASE == "G":
        finish_rows(
            dq_scale, dgamma_scale, C + scale * T * R, S1 + scale * T * R, A1 + of_table * T * R, K + scale * T * KW,
            DQ + scale * T * KW, DC + scale * T * R, DS1 + scale * T * R, start, T, MIX1, KW, KP, R, RP, P,
        )  # fmt: skip


@triton.jit
def add_cyclic(
    x, y, N, gap, T, MIX: tl.constexpr, EXACT: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, kind: tl.constexpr
):
    """x + y N^T for a tile skewed from one tile of keys, ``gap`` positions before its rows.

    Its columns up to the row's are the lags from ``gap``, and the others those P lags before.
    """
    if MIX:
        P: tl.constexpr = x.shape[0]
        m, r = tl.arange(0, P), tl.arange(0, RP)
        nothing = tl.zeros((P, P), tl.float32)
        after = read(N, (gap + m)[None, :], r[:, None], T, R)
        before = read(N, (gap - P + m)[None, :], r[:, None], T, R)
        if EXACT:
            of_after, of_before = dot_both(y, after, nothing, kind), dot_both(y, before, nothing, kind)
        else:
            of_after = dot(y.to(kind), after.to(kind), nothing)
            of_before = dot(y.to(kind), before.to(kind), nothing)
        x += tl.where(m[None, :] <= m[:, None], of_after, of_before)
    return x


@triton.jit
def columns_kernel(
    Q, K, V, C, S1, A1, B1, P1, DC, U, S2, A2, DU, B2, P2, NORM, DO, DELTA, DK, DV, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, BLOCKS: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Gradients of k and v: a program has P keys of one head."""
    start_i, bh = tl.program_id(0) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r, w = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VB)
    i = start_i + m
    kind: tl.constexpr = Q.dtype.element_ty
    dk = tl.zeros((P, KP), tl.float32)
    if BASE == "G":
        scale, of_table = gate + H, head + H
        dk_scale = tl.zeros((P, KP), tl.float32)
    of_values = ()
    for _ in tl.static_range(BLOCKS):
        of_values = of_values + (tl.zeros((P, VB), tl.float32),)
    for start in range(start_i, T, P):
        t, gap = start + m, start - start_i
        lag = gap + m[None, :] - tl.where(m[None, :] <= m[:, None], 0, P)
        visible = lag >= 0
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
        q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
        gamma = read_gamma(C + gate * T * R, S1 + gate * T * R, t, T, MIX1, R, RP)
        gain = read_gain(P1 + head * T, lag, T, MIX1)
        z = skew(scores(q, K + gate * T * KW, start_i, T, KW, KP))
        h = add_cyclic(z * gain, gamma, B1 + head * T * R, gap, T, MIX1, True, R, RP, kind)
        h_scale = 0.0
        if BASE == "G":
            q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
            gamma_scale = read_gamma(C + scale * T * R, S1 + scale * T * R, t, T, MIX1, R, RP)
            gain_scale = read_gain(P1 + of_table * T, lag, T, MIX1)
            z = skew(scores(q_scale, K + scale * T * KW, start_i, T, KW, KP))
            h_scale = add_cyclic(z * gain_scale, gamma_scale, B1 + of_table * T * R, gap, T, MIX1, True, R, RP, kind)
        a, h = activation(h, h_scale, visible, norm, BASE)
        gain_2 = read_gain(P2 + head * T, lag, T, MIX2)
        mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
        weights = add_cyclic(a * gain_2, mu, A2 + head * T * R, gap, T, MIX2, False, R, RP, kind)
        weights = tl.trans(skew(tl.where(visible, weights, 0.0).to(kind)))
        sums = ()
        for block in tl.static_range(BLOCKS):
            do = read(DO + bh * T * VW, t[:, None], (block * VB + w)[None, :], T, VW)
            sums = sums + (dot(weights, do, of_values[block]),)
        of_values = sums
        g = skew(products(DO + bh * T * VW, V + bh * T * VW, t, start_i, T, VW, VB, P)) * gain_2
        du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
        g = add_cyclic(g, du, B2 + head * T * R, gap, T, MIX2, False, R, RP, kind)
        dh, dh_scale = hidden_gradients(g, a, h, h_scale, delta, norm, BASE)
        dc = read_rank(DC + gate * T * R, t[:, None], r[None, :], T, R, MIX1)
        dz = add_cyclic(dh * gain, dc, A1 + head * T * R, gap, T, MIX1, False, R, RP, kind)
        dk = dot(tl.trans(skew(tl.where(visible, dz, 0.0).to(kind))), q, dk)
        if BASE == "G":
            dc = read_rank(DC + scale * T * R, t[:, None], r[None, :], T, R, MIX1)
            dz = add_cyclic(dh_scale * gain_scale, dc, A1 + of_table * T * R, gap, T, MIX1, False, R, RP, kind)
            dk_scale = dot(tl.trans(skew(tl.where(visible, dz, 0.0).to(kind))), q_scale, dk_scale)
    write(DK + gate * T * KW, i[:, None], d[None, :], T, KW, dk)
    if BASE == "G":
        write(DK + scale * T * KW, i[:, None], d[None, :], T, KW, dk_scale)
    for block in tl.static_range(BLOCKS):
        write(DV + bh * T * VW, i[:, None], (block * VB + w)[None, :], T, VW, of_values[block])


@triton.jit
def lag_products(x, Y, start, gap, T, W: tl.constexpr, WP: tl.constexpr):
    """x_t y_(t-l)^T of the P rows from ``start`` and the P lags from ``gap``."""
    P: tl.constexpr = x.shape[0]
    return by_lag(scores(x, Y, start - gap, T, W, WP), scores(x, Y, start - gap - P, T, W, WP))


@triton.jit
def lags_kernel(
    Q, K, V, C, S1, B1, P1, DC, U, S2, DU, B2, P2, NORM, DO, DELTA, DA1, DB1, DP1, DA2, DB2, DP2, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Gradients of the tables, one a sequence: a program has P lags of one head."""
    gap, bh = tl.program_id(0) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    lag = gap + m
    kind: tl.constexpr = Q.dtype.element_ty
    if MIX1:
        da1, db1, dp1 = tl.zeros((P, RP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    if MIX2:
        da2, db2, dp2 = tl.zeros((P, RP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    if BASE == "G":
        scale, of_table = gate + H, head + H
        if MIX1:
            da1_scale, db1_scale = tl.zeros((P, RP), tl.float32), tl.zeros((P, RP), tl.float32)
            dp1_scale = tl.zeros((P,), tl.float32)
    for start in range(gap, T, P):
        t = start + m
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
        q = read(Q + gate * T * KW, t[:, None], d[None, :], T, KW)
        gamma = read_gamma(C + gate * T * R, S1 + gate * T * R, t, T, MIX1, R, RP)
        z = lag_products(q, K + gate * T * KW, start, gap, T, KW, KP)
        h = hidden(z, gamma, B1 + head * T * R, P1 + head * T, lag, T, MIX1, R, RP, kind)
        h_scale = 0.0
        if BASE == "G":
            q_scale = read(Q + scale * T * KW, t[:, None], d[None, :], T, KW)
            gamma_scale = read_gamma(C + scale * T * R, S1 + scale * T * R, t, T, MIX1, R, RP)
            z_scale = lag_products(q_scale, K + scale * T * KW, start, gap, T, KW, KP)
            h_scale = hidden(z_scale, gamma_scale, B1 + of_table * T * R, P1 + of_table * T, lag, T, MIX1, R, RP, kind)
        a, h = activation(h, h_scale, lag[None, :] <= t[:, None], norm, BASE)
        newer = products(DO + bh * T * VW, V + bh * T * VW, t, start - gap, T, VW, VB, P)
        dw = by_lag(newer, products(DO + bh * T * VW, V + bh * T * VW, t, start - gap - P, T, VW, VB, P))
        du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
        if MIX2:
            mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
            da2 = dot(tl.trans(dw.to(kind)), mu.to(kind), da2)
            db2 = dot(tl.trans(a.to(kind)), du.to(kind), db2)
            dp2 += tl.sum(a * dw, 0)
        if MIX1:
            g = activation_gradient(dw, du, B2 + head * T * R, P2 + head * T, lag, T, MIX2, R, RP, kind)
            dh, dh_scale = hidden_gradients(g, a, h, h_scale, delta, norm, BASE)
            dc = read(DC + gate * T * R, t[:, None], r[None, :], T, R)
            da1 = dot(tl.trans(z.to(kind)), dc.to(kind), da1)
            db1 = dot(tl.trans(dh.to(kind)), gamma.to(kind), db1)
            dp1 += tl.sum(z * dh, 0)
            if BASE == "G":
                dc = read(DC + scale * T * R, t[:, None], r[None, :], T, R)
                da1_scale = dot(tl.trans(z_scale.to(kind)), dc.to(kind), da1_scale)
                db1_scale = dot(tl.trans(dh_scale.to(kind)), gamma_scale.to(kind), db1_scale)
                dp1_scale += tl.sum(z_scale * dh_scale, 0)
    if MIX1:
        write_tables(da1, db1, dp1, DA1 + gate * T * R, DB1 + gate * T * R, DP1 + gate * T, lag, T, R, RP)
        if BASE == "G":
            write_tables(
                da1_scale, db1_scale, dp1_scale, DA1 + scale * T * R, DB1 + scale * T * R, DP1 + scale * T, lag, T, R,
                RP,
            )  # fmt: skip
    if MIX2:
        write_tables(da2, db2, dp2, DA2 + bh * T * R, DB2 + bh * T * R, DP2 + bh * T, lag, T, R, RP)


@triton.jit
def write_tables(da, db, dp, DA, DB, DP, lag, T, R: tl.constexpr, RP: tl.constexpr):
    r = tl.arange(0, RP)
    write(DA, lag[:, None], r[None, :], T, R, da)
    write(DB, lag[:, None], r[None, :], T, R, db)
    tl.store(DP + lag, dp, mask=lag < T)
