"""Large matrix products in float32 on a CPU, by oneDNN where its kernels are faster than MKL's.

torch multiplies float32 matrices by MKL, which uses AVX-512 only on Intel's processors. On others oneDNN, which torch
contains as well, takes half the time. Small products stay with MKL, so that their bits do not depend on this choice.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.processor import cpuinfo
from madbench.mixers.ops.tracing import is_counted, is_traced

LEAST_ROWS = 256
"""Smallest number of rows of x for which :func:`linear` uses oneDNN."""
LEAST_INPUTS = 128
"""Smallest width of the input for which :func:`linear` uses oneDNN."""
LEAST_WEIGHTS = 128**2
"""Smallest number of elements of the weight for which :func:`linear` uses oneDNN."""
LEAST_COLUMNS = 256
"""Smallest length of the larger side of a weight for which oneDNN computes the gradient of the weight.

Below it, MKL computes this gradient (:func:`weight_gradient`).
"""
LEAST_PRODUCTS = 2**22
"""Smallest number of multiplications in each matrix product of a batch for which oneDNN is used, in one call per
product (:func:`are_by_onednn`)."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The linear map x weight^T + bias: x (..., I), weight (O, I) and bias (O,) or None -> (..., O).

    Large products are computed by oneDNN (:func:`is_by_onednn`), whose rounding differs from MKL's.
    """
    if not is_by_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    y: Tensor = _Linear.apply(rows, weight, bias)
    return y.view(*x.shape[:-1], len(weight))


def is_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """True if :func:`linear` uses oneDNN: for large float32 matrices on a CPU where oneDNN is faster than MKL.

    False for shapes that do not fit together, so that torch raises its usual error.
    """
    return (
        is_large(x)
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and weight.shape[1] >= LEAST_INPUTS
        and weight.numel() >= LEAST_WEIGHTS
        and x.dtype == torch.float32
        and (bias is None or bias.shape == weight.shape[:1])
        and all(y is None or (y.dtype == x.dtype and y.device == x.device) for y in (weight, bias))
        and onednn_is_faster()
        and not torch.is_autocast_enabled("cpu")
    )


def is_large(x: Tensor) -> bool:
    """True if x (..., I) is on the CPU and has enough rows for oneDNN. A quick test before :func:`is_by_onednn`.

    False in code that torch traces (:func:`madbench.mixers.ops.tracing.is_traced`), because a traced program must not
    depend on a comparison of lengths. False also while torch counts FLOPs, because its counter does not know oneDNN's
    product.
    """
    is_usual = not (is_traced() or is_counted())
    return is_usual and x.dim() > 1 and x.numel() >= LEAST_ROWS * x.shape[-1] and x.device.type == "cpu"


def onednn_is_faster() -> bool:
    """True if oneDNN uses the processor's AVX-512 and MKL does not, so that oneDNN is faster for large products.

    False if ``torch.backends.mkldnn.enabled`` is False.
    """
    return cast(bool, torch.backends.mkldnn.enabled) and _has_avx512_by_onednn_alone()


@functools.cache
def _has_avx512_by_onednn_alone() -> bool:
    is_here = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_here and torch.backends.cpu.get_cpu_capability() == "AVX512" and "GenuineIntel" not in cpuinfo()


@functools.cache
def has_full_width() -> bool:
    """True if the processor computes AVX-512 in one step: False on AMD processors of family 25 (Zen 4), which need two.

    On those, oneDNN is no faster than MKL's AVX2 if it has to transpose its inputs first.
    """
    info = cpuinfo()
    return "AuthenticAMD" not in info or not re.search(r"^cpu family\s*: 25$", info, re.MULTILINE)


def multiply(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product a b^T + bias by oneDNN, without gradients: a (..., K), b (N, K), bias (N,) or None -> (..., N).

    Each matrix must be contiguous or the transpose of a contiguous matrix. Otherwise oneDNN takes a thousand times as
    long.
    """
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


def multiply_batches(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write the products of pairs of matrices to ``out``, without gradients: ``out[n] = left[n] @ right[n]``.

    left (N, A, K), right (N, K, B), out (N, A, B).
    """
    if not are_by_onednn(left.shape[1] * right.shape[1] * right.shape[2], left):
        torch.bmm(left, right, out=out)
        return
    for a, b, product in zip(left, right, out):
        product.copy_(multiply(a, b.mT))


def add_batches(left: Tensor, right: Tensor, total: Tensor) -> None:
    """Add the products of pairs of matrices to ``total``, without gradients: ``total[n] += left[n] @ right[n]``.

    left (N, A, K), right (N, K, B), total (N, A, B).
    """
    if are_by_onednn(left.shape[1] * right.shape[1] * right.shape[2], left):
        for a, b, part in zip(left, right, total):
            part += multiply(a, b.mT)
    elif total.is_contiguous():
        total.baddbmm_(left, right)
    else:  # ``baddbmm_`` is slow for parts of a larger tensor
        total += torch.bmm(left, right)


def are_by_onednn(multiplications: int, x: Tensor) -> bool:
    """True if a batch of matrix products is computed by oneDNN, with one call per product.

    ``multiplications`` is the number of multiplications in one product: A K B for the product of (A, K) and (K, B).
    ``x`` has the dtype and the device of the matrices.
    """
    return (
        multiplications >= LEAST_PRODUCTS
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and onednn_is_faster()
        and not (is_traced() or is_counted())
    )


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of a linear map's weight, grad^T x: contiguous grad (rows, O) and x (rows, I) -> (O, I).

    oneDNN computes this product or its transpose x^T grad, whichever has more columns, because this is faster. If
    neither has ``LEAST_COLUMNS`` columns, or on a processor without :func:`has_full_width`, MKL computes it.
    """
    wider = max(grad.shape[1], x.shape[1])
    if wider < LEAST_COLUMNS or not has_full_width():
        return grad.mT @ x
    return multiply(grad.mT, x.mT) if x.shape[1] == wider else multiply(x.mT, grad.mT).mT


class _Linear(torch.autograd.Function):
    """:func:`linear` by oneDNN, for contiguous x (rows, I), as an autograd Function.

    Gradients that will be differentiated again, or batched by vmap, are computed with torch's own products.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return multiply(x, weight.contiguous(), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        of_bias = grad.sum(0) if of_bias else None
        if torch.is_grad_enabled() or is_traced():
            return grad @ weight if of_x else None, grad.mT @ x if of_weight else None, of_bias
        grad = grad.contiguous()
        return (
            multiply(grad, weight.contiguous().mT) if of_x else None,
            weight_gradient(grad, x) if of_weight else None,
            of_bias,
        )
