"""The forward kernel of the position layout. :mod:`madbench.mixers.srg.kernels.position` has the equations.

A branch is one set of query heads: G has two (gate and scale), S and R have one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.position_sums import add_sums, read_piece
from madbench.mixers.srg.kernels.tile import FLOOR, LOG2_E, dot, read, read_gain, softplus, write


@triton.jit
def read_rows(
    Q, GAMMA, gate, H, t, d, piece, T, BRANCHES: tl.constexpr, MIX: tl.constexpr, KW: tl.constexpr, WIDTH: tl.constexpr
):
    """Read q and the 16-bit pieces of gamma = c * s1 for the rows t. Return two tuples with one entry per branch.

    t, d and piece are index vectors of rows, channels and pieces that broadcast. ``gate`` is the query head of the
    first branch, counted over the batch.
    """
    q, m = (), ()
    for branch in tl.static_range(BRANCHES):
        rows = (gate + branch * H) * T
        q = q + (read(Q + rows * KW, t, d, T, KW),)
        m = m + (read_piece(GAMMA + rows * WIDTH, t, piece, T, WIDTH, MIX),)
    return q, m


@triton.jit
def read_keys(
    K, B1, P1, gate, head, H, i, d, piece, T, BRANCHES: tl.constexpr, MIX: tl.constexpr, KW: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Read k, the 16-bit pieces of B1, and 1 + p1 for the keys i. Return three tuples with one entry per branch.

    i, d and piece are index vectors of keys, channels and pieces that broadcast. ``gate`` is the key head of the first
    branch, counted over the batch, and ``head`` its head in the tables.
    """
    k, n, gain = (), (), ()
    for branch in tl.static_range(BRANCHES):
        table = (head + branch * H) * T
        k = k + (read(K + (gate + branch * H) * T * KW, i, d, T, KW),)
        n = n + (read_piece(B1 + table * WIDTH, i, piece, T, WIDTH, MIX),)
        gain = gain + (read_gain(P1 + table, i, T, MIX),)
    return k, n, gain


@triton.jit
def hidden(x, y, gain, m, n, MIX: tl.constexpr):
    """Return the hidden scores of a tile, a tuple with one entry per branch: gain * (x y) + m n.

    If MIX is false, they are x y. x and y are queries and keys, or keys and queries. m and n are the pieces of gamma
    and B1 from ``pieces_kernel``, in the same order. ``gain`` is 1 + p1.
    """
    h = ()
    for branch in tl.static_range(len(x)):
        z = dot(x[branch], y[branch], tl.zeros((x[branch].shape[0], y[branch].shape[1]), tl.float32))
        if MIX:
            z = dot(m[branch], n[branch], z * gain[branch])
        h = h + (z,)
    return h


@triton.jit
def finish_output(
    o, mu, A2, V, STATE, OUT, start, w, bh, T, MIX: tl.constexpr, VW: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    P: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    if MIX:
        o = add_sums(o, mu, A2, V + bh * T * VW, STATE, start, w, T, False, VW, R, RP, P, S)
    write(OUT + bh * T * VW, (start + tl.arange(0, P))[:, None], w[None, :], T, VW, o)


@triton.jit
def forward_kernel(
    Q, K, V, GAMMA, B1, P1, S2, A2, B2, P2, STATE, OUT, U, NORM, T, H,
    BASE: tl.constexpr, MIX1: tl.constexpr, MIX2: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr, VW: tl.constexpr,
    VA: tl.constexpr, VR: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, P: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Write the output to OUT, the sums of activations times B2, divided by the norms, to U, and the norms to NORM.

    For S, NORM gets the log2 of the sum of exponentials. One program computes P rows of one head and VA + VR columns of
    v, and loops over the keys, S at a time. S2 and A2 are the strengths and the left table of R(2). STATE has for each
    tile of P rows the sum of A2_i v_i^T over all rows i before the tile. The other inputs are those of ``keys_kernel``
    of the backward pass (:mod:`madbench.mixers.srg.kernels.position_backward`).
    """
    tile, bh = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, head = tile * P, bh % H
    gate = bh // H * 2 * H + head if BASE == "G" else bh
    BRANCHES: tl.constexpr = 2 if BASE == "G" else 1
    t, d, r = start + tl.arange(0, P), tl.arange(0, KP), tl.arange(0, RP)
    w = tl.program_id(2) * (VA + VR) + tl.arange(0, VA)
    piece = tl.arange(0, WIDTH)
    kind: tl.constexpr = Q.dtype.element_ty
    q, m = read_rows(Q, GAMMA, gate, H, t[:, None], d[None, :], piece[None, :], T, BRANCHES, MIX1, KW, WIDTH)
    o, u, total = tl.zeros((P, VA), tl.float32), tl.zeros((P, RP), tl.float32), tl.zeros((P,), tl.float32)
    if VR:
        w_rest = tl.program_id(2) * (VA + VR) + VA + tl.arange(0, VR)
        o_rest = tl.zeros((P, VR), tl.float32)
    largest = tl.full((P,), float("-inf"), tl.float32)
    for first in range(0, tl.minimum(start + P, T), S):
        i = first + tl.arange(0, S)
        k, n, gain = read_keys(
            K, B1, P1, gate, head, H, i[None, :], d[:, None], piece[:, None], T, BRANCHES, MIX1, KW, WIDTH
        )
        hs = hidden(q, k, gain, m, n, MIX1)
        h = hs[0]
        if BASE == "S":
            h = tl.where(i[None, :] <= t[:, None], h * LOG2_E, float("-inf"))
            above = tl.maximum(largest, tl.max(h, 1))
            a, shrink = tl.exp2(h - above[:, None]), tl.exp2(largest - above)
            largest, total = above, total * shrink + tl.sum(a, 1)
            o *= shrink[:, None]
            u *= shrink[:, None]
            if VR:
                o_rest *= shrink[:, None]
        else:
            h = tl.where(i[None, :] <= t[:, None], h, 0.0)
            total += tl.sum(h * h, 1)
            a = tl.maximum(h, 0.0)
        if BASE == "G":
            a *= softplus(hs[1])
        if MIX2:
            u = dot(a.to(kind), read(B2 + head * T * R, i[:, None], r[None, :], T, R), u)
            a *= read_gain(P2 + head * T, i[None, :], T, MIX2)
        o = dot(a.to(kind), read(V + bh * T * VW, i[:, None], w[None, :], T, VW), o)
        if VR:
            o_rest = dot(a.to(kind), read(V + bh * T * VW, i[:, None], w_rest[None, :], T, VW), o_rest)
    norm = total if BASE == "S" else tl.sqrt(total + FLOOR)
    inverse = (1.0 / norm)[:, None]
    u *= inverse
    mu = u
    if MIX2:
        mu = u * read(S2 + bh * T * R, t[:, None], r[None, :], T, R)
    state = STATE + (bh * tl.num_programs(0) + tile) * R * VW
    finish_output(o * inverse, mu, A2 + head * T * R, V, state, OUT, start, w, bh, T, MIX2, VW, R, RP, P, S)
    if VR:
        finish_output(
            o_rest * inverse, mu, A2 + head * T * R, V, state, OUT, start, w_rest, bh, T, MIX2, VW, R, RP, P, S
        )
    if tl.program_id(2) == 0:
        if MIX2:
            write(U + bh * T * R, t[:, None], r[None, :], T, R, u)
        saved = largest + tl.log2(total) if BASE == "S" else norm
        tl.store(NORM + bh * T + t, saved, mask=t < T)
