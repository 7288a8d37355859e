"""Peak memory of a forward and backward pass, by counting live tensors. The count itself is checked by hand."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from madbench.mixers import build
from madbench.training.cost import PeakMemory


def test_peak_memory_counts_tensors_that_are_alive_at_once():
    outside = torch.ones(1000)
    with PeakMemory() as memory:
        a = outside.view(10, 100) + 1
        assert (memory.live, memory.peak) == (4000, 4000)
        a.t().add_(1)
        assert memory.peak == 4000
        b = a[:5] * 2
        assert (memory.live, memory.peak) == (6000, 6000)
        del a
        assert (memory.live, memory.peak) == (2000, 6000)
        b = b + 1
        assert (memory.live, memory.peak) == (2000, 6000)


def test_peak_memory_follows_tensors_that_autograd_keeps_and_frees():
    weight = torch.ones(1000, requires_grad=True)
    with PeakMemory() as memory:
        y = (weight * 2).exp().sum()
        assert memory.live == 4000 + 4  # the result of exp, kept for its backward
        y.backward()
    assert weight.grad is not None and memory.live == 4000 + 4  # its gradient and y


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S", "G-cg-q-12o"])
def test_peak_memory_of_chunked_grows_with_the_length_and_of_dense_with_its_square(label, make_mixer, randn):
    def peak(path, length, batch=1):
        mixer = make_mixer(label, max_len=512, dtype=torch.float32, path=path, chunk=32)
        x = randn(batch, length, 16).float().requires_grad_()
        with PeakMemory() as memory:
            mixer(x).sum().backward()
        return memory.peak

    dense, chunked = peak("dense", 512), peak("chunked", 512)
    assert dense > 3.5 * peak("dense", 256)
    assert chunked < 2.1 * peak("chunked", 256)
    assert chunked < 0.25 * dense
    assert peak("chunked", 512, batch=2) < 2.1 * chunked


@pytest.mark.slow
def test_the_peak_of_tiles_is_found_without_data():
    """Only the first sequences are computed."""

    def peak(mode):
        with mode:
            mixer = build("G-cg-q-12o", 16, 256, budget="paper", path="tiled")
            x = torch.zeros(24, 256, 16, requires_grad=True)
            with PeakMemory() as memory:
                mixer(x).sum().backward()
        return memory.peak

    assert peak(FakeTensorMode()) == pytest.approx(peak(nullcontext()), rel=0.05)
