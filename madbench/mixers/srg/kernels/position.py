"""S, R and G in the position layout (slots count from the oldest token), without a T x T tensor in memory.

In the symbols of :mod:`madbench.mixers.srg.parts`, for one head and row t, with sums over the keys i <= t::

    c_t = sum_i z_ti A1_i                h_ti = (1 + p1_i) z_ti + (c_t * s1_t) . B1_i          z_ti = q_t . k_i
    u_t = sum_i a_ti B2_i                o_t = (sum_i (1 + p2_i) a_ti v_i + sum_i ((u_t * s2_t) . A2_i) v_i) / n_t

A slot is a key. B1 and B2 are therefore additional columns of keys and values, and the sums with A1 and A2 are linear
attention. The computation is flash attention of widths K + R and V + R, plus sums over tiles of rows. Everything saved
is divided by the norm n_t (for S by the sum of exponentials), so that float16 can hold it.

Rounding the factors of two kinds of products to 16 bits would make gradients inaccurate: the products for the hidden
score h, on whose sign ReLU depends, and those of the running sums. Their float32 factors are split into two 16-bit
numbers, the rounded value and the remainder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import triton
from torch import Tensor

from madbench.mixers.srg.kernels.position_backward import delta_kernel, keys_kernel, queries_kernel, values_kernel
from madbench.mixers.srg.kernels.position_forward import forward_kernel
from madbench.mixers.srg.kernels.position_sums import pieces_kernel, read_sums_kernel, scan_kernel, sums_kernel
from madbench.mixers.srg.kernels.tile import Mixing, tile_width

# rows of a program and keys per step, or keys of a program and rows per step; the first entry that fits is used
TILES = ((64, 64), (64, 32), (64, 16), (32, 32), (32, 16), (16, 16))
NARROW_BYTES = 512  # bytes of one row and one key, over all operands, beyond which square tiles need too many registers
HOPPER_SHARED_BYTES, OTHER_SHARED_BYTES = 232448, 16384
MOST_COLUMNS = 256  # columns of v that one program sums


class Launch:
    """A launcher of kernels of the position layout for tensors of given shapes.

    It computes the sizes of tiles, padded widths, warps and grids.
    """

    def __init__(self, base: str, q: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None):
        self.base, self.has = base, (mix1 is not None, mix2 is not None)
        self.batch, self.query_heads, self.length, self.k_width = q.shape
        self.heads, self.v_width = v.shape[1], v.shape[3]
        self.rank = mix1[1].shape[2] if mix1 else mix2[1].shape[2] if mix2 else 1
        self.kind = q.dtype
        self.pieces = tile_width(self.rank) if q.dtype == torch.float32 else tile_width(3 * self.rank)
        query_heads = 2 if base == "G" else 1
        width = sum(tiles_of(self.v_width)) + query_heads * (tile_width(self.k_width) + self.pieces)
        self.rows, self.block = shape_of_tile(self.length, width * q.element_size(), q.device)
        self.tiles = triton.cdiv(self.length, self.rows)
        self.warps = max(1, self.rows // 16)
        self.parts = triton.cdiv(self.v_width, MOST_COLUMNS)
        self.columns = tiles_of(triton.cdiv(self.v_width, self.parts))

    def __call__(self, kernel: Any, *tensors: Tensor | None, columns: bool) -> None:
        """Launch the forward kernel, or the backward kernel of queries, keys or values, on ``tensors``.

        If ``columns`` is true, wide values are divided among several programs by columns; otherwise each program
        computes all columns of v. A tensor that is None is replaced by one that the kernel does not read.
        """
        grid = (self.tiles, self.batch * self.heads, self.parts if columns else 1)
        given = [tensors[0] if tensor is None else tensor for tensor in tensors]
        first, rest = self.columns if columns else tiles_of(self.v_width)
        kernel[grid](
            *given, self.length, self.heads, BASE=self.base, MIX1=self.has[0], MIX2=self.has[1], KW=self.k_width,
            KP=tile_width(self.k_width), VW=self.v_width, VA=first, VR=rest, WIDTH=self.pieces, R=self.rank,
            RP=tile_width(self.rank), P=self.rows, S=self.block, num_warps=self.warps, num_stages=2,
        )  # fmt: skip

    def split(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """Split a float32 factor x (..., R) of a matrix product into 16-bit pieces (..., pieces): ``pieces_kernel``.

        If ``factor`` is given, return the pieces of x * factor for the left side of a product, otherwise the pieces of
        x for the right side.
        """
        out = x.new_empty(*x.shape[:-1], self.pieces, dtype=self.kind)
        rows = out.numel() // self.pieces
        pieces_kernel[(triton.cdiv(rows, 64),)](
            x, x if factor is None else factor, out, rows, IS_LEFT=factor is not None, R=self.rank,
            RP=tile_width(self.rank), WIDTH=self.pieces, P=64,
        )  # fmt: skip
        return out

    def sums(self, n: Tensor, y: Tensor, reverse: bool = False) -> Tensor:
        """For each tile of rows, the sum of n_i y_i^T over all rows i before the tile: (B, heads, tiles, R, W).

        n is (heads, T, R) or (B, heads, T, R), and y is (B, heads, T, W). If ``reverse`` is true, the sum is over the
        rows after the tile instead.
        """
        heads, width, block = y.shape[1], y.shape[3], min(128, tile_width(y.shape[3]))
        state = y.new_empty(self.batch, heads, self.tiles, self.rank, width, dtype=torch.float32)
        grid = (self.tiles, self.batch * heads, triton.cdiv(width, block))
        sizes = {"W": width, "WB": block, "R": self.rank, "RP": tile_width(self.rank), "P": self.rows}
        sums_kernel[grid](n, y, state, self.length, heads, SHARED=n.dim() == 3, **sizes)
        size = self.rank * width
        scan_kernel[(self.batch * heads, triton.cdiv(size, 256))](
            state, self.tiles, size, REVERSE=reverse, BLOCK=256, num_warps=2
        )
        return state

    def read_sums(self, x: Tensor, y: Tensor, n: Tensor, state: Tensor, reverse: bool = False) -> Tensor:
        """For each row t, the sum of (x_t . y_i) n_i over the rows i <= t: (B, heads, T, R).

        If ``reverse`` is true, the sum is over i >= t. ``state`` must be the result of :meth:`sums` for the same n, y
        and ``reverse``.
        """
        heads, width, block = y.shape[1], y.shape[3], min(128, tile_width(y.shape[3]))
        out = x.new_empty(self.batch, heads, self.length, self.rank, dtype=torch.float32)
        sizes = {"W": width, "WB": block, "R": self.rank, "RP": tile_width(self.rank), "P": self.rows}
        grid = (self.tiles, self.batch * heads)
        warps = max(1, self.rows // 32)  # with 4, the code of Triton's ptxas 12.8 reads uninitialized registers
        read_sums_kernel[grid](
            x, y, n, state, out, self.length, heads, SHARED=n.dim() == 3, REVERSE=reverse, **sizes, num_warps=warps
        )
        return out

    def delta(self, o: Tensor, do: Tensor) -> Tensor:
        """The dot product of the output o_t and its gradient do_t for each row t, (B, H, T), in float32."""
        delta = o.new_empty(o.shape[:3], dtype=torch.float32)
        block = min(128, tile_width(self.v_width))
        delta_kernel[(self.tiles, self.batch * self.heads)](
            o, do, delta, self.length, VW=self.v_width, WB=block, P=self.rows, num_warps=self.warps
        )
        return delta


def shape_of_tile(length: int, row_bytes: int, device: torch.device) -> tuple[int, int]:
    """Choose (rows, block) of a tile: the first entry of ``TILES`` that suits ``length`` and fits in shared memory.

    Shared memory holds ``rows`` rows, and the ``block`` keys of this step and of the next. ``row_bytes`` is the size of
    one row over all operands, in bytes. Square tiles are used only up to ``NARROW_BYTES``. If no entry fits, the last
    one is returned. On a CPU, the limit of shared memory is that of a Hopper GPU.
    """
    limit = HOPPER_SHARED_BYTES
    if device.type == "cuda":
        limit = triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
    for rows, block in TILES:
        fits = (rows + 2 * block) * row_bytes <= limit - OTHER_SHARED_BYTES
        if fits and rows <= tile_width(length) and (block < rows or row_bytes <= NARROW_BYTES):
            return rows, block
    return TILES[-1]


def tiles_of(width: int) -> tuple[int, int]:
    """The widths of two tiles that together hold ``width`` columns. The second width is 0 if one tile suffices.

    Widths are powers of two. 384 columns give 256 and 128.
    """
    whole = tile_width(width)
    if width > whole // 4 * 3 or whole < 64:
        return whole, 0
    return whole // 2, tile_width(width - whole // 2)


def forward(
    base: str, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the output o (B, H, T, V) of attention in the position layout, and ``saved``, tensors for ``backward``.

    q and k are (B, H_q, T, K), and v is (B, H, T, V). For G, H_q is 2 H: first the heads of the gates, then those of
    the scales. For S, q must already be scaled by 1/sqrt(K). ``mix1`` has the tensors of R(1), which mixes scores over
    positions, and ``mix2`` those of R(2), which mixes activations. Each is None without this mixing.

    ``saved`` has these tensors, in float32:

    - The norms (B, H, T). For S, they are the binary logarithms of the sums of exponentials.
    - If there is R(1), the sums of scores times A1, c (B, H_q, T, R).
    - If there is R(2), the sums of activations times B2, u (B, H, T, R), divided by the norm, or for S by the sum of
      exponentials.
    """
    launch = Launch(base, q, v, mix1, mix2)
    o, norm = torch.empty_like(v), v.new_empty(v.shape[:3], dtype=torch.float32)
    gamma = b1 = p1 = s2 = a2 = b2 = p2 = state = u = None
    saved = [norm]
    if mix1:
        s1, a1, b1, p1 = mix1
        c = launch.read_sums(q, k, a1, launch.sums(a1, k))
        gamma, b1 = launch.split(c, s1), launch.split(b1)
        saved.append(c)
    if mix2:
        s2, a2, b2, p2 = mix2
        state, u, b2 = launch.sums(a2, v), torch.empty_like(s2), b2.to(v.dtype)
        saved.append(u)
    launch(forward_kernel, q, k, v, gamma, b1, p1, s2, a2, b2, p2, state, o, u, norm, columns=True)
    return o, tuple(saved)


