"""The path fused: gradients, autocast, torch.compile, the labels and machines that have it, and when auto chooses
it."""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")

from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.srg.kernels import fused, proof
from madbench.mixers.srg.reference import reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LABELS = ("R-p-q-2", "S-q-1o", "G-cg-q-12", "G-cg-q-12o")


@pytest.fixture
def make(make_mixer):
    return functools.partial(make_mixer, n_head=1, max_len=19, std=0.2, dtype=torch.float32, path="fused")


def run(call, mixer, x, cotangent):
    """The output and the gradients of x and of every parameter."""
    x = x.clone().requires_grad_()
    y = call(x)
    return y.detach(), *torch.autograd.grad(y, (x, *mixer.parameters()), cotangent.to(y.dtype))


def assert_close(results, expected, tolerance):
    least = 1e-2 * max(exact.norm() for exact in expected[1:])
    for result, exact in zip(results, expected, strict=True):
        assert (result - exact).norm() <= tolerance * torch.maximum(exact.norm(), least)


@pytest.fixture
def equals_the_reference(make, randn):
    def check(label, compile=lambda mixer: mixer):
        mixer, x, cotangent = make(label).to(DEVICE), randn(1, 17, 16).to(DEVICE), randn(1, 17, 16, seed=2).to(DEVICE)
        weights = dict(mixer.named_parameters())
        expected = run(lambda x: reference(weights, mixer.label, 1, x, "rotation"), mixer, x, cotangent)
        assert_close(run(compile(mixer), mixer, x.float(), cotangent.float()), expected, 1e-4)

    return check


@pytest.mark.parametrize("label", ["R", *(pytest.param(label, marks=pytest.mark.slow) for label in LABELS[1:])])
def test_a_mixer_equals_the_reference(label, equals_the_reference):
    equals_the_reference(label)


