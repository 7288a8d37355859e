"""S, R and G in the lag layout (slots count back from the row itself), without a T x T tensor in memory.

For one head and row t, with sums over the lags 0 <= l <= t::

    z_tl = q_t . k_(t-l)          c_t = sum_l z_tl A1_l          h_tl = (1 + p1_l) z_tl + (c_t * s1_t) . B1_l
    u_t = sum_l a_tl B2_l / n_t                                  w_tl = (1 + p2_l) a_tl / n_t + (u_t * s2_t) . A2_l
    o_t = sum_l w_tl v_(t-l)

a_tl is the activation of the hidden scores h, and n_t is its norm: the L2 norm of row t of h (for G, of the gate), or
for S the sum of the exponentials. A1, B1, p1 and s1 are the tables and strengths of R(1), and those with a 2 are of
R(2) (:class:`madbench.mixers.srg.parts.SequenceMixing`).

A tile has P rows, and P keys or P lags. Take P rows from position t and P keys from position i. In row m, column n is
the key i + n, whose lag is (t - i) + (m - n). :func:`madbench.mixers.srg.kernels.lag_tile.skew` moves column n to
``j = (m - n) mod P``, and is its own inverse. Columns with n <= m then hold the lags t - i + j, but columns with n > m
hold the lags t - i + j - P.

Hence a tile of P lags from t - i, in order, takes the columns n <= m from the tile of keys from i, and the columns
n > m from the tile of the P keys before them. A loop over lags computes only the second of these tiles in each step and
reuses it as the first one in the next step. For products with the values, weights are skewed back: a tile of keys takes
its columns from two successive tiles of lags.

c and u are sums over all lags and are computed first, in separate loops. They are saved with the norms, in
O(B H T (r + 1)) numbers, so that every later tile is computed independently. ReLU depends on the sign of the hidden
score h, so h is computed from 16-bit pieces to the precision of float32 products.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
import triton
from torch import Tensor

from madbench.mixers.srg.kernels.lag_backward import (
    keys_kernel,
    lags_kernel,
    mixed_gradients_kernel,
    rows_kernel,
    values_kernel,
)
from madbench.mixers.srg.kernels.lag_forward import readout_kernel, sums_kernel
from madbench.mixers.srg.kernels.tile import Mixing, column_block, tile_width

WIDE = 64  # number of columns of V beyond which the second configuration of a kernel is used
CUTS = {
    "sums_kernel": ((32, 2, 1), (32, 2, 2)),
    "readout_kernel": ((32, 2, 1), (32, 4, 2)),
    "mixed_gradients_kernel": ((32, 2, 1), (32, 2, 3)),
    "rows_kernel": ((32, 2, 1), (32, 2, 2)),
    "values_kernel": ((32, 2, 1), (32, 4, 1)),
    "keys_kernel": ((32, 2, 1), (16, 1, 1)),
    "lags_kernel": ((32, 2, 1), (32, 2, 1)),
}
"""Rows per tile, warps and pipeline stages of each kernel, for V of up to ``WIDE`` columns and for wider V.

Tiles have at most 32 rows, so that skewing a row is one shuffle. The configurations for wide V were the fastest of 35
on an H100 (``studies/cuts.py``).
"""
LONG = 512  # number of rows from which kernels of the backward pass run concurrently
LARGE = 128  # columns of K and V beyond which a float32 tile has 16 rows, so that it fits into registers


class Launch:
    """A launcher of kernels of the lag layout for tensors of given shapes.

    It computes padded widths, blocks of columns of v, rows per tile, warps and the grid.
    """

    def __init__(self, base: str, q: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None):
        batch, _, self.length, k_width = q.shape
        self.heads, v_width = v.shape[1], v.shape[3]
        mixing = mix1 or mix2
        rank = mixing[1].shape[2] if mixing else 1
        is_large = q.dtype == torch.float32 and k_width + v_width > LARGE
        self.most_rows = 16 if is_large else tile_width(self.length)
        self.programs = batch * self.heads
        self.sizes: dict[str, Any] = {"BASE": base, "MIX1": mix1 is not None, "MIX2": mix2 is not None, "KW": k_width}
        self.sizes |= {"KP": tile_width(k_width), "R": rank, "RP": tile_width(rank)}
        block = column_block(v_width)
        self.sizes |= {"VW": v_width, "VB": block, "BLOCKS": triton.cdiv(v_width, block)}

    def options(self, kernel: Any) -> dict[str, str | int | bool]:
        """The compile-time arguments of a kernel by name, with its numbers of warps and of pipeline stages."""
        rows, warps, stages = CUTS[kernel.fn.__name__][self.sizes["VW"] > WIDE]
        if rows > self.most_rows:
            rows, warps = self.most_rows, max(1, warps * self.most_rows // rows)
        sizes = {name: size for name, size in self.sizes.items() if name in kernel.arg_names}
        return sizes | {"P": rows, "num_warps": warps, "num_stages": stages}

    def __call__(self, kernel: Any, *tensors: Tensor | None) -> None:
        given = [tensors[0] if tensor is None else tensor for tensor in tensors]
        options = self.options(kernel)
        grid = (triton.cdiv(self.length, options["P"]), self.programs)
        kernel[grid](*given, self.length, self.heads, **options)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def two_streams(x: Tensor) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yield ``aside``: kernels launched in ``with aside():`` run on a second stream, parallel to later kernels.

    They wait for all earlier launches, and the current stream waits for them at the end. The programs of a kernel have
    between 1 and T / P steps, for P rows per program, so processors become idle before the kernel ends. The other
    stream uses them.

    On a CPU, and for inputs x (B, H_q, T, K) with T below ``LONG``, ``aside`` has no effect, because with few steps the
    switch of streams costs more than it saves.
    """
    if x.device.type != "cuda" or x.shape[2] < LONG:
        yield contextlib.nullcontext
        return
    main, side = torch.cuda.current_stream(x.device), _side_stream(x.device)

    def aside() -> AbstractContextManager[None]:
        side.wait_stream(main)
        return torch.cuda.stream(side)

    try:
        yield aside
    finally:
        main.wait_stream(side)


