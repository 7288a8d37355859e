"""DeltaProduct: with one step per token it is Gated DeltaNet. Beside flash-linear-attention: parameters and rows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolve_projection, in_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer


@torch.no_grad()
def test_with_one_step_per_token_it_is_gated_deltanet_with_negative_eigenvalues():
    delta_product, x = filled_mixer(lambda: build("DeltaProduct(n=1)!", 16, 9, n_head=2))
    gdn = build("GDN(neg)!", 16, 9, n_head=2).double()
    gdn.load_state_dict(delta_product.state_dict())
    assert difference(delta_product(x), gdn(x)) < 1e-15


@torch.no_grad()
def test_a_second_step_of_strength_zero_changes_nothing():
    one, x = filled_mixer(lambda: build("DeltaProduct(n=1)!", 16, 9, n_head=2))
    two = build("DeltaProduct!", 16, 9, n_head=2).double()
    x[..., -1] = 1
    for name, parameter in two.named_parameters():
        source = one.get_parameter(name)
        parameter.copy_(source if source.shape == parameter.shape else torch.cat((source, source.flip(0))))
    two.b_proj.weight[2:] = 0
    two.b_proj.weight[2:, -1] = -99
    assert difference(two(x), one(x)) < 1e-14


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["DeltaProduct", "DeltaProduct(n=3)!", "DeltaProduct(ungated)"])
    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        import fla.layers

        def theirs(layer):
            dims, operator = layer.dims, layer.operator
            return fla.layers.GatedDeltaProduct(
                hidden_size=dims.d,
                num_heads=dims.heads,
                head_dim=dims.key,
                expand_v=dims.value / dims.key,
                num_householder=operator.n,
                use_forget_gate=not operator.ungated,
            )

        load_both_ways(label, theirs)

    @pytest.mark.parametrize("label", ["DeltaProduct", "DeltaProduct(n=3)", "DeltaProduct(ungated)"])
    def test_outputs_and_states_equal_the_librarys_recurrence(self, label):
        from fla.ops.gated_delta_product import naive

        layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2))
        p, heads, n = dict(layer.named_parameters()), layer.dims.heads, layer.operator.n
        q, k, v = (convolve_projection(x, p, side) for side in "qkv")
        q = q.unflatten(-1, (heads, -1))
        k, v = (side.unflatten(-1, (n, heads, -1)).flatten(1, 2) for side in (k, v))
        q, k = (side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt() for side in (q, k))
        beta = 2 * (x @ p["b_proj.weight"].T).sigmoid().unflatten(-1, (n, heads)).flatten(1, 2)
        g = None
        if "A_log" in p:
            g = -p["A_log"].exp() * F.softplus(x @ p["a_proj.weight"].T + p["dt_bias"], threshold=99)
        recurrence = in_float64(naive, naive.naive_recurrent_gated_delta_product)
        o, state = recurrence(q, k, v, g, beta, layer.dims.key**-0.5, output_final_state=True, num_householder=n)
        gate = F.silu(x @ p["g_proj.weight"].T)
        expected = (rms_norm(o, p["o_norm.weight"]).flatten(-2) * gate) @ p["o_proj.weight"].T
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, state) < 1e-13
