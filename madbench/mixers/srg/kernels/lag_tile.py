"""Conversion between tiles of rows and keys and tiles of rows and lags, for the kernels of the lag layout.

:mod:`madbench.mixers.srg.kernels.lag` has the symbols. A branch is one set of query heads: G has two (gate and scale),
S and R have one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.tile import dot, dot_both, read, read_gain


@triton.jit
def skew(x):
    """Move column n of row m of a tile (P, P) to column ``(m - n) mod P``: from order of keys to lags, or back."""
    P: tl.constexpr = x.shape[0]
    m = tl.arange(0, P)
    return tl.gather(x, (m[:, None] - m[None, :]) & (P - 1), 1)


@triton.jit
def scores(x, Y, start, T, W: tl.constexpr, WP: tl.constexpr):
    """The scores (P, P) of the rows x with the P keys of Y from position ``start``. Zero for keys that do not exist."""
    P: tl.constexpr = x.shape[0]
    i, w = start + tl.arange(0, P), tl.arange(0, WP)
    return dot(x, read(Y, i[None, :], w[:, None], T, W), tl.zeros((P, P), tl.float32))


@triton.jit
def by_lag(newer, older):
    """Combine the scores of P rows with 2 P successive keys into their scores at P successive lags, (P rows, P lags).

    ``newer`` (P, P) has the scores with the newer P keys, and ``older`` those with the P keys before. At the same lag,
    every row reads another key, so that the rows together read keys of both tiles.
    """
    P: tl.constexpr = newer.shape[0]
    m = tl.arange(0, P)
    return skew(tl.where(m[None, :] <= m[:, None], newer, older))


@triton.jit
def hidden(z, gamma, B1, P1, lag, T, MIX: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, kind: tl.constexpr):
    """Return the hidden scores of a tile of scores z, whose columns are lags: (1 + p1) z + gamma B1^T.

    gamma is c * s1 per row (:func:`read_gamma`). If MIX is false, scores are not mixed, and z is returned.
    """
    if MIX:
        r = tl.arange(0, RP)
        z *= read_gain(P1, lag[None, :], T, MIX)
        z = dot_both(gamma, read(B1, lag[None, :], r[:, None], T, R), z, kind)
    return z


@triton.jit
def read_gamma(C, S1, t, T, MIX: tl.constexpr, R: tl.constexpr, RP: tl.constexpr):
    """Return the elementwise products c * s1 (P, RP) of the rows t, or 0 if MIX is false.

    C has c, the sums of scores times A1, for all rows, and S1 has s1, the strengths of the mixing matrix R(1). For
    R(2), U and S2 are passed as C and S1, and the result is u * s2, where u are the sums of activations times B2.
    """
    gamma = 0.0
    if MIX:
        r = tl.arange(0, RP)
        c = read(C, t[:, None], r[None, :], T, R)
        gamma = c * read(S1, t[:, None], r[None, :], T, R)
    return gamma


@triton.jit
def read_rows(
    Q, C, S1, gate, H, t, T, BRANCHES: tl.constexpr, MIX: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr,
):  # fmt: skip
    """Read q (P, KP) and gamma (P, RP) for the rows t. Return two tuples with one entry per branch.

    gamma is c * s1 per row (:func:`read_gamma`).
    """
    d, q, gamma = tl.arange(0, KP), (), ()
    for branch in tl.static_range(BRANCHES):
        rows = (gate + branch * H) * T
        q = q + (read(Q + rows * KW, t[:, None], d[None, :], T, KW),)
        gamma = gamma + (read_gamma(C + rows * R, S1 + rows * R, t, T, MIX, R, RP),)
    return q, gamma


@triton.jit
def newest_scores(q, K, gate, H, start, T, KW: tl.constexpr, KP: tl.constexpr):
    """The scores of the P rows from ``start`` with the keys at the same positions: one tile (P, P) per branch.

    ``q`` has the queries of these rows, one entry per branch. :func:`hidden_of_lags` takes the result for its first
    lags.
    """
    branches = ()
    for branch in tl.static_range(len(q)):
        branches = branches + (scores(q[branch], K + (gate + branch * H) * T * KW, start, T, KW, KP),)
    return branches


@triton.jit
def hidden_of_lags(
    q, newer, gamma, K, B1, P1, gate, head, H, start, first, T, MIX: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr,
):  # fmt: skip
    """Compute scores z and hidden scores h of the P rows from ``start`` at the P lags from ``first``.

    At these lags the rows read keys of two tiles. ``newer`` has the scores with the newer tile of keys. Return z, h and
    the scores with the older tile of keys, which are ``newer`` for the next P lags. Each is a tuple of tiles (P, P),
    one per branch.
    """
    P: tl.constexpr = q[0].shape[0]
    lag, z, h, olders = first + tl.arange(0, P), (), (), ()
    kind: tl.constexpr = K.dtype.element_ty
    for branch in tl.static_range(len(q)):
        table = (head + branch * H) * T
        older = scores(q[branch], K + (gate + branch * H) * T * KW, start - first - P, T, KW, KP)
        z = z + (by_lag(newer[branch], older),)
        h = h + (hidden(z[branch], gamma[branch], B1 + table * R, P1 + table, lag, T, MIX, R, RP, kind),)
        olders = olders + (older,)
    return z, h, olders


@triton.jit
def products(X, Y, t, start, T, W: tl.constexpr, WB: tl.constexpr, P: tl.constexpr):
    """The dot products (P, P) of the rows t of X with the P rows of Y from ``start``. Both have W columns.

    The sum over columns is computed in blocks of WB columns. Zero for rows of Y that do not exist.
    """
    i, total = start + tl.arange(0, P), tl.zeros((P, P), tl.float32)
    for first in range(0, W, WB):
        w = first + tl.arange(0, WB)
        x = read(X, t[:, None], w[None, :], T, W)
        total = dot(x, read(Y, i[None, :], w[:, None], T, W), total)
    return total


@triton.jit
def by_key(weights, before):
    """Combine the weights of P rows at 2 P successive lags into their weights for P successive keys, (P rows, P keys).

    ``weights`` (P, P) has the weights at the larger P lags, and ``before`` those at the P lags before. Both are the
    results of :func:`skew`.
    """
    P: tl.constexpr = weights.shape[0]
    m = tl.arange(0, P)
    return tl.where(m[None, :] <= m[:, None], weights, before)
