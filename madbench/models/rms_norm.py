"""RMSNorm on a CPU, forward and backward, in blocks of rows whose data stays in the processor's cache."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from madbench.mixers.ops.cache_blocks import cache_blocks
from madbench.mixers.ops.derivatives import gradients


class NormalizeInBlocks(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * gain, for x (..., D) and gain (D,) of the same dtype. The result is (..., D).

    Second and higher derivatives are those of :func:`normalize`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        width = x.shape[-1]
        rows = x.reshape(-1, width)
        y, inverse = torch.empty_like(rows), rows.new_empty(len(rows), 1)
        for block in cache_blocks(rows):
            of_rows, of_inverse = rows[block], inverse[block]
            of_inverse.copy_(torch.linalg.vector_norm(of_rows, dim=-1, keepdim=True))
            of_inverse.square_().div_(width).add_(eps).rsqrt_()
            torch.mul(of_rows, of_inverse, out=y[block]).mul_(gain)
        ctx.save_for_backward(x, gain, inverse)
        ctx.eps = eps
        return y.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, inverse = ctx.saved_tensors

        def by_hand(grad: Tensor) -> tuple[Tensor, Tensor]:
            width = x.shape[-1]
            rows, grads = x.reshape(-1, width), grad.reshape(-1, width)
            of_x, of_gain = torch.empty_like(rows), torch.zeros_like(gain)
            for block in cache_blocks(rows):
                of_y, of_inverse = grads[block], inverse[block]
                normalized = rows[block] * of_inverse
                product = of_y * normalized
                of_gain += product.sum(0)
                along = (product @ gain[:, None]).div_(-width)
                torch.mul(of_y, gain, out=of_x[block]).addcmul_(normalized, along).mul_(of_inverse)
            return of_x.view(x.shape), of_gain

        return *gradients(by_hand, functools.partial(normalize, eps=ctx.eps), grad, (x, gain)), None


def normalize(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """RMSNorm in plain torch functions: x / sqrt(mean(x^2) + eps) * gain, for x (..., D) and gain (D,)."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain
