"""The backward kernels of the lag layout. :mod:`madbench.mixers.srg.kernels.lag` has the equations and symbols.

In addition, g is the gradient with respect to a / n, the activations divided by their norm. A branch is one set of
query heads: G has two (gate and scale), S and R have one.

Each kernel computes sums of one kind, so that no two programs add to the same sum:

- over lags: :func:`mixed_gradients_kernel` and :func:`rows_kernel`;
- over the rows that see a key: :func:`values_kernel` and :func:`keys_kernel`, which are separate so that the sums of
  each fit into registers;
- over the rows that have a lag: :func:`lags_kernel`.

All sequences of a batch share the tables. Gradients of tables are computed per sequence and summed afterward.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.lag_tile import (
    by_key,
    by_lag,
    hidden_of_lags,
    newest_scores,
    products,
    read_gamma,
    read_rows,
    scores,
    skew,
)
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
    """Write delta to DELTA: the dot product of each row of OUT with its gradient in DO.

    If MIX2 is true, also write two gradients: that of u, the sums of activations times the table B2, to DU, and that of
    s2, the strengths of the mixing matrix R(2), to DS2. One program computes P rows of one head.
    """
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
    """Return the gradient of the activations, after the division by their norm, for a tile (P rows, P lags).

    ``dw`` is the gradient of the weights, which are the activations after R(2). ``du`` is the gradient of u, the sums
    of activations times B2. If ``MIX`` is false, there is no R(2), and ``dw`` is returned.
    """
    if MIX:
        b2 = read(B2, lag[None, :], tl.arange(0, RP)[:, None], T, R)
        dw = dot(du.to(kind), b2.to(kind), dw * read_gain(P2, lag[None, :], T, MIX))
    return dw


@triton.jit
def add_mixed_keys(dq, dc, A1, K, start, T, KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr):
    """Return dq_t + sum over lags l of (dc_t . A1_l) k_(t-l), (P, KP), for the P rows t from ``start``.

    The sum is the gradient that reaches q through c, the sums of scores times A1.
    """
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
def rows_kernel(
    Q, K, V, C, S1, A1, B1, P1, DU, B2, P2, NORM, DO, DELTA, DQ, DC, DS1, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradient of q to DQ and, if MIX1 is true, those of c and s1 to DC and DS1.

    c are the sums of scores times A1, and s1 the strengths of R(1). One program computes P rows of one head. DU and
    DELTA are the results of :func:`mixed_gradients_kernel`, and DO is the gradient of the output. The other inputs are
    named as in :mod:`madbench.mixers.srg.kernels.lag`.
    """
    start, bh = (tl.num_programs(0) - 1 - tl.program_id(0)) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    t = start + m
    kind: tl.constexpr = Q.dtype.element_ty
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
    q, gamma = read_rows(Q, C, S1, gate, H, t, T, 2 if BASE == "G" else 1, MIX1, KW, KP, R, RP)
    newer = newest_scores(q, K, gate, H, start, T, KW, KP)
    sums = ()  # for each branch the gradients of q and gamma, and the weights of the preceding lags
    for _ in tl.static_range(len(q)):
        nothing = tl.zeros((P, KP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P, P), kind)
        sums = sums + (nothing,)
    du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
    newer_dw = products(DO + bh * T * VW, V + bh * T * VW, t, start, T, VW, VB, P)
    for first in range(0, start + 1, P):
        lag, i = first + m, start - first + m
        z, h, newer = hidden_of_lags(q, newer, gamma, K, B1, P1, gate, head, H, start, first, T, MIX1, KW, KP, R, RP)
        a, selecting = activation(h, lag[None, :] <= t[:, None], norm, BASE)
        older_dw = products(DO + bh * T * VW, V + bh * T * VW, t, start - first - P, T, VW, VB, P)
        dw = by_lag(newer_dw, older_dw)
        newer_dw = older_dw
        g = activation_gradient(dw, du, B2 + head * T * R, P2 + head * T, lag, T, MIX2, R, RP, kind)
        dh = hidden_gradients(g, a, selecting, h, delta, norm, BASE)
        next_sums = ()
        for branch in tl.static_range(len(q)):
            table = (head + branch * H) * T
            dq, dgamma, before = sums[branch]
            if MIX1:
                b1 = read(B1 + table * R, lag[:, None], r[None, :], T, R)
                dgamma = dot(dh[branch].to(kind), b1.to(kind), dgamma)
            weights = skew((dh[branch] * read_gain(P1 + table, lag[None, :], T, MIX1)).to(kind))
            k = read(K + (gate + branch * H) * T * KW, i[:, None], d[None, :], T, KW)
            next_sums = next_sums + ((dot(by_key(weights, before), k, dq), dgamma, weights),)
        sums = next_sums
    for branch in tl.static_range(len(q)):
        rows = (gate + branch * H) * T
        dq, dgamma, before = sums[branch]
        if MIX1:
            dc = dgamma * read(S1 + rows * R, t[:, None], r[None, :], T, R)
            write(DC + rows * R, t[:, None], r[None, :], T, R, dc)
            c = read(C + rows * R, t[:, None], r[None, :], T, R)
            write(DS1 + rows * R, t[:, None], r[None, :], T, R, dgamma * c)
            dq = add_mixed_keys(dq, dc, A1 + (head + branch * H) * T * R, K + rows * KW, start, T, KW, KP, R, RP)
        write(DQ + rows * KW, t[:, None], d[None, :], T, KW, dq)


