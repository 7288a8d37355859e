"""Forgetting attention beside flash-linear-attention and softmax attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from library_layers import NEEDS_LIBRARY, in_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

ARGUMENTS = ["", "(gate)", "(norm)", "(gate,norm)"]


@pytest.mark.parametrize("arguments", ARGUMENTS)
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, arguments):
        import fla.layers

        def theirs(layer):
            dims, operator = layer.dims, layer.operator
            options = {"use_output_gate": operator.gate, "qk_norm": operator.norm}
            return fla.layers.ForgettingAttention(hidden_size=dims.d, num_heads=dims.heads, **options)

        load_both_ways(f"FoX{arguments}!", theirs)

    def test_outputs_equal_the_librarys_reference(self, arguments):
        from fla.ops.forgetting_attn import naive

        layer, x = filled_mixer(lambda: build(f"FoX{arguments}", 32, 65, n_head=2))
        p = dict(layer.named_parameters())
        q, k, v = ((x @ p[f"{side}_proj.weight"].T).unflatten(-1, (2, -1)) for side in "qkv")
        if layer.operator.norm:
            q, k = (rms_norm(side, p[f"{name}_norm.weight"].view(2, -1)) for name, side in (("q", q), ("k", k)))
        g = logsigmoid(x @ p["f_proj.weight"].T + p["f_proj.bias"])
        o = in_float64(naive, naive.naive_forgetting_attn)(q, k, v, g).flatten(-2)
        gate = (x @ p["g_proj.weight"].T).sigmoid() if layer.operator.gate else 1
        assert difference(layer(x), (o * gate) @ p["o_proj.weight"].T) < 1e-13


@torch.no_grad()
@pytest.mark.parametrize("path", ["dense", "blocks", "tiled", "sdpa"])
def test_without_forgetting_it_is_softmax_attention(path):
    layer, x = filled_mixer(lambda: build("FoX!", 16, 11, n_head=2, path=path))
    layer.f_proj.weight[:], layer.f_proj.bias[:] = 0, 99
    q, k, v = ((x @ getattr(layer, f"{side}_proj").weight.T).unflatten(-1, (2, -1)).transpose(1, 2) for side in "qkv")
    o = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert difference(layer(x), o.transpose(1, 2).flatten(-2) @ layer.o_proj.weight.T) < 1e-13


@torch.no_grad()
def test_long_sequences_do_not_lose_digits_of_near_decays():
    """Here, sums of log f reach -700. The blocks compute differences of them in float64."""
    layer, x = filled_mixer(lambda: build("FoX", 16, 1024, n_head=2), batch=1)
    expected, errors = layer(x), {}
    layer, x = layer.float(), x.float()
    for path in ("blocks", "sdpa"):
        layer.path = path
        errors[path] = difference(layer(x).double(), expected)
    assert errors["blocks"] < 2e-6 and errors["sdpa"] < 2e-5
    layer.path = "auto"
    assert layer.resolve_path(1, 1024) == "sdpa" and layer.resolve_path(1, 4096) == "blocks"
    assert layer.bfloat16().resolve_path(1, 1024) == "blocks"
