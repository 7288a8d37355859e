"""The short convolution on a CPU: some sequences at a time, so that its four products and their sum meet the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.derivatives import gradients
from madbench.mixers.srg.budget import CONV_TAPS
from madbench.mixers.tracing import has_data

BLOCK_NUMBERS = 2**18


class ConvolveInBlocks(torch.autograd.Function):
    """x (B, T, D), weight (D, taps), the last of which meets the current token -> (B, T, D); zeros before the first.

    Derivatives of higher order are those of :func:`convolve`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y, (now, *earlier) = torch.empty_like(x), _newest_first(weight)
        for block in _blocks(x):
            of_x, of_y = x[block], y[block]
            torch.mul(of_x, now, out=of_y)
            for steps, tap in enumerate(earlier[: x.shape[1] - 1], start=1):
                of_y[:, steps:].addcmul_(of_x[:, :-steps], tap)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Sequence[Tensor]:
        x, weight = ctx.saved_tensors

        def by_hand(grad: Tensor) -> tuple[Tensor, Tensor]:
            now, *earlier = _newest_first(weight)
            of_x, of_taps = torch.empty_like(x), weight.new_zeros(weight.shape[1], weight.shape[0])
            for block in _blocks(x):
                before, after, into = x[block], grad[block], of_x[block]
                torch.mul(after, now, out=into)
                work = before * after
                of_taps[0] += work.sum((0, 1))
                for steps, tap in enumerate(earlier[: x.shape[1] - 1], start=1):
                    into[:, :-steps].addcmul_(after[:, steps:], tap)
                    torch.mul(before[:, :-steps], after[:, steps:], out=work[:, steps:])
                    work[:, steps - 1].zero_()  # a sum over all of it is many times as fast as over a part
                    of_taps[steps] += work.sum((0, 1))
            return of_x, of_taps.flip(0).T

        return gradients(by_hand, convolve, grad, (x, weight))


def convolve(x: Tensor, weight: Tensor, before: Tensor | None = None) -> Tensor:
    """The convolution by operators of torch; ``before`` (B, taps - 1, D) are the inputs before the first, or zeros."""
    rows, length = padded(x, before), x.shape[1]
    first, *others = (rows[:, j : j + length] * tap for j, tap in enumerate(weight.unbind(-1)))
    return sum(others, first)


def padded(x: Tensor, before: Tensor | None) -> Tensor:
    """x (B, T, D) after the inputs before it: (B, taps - 1 + T, D)."""
    return F.pad(x, (0, 0, CONV_TAPS - 1, 0)) if before is None else torch.cat((before, x), dim=1)


def _newest_first(weight: Tensor) -> tuple[Tensor, ...]:
    """The taps, (D,) each, that of the current token first."""
    return weight.T.contiguous().flip(0).unbind()


def _blocks(x: Tensor) -> Iterator[slice]:
    """Blocks of sequences of x; without data the first ones alone, whose memory is that of all."""
    count = max(1, BLOCK_NUMBERS // max(1, x[0].numel())) if len(x) else 1
    return (slice(i, i + count) for i in range(0, len(x) if has_data(x) else min(1, len(x)), count))