@triton.jit
def add_cyclic(
    x, y, N, gap, T, MIX: tl.constexpr, EXACT: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, kind: tl.constexpr
):
    """Return x (P, P) with the dot product of y[m] and N[l] added to the element in row m whose lag is l.

    y (P, RP) has one vector per row, and the table N (T, R) has one vector per lag. The lag of the element in row m and
    column n is ``gap`` + n if n <= m, and ``gap`` + n - P otherwise. If EXACT is true, the products have float32
    precision. Otherwise their factors are rounded to the dtype ``kind``. If MIX is false, x is returned unchanged.
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
def cyclic_tile(
    Q, K, C, S1, B1, P1, NORM, bh, gate, head, H, start_i, start, T, BASE: tl.constexpr, MIX: tl.constexpr,
    KW: tl.constexpr, KP: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Compute the tile of the P rows from ``start`` and the P keys from ``start_i``, with columns ordered by lag.

    Return eight values. q, the hidden scores h and 1 + p1 are tuples with one entry per branch (a set of query heads).
    They are followed by the lags, a mask of the lags that have a key, the norm, and the two results of ``activation``.
    """
    m, gap = tl.arange(0, P), start - start_i
    t = start + m
    kind: tl.constexpr = K.dtype.element_ty
    lag = gap + m[None, :] - tl.where(m[None, :] <= m[:, None], 0, P)
    visible = lag >= 0
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    q, gamma = read_rows(Q, C, S1, gate, H, t, T, 2 if BASE == "G" else 1, MIX, KW, KP, R, RP)
    h, gain = (), ()
    for branch in tl.static_range(len(q)):
        table = (head + branch * H) * T
        gain = gain + (read_gain(P1 + table, lag, T, MIX),)
        z = skew(scores(q[branch], K + (gate + branch * H) * T * KW, start_i, T, KW, KP)) * gain[branch]
        h = h + (add_cyclic(z, gamma[branch], B1 + table * R, gap, T, MIX, True, R, RP, kind),)
    a, selecting = activation(h, visible, norm, BASE)
    return q, h, gain, lag, visible, norm, a, selecting


