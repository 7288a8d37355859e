"""Under vmap over models, mixers give what each model gives, on the paths that work head by head."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from madbench import mixers

BATCH, LENGTH, WIDTH, MODELS = 2, 7, 16, 3


@pytest.mark.parametrize(
    "label, path",
    [
        ("S-p", "sdpa"),
        ("D-p", "sdpa"),
        ("D-pws", "sdpa"),
        ("S-psn", "sdpa"),
        ("D-pws", "tiled"),
        ("S-p", "tiled"),
        ("D-p", "tiled"),
        ("S-12!", "tiled"),
        ("R-cg-q-12o", "tiled"),
        ("G-cg-q-12o", "tiled"),
        ("G-1!", "tiled"),
        ("R-2o!", "tiled"),
        ("S-phe", "sdpa"),
        ("D-pm", "tiled"),
        ("G-m-q-1o", "tiled"),
        ("R-he", "tiled"),
    ],
)
def test_outputs_and_gradients_of_stacked_models_equal_those_of_single_models(label, path):
    torch.manual_seed(0)
    how = {"n_head": 2, "path": path, "mix_rank": 2} | ({"window": 3} if "w" in label else {})
    models = [mixers.build(label, WIDTH, LENGTH, **how).double() for _ in range(MODELS)]
    for parameter in (parameter for model in models for parameter in model.parameters()):
        torch.nn.init.normal_(parameter, std=0.5)
    x, weight = torch.randn(2, MODELS, BATCH, LENGTH, WIDTH, dtype=torch.float64)
    stacked, _ = stack_module_state(models)
    base = copy.deepcopy(models[0])
    base.is_stacked = True
    outputs = vmap(lambda parameters, rows: functional_call(base, parameters, rows))(stacked, x)
    (outputs * weight).sum().backward()
    for i, model in enumerate(models):
        expected = model(x[i])
        (expected * weight[i]).sum().backward()
        torch.testing.assert_close(outputs[i], expected)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(stacked[name].grad[i], parameter.grad)
