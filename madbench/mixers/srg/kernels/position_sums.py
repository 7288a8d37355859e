"""Running sums over rows, as in linear attention, and the split of float32 factors into 16-bit pieces.

Rows are divided into tiles of P rows. STATE has one sum (R, W) per head and tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from madbench.mixers.srg.kernels.tile import dot, dot_both, dot_rest, read, write


@triton.jit
def read_piece(pointer, row, column, rows, WIDTH: tl.constexpr, MIX: tl.constexpr):
    """Read a tile of a (rows, WIDTH) matrix of pieces. Rows outside of the matrix are zero. Return 0 if MIX is false.

    Columns are not masked, because WIDTH includes padding.
    """
    if MIX:
        tile = tl.load(pointer + row * WIDTH + column, mask=row < rows, other=0.0)
    else:
        tile = 0.0
    return tile


@triton.jit
def pieces_kernel(
    X, FACTOR, OUT, ROWS, IS_LEFT: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, WIDTH: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    """Write the 16-bit pieces of float32 X (ROWS, R) to OUT (ROWS, WIDTH), so that products of pieces are accurate.

    A piece is a value rounded to 16 bits, or the remainder. A left factor is X times FACTOR, stored as values, values
    again, and remainders. A right factor is X, stored as values, remainders, and values again. Columns up to WIDTH are
    filled with zeros. If OUT is float32, X is not split.
    """
    row, column = tl.program_id(0) * P + tl.arange(0, P)[:, None], tl.arange(0, WIDTH)[None, :]
    piece, r = column // R, column % R
    inside = (row < ROWS) & ((column < R) if WIDTH == RP else (piece < 3))
    row = row.to(tl.int64)
    x = tl.load(X + row * R + r, mask=inside, other=0.0)
    if IS_LEFT:
        x *= tl.load(FACTOR + row * R + r, mask=inside, other=0.0)
    high = x.to(OUT.dtype.element_ty)
    rest = (x - high.to(tl.float32)).to(OUT.dtype.element_ty)
    tl.store(OUT + row * WIDTH + column, tl.where(piece == (2 if IS_LEFT else 1), rest, high), mask=row < ROWS)


@triton.jit
def sums_kernel(
    N, Y, STATE, T, HEADS, SHARED: tl.constexpr, W: tl.constexpr, WB: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    """Write the sum of n_i y_i^T (R, W) over the rows i of each tile to STATE. n_i and y_i are rows of N and Y.

    N is shared by all sequences if SHARED is true. One program computes one tile of one head and WB columns.
    """
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
    """Replace the sum of each tile in STATE by the total of the tiles before it, or after it if REVERSE is true."""
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
    """Write, for each row t, the sum of (x_t . y_i) n_i over i <= t to OUT. If REVERSE is true, it is over i >= t.

    x, y and n are rows of X, Y and N. STATE must have, for each tile, the sum of n_i y_i^T over the earlier tiles, or
    over the later ones if REVERSE is true (``scan_kernel``). One program computes the P rows of one tile of one head.
    """
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
    """Return ``total`` plus, for each row t, the sum of (m_t . n_i) y_i over i <= t, or i >= t if REVERSE is true.

    The rows t are the P rows from ``start``, and m is (P, RP). n_i and y_i are rows of N and Y, and ``w`` are the
    columns of Y. STATE points to the sum of n_i y_i^T over the earlier tiles, or over the later ones if REVERSE is
    true.
    """
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