def backward(
    base: str, do: Tensor, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None, o: Tensor,
    saved: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor, Tensor, Mixing | None, Mixing | None]:  # fmt: skip
    """Return the gradients of q, k, v, mix1 and mix2. ``do`` is the gradient of o.

    ``o`` and ``saved`` are the results of :func:`forward` for the same inputs. The gradient of ``mix1`` or ``mix2`` is
    a tuple for its tensors s, A, B and p in this order, or None if the argument is None.
    """
    launch = Launch(base, q, v, mix1, mix2)
    norm, c, u = saved[0], saved[1] if mix1 else None, saved[-1]
    dq, dk, dv, delta = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), launch.delta(o, do)
    gamma = s1 = a1 = b1 = p1 = dc = dgamma = db1 = dp1 = before_q = after_k = None
    mu = du = a2 = b2 = p2 = db2 = dp2 = after_v = None
    if mix2:
        s2, a2, b2, p2 = mix2
        of_mu = launch.read_sums(do, v, a2, launch.sums(a2, v))
        mu, du, ds2, b2 = u * s2, (of_mu * s2).to(v.dtype), of_mu * u, b2.to(v.dtype)
        after_v, db2 = launch.sums(mu, do, True), torch.empty_like(u)
        dp2 = norm.new_empty(launch.parts, *norm.shape[:2], 2 if launch.columns[1] else 1, norm.shape[2])
        da2 = launch.read_sums(v, do, mu, after_v, True)
    if mix1:
        if TYPE_CHECKING:
            assert c is not None
        s1, a1, b1, p1 = mix1
        gamma, b1, before_q = launch.split(c, s1), launch.split(b1), launch.sums(a1, k)
        dgamma, db1, dp1 = torch.empty_like(c), torch.empty_like(c), torch.empty_like(c[..., 0])
    values = (q, k, v, gamma, b1, p1, mu, du, a2, p2, after_v, do, norm, dv, db2, dp2)
    launch(values_kernel, *values, columns=True)
    queries = (q, k, v, gamma, s1, a1, b1, p1, du, b2, p2, before_q, do, delta, norm, dq, dgamma)
    launch(queries_kernel, *queries, columns=False)
    if mix1:
        if TYPE_CHECKING:
            assert c is not None and s1 is not None and dgamma is not None
        dc, ds1 = dgamma * s1, dgamma * c
        after_k = launch.sums(dc, q, True)
        da1 = launch.read_sums(k, q, dc, after_k, True)
    keys = (q, k, v, gamma, a1, b1, p1, dc, du, b2, p2, after_k, do, delta, norm, dk, db1, dp1)
    launch(keys_kernel, *keys, columns=False)
    of_mix1 = (ds1, da1.sum(0), cast(Tensor, db1).sum(0), cast(Tensor, dp1).sum(0)) if mix1 else None
    of_mix2 = (ds2, da2.sum(0), cast(Tensor, db2).sum(0), cast(Tensor, dp2).sum((0, 1, 3))) if mix2 else None
    return dq, dk, dv, of_mix1, of_mix2
