"""mLSTM: initial values, and beside the whole layer of transformers."""

from __future__ import annotations

import pytest
import torch

from library_layers import load_both_ways
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.sequence import build_blocks


def theirs(layer, **options):
    modeling_xlstm = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")

    dims = layer.dims
    config = modeling_xlstm.xLSTMConfig(
        hidden_size=dims.d,
        num_heads=dims.heads,
        qk_dim_factor=dims.key_dim / dims.d,
        v_dim_factor=dims.value_dim / dims.d,
    )
    vars(config).update(options)  # the configuration's own checks allow no float64
    return modeling_xlstm.xLSTMLayer(config)


def test_input_gates_start_closed_and_forget_gates_open():
    torch.manual_seed(0)
    *_, layer = build_blocks("mLSTM!", 8, 64, 8, {"n_head": 4}, {})
    assert not any(layer.get_parameter(f"{gate}gate_preact.weight").any() for gate in "oif")
    assert layer.igate_preact.bias.tolist() == [-10] * 4 and layer.fgate_preact.bias.tolist() == [3, 4, 5, 6]
    for name in ("q", "k", "v"):
        assert layer.get_parameter(f"{name}.weight").std().item() == pytest.approx((2 / (5 * 64)) ** 0.5, rel=0.05)
    assert layer.out_proj.weight.std().item() == pytest.approx(2 / 8 / 64**0.5, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["mLSTM", "mLSTM!"])
def test_a_state_dict_is_loaded_in_both_directions(label):
    load_both_ways(label, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 30])
def test_outputs_and_states_equal_the_whole_layer_of_transformers(scale):
    layer, x = filled_mixer(lambda: build("mLSTM", 32, 70, n_head=2))
    with torch.no_grad():
        for gate in (layer.igate_preact, layer.fgate_preact):
            gate.weight *= scale  # the library's epsilon then counts: it is multiplied by e^m
    other = theirs(layer, norm_reduction_force_float32=False, inference_state_dtype="float64").double()
    other.load_state_dict(layer.state_dict())
    with torch.no_grad():
        expected, (memory, total, maximum) = other(x)
        y, cache = layer.prefill(x)
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.state, torch.cat((memory, total[..., None]), dim=-1)) < 1e-13
    assert difference(cache.carried["maximum"], maximum.squeeze(-1)) < 1e-13
