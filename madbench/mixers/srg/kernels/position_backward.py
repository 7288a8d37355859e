"""The backward kernels of the position layout, one each for queries, keys and values.

:mod:`madbench.mixers.srg.kernels.position` has the equations and symbols. In addition, gamma is c * s1 and mu is
u * s2. A name such as dq or DQ is the gradient of q.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.position_forward import hidden, read_keys, read_rows
from madbench.mixers.srg.kernels.position_sums import add_sums, read_piece
from madbench.mixers.srg.kernels.tile import activation, dot, hidden_gradients, read, read_gain, write


@triton.jit
def delta_kernel(OUT, DO, DELTA, T, VW: tl.constexpr, WB: tl.constexpr, P: tl.constexpr):
    """Write the dot product of each row of OUT with its gradient in DO to DELTA.

    One program computes P rows of one head.
    """
    bh = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * P + tl.arange(0, P)
    total = tl.zeros((P,), tl.float32)
    for start in range(0, VW, WB):
        w = start + tl.arange(0, WB)
        o = read(OUT + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32)
        total += tl.sum(o * read(DO + bh * T * VW, t[:, None], w[None, :], T, VW).to(tl.float32), 1)
    tl.store(DELTA + bh * T + t, total, mask=t < T)


@triton.jit
def queries_kernel(
    Q, K, V, GAMMA, S1, A1, B1, P1, DU, B2, P2, STATE, DO, DELTA, NORM, DQ, DGAMMA, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VA: tl.constexpr, VR: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Write the gradient of q to DQ and, if MIX1 is true, the gradient of gamma = c * s1 to DGAMMA.

    One program computes P rows of one head, and loops over the keys, S at a time. S1 has the strengths s1. STATE has
    for each tile of P rows the sum of A1_i k_i^T over all rows i before the tile. The other arguments are as for
    ``keys_kernel``.
    """
    tiles = tl.num_programs(0)
    tile, bh = tiles - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    BRANCHES: tl.constexpr = 2 if BASE == "G" else 1
    t, d, r, w = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VA)
    piece = tl.arange(0, WIDTH)
    kind: tl.constexpr = Q.dtype.element_ty
    q, m = read_rows(Q, GAMMA, gate, H, t[:, None], d[None, :], piece[None, :], T, BRANCHES, MIX1, KW, WIDTH)
    do = read(DO + bh * T * VW, t[:, None], w[None, :], T, VW)
    if VR:
        w_rest = VA + tl.arange(0, VR)
        do_rest = read(DO + bh * T * VW, t[:, None], w_rest[None, :], T, VW)
    norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[:, None]
    delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[:, None]
    dq, dm = (), ()
    for _ in tl.static_range(BRANCHES):
        dq, dm = dq + (tl.zeros((P, KP), tl.float32),), dm + (tl.zeros((P, RP), tl.float32),)
    if MIX2:
        du = read(DU + bh * T * R, t[:, None], r[None, :], T, R)
    for first in range(0, tl.minimum(start + P, T), S):
        i = first + tl.arange(0, S)
        k, n, gain = read_keys(
            K, B1, P1, gate, head, H, i[None, :], d[:, None], piece[:, None], T, BRANCHES, MIX1, KW, WIDTH
        )
        h = hidden(q, k, gain, m, n, MIX1)
        a, selecting = activation(h, i[None, :] <= t[:, None], norm, BASE)
        g = dot(do, read(V + bh * T * VW, i[None, :], w[:, None], T, VW), tl.zeros((P, S), tl.float32))
        if VR:
            g = dot(do_rest, read(V + bh * T * VW, i[None, :], w_rest[:, None], T, VW), g)
        if MIX2:
            b2 = read(B2 + head * T * R, i[None, :], r[:, None], T, R)
            g = dot(du, b2, g * read_gain(P2 + head * T, i[None, :], T, MIX2))
        dh = hidden_gradients(g, a, selecting, h, delta, norm, BASE)
        of_q, of_m = (), ()
        for branch in tl.static_range(BRANCHES):
            of_gamma = dm[branch]
            if MIX1:
                b1 = read_piece(B1 + (head + branch * H) * T * WIDTH, i[:, None], r[None, :], T, WIDTH, MIX1)
                of_gamma = dot(dh[branch].to(kind), b1, of_gamma)
            of_q = of_q + (dot((dh[branch] * gain[branch]).to(kind), tl.trans(k[branch]), dq[branch]),)
            of_m = of_m + (of_gamma,)
        dq, dm = of_q, of_m
    for branch in tl.static_range(BRANCHES):
        rows, of_q = gate + branch * H, dq[branch]
        if MIX1:
            write(DGAMMA + rows * T * R, t[:, None], r[None, :], T, R, dm[branch])
            dc = dm[branch] * read(S1 + rows * T * R, t[:, None], r[None, :], T, R)
            a1, state = A1 + (head + branch * H) * T * R, STATE + (rows * tiles + tile) * R * KW
            of_q = add_sums(of_q, dc, a1, K + rows * T * KW, state, start, d, T, False, KW, R, RP, P, S)
        write(DQ + rows * T * KW, t[:, None], d[None, :], T, KW, of_q)


