"""Adapters, hooks, biases, quantized and replaced layers take effect on every linear map of a mixer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from madbench import mixers
from madbench.errors import TrainingError
from madbench.mixers.checks.residuals import decode_tokens
from madbench.mixers.ops import linear_maps

D, LENGTH = 16, 9
LABELS = ["S", "S-p", "R", "R-12!", "D-p", "S-pc", "cd:gdn", "cd:gla", "cd:mamba2", "hfa:2", "ha:3"]


def build(label: str, path: str = "auto") -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    mixer = mixers.build(label, D, LENGTH, n_head=2, budget="paper" if label[0].isupper() else "strict", path=path)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return mixer.eval(), torch.randn(2, LENGTH, D)


def linear_maps_of(mixer: nn.Module) -> dict[str, nn.Linear]:
    return {name: layer for name, layer in mixer.named_modules() if isinstance(layer, nn.Linear)}


@pytest.mark.parametrize("label", LABELS)
def test_hooks_of_every_linear_map_see_every_token(label):
    mixer, x = build(label)
    expected, layers, seen = mixer(x), linear_maps_of(mixer), {}

    def count(layer, inputs, output):
        assert output.shape == (*inputs[0].shape[:-1], layer.out_features)
        seen[layer] = seen.get(layer, 0) + inputs[0].numel() * layer.out_features

    handles = [layer.register_forward_hook(count) for layer in layers.values()]
    torch.testing.assert_close(mixer(x), expected, rtol=1e-4, atol=1e-5)
    assert seen == {layer: 2 * LENGTH * layer.weight.numel() for layer in layers.values()}
    for handle in handles:
        handle.remove()
    assert torch.equal(mixer(x), expected)  # the fused product again
    seen.clear()
    handle = nn.modules.module.register_module_forward_hook(
        lambda layer, *rest: count(layer, *rest) if layer in layers.values() else None
    )
    try:
        mixer(x)
    finally:
        handle.remove()
    assert seen.keys() == set(layers.values())


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_forward_and_backward_hooks_of_projections_fire(label, kind):
    mixer, x = build(label)
    fired = set()
    for name in "qkv":
        register = getattr(mixer.get_submodule(name), f"register_{kind}_hook")
        register(lambda *_, name=name: fired.add(name) and None)
    mixer(x.requires_grad_()).sum().backward()
    assert fired == set("qkv")


def changed_layer(layer: nn.Linear, how: str) -> nn.Module:
    """The layer with an output that is larger by one, or by the first number of its input."""
    if how == "bias":
        layer.bias = nn.Parameter(torch.ones(layer.out_features))
        return layer
    if how == "forward":
        forward = layer.forward
        layer.forward = lambda x: forward(x) + 1
        return layer
    if how == "hook":
        layer.register_forward_hook(lambda layer, inputs, output: output + 1)
        return layer

    class Subclass(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer

        def forward(self, x):
            return self.inner(x) + 1

    if how == "subclass":
        layer.__class__ = Subclass
        return layer
    return Wrapper()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["bias", "forward", "hook", "subclass", "wrapper"])
@pytest.mark.parametrize("label", LABELS)
def test_a_change_of_one_projection_acts_as_on_all_paths_and_in_decoding(label, how):
    mixer, x = build(label)
    expected, other = mixer(x), copy.deepcopy(mixer)
    other.v.bias = nn.Parameter(torch.ones(other.v.out_features))
    mixer.v = changed_layer(mixer.v, how)
    y = mixer(x)
    assert (y - expected).abs().max() > 1e-2
    torch.testing.assert_close(y, other(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(decode_tokens(mixer, x), y, rtol=1e-3, atol=1e-4)
    for path in set(mixer.paths) - {"auto", "reference"}:
        try:
            other, x = build(label, path)
            other(x)
        except TrainingError:  # this label, or this device, has no such path
            continue
        other.v = changed_layer(other.v, how)
        torch.testing.assert_close(other(x), y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", ["bias", "forward", "subclass", "wrapper"])
@pytest.mark.parametrize("label", ["S-p", "cd:gdn", "hfa:2", "ha:3"])
def test_loops_that_read_weights_by_name_refuse_a_changed_projection(label, how):
    mixer, x = build(label, "reference")
    mixer(x)
    mixer.v = changed_layer(mixer.v, how)
    with pytest.raises(TrainingError, match="'v'"):
        mixer(x)


@pytest.mark.parametrize("label", LABELS)
def test_a_parametrized_weight_takes_effect(label):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    mixer, x = build(label)
    other = copy.deepcopy(mixer)
    with torch.no_grad():
        other.k.weight.mul_(2)
    parametrize.register_parametrization(mixer.k, "weight", Double())
    torch.testing.assert_close(mixer(x), other(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_adapters_of_peft_train_and_act(label):
    peft = pytest.importorskip("peft")

    mixer, x = build(label)
    expected = mixer(x)
    adapted = peft.get_peft_model(nn.Sequential(mixer), peft.LoraConfig(r=2, target_modules=["q", "k", "v"]))
    torch.testing.assert_close(adapted(x), expected, rtol=1e-4, atol=1e-5)
    adapted(x).square().sum().backward()
    trained = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert len(trained) == 6 and all(p.grad is not None for p in trained.values())
    assert all(p.grad.abs().max() > 0 for name, p in trained.items() if "lora_B" in name)
    with torch.no_grad():
        for parameter in trained.values():
            parameter.add_(0.3)
    y = adapted(x)
    assert (y - expected).abs().max() > 1e-2
    torch.testing.assert_close(decode_tokens(mixer, x), y, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(adapted.merge_and_unload()(x), y, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.ao is to move to another package
@pytest.mark.parametrize("label", LABELS)
def test_dynamically_quantized_projections_compute_forward_and_steps(label):
    mixer, x = build(label)
    expected = mixer(x)
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(mixer), {nn.Linear}, dtype=torch.qint8)
    assert type(quantized.q) is not nn.Linear
    y = quantized(x)
    error = float((y - expected).norm() / expected.norm())
    assert 0 < error < 0.1
    assert (decode_tokens(quantized, x) - y).norm() < 0.1 * y.norm()


def test_projections_without_hooks_are_one_matrix_product(monkeypatch):
    mixer, x = build("S")
    calls = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(linear_maps.F, "linear", lambda *inputs: calls.append(1) or linear(*inputs))
    mixer(x)
    assert len(calls) == 2  # q, k and v together, and o
    mixer.q.register_forward_hook(lambda *_: None)
    calls.clear()
    mixer(x)
    assert len(calls) == 4
