"""GLA, GSA, HGRN, HGRN2 and RetNet beside flash-linear-attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, in_float64, load_both_ways, rms_norm
from madbench.mixers import Layer, build
from madbench.mixers.checks.residuals import difference, filled_mixer

pytestmark = NEEDS_LIBRARY


def gla(layer):
    import fla.layers

    dims = layer.dims
    widths = {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d}
    return fla.layers.GatedLinearAttention(hidden_size=dims.d, num_heads=dims.heads, **widths)


def gsa(layer):
    import fla.layers

    dims = layer.dims
    widths = {"hidden_size": dims.d, "expand_k": dims.key_dim / dims.d}
    other = fla.layers.GatedSlotAttention(**widths, num_heads=dims.heads, layer_idx=0)
    assert other.num_slots == dims.key
    return other


def hgrn(layer):
    import fla.layers

    return fla.layers.HGRNAttention(hidden_size=layer.dims.d, expand_ratio=(layer.dims.value + 0.5) / layer.dims.d)


def hgrn2(layer):
    import fla.layers

    other = fla.layers.HGRN2Attention(hidden_size=layer.dims.d, expand_ratio=layer.dims.key)
    assert (other.num_heads, other.head_i_dim) == (layer.dims.heads, layer.dims.value)
    return other


def retnet(layer):
    import fla.layers

    dims = layer.dims
    widths = {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d}
    return fla.layers.MultiScaleRetention(hidden_size=dims.d, num_heads=dims.heads, **widths)


PAIRS = {"GLA": gla, "GSA": gsa, "HGRN": hgrn, "HGRN2": hgrn2, "RetNet": retnet}


@pytest.mark.parametrize("label", [f"{name}{over}" for name in PAIRS for over in ("", "!")])
def test_a_state_dict_is_loaded_in_both_directions(label):
    load_both_ways(label, PAIRS[label.removesuffix("!")])


def bounded_log_f(log_f, index, count):
    """log f with the lower bound of a layer, as in the library's models before training."""
    parameter = torch.zeros(count, log_f.shape[-1], dtype=torch.float64)
    bounds = parameter.softmax(0).cumsum(0) - parameter.softmax(0)[0]
    return torch.logaddexp(bounds[index].log(), torch.log1p(-bounds[index]) + log_f)


@pytest.mark.parametrize("label", ["GLA", "HGRN2", "HGRN2(bound)"])
def test_outputs_and_states_equal_the_librarys_recurrence(label):
    from fla.ops.gla import naive

    layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2, layer=Layer(2, 4)))
    p = {name: parameter.T for name, parameter in layer.named_parameters()}
    if label == "GLA":
        q, k, v, gate = (x @ p[f"{side}_proj.weight"] for side in "qkvg")
        g = F.logsigmoid(x @ p["gk_proj.0.weight"] @ p["gk_proj.1.weight"] + p["gk_proj.1.bias"]) / 16
    else:
        q, g, v = F.silu(x @ p["q_proj.weight"]), F.logsigmoid(x @ p["f_proj.weight"]), x @ p["i_proj.weight"]
        if label == "HGRN2(bound)":
            g = bounded_log_f(g, 2, 4)
        k = 1 - g.exp()
    by_head = (side.unflatten(-1, (layer.dims.heads, -1)) for side in (q, k, v, g))
    o, state = in_float64(naive, naive.naive_recurrent_gla)(*by_head, output_final_state=True)
    if label == "GLA":
        o = rms_norm(o, p["g_norm_swish_gate.weight"]).flatten(-2) * F.silu(gate)
    else:
        o = rms_norm(o.flatten(-2), p["g_norm.weight"])
    y, cache = layer.prefill(x)
    expected = o @ p["o_proj.weight"]
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.state, state) < 1e-13


@pytest.mark.parametrize("label", ["HGRN", "HGRN(bound)"])
def test_hgrn_equals_the_librarys_recurrence_of_each_channel(label):
    from fla.ops.hgrn import naive

    layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2, layer=Layer(2, 4)))
    p = {name: parameter.T for name, parameter in layer.named_parameters()}
    i, g, gate = (x @ p[f"{side}_proj.weight"] for side in "ifg")
    g = bounded_log_f(F.logsigmoid(g), 2, 4) if label == "HGRN(bound)" else F.logsigmoid(g)
    o, state = in_float64(naive, naive.naive_recurrent_hgrn)(F.silu(i) * (1 - g.exp()), g, output_final_state=True)
    expected = rms_norm(o, p["g_norm.weight"]) * F.silu(gate) @ p["o_proj.weight"]
    y, cache = layer.prefill(x)
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.carried["h"], state) < 1e-13


def test_gsa_equals_the_librarys_two_recurrences():
    from fla.ops.gsa import naive

    layer, x = filled_mixer(lambda: build("GSA", 32, 65, n_head=2))
    p = {name: parameter.T for name, parameter in layer.named_parameters()}
    q, k, v, g = ((x @ p[f"{side}_proj.weight"]).unflatten(-1, (2, -1)) for side in "qkvf")
    g = F.logsigmoid(g) / 8
    recurrence = in_float64(naive, naive.naive_recurrent_gsa)
    o, states = recurrence(F.silu(q), F.silu(k), F.silu(v), 1 - g.exp(), g, scale=1.0, output_final_state=True)
    expected = rms_norm(F.silu(o.flatten(-2)), p["g_norm.weight"]) @ p["o_proj.weight"]
    y, cache = layer.prefill(x)
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.carried["keys"], states[0]) < 1e-13 and difference(cache.state, states[1]) < 1e-13


def test_retention_equals_the_librarys_with_its_rotary_positions():
    from fla.modules.rotary import ops
    from fla.modules.rotary.ops import RotaryEmbedding, rotary_embedding_ref
    from fla.ops.retention import naive

    layer, x = filled_mixer(lambda: build("RetNet", 32, 65, n_head=2))
    p = {name: parameter.T for name, parameter in layer.named_parameters()}
    q, k, v, gate = (x @ p[f"{side}_proj.weight"] for side in "qkvg")
    q, k, v = (side.unflatten(-1, (2, -1)) for side in (q, k, v))
    frequency = in_float64(ops, RotaryEmbedding._compute_inv_freq)(RotaryEmbedding(layer.dims.key))
    angle = torch.outer(torch.arange(65).double(), frequency)
    q, k = (rotary_embedding_ref(side, angle.cos(), angle.sin()) for side in (q, k))
    o = in_float64(naive, naive.naive_retention)(*(side.transpose(1, 2) for side in (q, k, v))).transpose(1, 2)
    o = rms_norm(o, p["g_norm_swish_gate.weight"]).flatten(-2) * F.silu(gate)
    y, _ = layer.prefill(x)
    expected = o @ p["o_proj.weight"]
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
