"""The convolution in blocks of sequences equals its equation, and is not used where it cannot be."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers.ops import cache_blocks
from madbench.mixers.ops.short_conv import ShortConv


def by_equation(x, weight):
    padded = torch.cat((torch.zeros_like(x[:, :1]).expand(-1, 3, -1), x), dim=1)
    return sum(padded[:, j : j + x.shape[1]] * weight[:, j] for j in range(4))


@pytest.mark.parametrize("numbers", [1, 40, 2**17])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 33])
def test_output_and_gradients_equal_those_of_the_equation(length, numbers, monkeypatch, randn):
    monkeypatch.setattr(cache_blocks, "BLOCK_NUMBERS", numbers)
    conv, x, cotangent = ShortConv(5).double(), randn(3, length, 5).requires_grad_(), randn(3, length, 5, seed=2)
    conv.weight.data = randn(5, 4, seed=3)
    found = []
    for y in (conv(x), by_equation(x, conv.weight)):
        found.append([y, *torch.autograd.grad(y, (x, conv.weight), cotangent)])
    torch.testing.assert_close(*found)


def test_a_short_convolution_equals_itself_with_zeros_before_and_under_vmap(randn):
    conv, x = ShortConv(5).double(), randn(3, 6, 5)
    conv.weight.data = randn(5, 4, seed=3)
    expected = conv(x)
    torch.testing.assert_close(conv(x, torch.zeros_like(x[:, :3])), expected)
    torch.testing.assert_close(torch.func.vmap(conv)(x[:, None])[:, 0], expected)


def test_bfloat16_inputs_meet_float32_taps(randn):
    conv, x = ShortConv(5), randn(3, 6, 5).bfloat16()
    conv.weight.data = randn(5, 4, seed=3).float()
    assert conv(x).dtype == torch.float32
    torch.testing.assert_close(conv(x), conv(x.float()))
