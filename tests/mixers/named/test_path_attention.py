"""PaTH attention beside flash-linear-attention and forgetting attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolve_projection, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

ARGUMENTS = ["", "(forget)", "(norm)", "(forget,norm)"]


@pytest.mark.parametrize("arguments", ARGUMENTS)
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, arguments):
        import fla.layers

        def theirs(layer):
            dims, operator = layer.dims, layer.operator
            options = {"use_forget_gate": operator.forget, "use_qk_norm": operator.norm}
            return fla.layers.PaTHAttention(hidden_size=dims.d, num_heads=dims.heads, **options)

        load_both_ways(f"PaTH{arguments}!", theirs)

    def test_outputs_equal_the_librarys_reference(self, arguments, monkeypatch):
        from fla.ops.path_attn import naive

        layer, x = filled_mixer(lambda: build(f"PaTH{arguments}", 64, 130, n_head=2))
        p = dict(layer.named_parameters())
        q, k, v = ((x @ p[f"{side}_proj.weight"].T).unflatten(-1, (2, -1)) for side in "qkv")
        if layer.operator.norm:
            q, k = (rms_norm(side, p[f"maybe_{name}_norm.weight"]) for name, side in (("q", q), ("k", k)))
        p["w_proj.weight"] = p["w_proj.1.weight"] @ p["w_proj.0.weight"]
        w = convolve_projection(x, p, "w").unflatten(-1, (2, -1))
        w = w / (w.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        beta = 2 * F.linear(x, p["bt_proj.weight"], p["bt_proj.bias"]).sigmoid()
        g = torch.zeros_like(beta)
        if layer.operator.forget:
            g = F.logsigmoid(F.linear(x, p["g_proj.weight"], p["g_proj.bias"]))
        monkeypatch.setattr(torch, "float", torch.float64)
        monkeypatch.setattr(torch, "zeros", lambda *shape, **options: x.new_zeros(*shape, **options))
        o = naive.naive_path_attn(q, k, v, w, beta, g, layer.dims.key**-0.5)
        assert difference(layer(x), o.flatten(-2) @ p["o_proj.weight"].T) < 1e-12


@torch.no_grad()
def test_without_mirrors_it_is_forgetting_attention_with_a_smaller_gate():
    layer, x = filled_mixer(lambda: build("PaTH(forget)!", 16, 9, n_head=2))
    layer.bt_proj.weight[:], layer.bt_proj.bias[:] = 0, -99
    fox, _ = filled_mixer(lambda: build("FoX!", 16, 9, n_head=2))
    for side in "qkvo":
        getattr(fox, f"{side}_proj").weight.copy_(getattr(layer, f"{side}_proj").weight)
    tokens = fox.operator.tokens(fox, x, 0, None)
    decay = layer.operator.tokens(layer, x, 0, None).cached["decay"] * layer.dims.key**-0.5
    o = fox.operator.attend(fox, tokens.q, {**tokens.cached, "decay": decay}, 0)
    assert difference(layer(x), fox.operator.read_out(fox, o, x, tokens)) < 1e-13


@torch.no_grad()
def test_a_step_rewrites_all_keys_of_the_cache():
    layer, x = filled_mixer(lambda: build("PaTH", 32, 6, n_head=2))
    _, before = layer.prefill(x[:, :5])
    _, after = layer.step(x[:, 5], before)
    assert torch.equal(after.cached["v"][:, :, :5], before.cached["v"])
    assert difference(after.cached["k"][:, :, :5], before.cached["k"]) > 0.01
