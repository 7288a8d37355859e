"""Operations in torch for all named operators: convolutions, heads, norms, and linear maps that are never in 16 bits.

``project``, ``softplus``, ``split_heads``, ``wide`` and ``without_autocast`` are imported from other modules, so that
the functions of operators can use ``ops.project`` and so on with one import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import call_in_dtype_of_input, project, weight_of
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.short_conv import causal_convolution, pad_before
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.gates import softplus

__all__ = [
    "NORM_EPS", "Carried", "convolve", "convolve_silu", "linear_in_float32", "low_rank", "merge_heads", "norm",
    "project", "softplus", "split_heads", "unit", "wide", "wide_heads", "without_autocast", "write",
]  # fmt: skip

UNIT_EPS = 1e-6  # added to the squared length of queries and keys
NORM_EPS = 1e-5  # epsilon of a norm, unless the operator has another one

Carried = Mapping[str, Tensor]
"""The tensors that the next token needs besides the recurrent state, by name: (B, ...) each. See
:class:`madbench.mixers.named.recurrent.RecurrenceInputs`."""


def convolve(x: Tensor, taps: Tensor, carried: Carried | None) -> tuple[Tensor, Carried]:
    """Return the causal convolution of x (B, T, C) with taps (C, taps), and the inputs that the next token needs.

    These inputs are ``windows`` (B, taps - 1, C), the last inputs of the convolution. ``carried`` has the windows
    before x. If it is None, they are zero.
    """
    count, windows = taps.shape[1] - 1, carried["windows"] if carried else None
    last = x if is_symbolic(x.shape[1]) else x[:, -count:]  # a slice would fix the least length of exported programs
    after = pad_before(last, windows, count)[:, -count:]
    return causal_convolution(x, taps, windows), {"windows": after}


def convolve_silu(x: Tensor, taps: Tensor, bias: Tensor | None, carried: Carried | None) -> tuple[Tensor, Carried]:
    """Compute SiLU(convolution + bias) for a causal convolution of x (B, T, C), and what the next token needs.

    ``bias`` is (C,) or None. The other arguments and the second result are those of :func:`convolve`.
    """
    y, carried = convolve(x, taps, carried)
    return F.silu(y if bias is None else y + bias), carried


def unit(x: Tensor) -> Tensor:
    """Divide x by its length over the last axis: x / sqrt(|x|^2 + 1e-6)."""
    return x * (x.square().sum(-1, keepdim=True) + UNIT_EPS).rsqrt()


def wide_heads(x: Tensor, heads: int) -> Tensor:
    """Split channels into heads, in float32 or wider: (B, T, H n) -> (B, H, T, n)."""
    return split_heads(wide(x), heads)


def merge_heads(x: Tensor) -> Tensor:
    """Join the channels of all heads: (B, H, T, n) -> (B, T, H n)."""
    return x.transpose(1, 2).flatten(-2)


def norm(y: Tensor, gain: Tensor, eps: float = NORM_EPS) -> Tensor:
    """The RMSNorm of y over the last axis, multiplied by ``gain``."""
    return F.rms_norm(y, y.shape[-1:], gain.to(y.dtype), eps)


def linear_in_float32(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply the linear map ``layer`` to x in float32 or wider, even under autocast. Gates are computed this way."""
    return call_in_dtype_of_input(layer, wide(x))


def low_rank(maps: nn.Sequential, x: Tensor, between: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Apply a linear map of low rank to x, in float32 or wider: the first of ``maps``, then the last.

    ``between`` is a function that is applied between them, or None.
    """
    hidden = linear_in_float32(maps[0], x)
    return linear_in_float32(maps[-1], hidden if between is None else between(hidden))


def write(output: nn.Module, y: Tensor, gate: Tensor | None = None) -> Tensor:
    """Apply the linear map ``output`` to y * gate, in the dtype of the map's weight. y and the gate are (B, T, .).

    If ``gate`` is None, the map is applied to y.
    """
    dtype = weight_of(output).dtype
    written: Tensor = output(y.to(dtype) if gate is None else y.to(dtype) * gate.to(dtype))
    return written
