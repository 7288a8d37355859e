"""Preconditioned Gated DeltaNet: with M = 1 it is GDN. Beside flash-linear-attention: parameters and rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolved, in_float64, load_both_ways, normed
from madbench.mixers import build
from madbench.mixers.named import pgdn
from madbench.mixers.residuals import difference, filled_mixer


@pytest.mark.parametrize("arguments", ["", "(neg)"])
@torch.no_grad()
def test_with_a_preconditioner_of_one_it_is_gated_deltanet(arguments, monkeypatch):
    layer, x = filled_mixer(lambda: build(f"PGDN{arguments}!", 16, 40, n_head=2))
    gdn = build(f"GDN{arguments}!", 16, 40, n_head=2).double()
    gdn.load_state_dict({name: each for name, each in layer.state_dict().items() if "atk" not in name})
    assert difference(layer(x), gdn(x)) > 1e-3
    monkeypatch.setattr(pgdn, "BASE", 1.0)
    assert difference(layer(x), gdn(x)) < 1e-14


@torch.no_grad()
def test_channels_with_large_squares_are_written_less_within_the_bounds():
    layer, x = filled_mixer(lambda: build("PGDN", 16, 40, n_head=2), std=1)
    keys = layer.operator.rows(layer, x, None).dynamics.read
    m, _ = layer.operator.preconditioner(layer, x, keys, None)
    assert 1 / 1.5 < m.min() and m.max() < 1.5
    first, share = keys[:, :, 0].square(), layer.b_atk_proj(x[:, 0]).sigmoid()[..., None]
    above = (first * share + 1e-6).log() > layer.log_atk_scale[:, None]
    assert torch.equal(m[:, :, 0] < 1, above)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["PGDN", "PGDN(neg)!"])
    def test_state_dicts_and_initial_values_are_the_library_s(self, label):
        import fla.layers

        def theirs(layer):
            dims = layer.dims
            widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
            return fla.layers.PrecondGatedDeltaNet(hidden_size=dims.d, **widths)

        load_both_ways(label, theirs)
        layer = build(label, 32, 8, n_head=2)
        assert torch.equal(theirs(layer).log_atk_scale, layer.log_atk_scale)

    @pytest.mark.parametrize("label", ["PGDN", "PGDN(neg)"])
    @pytest.mark.parametrize("length", [1, 17, 65])
    def test_outputs_and_states_are_those_of_the_library_s_recurrence(self, label, length):
        from fla.ops.precond_gated_delta_rule import naive

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        p, heads = dict(layer.named_parameters()), layer.dims.heads
        q, k, v = (convolved(x, p, side).unflatten(-1, (heads, -1)) for side in "qkv")
        beta, of_squares = ((x @ p[f"{name}_proj.weight"].T).sigmoid() for name in ("b", "b_atk"))
        g, g_atk = (
            -p[f"A_log{name}"].exp() * F.softplus(x @ p[f"a{name}_proj.weight"].T + p[f"dt_bias{name}"], threshold=99)
            for name in ("", "_atk")
        )
        naive_recurrence = naive.naive_recurrent_precond_gated_delta_rule
        recurrence = in_float64(naive, naive_recurrence)

        def unit(side, **_):
            """The kernels' norm. The plain file has another epsilon."""
            return side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt()

        recurrence.__globals__["F"] = SimpleNamespace(normalize=unit)
        beta = beta * (2 if "neg" in label else 1)
        states = {"output_final_state": True, "log_atk_scale": p["log_atk_scale"]}
        o, state, squares = recurrence(q, k, v, g_atk, g, of_squares, beta, **states)
        gate = F.silu(x @ p["g_proj.weight"].T)
        expected = (normed(o, p["o_norm.weight"]).flatten(-2) * gate) @ p["o_proj.weight"].T
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, state) < 1e-13
        assert difference(cache.carried["squares"], squares.flatten(1)) < 1e-13