@triton.jit
def values_kernel(
    Q, K, C, S1, B1, P1, U, S2, A2, P2, NORM, DO, DV, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, BLOCKS: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradient of v to DV. One program computes P keys of one head, in BLOCKS blocks of VB columns.

    DO is the gradient of the output. The other inputs are named as in :mod:`madbench.mixers.srg.kernels.lag`.
    """
    start_i, bh = tl.program_id(0) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, w = tl.arange(0, P), tl.arange(0, VB)
    kind: tl.constexpr = Q.dtype.element_ty
    of_values = ()
    for _ in tl.static_range(BLOCKS):
        of_values = of_values + (tl.zeros((P, VB), tl.float32),)
    for start in range(start_i, T, P):
        t, gap = start + m, start - start_i
        q, h, gain, lag, visible, norm, a, selecting = cyclic_tile(
            Q, K, C, S1, B1, P1, NORM, bh, gate, head, H, start_i, start, T, BASE, MIX1, KW, KP, R, RP, P
        )
        mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
        a *= read_gain(P2 + head * T, lag, T, MIX2)
        weights = add_cyclic(a, mu, A2 + head * T * R, gap, T, MIX2, False, R, RP, kind)
        weights = tl.trans(skew(tl.where(visible, weights, 0.0).to(kind)))
        sums = ()
        for block in tl.static_range(BLOCKS):
            do = read(DO + bh * T * VW, t[:, None], (block * VB + w)[None, :], T, VW)
            sums = sums + (dot(weights, do, of_values[block]),)
        of_values = sums
    for block in tl.static_range(BLOCKS):
        write(DV + bh * T * VW, (start_i + m)[:, None], (block * VB + w)[None, :], T, VW, of_values[block])


@triton.jit
def keys_kernel(
    Q, K, V, C, S1, A1, B1, P1, DC, DU, B2, P2, NORM, DO, DELTA, DK, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradient of k to DK. One program computes P keys of one head.

    DC, DU and DO are the gradients of c, u and the output, and DELTA is the result of :func:`mixed_gradients_kernel`.
    The other inputs are named as in :mod:`madbench.mixers.srg.kernels.lag`.
    """
    start_i, bh = tl.program_id(0) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    m, d, r = tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    kind: tl.constexpr = Q.dtype.element_ty
    dk = ()
    for _ in tl.static_range(2 if BASE == "G" else 1):
        dk = dk + (tl.zeros((P, KP), tl.float32),)
    for start in range(start_i, T, P):
        t, gap = start + m, start - start_i
        q, h, gain, lag, visible, norm, a, selecting = cyclic_tile(
            Q, K, C, S1, B1, P1, NORM, bh, gate, head, H, start_i, start, T, BASE, MIX1, KW, KP, R, RP, P
        )
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
        g = skew(products(DO + bh * T * VW, V + bh * T * VW, t, start_i, T, VW, VB, P))
        g *= read_gain(P2 + head * T, lag, T, MIX2)
        du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
        g = add_cyclic(g, du, B2 + head * T * R, gap, T, MIX2, False, R, RP, kind)
        dh = hidden_gradients(g, a, selecting, h, delta, norm, BASE)
        sums = ()
        for branch in tl.static_range(len(dk)):
            dc = read_rank(DC + (gate + branch * H) * T * R, t[:, None], r[None, :], T, R, MIX1)
            of_table = A1 + (head + branch * H) * T * R
            dz = add_cyclic(dh[branch] * gain[branch], dc, of_table, gap, T, MIX1, False, R, RP, kind)
            sums = sums + (dot(tl.trans(skew(tl.where(visible, dz, 0.0).to(kind))), q[branch], dk[branch]),)
        dk = sums
    for branch in tl.static_range(len(dk)):
        write(DK + (gate + branch * H) * T * KW, (start_i + m)[:, None], d[None, :], T, KW, dk[branch])


@triton.jit
def lags_kernel(
    Q, K, V, C, S1, B1, P1, DC, U, S2, DU, B2, P2, NORM, DO, DELTA, DA1, DB1, DP1, DA2, DB2, DP2, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradients of A, B and p per sequence: of R(1) to DA1, DB1 and DP1, of R(2) to DA2, DB2 and DP2.

    The gradients of an absent mixing are not written. One program computes P lags of one head. DC, DU and DO are the
    gradients of c, u and the output, and DELTA is the result of :func:`mixed_gradients_kernel`. The other inputs are
    named as in :mod:`madbench.mixers.srg.kernels.lag`.
    """
    gap, bh = tl.program_id(0) * P, tl.program_id(1).to(tl.int64)
    head = bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    BRANCHES: tl.constexpr = 2 if BASE == "G" else 1
    m, r = tl.arange(0, P), tl.arange(0, RP)
    lag = gap + m
    kind: tl.constexpr = Q.dtype.element_ty
    of_mix1, of_mix2 = (), (tl.zeros((P, RP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32))
    for _ in tl.static_range(BRANCHES):
        nothing = tl.zeros((P, RP), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
        of_mix1 = of_mix1 + (nothing,)
    for start in range(gap, T, P):
        t = start + m
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
        q, gamma = read_rows(Q, C, S1, gate, H, t, T, BRANCHES, MIX1, KW, KP, R, RP)
        newer = newest_scores(q, K, gate, H, start - gap, T, KW, KP)
        z, h, older = hidden_of_lags(q, newer, gamma, K, B1, P1, gate, head, H, start, gap, T, MIX1, KW, KP, R, RP)
        a, selecting = activation(h, lag[None, :] <= t[:, None], norm, BASE)
        newer = products(DO + bh * T * VW, V + bh * T * VW, t, start - gap, T, VW, VB, P)
        dw = by_lag(newer, products(DO + bh * T * VW, V + bh * T * VW, t, start - gap - P, T, VW, VB, P))
        du = read_rank(DU + bh * T * R, t[:, None], r[None, :], T, R, MIX2)
        if MIX2:
            mu = read_gamma(U + bh * T * R, S2 + bh * T * R, t, T, MIX2, R, RP)
            of_mix2 = add_to_tables(of_mix2, dw, mu, a, du, kind)
        if MIX1:
            g = activation_gradient(dw, du, B2 + head * T * R, P2 + head * T, lag, T, MIX2, R, RP, kind)
            dh = hidden_gradients(g, a, selecting, h, delta, norm, BASE)
            sums = ()
            for branch in tl.static_range(BRANCHES):
                dc = read(DC + (gate + branch * H) * T * R, t[:, None], r[None, :], T, R)
                sums = sums + (add_to_tables(of_mix1[branch], z[branch], dc, dh[branch], gamma[branch], kind),)
            of_mix1 = sums
    if MIX1:
        for branch in tl.static_range(BRANCHES):
            slots = (gate + branch * H) * T
            write_tables(of_mix1[branch], DA1 + slots * R, DB1 + slots * R, DP1 + slots, lag, T, R, RP)
    if MIX2:
        write_tables(of_mix2, DA2 + bh * T * R, DB2 + bh * T * R, DP2 + bh * T, lag, T, R, RP)


@triton.jit
def add_to_tables(sums, x, of_a, y, of_b, kind: tl.constexpr):
    """Add the terms of one tile to ``sums``, the gradients (dA, dB, dp) of the tables A, B and p of a mixing matrix.

    x and y are (P rows, P lags), and ``of_a`` and ``of_b`` are (P rows, RP). dA grows by x^T of_a, dB by y^T of_b, and
    dp by the sum of x * y over rows. The factors of matrix products are rounded to the dtype ``kind``.
    """
    da, db, dp = sums
    da = dot(tl.trans(x.to(kind)), of_a.to(kind), da)
    db = dot(tl.trans(y.to(kind)), of_b.to(kind), db)
    return da, db, dp + tl.sum(x * y, 0)


@triton.jit
def write_tables(sums, DA, DB, DP, lag, T, R: tl.constexpr, RP: tl.constexpr):
    da, db, dp = sums
    r = tl.arange(0, RP)
    write(DA, lag[:, None], r[None, :], T, R, da)
    write(DB, lag[:, None], r[None, :], T, R, db)
    tl.store(DP + lag, dp, mask=lag < T)