@triton.jit
def finish_slots(
    dx, dn, X, A, P_, M, Y, STATE, DX, DB, DP, start, w, T, MIX: tl.constexpr, IS_FIRST, W: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Write the gradients of keys or values x (T, W), of the table b and of the diagonal p, for P rows.

    The rows are those from ``start``, and ``w`` are the columns of x. b and p are B1 and p1 for keys, and B2 and p2 for
    values. ``dx`` (P, .) is the gradient of (1 + p) x, and ``dn`` (P, RP) that of b.

    If MIX is false, only ``dx`` is written, to DX. If it is true:

    - DX gets the gradient of x. In row i it is (1 + p_i) dx_i plus the sum of (a_i . m_t) y_t over t >= i, where a, m
      and y are rows of A, M and Y.
    - DP gets the gradient of p.
    - DB gets the gradient of b if IS_FIRST is true. Several programs may have different columns of the same rows, and
      only one of them writes it.
    """
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
    VA: tl.constexpr, VR: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Write the gradient of k to DK and, if MIX1 is true, the gradients of B1 and p1 to DB and DP, one per sequence.

    One program computes P keys of one head, and loops over the rows, S at a time. Q, K, V, A1, P1, B2 and P2 are the
    tensors of the equations. The other inputs are:

    - GAMMA and B1 have c * s1 and B1 as pieces of WIDTH columns (``pieces_kernel``).
    - DO, DC and DU are the gradients of o, c and u.
    - DELTA has the dot product of o and its gradient for each row, and NORM the norms that ``forward`` saved.
    - STATE has for each tile of P rows the sum of dc_t q_t^T over all rows t after the tile.

    KW, VW and R are the widths of k and v and the rank. KP and RP are KW and R rounded up to the width of a tile. VA
    and VR are the widths of the two tiles of v, and VR is 0 if one suffices. MIX1 and MIX2 say if R(1) and R(2) are
    present. Tensors of an absent mixing are not read.
    """
    tile, bh, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    BRANCHES: tl.constexpr = 2 if BASE == "G" else 1
    i, d, r, w = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, VA)
    piece = tl.arange(0, WIDTH)
    kind: tl.constexpr = Q.dtype.element_ty
    k, b1, gain = read_keys(
        K, B1, P1, gate, head, H, i[:, None], d[None, :], piece[None, :], T, BRANCHES, MIX1, KW, WIDTH
    )
    v = read(V + bh * T * VW, i[:, None], w[None, :], T, VW)
    if VR:
        w_rest = VA + tl.arange(0, VR)
        v_rest = read(V + bh * T * VW, i[:, None], w_rest[None, :], T, VW)
    dk, db = (), ()
    for _ in tl.static_range(BRANCHES):
        dk, db = dk + (tl.zeros((P, KP), tl.float32),), db + (tl.zeros((P, RP), tl.float32),)
    if MIX2:
        b2 = read(B2 + head * T * R, i[:, None], r[None, :], T, R)
        gain_2 = read_gain(P2 + head * T, i[:, None], T, MIX2)
    for first in range(start, T, S):
        t = first + tl.arange(0, S)
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[None, :]
        delta = tl.load(DELTA + bh * T + t, mask=t < T, other=0.0)[None, :]
        q, m = read_rows(Q, GAMMA, gate, H, t[None, :], d[:, None], piece[:, None], T, BRANCHES, MIX1, KW, WIDTH)
        h = hidden(k, q, gain, b1, m, MIX1)
        a, selecting = activation(h, i[:, None] <= t[None, :], norm, BASE)
        g = dot(v, read(DO + bh * T * VW, t[None, :], w[:, None], T, VW), tl.zeros((P, S), tl.float32))
        if VR:
            g = dot(v_rest, read(DO + bh * T * VW, t[None, :], w_rest[:, None], T, VW), g)
        if MIX2:
            du = read(DU + bh * T * R, t[None, :], r[:, None], T, R)
            g = dot(b2, du, g * gain_2)
        dh = hidden_gradients(g, a, selecting, h, delta, norm, BASE)
        of_k, of_b = (), ()
        for branch in tl.static_range(BRANCHES):
            of_b1 = db[branch]
            if MIX1:
                gamma = read_piece(GAMMA + (gate + branch * H) * T * WIDTH, t[:, None], r[None, :], T, WIDTH, MIX1)
                of_b1 = dot(dh[branch].to(kind), gamma, of_b1)
            of_k = of_k + (dot(dh[branch].to(kind), tl.trans(q[branch]), dk[branch]),)
            of_b = of_b + (of_b1,)
        dk, db = of_k, of_b
    for branch in tl.static_range(BRANCHES):
        rows, table = (gate + branch * H) * T, (head + branch * H) * T
        state = STATE + ((gate + branch * H) * tiles + tile) * R * KW
        finish_slots(
            dk[branch], db[branch], K + rows * KW, A1 + table * R, P1 + table, DC + rows * R, Q + rows * KW, state,
            DK + rows * KW, DB + rows * R, DP + rows, start, d, T, MIX1, True, KW, R, RP, P, S,
        )  # fmt: skip


