"""Tiles of rows and lags: made from tiles of rows and keys, and made into them."""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.tile import dot, dot_both, read, read_gain


@triton.jit
def skew(x):
    """Row m's columns n at ``(m - n) mod P``: keys in the order of their lags, or back."""
    P: tl.constexpr = x.shape[0]
    m = tl.arange(0, P)
    return tl.gather(x, (m[:, None] - m[None, :]) & (P - 1), 1)


@triton.jit
def scores(x, Y, start, T, W: tl.constexpr, WP: tl.constexpr):
    """x y^T with the P keys from ``start``, (P, P); zero where there is no key."""
    P: tl.constexpr = x.shape[0]
    i, w = start + tl.arange(0, P), tl.arange(0, WP)
    return dot(x, read(Y, i[None, :], w[:, None], T, W), tl.zeros((P, P), tl.float32))


@triton.jit
def by_lag(newer, older):
    """A block of lags from the tile of its newer keys, those of each row's lags up to the row, and the older ones."""
    P: tl.constexpr = newer.shape[0]
    m = tl.arange(0, P)
    return skew(tl.where(m[None, :] <= m[:, None], newer, older))


@triton.jit
def hidden(z, gamma, B1, P1, lag, T, MIX: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, kind: tl.constexpr):
    """h of a tile by lag: z, and with R(1) (1 + p) z + gamma B1^T."""
    if MIX:
        r = tl.arange(0, RP)
        z *= read_gain(P1, lag[None, :], T, MIX)
        z = dot_both(gamma, read(B1, lag[None, :], r[:, None], T, R), z, kind)
    return z


@triton.jit
def read_gamma(C, S1, t, T, MIX: tl.constexpr, R: tl.constexpr, RP: tl.constexpr):
    """c * s1 of the rows t; nothing without R(1)."""
    gamma = 0.0
    if MIX:
        r = tl.arange(0, RP)
        c = read(C, t[:, None], r[None, :], T, R)
        gamma = c * read(S1, t[:, None], r[None, :], T, R)
    return gamma


@triton.jit
def products(X, Y, t, start, T, W: tl.constexpr, WB: tl.constexpr, P: tl.constexpr):
    """x_t y_i^T of the rows t and the P keys from ``start``, as :func:`scores`, WB columns of x and y at a time."""
    i, total = start + tl.arange(0, P), tl.zeros((P, P), tl.float32)
    for first in range(0, W, WB):
        w = first + tl.arange(0, WB)
        x = read(X, t[:, None], w[None, :], T, W)
        total = dot(x, read(Y, i[None, :], w[:, None], T, W), total)
    return total


@triton.jit
def by_key(weights, before):
    """A tile of keys from that of the rows' lags up to the row and, P lags earlier, of ``before``; both of ``skew``."""
    P: tl.constexpr = weights.shape[0]
    m = tl.arange(0, P)
    return tl.where(m[None, :] <= m[:, None], weights, before)