@pytest.mark.parametrize("label", ["R-12!", *(pytest.param(label, marks=pytest.mark.slow) for label in LABELS)])
def test_second_derivatives_equal_those_of_path_dense(label, make, randn):
    mixer, x = make(label).to(DEVICE), randn(1, 7, 16).float().to(DEVICE)
    weights = [randn(*each.shape, seed=3).float().to(DEVICE) for each in (x, *mixer.parameters())]

    def second(path):
        mixer.path = path
        variables = (x.clone().requires_grad_(), *mixer.parameters())
        gradients = torch.autograd.grad(mixer(variables[0]).square().sum(), variables, create_graph=True)
        along = sum((gradient * weight).sum() for gradient, weight in zip(gradients, weights))
        return torch.autograd.grad(along, variables)

    given, expected = (torch.cat([each.flatten() for each in second(path)]) for path in ("fused", "dense"))
    assert (given - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.slow
@pytest.mark.parametrize("label", ["R-pmhe", "G-gmhe-q-1o"])
def test_letters_m_h_and_e_on_path_fused_equal_path_dense(label, make_mixer, randn):
    """m repeats keys and values for two heads. h and e act on the outputs of heads."""
    mixer = make_mixer(label, max_len=19, std=0.2, dtype=torch.float32, path="fused").to(DEVICE)
    x, cotangent = (randn(1, 17, 16, seed=seed).float().to(DEVICE) for seed in (1, 2))
    results = run(mixer, mixer, x, cotangent)
    mixer.path = "dense"
    assert_close(results, run(mixer, mixer, x, cotangent), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_compiled_mixer_is_one_graph(label, equals_the_reference):
    equals_the_reference(label, functools.partial(torch.compile, fullgraph=True, backend="aot_eager"))


@pytest.mark.slow
def test_autocast_multiplies_in_its_type_and_keeps_float32_parameters(make, randn):
    mixer, x, cotangent = make("R-1!").to(DEVICE), randn(1, 17, 16).float().to(DEVICE), randn(1, 17, 16).to(DEVICE)
    expected = run(mixer, mixer, x, cotangent)
    with torch.autocast(DEVICE, torch.float16):
        results = run(mixer, mixer, x, cotangent)
    assert results[0].dtype == torch.float16 and {gradient.dtype for gradient in results[1:]} == {torch.float32}
    assert_close(results, expected, 3e-2)


@pytest.fixture
def opcheck(draw):
    def check(base, mixings, test_utils, by_lag=False):
        inputs = draw(base, mixings, (1, 1, 5, 3, 4, 2), torch.float32, device=DEVICE)
        tensors = [x for part in (inputs[:3], *(mix or [None] * 4 for mix in inputs[3:])) for x in part]
        leaves = [None if x is None else x.requires_grad_() for x in tensors]
        torch.library.opcheck(fused.attention, (base, by_lag, *leaves), test_utils=test_utils)
        o, *saved = fused.attention(base, by_lag, *tensors)
        arguments = (base, by_lag, torch.ones_like(o), *tensors, o, saved)
        torch.library.opcheck(fused.attention_backward, arguments, test_utils="test_faketensor")

    return check


@pytest.mark.slow
def test_fused_operators_pass_opcheck(opcheck):
    opcheck("R", "", ("test_schema", "test_autograd_registration", "test_faketensor"))


@pytest.mark.slow
def test_fused_operators_pass_opcheck_for_compilation(opcheck):
    for base, mixings, by_lag in (("G", "12", False), ("R", "2", True)):
        opcheck(base, mixings, ("test_faketensor", "test_aot_dispatch_dynamic"), by_lag)


def test_auto_uses_kernels_on_devices_and_dtypes_where_they_are_fast(monkeypatch):
    mixer = build("G-12!", 16, 8)
    assert mixer.resolve_path(1, 8) == "dense"  # a CPU
    monkeypatch.setattr(fused, "is_fast", lambda device, dtype: dtype == torch.bfloat16)
    monkeypatch.setattr(proof, "largest_error", lambda program, device: 0.0)  # the interpreter's bfloat16 is wrong
    assert mixer.resolve_path(1, 8) == "dense"
    with torch.autocast("cpu", torch.bfloat16):
        assert mixer.resolve_path(1, 8) == "fused"
    assert mixer.bfloat16().resolve_path(1, 8) == "fused"
    paths = {label: build(label, 16, 8).bfloat16().resolve_path(1, 8) for label in ("R", "S-2!", "S", "D", "R-k-12!")}
    assert paths == {"R": "fused", "S-2!": "fused", "S": "sdpa", "D": "sdpa", "R-k-12!": "dense"}


@pytest.mark.parametrize(
    "label, about, size",
    [
        ("D", "the label has 'D'", {}),
        ("R-k!", "the label has 'k'", {}),
        ("R-w", "the label has 'w'", {}),
        ("S-s-q-1", "the label has 's'", {}),
        ("S-p", "'sdpa'", {}),
        ("R", "QK up to 128", {"d_model": 2048, "n_head": 2}),
        ("R-2!", "mixing rank up to 32", {"mix_rank": 33}),
    ],
)
def test_path_fused_refuses_labels_without_a_kernel(label, about, size):
    with pytest.raises(TrainingError, match=about):
        build(label, **{"d_model": 16, "max_len": 8, "path": "fused"} | size)


def test_no_kernel_runs_without_triton_or_a_device(monkeypatch):
    mixer = build("R", 16, 8, path="fused")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(TrainingError, match="CUDA device, not on 'cpu'"):
        mixer(torch.zeros(1, 2, 16))
    with monkeypatch.context() as patch, pytest.raises(TrainingError, match="not torch.float64"):
        patch.setenv("TRITON_INTERPRET", "1")
        mixer.double()(torch.zeros(1, 2, 16).double())
    monkeypatch.setattr(fused, "has_triton", lambda: False)
    with pytest.raises(TrainingError, match="Triton"):
        build("R", 16, 8, path="fused")
    assert build("R", 16, 8).resolve_path(1, 8) == "dense"
