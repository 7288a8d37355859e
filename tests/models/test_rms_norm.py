"""RMSNorm in blocks of rows equals its equation, and is not used where it cannot be."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers.ops import cache_blocks
from madbench.models import rms_norm
from madbench.models.blocks import RMSNorm


def draw(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def make(width, eps=1e-6):
    norm = RMSNorm(width).double()
    norm.weight.data, norm.eps = draw(width, seed=3), eps
    return norm


@pytest.mark.parametrize("eps", [1e-6, 0.1])
@pytest.mark.parametrize("numbers", [1, 40, 2**17])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 7, 5)])
def test_output_and_gradients_equal_the_equation_with_the_modules_eps(shape, numbers, eps, monkeypatch):
    monkeypatch.setattr(cache_blocks, "BLOCK_NUMBERS", numbers)
    norm, x, cotangent = make(5, eps), draw(*shape).requires_grad_(), draw(*shape, seed=2)
    found = []
    for y in (norm(x), x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight):
        found.append([y, *torch.autograd.grad(y, (x, norm.weight), cotangent)])
    torch.testing.assert_close(*found)


def test_a_row_of_zeros_has_finite_gradients():
    norm, x = make(4), torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    norm(x).sum().backward()
    torch.testing.assert_close(x.grad, (norm.weight * 1e3).expand(2, 4))


def test_the_norm_of_rows_is_equal_for_strided_rows_and_under_vmap():
    norm, x = make(5), draw(3, 5, 4)
    expected = norm(x.mT.contiguous())
    torch.testing.assert_close(norm(x.mT), expected)
    torch.testing.assert_close(torch.func.vmap(norm)(x.mT), expected)


def test_bfloat16_comes_out_in_the_precision_of_the_gain():
    norm, x = RMSNorm(5), draw(3, 5).bfloat16()
    assert norm(x).dtype == torch.float32
    assert norm.bfloat16()(x).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("numbers, eps", [(1, 0.1), (2**17, 1e-6)])
def test_derivatives_of_second_and_third_order_are_right(numbers, eps, monkeypatch):
    monkeypatch.setattr(cache_blocks, "BLOCK_NUMBERS", numbers)
    norm, x = make(4, eps), draw(2, 3, 4).requires_grad_()
    inputs = (x, norm.weight)

    def gradient(x, gain):
        y = rms_norm.NormalizeInBlocks.apply(x, gain, eps)
        return torch.autograd.grad(y.square().sum(), (x, gain), create_graph=True)

    assert torch.autograd.gradgradcheck(lambda x, gain: rms_norm.NormalizeInBlocks.apply(x, gain, eps), inputs)
    assert torch.autograd.gradgradcheck(gradient, inputs)
