"""The short causal depthwise convolution that is applied to the inputs of keys and of values.

On a CPU it is computed in blocks of sequences, so that the products of a block and their sum fit in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.ops.cache_blocks import cache_blocks
from madbench.mixers.ops.derivatives import gradients
from madbench.mixers.ops.tracing import is_traced
from madbench.mixers.ranks import CONV_TAPS


class ShortConv(nn.Module):
    """Depthwise causal convolution without a bias: y_t = sum_j w[:, j] x_{t - 3 + j}.

    The last of the four taps applies to the current token. ``weight`` is (D, 4).
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, CONV_TAPS))

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Convolve x (B, T, D). ``before`` are the three inputs before x (B, 3, D), or None for zeros."""
        return causal_convolution(x, self.weight, before)


class ConvolveInBlocks(torch.autograd.Function):
    """The convolution of x (B, T, D) with weight (D, taps), in blocks of sequences.

    The last tap applies to the current token, and zeros precede the first token. Higher derivatives are those of
    :func:`convolve`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y, (now, *earlier) = torch.empty_like(x), _newest_first(weight)
        for block in cache_blocks(x):
            of_x, of_y = x[block], y[block]
            torch.mul(of_x, now, out=of_y)
            for steps, tap in enumerate(earlier[: x.shape[1] - 1], start=1):
                of_y[:, steps:].addcmul_(of_x[:, :-steps], tap)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor]:
        x, weight = ctx.saved_tensors

        def by_hand(grad: Tensor) -> tuple[Tensor, Tensor]:
            now, *earlier = _newest_first(weight)
            of_x, of_taps = torch.empty_like(x), weight.new_zeros(weight.shape[1], weight.shape[0])
            for block in cache_blocks(x):
                before, after, into = x[block], grad[block], of_x[block]
                torch.mul(after, now, out=into)
                work = before * after
                of_taps[0] += work.sum((0, 1))
                for steps, tap in enumerate(earlier[: x.shape[1] - 1], start=1):
                    into[:, :-steps].addcmul_(after[:, steps:], tap)
                    torch.mul(before[:, :-steps], after[:, steps:], out=work[:, steps:])
                    work[:, steps - 1].zero_()  # summing all of it is many times as fast as summing a part
                    of_taps[steps] += work.sum((0, 1))
            return of_x, of_taps.flip(0).T

        return gradients(by_hand, convolve, grad, (x, weight))


def causal_convolution(x: Tensor, weight: Tensor, before: Tensor | None = None) -> Tensor:
    """The depthwise causal convolution of x (B, T, D) with taps (D, taps), by the fastest method for this input.

    ``before`` (B, taps - 1, D) are the inputs before x. None means zeros.
    """
    length = x.shape[1]
    in_blocks = x.device.type == "cpu" and x.dtype == weight.dtype and not is_traced()
    if before is None and length > 1 and in_blocks:
        y: Tensor = ConvolveInBlocks.apply(x, weight)
        return y
    if length == 1:
        return (pad_before(x, before, weight.shape[1] - 1) * weight.T).sum(1, keepdim=True)
    return convolve(x, weight, before)


def convolve(x: Tensor, weight: Tensor, before: Tensor | None = None) -> Tensor:
    """The depthwise causal convolution of x (B, T, D) with taps (D, taps), by torch operators.

    ``before`` (B, taps - 1, D) are the inputs before x. None means zeros.
    """
    rows, length = pad_before(x, before, weight.shape[1] - 1), x.shape[1]
    first, *others = (rows[:, j : j + length] * tap for j, tap in enumerate(weight.unbind(-1)))
    return sum(others, first)


def pad_before(x: Tensor, before: Tensor | None, count: int) -> Tensor:
    """Put ``before`` (B, count, D), or ``count`` zeros, in front of x (B, T, D): (B, count + T, D)."""
    return F.pad(x, (0, 0, count, 0)) if before is None else torch.cat((before, x), dim=1)


def _newest_first(weight: Tensor) -> tuple[Tensor, ...]:
    """The taps of a weight (D, taps) as vectors (D,), starting with the tap of the current token."""
    return weight.T.contiguous().flip(0).unbind()