def forward(
    base: str, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the output o (B, H, T, V) of attention in the lag layout, and ``saved``, tensors for :func:`backward`.

    q and k are (B, H_q, T, K), and v is (B, H, T, V). For G, H_q is 2 H: first the heads of the gates, then those of
    the scales. For S, q must already be scaled by 1/sqrt(K). ``mix1`` has the tensors of R(1), which mixes scores over
    lags, and ``mix2`` those of R(2), which mixes activations. Each is None without this mixing.

    ``saved`` has these tensors, in float32:

    - The norms (B, H, T). For S, they are the binary logarithms of the sums of exponentials.
    - If there is R(1), the sums of scores times A1, c (B, H_q, T, R).
    - If there is R(2), the sums of activations times B2, divided by the norm, u (B, H, T, R).
    """
    launch = Launch(base, q, v, mix1, mix2)
    o, norm = torch.empty_like(v), v.new_empty(v.shape[:3], dtype=torch.float32)
    s1, a1, b1, p1 = mix1 or (None,) * 4
    s2, a2, b2, p2 = mix2 or (None,) * 4
    c = torch.empty_like(mix1[0]) if mix1 else None
    u = torch.empty_like(mix2[0]) if mix2 else None
    launch(sums_kernel, q, k, s1, a1, b1, p1, b2, c, u, norm)
    launch(readout_kernel, q, k, v, c, s1, b1, p1, u, s2, a2, p2, norm, o)
    return o, tuple(x for x in (norm, c, u) if x is not None)


def backward(
    base: str, do: Tensor, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None, o: Tensor,
    saved: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor, Tensor, Mixing | None, Mixing | None]:  # fmt: skip
    """Return the gradients of q, k, v, mix1 and mix2. ``do`` is the gradient of o.

    ``o`` and ``saved`` are the results of :func:`forward` for the same inputs. The gradient of ``mix1`` or ``mix2`` is
    a tuple for its tensors s, A, B and p in this order, or None if the argument is None.
    """
    launch = Launch(base, q, v, mix1, mix2)
    c: Any  # None without R(1), and u without R(2)
    u: Any
    norm, c, u = saved[0], saved[1] if mix1 else None, saved[-1] if mix2 else None
    s1, a1, b1, p1 = mix1 or (None,) * 4
    s2, a2, b2, p2 = mix2 or (None,) * 4
    dq, dk, dv, delta = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(norm)
    dc, ds1, da1, db1 = (cast(Tensor, torch.empty_like(c) if mix1 else None) for _ in range(4))
    du, ds2, da2, db2 = (cast(Tensor, torch.empty_like(u) if mix2 else None) for _ in range(4))
    dp1 = cast(Tensor, torch.empty_like(c[..., 0]) if mix1 else None)
    dp2 = cast(Tensor, torch.empty_like(u[..., 0]) if mix2 else None)
    tables = (da1, db1, dp1, da2, db2, dp2)
    with two_streams(q) as aside:
        with aside():
            launch(values_kernel, q, k, c, s1, b1, p1, u, s2, a2, p2, norm, do, dv)
        launch(mixed_gradients_kernel, v, u, s2, a2, o, do, delta, du, ds2)
        launch(rows_kernel, q, k, v, c, s1, a1, b1, p1, du, b2, p2, norm, do, delta, dq, dc, ds1)
        if mix1 or mix2:
            with aside():
                launch(lags_kernel, q, k, v, c, s1, b1, p1, dc, u, s2, du, b2, p2, norm, do, delta, *tables)
        launch(keys_kernel, q, k, v, c, s1, a1, b1, p1, dc, du, b2, p2, norm, do, delta, dk)
    of_mix1 = (ds1, da1.sum(0), db1.sum(0), dp1.sum(0)) if mix1 else None
    of_mix2 = (ds2, da2.sum(0), db2.sum(0), dp2.sum(0)) if mix2 else None
    return dq, dk, dv, of_mix1, of_mix2
