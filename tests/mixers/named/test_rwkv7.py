"""RWKV-7: initial values, and beside flash-linear-attention: parameters, its recurrence and its whole layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, SIZES, in_float64
from madbench.mixers import Layer, build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.sequence import build_blocks
from madbench.models.blocks import Backbone
from madbench.models.mad import MadModel, imitate_reference

PLACES = (Layer(0, 3), Layer(1, 3, 1), Layer(2, 3, 2))


def library_layer(layer):
    """The library's layer with the widths and the layer index of ours."""
    from fla.layers.rwkv7 import RWKV7Attention

    dims, place = layer.dims, layer.allocation.size.layer
    is_initialized = dims.is_first or dims.value_dim == dims.d  # others are an error in its initialization
    theirs = RWKV7Attention(
        hidden_size=dims.d,
        num_heads=dims.heads,
        head_dim=None,
        value_dim=dims.value_dim,
        decay_low_rank_dim=dims.w,
        a_low_rank_dim=dims.a,
        v_low_rank_dim=dims.v,
        gate_low_rank_dim=dims.g,
        layer_idx=place.index if is_initialized else None,
        num_hidden_layers=place.count,
    )
    theirs.layer_idx = place.index
    return theirs


def test_linear_maps_start_orthogonal_and_the_output_at_zero():
    torch.manual_seed(0)
    layer = build("RWKV-7!", 64, 8, n_head=2)
    eye = torch.eye(64)
    for maps, gain in ((layer.r_proj, 1), (layer.k_proj, 0.1), (layer.v_proj, 1)):
        torch.testing.assert_close(maps.weight @ maps.weight.T, gain**2 * eye, atol=1e-5, rtol=0)
    up = layer.w_lora.lora[2].weight
    torch.testing.assert_close(up.T @ up, 0.01 * torch.eye(up.shape[1]), atol=1e-6, rtol=0)
    assert not layer.o_proj.weight.any() and not layer.g_lora.lora[0].weight.any()
    assert not layer(torch.randn(1, 8, 64)).any()


def test_decays_start_from_slow_to_fast_and_faster_in_later_layers():
    first, last = (build("RWKV-7!", 64, 8, n_head=2, layer=place).w_lora.lora[2].bias for place in PLACES[::2])
    assert first[0] < first[16] < first[31] and (last < first).sum() > 40 and first.min() > -9


def test_the_published_initialization_leaves_the_operators_own_unchanged():
    make_mixer = build_blocks("RWKV-7", 2, 16, 8, {"n_head": 2}, {}).__next__
    model = MadModel(Backbone(5, 16, 2, make_mixer))
    before = {name: parameter.clone() for name, parameter in model.backbone.layers.named_parameters()}
    imitate_reference(model)
    changed = [name for name, each in model.backbone.layers.named_parameters() if not torch.equal(each, before[name])]
    assert changed and all(int(name.split(".")[0]) % 2 for name in changed), "only MLPs"


@torch.no_grad()
def test_rwkv7_reads_the_state_before_the_decay():
    layer, x = filled_mixer(lambda: build("RWKV-7", 16, 9, n_head=2), batch=1)
    d = layer.operator.rows(layer, x, None).dynamics
    state = torch.zeros(1, 2, layer.dims.key, layer.dims.value, dtype=torch.float64)
    for t in range(9):
        removed = d.mirrors.w[:, :, t, :, None] * (d.mirrors.read[:, :, t, None] @ state)
        state = d.log_gate[:, :, t, :, None].exp() * state - removed + d.k[:, :, t, :, None] * d.v[:, :, t, None]
    assert difference(layer.prefill(x)[1].state, state) < 1e-14
    assert (d.log_gate >= d.least_log_gate).all() and d.mirrors.reads_before_decay


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["RWKV-7", "RWKV-7!"])
    @pytest.mark.parametrize("place", PLACES)
    def test_state_dicts_and_initial_values_equal_the_librarys(self, label, place):
        for d, heads in SIZES:
            layer = build(label, d, 32, n_head=heads, layer=place)
            theirs = library_layer(layer)
            assert list(theirs.state_dict()) == list(layer.state_dict())
            is_drawn = ("r_proj", "k_proj", "v_proj", "lora.2.weight")
            is_compared = place.index == 0 or label.endswith("!")
            for name, ours in layer.state_dict().items() if is_compared else ():
                if not any(part in name for part in is_drawn):
                    torch.testing.assert_close(theirs.state_dict()[name], ours, atol=1e-6, rtol=1e-5, msg=name)
            theirs.load_state_dict(layer.state_dict())
            layer.load_state_dict(theirs.state_dict())

    @pytest.mark.parametrize("label", ["RWKV-7", "RWKV-7!"])
    @pytest.mark.parametrize("place", PLACES[:2])
    def test_outputs_and_states_equal_the_librarys_layer(self, label, place, monkeypatch):
        from fla.layers import rwkv7
        from fla.ops.generalized_delta_rule.dplr import naive

        layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2, layer=place))
        theirs = library_layer(layer).double()
        theirs.load_state_dict(layer.state_dict())
        states, recurrence = [], in_float64(naive, naive.dplr_recurrence)

        def chunk(r, w, k, v, a, b, **_):
            rows = (side.transpose(1, 2) for side in (r * r.shape[-1] ** 0.5, k, v, a, b, w))
            o, state = recurrence(*rows)
            states.append(state)
            return o.transpose(1, 2), state

        def correct(o, r, k, r_k, v, g):
            own = (r * k * r_k).sum(-1, keepdim=True) * v
            return (o + own.flatten(-2)) * g

        plain = {  # in place of kernels that need a GPU
            "token_shift": lambda x, *_, **__: (F.pad(x, (0, 0, 1, -1)) - x, None),
            "fused_addcmul_rwkv7": lambda x, delta, *mixes: [x + delta * each for each in mixes],
            "fused_k_rwkv7": lambda k, a, k_a: k.addcmul(k * (a - 1), k_a),
            "chunk_rwkv7": chunk,
            "gate_output_correction": correct,
        }
        for name, function in plain.items():
            monkeypatch.setattr(rwkv7, name, function)
        first = torch.randn(*x.shape[:2], layer.dims.value_dim, dtype=torch.float64)
        handed = {} if place.earlier == 0 else {layer.operator.shared_name(layer.dims): first}
        expected, _, _, values = theirs(x, v_first=None if place.earlier == 0 else first)
        assert difference(layer(x, dict(handed)), expected) < 1e-13
        y, cache = layer.prefill(x, shared=handed)
        assert difference(y, expected) < 1e-13 and difference(cache.state, states[0]) < 1e-13
        assert difference(handed[layer.operator.shared_name(layer.dims)], values) < 1e-13
        reference = layer.reference(x[:, :9], shared={name: side[:, :9] for name, side in handed.items()})
        assert difference(reference, expected[:, :9]) < 1e-13
