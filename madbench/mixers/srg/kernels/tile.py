"""Functions shared by the kernels of both layouts: tiles, products of known precision, activations and gradients.

A branch is one set of query heads: G has two (gate and scale), S and R have one.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from madbench.mixers.srg.parts import EPS

try:
    from triton.language.extra import libdevice
except ImportError:
    libdevice = None

LOG2_E = tl.constexpr(1.4426950408889634)
FLOOR = tl.constexpr(EPS)
HAS_LIBDEVICE = tl.constexpr(isinstance(tl.zeros, triton.JITFunction))  # the interpreter has no libdevice

Mixing = tuple[Tensor, Tensor, Tensor, Tensor]
"""Type of the float32 tensors of R(1) or R(2): s (B, heads, T, R), A (heads, T, R), B (heads, T, R), p (heads, T)."""


def tile_width(width: int) -> int:
    """The width of a tile that holds ``width`` columns: the next power of two, and at least 16 for tensor cores."""
    return max(16, triton.next_power_of_2(width))


def column_block(width: int) -> int:
    """The number of columns of V in a tile of the lag layout.

    Up to 64 columns are one tile. More are divided into tiles of 128 or 64 columns, whichever need less padding.
    """
    if width <= 64:
        return tile_width(width)
    return min((128, 64), key=lambda block: triton.cdiv(width, block) * block)


@triton.jit
def dot(x, y, total):
    """Return x y + total. Float32 factors are multiplied as three products of TF32."""
    return tl.dot(x, y, total, input_precision="tf32x3")


@triton.jit
def dot_rest(x, y, total):
    """Return x y + total, with x in full float32 precision and y in the precision of its dtype."""
    high = x.to(y.dtype)
    total = dot(high, y, total)
    if y.dtype != tl.float32:
        total = dot((x - high.to(tl.float32)).to(y.dtype), y, total)
    return total


@triton.jit
def dot_both(x, y, total, kind: tl.constexpr):
    """Return x y + total, with x and y in full float32 precision, as products of pieces of the dtype ``kind``."""
    high = y.to(kind)
    total = dot_rest(x, high, total)
    if kind != tl.float32 and y.dtype != kind:
        total = dot(x.to(kind), (y - high.to(tl.float32)).to(kind), total)
    return total


@triton.jit
def softplus(x):
    e = 1.0 + tl.exp2(tl.abs(x) * -LOG2_E)
    if HAS_LIBDEVICE:  # one instruction; tl.log is twenty
        log = libdevice.fast_logf(e)
    else:
        log = tl.log(e)
    return tl.maximum(x, 0.0) + log


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(x * -LOG2_E))


@triton.jit
def read(pointer, row, column, rows, width):
    """Read a tile of a (rows, width) matrix, zero outside of it. ``row`` and ``column`` are index vectors that
    broadcast.
    """
    return tl.load(pointer + row * width + column, mask=(row >= 0) & (row < rows) & (column < width), other=0.0)


@triton.jit
def write(pointer, row, column, rows, width, value):
    tl.store(pointer + row * width + column, value.to(pointer.dtype.element_ty), mask=(row < rows) & (column < width))


@triton.jit
def read_rank(pointer, row, column, rows, width, MIX: tl.constexpr):
    """Like ``read``, but zero if MIX is false, because there is no matrix without a mixing."""
    if MIX:
        tile = read(pointer, row, column, rows, width)
    else:
        tile = 0.0
    return tile


@triton.jit
def read_gain(P, i, rows, MIX: tl.constexpr):
    """Read 1 + p of the slots ``i``. One if MIX is false."""
    if MIX:
        gain = 1.0 + tl.load(P + i, mask=(i >= 0) & (i < rows), other=0.0).to(tl.float32)
    else:
        gain = 1.0
    return gain


@triton.jit
def activation(h, visible, norm, BASE: tl.constexpr):
    """Return the activations ``a`` of a tile, and ``selecting``, the scores of the first branch that select slots.

    ``h`` has the hidden scores, one entry per branch. For R and G, ``norm`` has the norm of each row, ``selecting`` is
    h / norm, and ``a`` is computed from it. For S, ``norm`` has the log2 of the softmax's sum, and ``selecting`` is h.
    """
    selecting = h[0]
    if BASE == "S":
        a = tl.where(visible, tl.exp2(selecting * LOG2_E - norm), 0.0)
    else:
        selecting = tl.where(visible, selecting, 0.0) * (1.0 / norm)
        a = tl.maximum(selecting, 0.0)
    if BASE == "G":
        a *= softplus(h[1])
    return a, selecting


@triton.jit
def hidden_gradients(g, a, selecting, h, delta, norm, BASE: tl.constexpr):
    """Return the gradients of the hidden scores h of a tile, one entry per branch.

    ``g`` is the gradient of a / n, the activations divided by their norm, and ``delta`` is o_t . do_t per row. ``a``
    and ``selecting`` are the results of :func:`activation`, and ``h`` and ``norm`` its arguments.
    """
    if BASE == "S":
        dh = (a * (g - delta),)
    else:
        passed = tl.where(selecting > 0, g, 0.0)
        if BASE == "G":
            scale = passed * selecting * sigmoid(h[1])
            passed *= softplus(h[1])
            dh = ((passed - delta * selecting) * (1.0 / norm), scale)
        else:
            dh = ((passed - delta * selecting) * (1.0 / norm),)
    return dh
