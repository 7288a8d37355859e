"""Stick-breaking attention beside flash-linear-attention, and its arithmetic at large scores."""

from __future__ import annotations

import pytest
import torch

from library_layers import NEEDS_LIBRARY, load_both_ways
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

LABELS = ["StickBreaking", "StickBreaking(current)", "StickBreaking(norm)", "StickBreaking(current,norm)"]


@pytest.mark.parametrize("label", LABELS)
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        import fla.layers

        def theirs(layer):
            dims = layer.dims
            options = {"qk_norm": layer.operator.norm, "attend_current": layer.operator.current}
            return fla.layers.StickBreakingAttention(hidden_size=dims.d, num_heads=dims.heads, **options)

        load_both_ways(f"{label}!", theirs)

    def test_outputs_equal_the_librarys_reference(self, label):
        from fla.ops.stickbreaking_attn import naive

        layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2))
        p = dict(layer.named_parameters())
        q, k, v = ((x @ p[f"{side}_proj.weight"].T).unflatten(-1, (2, -1)) for side in "qkv")
        if layer.operator.norm:
            q, k = (
                side * (side.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * p[f"{name}_norm.weight"]
                for name, side in (("q", q), ("k", k))
            )
        o, _ = naive.naive_stickbreaking_attn(q, k, v, attend_current=layer.operator.current)
        assert difference(layer(x), o.flatten(-2) @ p["o_proj.weight"].T) < 1e-13


@torch.no_grad()
@pytest.mark.parametrize("label", LABELS[:2])
def test_the_weights_of_a_row_and_the_remaining_stick_sum_to_one(label):
    layer, x = filled_mixer(lambda: build(label, 16, 9, n_head=2))
    tokens = layer.operator.tokens(layer, x, 0, None)
    seen = torch.ones(9, 9, dtype=torch.bool).tril(0 if layer.operator.current else -1)
    for scale in (1, 1e3):  # at the larger scale most shares are 0 or 1
        weights = layer.operator.weights(layer, scale * tokens.q, tokens.cached, 0)
        shares = (scale * tokens.q @ tokens.cached["k"].mT * layer.dims.key**-0.5).sigmoid()
        left = torch.where(seen, 1 - shares, 1).prod(-1)
        assert (weights.sum(-1) + left - 1).abs().max() < 1e-12 and weights.min() >= 0
    assert layer.operator.current or not layer(x)[:, 0].any()


def test_large_scores_have_finite_gradients_in_float32():
    torch.manual_seed(0)
    layer, x = build("StickBreaking", 16, 40, n_head=2), torch.randn(2, 40, 16)
    with torch.no_grad():
        layer.q_proj.weight.mul_(1e4)
    layer(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