@triton.jit
def values_kernel(
    Q, K, V, GAMMA, B1, P1, MU, DU, A2, P2, STATE, DO, NORM, DV, DB, DP, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VA: tl.constexpr, VR: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Write the gradient of v to DV and, if MIX2 is true, the gradients of B2 and p2 to DB and DP, one per sequence.

    One program computes P keys of one head and VA + VR columns of v, and loops over the rows, S at a time. The gradient
    of p2 is a sum over columns. DP gets one partial sum over VA columns and, if VR is not 0, one over VR columns.

    MU has u * s2. STATE has for each tile of P rows the sum of mu_t do_t^T over all rows t after the tile. The other
    arguments are as for ``keys_kernel``.
    """
    tile, bh, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    BRANCHES: tl.constexpr = 2 if BASE == "G" else 1
    i, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    w = tl.program_id(2) * (VA + VR) + tl.arange(0, VA)
    piece = tl.arange(0, WIDTH)
    kind: tl.constexpr = Q.dtype.element_ty
    k, b1, gain = read_keys(
        K, B1, P1, gate, head, H, i[:, None], d[None, :], piece[None, :], T, BRANCHES, MIX1, KW, WIDTH
    )
    dv, db = tl.zeros((P, VA), tl.float32), tl.zeros((P, RP), tl.float32)
    if VR:
        w_rest = tl.program_id(2) * (VA + VR) + VA + tl.arange(0, VR)
        dv_rest = tl.zeros((P, VR), tl.float32)
    for first in range(start, T, S):
        t = first + tl.arange(0, S)
        norm = tl.load(NORM + bh * T + t, mask=t < T, other=1.0)[None, :]
        q, m = read_rows(Q, GAMMA, gate, H, t[None, :], d[:, None], piece[:, None], T, BRANCHES, MIX1, KW, WIDTH)
        h = hidden(k, q, gain, b1, m, MIX1)
        a, selecting = activation(h, i[:, None] <= t[None, :], norm, BASE)
        dv = dot(a.to(kind), read(DO + bh * T * VW, t[:, None], w[None, :], T, VW), dv)
        if VR:
            dv_rest = dot(a.to(kind), read(DO + bh * T * VW, t[:, None], w_rest[None, :], T, VW), dv_rest)
        if MIX2:
            db = dot(a.to(kind), read(DU + bh * T * R, t[:, None], r[None, :], T, R), db)
    part = (tl.program_id(2) * tl.num_programs(1) + bh) * (2 if VR else 1)
    finish_slots(
        dv, db, V + bh * T * VW, A2 + head * T * R, P2 + head * T, MU + bh * T * R, DO + bh * T * VW,
        STATE + (bh * tiles + tile) * R * VW, DV + bh * T * VW, DB + bh * T * R, DP + part * T, start, w, T, MIX2,
        tl.program_id(2) == 0, VW, R, RP, P, S,
    )  # fmt: skip
    if VR:
        finish_slots(
            dv_rest, db, V + bh * T * VW, A2 + head * T * R, P2 + head * T, MU + bh * T * R, DO + bh * T * VW,
            STATE + (bh * tiles + tile) * R * VW, DV + bh * T * VW, DB + bh * T * R, DP + (part + 1) * T, start, w_rest,
            T, MIX2, False, VW, R, RP, P, S,
        )  # fmt: skip
