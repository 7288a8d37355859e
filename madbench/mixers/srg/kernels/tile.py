"""Functions that the kernels of both layouts share: tiles, products of known precision, activations and gradients.

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
"""Type of the float32 tensors of a mixing matrix, R(1) or R(2), of rank R for T tokens.

In this order: the strengths s (B, heads, T, R), the tables A and B, each (heads, T, R), and the diagonal p (heads, T).
"""


def tile_width(width: int) -> int:
    """The width of a tile that holds ``width`` columns: the next power of two, and at least 16 for tensor cores."""
    return max(16, triton.next_power_of_2(width))


def column_block(width: int) -> int:
    """The number of columns in a tile of values of ``width`` columns, for kernels of the lag layout.

    Up to 64 columns are one tile. More are divided into tiles of 128 or 64 columns, whichever needs less padding.
    """
    if width <= 64:
        return tile_width(width)
    return min((128, 64), key=lambda block: triton.cdiv(width, block) * block)


@triton.jit
def dot(x, y, total):
    """Return the matrix product x y plus ``total``. Float32 factors are multiplied as three products of TF32."""
    return tl.dot(x, y, total, input_precision="tf32x3")


@triton.jit
def dot_rest(x, y, total):
    """Return the matrix product x y plus ``total``, without rounding float32 x to the dtype of y.

    x is split into a rounded part and a remainder of that dtype, and both are multiplied by y.
    """
    high = x.to(y.dtype)
    total = dot(high, y, total)
    if y.dtype != tl.float32:
        total = dot((x - high.to(tl.float32)).to(y.dtype), y, total)
    return total


@triton.jit
def dot_both(x, y, total, kind: tl.constexpr):
    """Return the matrix product x y plus ``total`` for float32 x and y, neither of which is rounded.

    Both are split into a rounded part and a remainder of the dtype ``kind``, and these parts are multiplied.
    """
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
    """Read a tile of a (rows, width) matrix. Elements outside of the matrix are zero.

    ``row`` and ``column`` are index vectors that broadcast to the shape of the tile.
    """
    return tl.load(pointer + row * width + column, mask=(row >= 0) & (row < rows) & (column < width), other=0.0)


@triton.jit
def write(pointer, row, column, rows, width, value):
    tl.store(pointer + row * width + column, value.to(pointer.dtype.element_ty), mask=(row < rows) & (column < width))


@triton.jit
def read_rank(pointer, row, column, rows, width, MIX: tl.constexpr):
    """Read a tile as :func:`read` does, or return 0 if MIX is false, because there is no matrix without mixing."""
    if MIX:
        tile = read(pointer, row, column, rows, width)
    else:
        tile = 0.0
    return tile


@triton.jit
def read_gain(P, i, rows, MIX: tl.constexpr):
    """Read 1 + p of the slots ``i`` from the vector P of ``rows`` elements. Return 1 if MIX is false."""
    if MIX:
        gain = 1.0 + tl.load(P + i, mask=(i >= 0) & (i < rows), other=0.0).to(tl.float32)
    else:
        gain = 1.0
    return gain


@triton.jit
def activation(h, visible, norm, BASE: tl.constexpr):
    """Return the activations ``a`` of a tile of hidden scores, and ``selecting``, the scores that select slots.

    ``h`` has one tile of hidden scores per branch: gate and scale for G, otherwise one. ``visible`` masks the slots
    that a row sees. For R and G, ``norm`` is the norm of each row, ``selecting`` is h[0] / norm, and ``a`` is already
    divided by the norm. For S, ``norm`` is the log2 of the sum of exponentials, and ``selecting`` is h[0].
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
    """Return the gradients of the hidden scores h of a tile, a tuple with one entry per branch.

    ``g`` is the gradient of the activations after the division by their norm. ``delta`` is the dot product of the
    output o_t and its gradient for each row t. ``a`` and ``selecting`` are the results of :func:`activation`, and ``h``
    and ``norm`` its arguments.
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
