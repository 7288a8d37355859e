"""Matrix products by oneDNN, against float64, and the sizes at which they replace MKL's."""

import os
import re
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from madbench.mixers.ops import products
from madbench.mixers.ops.linear_maps import call, project

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture
def fast(monkeypatch):
    """Pretend that oneDNN is faster on this processor."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)


def random_normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def results(function, tensors, cotangent):
    """The output and the gradients of a function."""
    tensors = [None if x is None else x.detach().requires_grad_() for x in tensors]
    y = function(*tensors)
    return [y, *torch.autograd.grad(y, [x for x in tensors if x is not None], cotangent)]


@needs_onednn
@pytest.mark.parametrize("inputs, outputs", [(128, 128), (144, 130), (128, 300), (300, 128), (257, 704), (700, 24)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_output_and_gradients_equal_those_in_float64(fast, inputs, outputs, has_bias):
    x, weight = random_normal(3, 401, inputs), random_normal(outputs, inputs, seed=1)
    tensors = [x, weight, random_normal(outputs, seed=2) if has_bias else None]
    assert products.is_by_onednn(x, weight)
    cotangent = random_normal(3, 401, outputs, seed=3)
    found = results(products.linear, tensors, cotangent)
    wide = [None if tensor is None else tensor.double() for tensor in tensors]
    for own, exact in zip(found, results(F.linear, wide, cotangent.double()), strict=True):
        assert own.dtype == torch.float32 and own.shape == exact.shape
        assert (own - exact).norm() <= 1e-6 * exact.norm()


@needs_onednn
@pytest.mark.parametrize(
    "change", [lambda x: x, lambda x: x.T.contiguous().T, lambda x: torch.cat((x, x), 1)[:, : x.shape[1]]]
)
def test_products_are_exact_and_fast_in_any_memory_layout(fast, change):
    """With slow kernels, the three products would take seconds."""
    x, weight, cotangent = (
        change(random_normal(*size, seed=seed)) for seed, size in enumerate([(4096, 128), (352, 128), (4096, 352)])
    )
    seconds = []
    for _ in range(3):  # another program may take the cores for a while
        began = time.perf_counter()
        found = results(products.linear, [x, weight], cotangent)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 1
    exact = results(F.linear, [x.double(), weight.double()], cotangent.double())
    for own, expected in zip(found, exact, strict=True):
        assert (own - expected).norm() <= 1e-6 * expected.norm()


@needs_onednn
@pytest.mark.parametrize("full_width", [True, False])
@pytest.mark.parametrize("inputs, outputs, calls", [(255, 128, 0), (256, 128, 1), (128, 255, 0), (128, 256, 1)])
def test_a_gradient_of_a_weight_is_by_onednn_if_the_weight_has_a_long_side(
    monkeypatch, inputs, outputs, calls, full_width
):
    monkeypatch.setattr(products, "has_full_width", lambda: full_width)
    calls = calls if full_width else 0
    multiplied, multiply = [], products.multiply
    monkeypatch.setattr(products, "multiply", lambda *of: multiplied.append(of) or multiply(*of))
    grad, x = random_normal(300, outputs), random_normal(300, inputs, seed=1)
    exact = grad.double().T @ x.double()
    assert (products.weight_gradient(grad, x) - exact).norm() <= 1e-6 * exact.norm()
    assert len(multiplied) == calls


@pytest.mark.parametrize(
    "vendor, family, expected",
    [("AuthenticAMD", 25, False), ("AuthenticAMD", 26, True), ("GenuineIntel", 25, True), ("AuthenticAMD", 250, True)],
)
def test_the_processors_that_halve_avx512_are_known(monkeypatch, vendor, family, expected):
    monkeypatch.setattr(products, "cpuinfo", lambda: f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\n")
    assert products.has_full_width.__wrapped__() == expected


@needs_onednn
def test_second_derivatives_equal_the_plain_matrix_product(fast):
    def second(linear):
        x, weight = (
            random_normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate([(1100, 128), (130, 128)])
        )
        (of_x,) = torch.autograd.grad(linear(x, weight).square().sum(), x, create_graph=True)
        return torch.autograd.grad(of_x.square().sum(), (x, weight))

    for own, plain in zip(second(products.linear), second(F.linear), strict=True):
        assert (own - plain).norm() <= 1e-5 * plain.norm()


@needs_onednn
def test_only_the_wanted_gradients_are_computed(fast):
    x, weight = random_normal(1100, 128), random_normal(130, 128, seed=1).requires_grad_()
    y = products.linear(x, weight)
    assert y.requires_grad and torch.autograd.grad(y.sum(), weight)[0].shape == weight.shape
    assert not products.linear(x, weight.detach()).requires_grad


@pytest.mark.parametrize("width", [64, 128, 176])
@pytest.mark.parametrize("rows", [512, 2048, 4096])
def test_matrix_products_at_width_64_equal_torch_bit_for_bit(fast, rows, width):
    x, weight = random_normal(rows, 64), random_normal(width, 64, seed=1)
    assert not products.is_by_onednn(x, weight)
    assert torch.equal(products.linear(x, weight), F.linear(x, weight))


def test_only_large_plain_float32_products_use_onednn(fast):
    x, weight = random_normal(products.LEAST_ROWS, 128), random_normal(128, 128)
    assert products.is_by_onednn(x, weight) and products.is_by_onednn(x, weight, random_normal(128))
    assert not products.is_by_onednn(x[1:], weight)
    assert not products.is_by_onednn(x, weight[1:])
    assert not products.is_by_onednn(x[:, 1:], random_normal(130, 127))
    assert not products.is_by_onednn(x.double(), weight.double())
    assert not products.is_by_onednn(x.to("meta"), weight.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not products.is_by_onednn(x, weight)
        assert products.linear(x, weight).dtype == torch.bfloat16
    of_each = torch.func.vmap(lambda x: products.linear(x, weight))(torch.stack((x, x)))
    assert torch.equal(of_each[0], F.linear(x, weight))


@pytest.mark.slow
def test_onednn_is_not_used_without_avx512():
    """An environment variable of torch disables AVX-512, so that the test runs on any processor."""
    program = "from madbench.mixers.ops import products; print(products.onednn_is_faster())"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ended.stdout == "False\n", ended.stderr


def test_onednn_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not products.onednn_is_faster()


@needs_onednn
def test_layers_multiply_by_onednn_unless_they_have_hooks(fast, monkeypatch):
    x, layers = random_normal(products.LEAST_ROWS, 128), [torch.nn.Linear(128, 130, bias=False) for _ in range(2)]
    multiplied = []
    multiply = products.multiply
    monkeypatch.setattr(products, "multiply", lambda *of: multiplied.append(of) or multiply(*of))
    together = project(x, *layers)
    assert len(multiplied) == 1
    for layer, y in zip(layers, together, strict=True):
        assert (call(layer, x) - y).norm() <= 1e-6 * y.norm()
    assert len(multiplied) == 3
    layers[0].register_forward_hook(lambda layer, inputs, y: y + 1)
    assert torch.equal(call(layers[0], x), F.linear(x, layers[0].weight) + 1)
    assert len(multiplied) == 3


class Caller(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(128, 130)

    def forward(self, x):
        return call(self.layer, x)


def test_an_exported_layer_takes_any_number_of_rows(fast):
    layer = Caller()
    any_size = torch.export.Dim.DYNAMIC
    program = torch.export.export(
        layer, (random_normal(8, 128, 128),), dynamic_shapes=({0: any_size, 1: any_size},)
    ).module()
    for rows in ((8, 128), (2, 9), (40, 30)):
        x = random_normal(*rows, 128)
        assert torch.allclose(program(x), layer(x), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace(_method)?. is deprecated:DeprecationWarning")
def test_a_traced_layer_takes_any_number_of_rows(fast):
    """A comparison of lengths would make the tracer warn, which is an error here."""
    layer = Caller()
    program = torch.jit.trace(layer, random_normal(8, 140, 128), check_trace=False)
    for rows in ((8, 140), (2, 9)):
        x = random_normal(*rows, 128)
        assert torch.allclose(program(x), layer(x), atol=1e-5)


@needs_onednn
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # torch's own call
@pytest.mark.parametrize("of", [0, 1, 2])
def test_forward_mode_derivatives_equal_the_plain_matrix_product(fast, of):
    tensors = [random_normal(1100, 128), random_normal(130, 128, seed=1), random_normal(130, seed=2)]

    def tangent(linear):
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x, x.sin()) if number == of else x for number, x in enumerate(tensors)]
            return forward_ad.unpack_dual(linear(*duals)).tangent

    assert torch.equal(tangent(products.linear), tangent(F.linear))


@needs_onednn
def test_a_batch_of_gradients_can_be_differentiated(fast):
    def second(linear):
        x, weight = random_normal(1100, 128).requires_grad_(), random_normal(130, 128, seed=1).requires_grad_()
        y = linear(x, weight)
        cotangents = random_normal(2, *y.shape, seed=2)
        (first,) = torch.autograd.grad(y, weight, cotangents, is_grads_batched=True, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    for own, plain in zip(second(products.linear), second(F.linear), strict=True):
        assert (own - plain).norm() <= 1e-6 * plain.norm()


@needs_onednn
def test_the_output_may_be_changed_in_place_and_so_may_the_input_of_a_frozen_weight(fast):
    def gradient(linear):
        x, weight = random_normal(8, 140, 128).requires_grad_(), random_normal(130, 128, seed=1)
        changed = x * 1
        y = linear(changed, weight).mul_(2)
        changed.mul_(3)
        return torch.autograd.grad(y.square().sum(), x)[0]

    own, plain = gradient(products.linear), gradient(F.linear)
    assert (own - plain).norm() <= 1e-6 * plain.norm()


@pytest.mark.parametrize(
    "x, weight, bias", [((1100, 128), (130, 256), None), ((1100, 128), (130, 128), (129,)), ((), (130, 128), None)]
)
def test_wrong_shapes_raise_the_errors_of_torch(fast, x, weight, bias):
    tensors = random_normal(*x), random_normal(*weight), None if bias is None else random_normal(*bias)
    with pytest.raises(RuntimeError) as expected:
        F.linear(*tensors)
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        products.linear(*tensors)


@pytest.mark.parametrize("double", [0, 1, 2])
def test_tensors_of_two_types_raise_the_errors_of_torch(fast, double):
    tensors = [random_normal(1100, 128), random_normal(130, 128), random_normal(130)]
    tensors[double] = tensors[double].double()
    assert not products.is_by_onednn(*tensors)
    with pytest.raises(RuntimeError, match="dtype"):
        products.linear(*tensors)


def test_a_bias_of_one_number_is_added_to_every_output(fast):
    x, weight, bias = random_normal(1100, 128), random_normal(130, 128, seed=1), random_normal(1, seed=2)
    assert torch.equal(products.linear(x, weight, bias), F.linear(x, weight, bias))


@needs_onednn
@pytest.mark.parametrize("outputs", [130, 300])
def test_the_counter_of_torch_counts_the_same_operations(fast, outputs):
    def count(linear):
        x, weight = random_normal(8, 140, 128).requires_grad_(), random_normal(outputs, 128, seed=1).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            linear(x, weight).sum().backward()
        return counter.get_total_flops()

    assert count(products.linear) == count(F.linear) == 3 * 2 * 8 * 140 * 128 * outputs


@needs_onednn
@pytest.mark.parametrize("is_part", [False, True])
def test_batches_of_products_equal_those_in_float64(fast, is_part, monkeypatch):
    """Tested also for factors and results that are views of larger tensors, as in tiles."""
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 30 * 50 * 70)
    left, right, total = random_normal(3, 30, 51), random_normal(3, 52, 70, seed=1), random_normal(3, 30, 71, seed=2)
    left, right, total = left[..., :50], right[:, 1:51], total[..., :70]
    if not is_part:
        left, right, total = left.contiguous(), right.contiguous(), total.contiguous()
    assert products.are_by_onednn(30 * 50 * 70, left) and not products.are_by_onednn(30 * 50 * 70 - 1, left)
    exact, written = left.double() @ right.double(), torch.empty(3, 30, 71)[..., :70]
    products.multiply_batches(left, right, written)
    assert (written - exact).norm() <= 1e-6 * exact.norm()
    exact += total.double()
    products.add_batches(left, right, total)
    assert (total - exact).norm() <= 1e-6 * exact.norm()


@needs_onednn
@pytest.mark.parametrize("least, calls", [(30 * 50 * 70, 3), (30 * 50 * 70 + 1, 0)])
def test_each_product_of_a_batch_is_a_call_of_its_own_if_it_is_large(fast, monkeypatch, least, calls):
    multiplied, multiply = [], products.multiply
    monkeypatch.setattr(products, "multiply", lambda *of: multiplied.append(of) or multiply(*of))
    monkeypatch.setattr(products, "LEAST_PRODUCTS", least)
    left, right = random_normal(3, 30, 50), random_normal(3, 50, 70, seed=1)
    products.multiply_batches(left, right, torch.empty(3, 30, 70))
    assert len(multiplied) == calls
    products.add_batches(left, right, torch.zeros(3, 30, 70))
    assert len(multiplied) == 2 * calls
