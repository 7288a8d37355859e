"""The kernels on a GPU: gradients in 16 bits at usual sizes, reproducibility, memory, and compilation to one graph."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers import build
from madbench.mixers.srg.kernels import fused
from waiting import forbid_waiting

pytestmark = pytest.mark.gpu

TOLERANCE = {torch.float32: 1e-4, torch.float16: 3e-3, torch.bfloat16: 1e-2}
KINDS = [
    (by_lag, base, mixings)
    for by_lag in (False, True)
    for base in "SRG"
    for mixings in ("", "1", "2", "12")
    if mixings or not (by_lag or base == "S")
]
LABELS = ("R", "G-p", "S-cg-q-12", "R-12o!", "R-pcg-v-12o", "G-q-1o", "G-q-2", "G-cg-q-12", "G-cg-q-12o")


def assert_exact(found, dtype):
    assert max(found.values()) < TOLERANCE[dtype], found


def layout(by_lag):
    pytest.importorskip("triton")
    from madbench.mixers.srg.kernels import lag, position

    return lag if by_lag else position


@pytest.mark.parametrize("by_lag, base, mixings", KINDS)
def test_outputs_and_gradients_of_bfloat16_are_near_float64(by_lag, base, mixings, draw, errors, nan_memory):
    inputs = draw(base, mixings, (2, 2, 131, 8, 64, 16), torch.bfloat16, device="cuda")
    assert_exact(errors(layout(by_lag), base, inputs, by_lag), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("by_lag", [False, True])
def test_float32_and_float16_kernels_are_near_float64(by_lag, dtype, draw, errors, nan_memory):
    inputs = draw("G", "12", (2, 2, 131, 8, 64, 16), dtype, device="cuda")
    assert_exact(errors(layout(by_lag), "G", inputs, by_lag), dtype)


@pytest.mark.parametrize("shape", [(1, 1, 1000, 48, 384, 16), (1, 1, 65, 128, 512, 32), (1, 3, 33, 4, 16, 1)], ids=str)
@pytest.mark.parametrize("by_lag", [False, True])
def test_wide_heads_and_odd_lengths_are_near_float64(by_lag, shape, draw, errors, nan_memory):
    inputs = draw("G", "12", shape, torch.bfloat16, std=0.1, device="cuda")
    assert_exact(errors(layout(by_lag), "G", inputs, by_lag), torch.bfloat16)


def train(mixer, x):
    with torch.autocast("cuda", torch.bfloat16):
        y = mixer(x)
    return y, *torch.autograd.grad(y.float().square().sum(), tuple(mixer.parameters()))


def train_in_float64(mixer, x):
    """Like ``train``, but in float64 on the dense path."""
    mixer.double().path = "dense"
    y = mixer(x.double())
    return y, *torch.autograd.grad(y.square().sum(), tuple(mixer.parameters()))


def distances(found, exact):
    """Relative errors of an output and of gradients.

    A gradient is compared with at least a tenth of the largest one.
    """
    largest = max(gradient.norm() for gradient in exact[1:])
    scales = [exact[0].norm(), *(torch.maximum(gradient.norm(), 0.1 * largest) for gradient in exact[1:])]
    return torch.stack([(one - other).norm() / scale for one, other, scale in zip(found, exact, scales, strict=True)])


@pytest.mark.parametrize("label", LABELS)
def test_a_mixer_under_autocast_is_as_near_float64_as_dense_and_compiles_to_one_graph(label):
    """In 16 bits, scores near zero change their sign before ReLU, on every path."""
    torch.manual_seed(0)
    mixer = build(label, 64, 200, budget="paper").cuda()
    x = torch.randn(2, 129, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert mixer.resolve_path(2, 129) == "fused"
    results, compiled = train(mixer, x), train(torch.compile(mixer, fullgraph=True), x)
    mixer.path = "dense"
    usual = train(mixer, x)
    exact = train_in_float64(mixer, x)
    allowed = torch.clamp(2 * distances(usual, exact), min=2e-2)
    allowed[0] = 2e-2  # of the output
    for found in (results, compiled):
        assert (distances(found, exact) < allowed).all(), (distances(found, exact), allowed)


@pytest.mark.parametrize("label", LABELS)
def test_a_mixer_in_float32_is_near_float64(label):
    torch.manual_seed(0)
    mixer = build(label, 64, 200, budget="paper", path="fused").cuda()
    x = torch.randn(2, 129, 64, device="cuda")
    y = mixer(x)
    found = (y, *torch.autograd.grad(y.square().sum(), tuple(mixer.parameters())))
    exact = train_in_float64(mixer, x)
    assert (distances(found, exact) < 2e-3).all(), distances(found, exact)


@pytest.mark.parametrize("label", ["G-cg-q-12", "G-cg-q-12o"])
def test_gradients_are_reproducible_and_need_no_device_synchronization(label):
    mixer = build(label, 64, 1000, budget="paper").cuda()
    x = torch.randn(2, 999, 64, device="cuda")
    first = train(mixer, x)
    with forbid_waiting():
        second = train(mixer, x)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("by_lag", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(by_lag, draw):
    def peak(length):
        q, k, v, *mixings = draw("G", "12", (1, 2, length, 8, 64, 16), torch.bfloat16, device="cuda")
        tensors = [q, k, v, *(x for mixing in mixings for x in mixing)]
        leaves = [x.detach().requires_grad_() for x in tensors]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        fused.attention("G", by_lag, *leaves)[0].float().sum().backward()
        return torch.cuda.max_memory_allocated() - before

    assert peak(8192) < 2.2 * peak(4096)
