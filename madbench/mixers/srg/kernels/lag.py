"""S, R and G with slots counted from the row itself, newest first, without a T x T tensor in memory.

In the symbols of :mod:`madbench.mixers.srg.parts`, for one head and row t, with sums over the lags 0 <= l <= t::

    z_tl = q_t . k_(t-l)          c_t = sum_l z_tl A1_l          h_tl = (1 + p1_l) z_tl + (c_t * s1_t) . B1_l
    u_t = sum_l a_tl B2_l / n_t                                  w_tl = (1 + p2_l) a_tl / n_t + (u_t * s2_t) . A2_l
    o_t = sum_l w_tl v_(t-l)

A tile has P rows, and P keys or P lags. Column n of P rows from t and P keys from i holds the lag t - i + m - n in row
m, so ``j = (m - n) mod P`` orders the columns of each row by lag (:func:`skew`; it is its own inverse): those with n <=
m belong to the lags from t - i, the others to the P lags before them. A block of lags is therefore skewed from two
tiles of keys, of which a sweep over lags computes one; weights go back the same way, and then a block of keys takes
them from two blocks of lags.

c and u are sums over all lags and come first, in sweeps of their own; what is saved, O(B H T (r + 1)), lets every later
tile be computed alone. The hidden score h, whose sign decides in ReLU, is as exact as float32 products of 16-bit
pieces.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from madbench.mixers.srg.kernels.lag_backward import columns_kernel, lags_kernel, mixed_gradients_kernel, rows_kernel
from madbench.mixers.srg.kernels.lag_forward import readout_kernel, sums_kernel
from madbench.mixers.srg.kernels.tile import Mixing, column_block, padded

P = 32  # rows of a tile: a skewed row is one shuffle
LARGE = 128  # columns of K and V beyond which a float32 tile has half the rows, so that it fits into registers
WIDE = 64  # columns of V beyond which a tile has four warps, so that its sums fit into registers


class Launch:
    """How the kernels are cut for tensors of these shapes: padded widths, blocks of V, warps and the grid."""

    def __init__(self, base: str, q: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None):
        batch, _, self.length, k_width = q.shape
        heads, v_width = v.shape[1], v.shape[3]
        rank = (mix1 or mix2)[1].shape[2] if mix1 or mix2 else 1
        self.heads = heads
        is_large = q.dtype == torch.float32 and k_width + v_width > LARGE
        self.rows = min(P // 2 if is_large else P, padded(self.length))
        self.grid = (triton.cdiv(self.length, self.rows), batch * heads)
        self.sizes = {"BASE": base, "MIX1": mix1 is not None, "MIX2": mix2 is not None, "KW": k_width}
        self.sizes |= {"KP": padded(k_width), "R": rank, "RP": padded(rank), "P": self.rows}
        block = column_block(v_width)
        self.sizes |= {"VW": v_width, "VB": block, "BLOCKS": triton.cdiv(v_width, block)}

    def options(self, kernel) -> dict[str, str | int | bool]:
        """Compile-time values of one of the kernels."""
        sizes = {name: size for name, size in self.sizes.items() if name in kernel.arg_names}
        warps = self.rows // 16 * (2 if sizes.get("VW", 0) > WIDE else 1)
        return sizes | {"num_warps": warps, "num_stages": 1}

    def __call__(self, kernel, *tensors: Tensor | None) -> None:
        tensors = [tensors[0] if tensor is None else tensor for tensor in tensors]
        kernel[self.grid](*tensors, self.length, self.heads, **self.options(kernel))


def forward(
    base: str, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """q, k (B, H_q, T, K), v (B, H, T, V) -> o (B, H, T, V) over its norm; what :func:`backward` takes as ``saved``.

    H_q is 2 H for G, first the gates' heads, then the scales'. q of S comes scaled by K^-1/2. Saved are the norms (of S
    the binary logarithm of the sum), (B, H, T), then c with R(1) and u over the norm with R(2): (B, heads, T, R), all
    float32.
    """
    launch = Launch(base, q, v, mix1, mix2)
    o, norm = torch.empty_like(v), v.new_empty(v.shape[:3], dtype=torch.float32)
    s1, a1, b1, p1 = mix1 or (None,) * 4
    s2, a2, b2, p2 = mix2 or (None,) * 4
    c = torch.empty_like(s1) if mix1 else None
    u = torch.empty_like(s2) if mix2 else None
    launch(sums_kernel, q, k, s1, a1, b1, p1, b2, c, u, norm)
    launch(readout_kernel, q, k, v, c, s1, b1, p1, u, s2, a2, p2, norm, o)
    return o, tuple(x for x in (norm, c, u) if x is not None)


def backward(
    base: str, do: Tensor, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None, o: Tensor,
    saved: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor, Tensor, Mixing | None, Mixing | None]:  # fmt: skip
    """Gradients of q, k, v and of the four tensors of each mixing from that of o, in the order of :func:`forward`."""
    launch = Launch(base, q, v, mix1, mix2)
    norm, c, u = saved[0], saved[1] if mix1 else None, saved[-1] if mix2 else None
    s1, a1, b1, p1 = mix1 or (None,) * 4
    s2, a2, b2, p2 = mix2 or (None,) * 4
    dq, dk, dv, delta = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(norm)
    dc, ds1, da1, db1 = (torch.empty_like(c) if mix1 else None for _ in range(4))
    du, ds2, da2, db2 = (torch.empty_like(u) if mix2 else None for _ in range(4))
    dp1 = torch.empty_like(c[..., 0]) if mix1 else None
    dp2 = torch.empty_like(u[..., 0]) if mix2 else None
    launch(mixed_gradients_kernel, v, u, s2, a2, o, do, delta, du, ds2)
    launch(rows_kernel, q, k, v, c, s1, a1, b1, p1, du, b2, p2, norm, do, delta, dq, dc, ds1)
    launch(columns_kernel, q, k, v, c, s1, a1, b1, p1, dc, u, s2, a2, du, b2, p2, norm, do, delta, dk, dv)
    tables = (da1, db1, dp1, da2, db2, dp2)
    if mix1 or mix2:
        launch(lags_kernel, q, k, v, c, s1, b1, p1, dc, u, s2, du, b2, p2, norm, do, delta, *tables)
    of_mix1 = (ds1, da1.sum(0), db1.sum(0), dp1.sum(0)) if mix1 else None
    of_mix2 = (ds2, da2.sum(0), db2.sum(0), dp2.sum(0)) if mix2 else None
    return dq, dk, dv, of_mix1, of_mix2
