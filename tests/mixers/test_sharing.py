"""Values that the first layer of a label hands to later ones, in every pass of a model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.func import functional_call, vmap

from madbench.labels.budgets import BUDGETS
from madbench.mixers import Layer, build, solve
from madbench.mixers.checks.residuals import difference
from madbench.mixers.sequence import build_blocks, solve_blocks
from madbench.models.blocks import Backbone
from madbench.models.gpt import GPT

LENGTH = 7


@pytest.fixture(params=["RWKV-7", "S-p/2xRWKV-7"])
def model(request):
    """A model of several layers, in float64 and with large weights."""
    return model_with_random_weights(request.param, 3)


def model_with_random_weights(label, n_layer, cls=GPT, **how):
    make_mixer = build_blocks(label, n_layer, 16, LENGTH, {"n_head": 2, "budget": "paper", **how}, {}).__next__
    shape = (LENGTH,) if cls is GPT else ()
    generator = torch.Generator().manual_seed(0)
    model = cls(11, 16, n_layer, make_mixer, *shape).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model.requires_grad_(False)


def drawn_tokens(count=2):
    return torch.randint(11, (count, LENGTH), generator=torch.Generator().manual_seed(1))


def test_later_layers_use_the_values_of_the_first_layer(model):
    tokens = drawn_tokens()
    first, *later = [block.mixer for block in model.blocks if hasattr(block.mixer, "v_proj")]
    assert not hasattr(first, "v_lora") and all(hasattr(mixer, "v_lora") for mixer in later)
    y = model(tokens)
    with torch.no_grad():
        for mixer in later:
            mixer.v_lora.lora[2].bias.fill_(-99)  # nothing of the first layer's values
    alone = model(tokens)
    assert difference(y, alone) > 1e-3
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: args[:1])  # no block knows of another
    assert difference(model(tokens), alone) < 1e-14


def test_prefill_and_steps_equal_the_parallel_form(model):
    tokens = drawn_tokens()
    y = model(tokens)
    for prompt in (1, 3, LENGTH - 1):
        logits, state = model.decode(tokens[:, :prompt])
        assert difference(logits, y[:, prompt - 1]) < 1e-13
        for end in range(prompt + 1, LENGTH + 1):
            logits, state = model.decode(tokens[:, end - 1 : end], state)
            assert difference(logits, y[:, end - 1]) < 1e-13
    _, state = model.decode(tokens[:, :2])
    assert difference(model.decode(tokens[:, 2:], state)[0], y[:, -1]) < 1e-13, "several tokens after a prompt"


@pytest.mark.parametrize("cls", [GPT, Backbone])
def test_every_model_passes_shared_values_to_later_layers(cls):
    model, tokens = model_with_random_weights("RWKV-7", 2, cls), drawn_tokens()
    y = model(tokens)
    next(module for name, module in model.named_modules() if name.endswith("v_lora")).lora[2].bias.fill_(-99)
    assert difference(model(tokens), y) > 1e-3


@pytest.mark.parametrize("path", ["reference", "dense", "chunked"])
@pytest.mark.parametrize("cls", [GPT, Backbone])
def test_every_path_of_a_model_computes_the_same_function(path, cls):
    tokens = drawn_tokens()
    expected = model_with_random_weights("RWKV-7", 2, cls)(tokens)
    assert difference(model_with_random_weights("RWKV-7", 2, cls, path=path)(tokens), expected) < 1e-13


def test_several_models_in_one_pass_keep_their_own_values(model):
    tokens = torch.stack([drawn_tokens(), drawn_tokens().flip(1)])
    models = [model, copy.deepcopy(model)]
    for parameter in models[1].parameters():
        parameter.mul_(1.1)
    stacked = {
        name: torch.stack([dict(each.named_parameters())[name] for each in models])
        for name, _ in model.named_parameters()
    }
    for mixer in (block.mixer for block in model.blocks):
        mixer.path = "dense"
    together = vmap(lambda weights, ids: functional_call(model, weights, ids))(stacked, tokens)
    for found, each, ids in zip(together, models, tokens):
        assert difference(found, each(ids)) < 1e-13


def test_the_gradient_of_a_later_layer_reaches_the_values_of_the_first(model):
    model.requires_grad_(True)
    for block in list(model.blocks)[:-1]:
        block.mixer.get_submodule("o_proj" if hasattr(block.mixer, "o_proj") else "o").requires_grad_(
            False
        ).weight.zero_()
    model(drawn_tokens()).square().sum().backward()
    first = next(block.mixer for block in model.blocks if hasattr(block.mixer, "v_proj"))
    assert first.v_proj.weight.grad.abs().max() > 1e-6


def test_a_later_layer_without_a_first_one_uses_its_own_values():
    torch.manual_seed(0)
    later = build("RWKV-7", 16, LENGTH, layer=Layer(1, 2, 1)).double()
    for parameter in later.requires_grad_(False).parameters():
        parameter.normal_(std=0.3)
    x = torch.randn(2, LENGTH, 16, dtype=torch.float64)
    y = later(x)
    later.v_lora.lora[2].bias.fill_(5)
    assert difference(later(x), y) < 1e-14 and difference(later.reference(x), y) < 1e-13


def test_layers_of_one_label_have_equal_keys_and_values_and_nearly_equal_costs():
    for budget in BUDGETS:
        blocks = solve_blocks("RWKV-7", 3, 64, 2, 64, budget).blocks
        assert len({(block.dims.key, block.dims.value) for block in blocks}) == 1, budget
        assert [block.size.layer for block in blocks] == [Layer(i, 3, i) for i in range(3)]
    first, second, third = solve_blocks("RWKV-7", 3, 128, 4).blocks
    assert second.total == third.total and 0 < second.total - first.total <= first.dims.value_dim
    assert first.total == solve("RWKV-7", 128, 4).total
