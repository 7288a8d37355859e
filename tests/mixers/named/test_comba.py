"""Comba: with p = alpha k it equals Gated DeltaNet.

It also equals the layer of flash-linear-attention and its references.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from library_layers import NEEDS_LIBRARY, in_float64, keep_float64, load_both_ways, unit, use_plain_modules
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.recurrence.forms import scores


@pytest.mark.parametrize("arguments", ["", "(neg)"])
def test_with_the_decayed_key_as_p_it_is_gated_deltanet(arguments):
    layer, x = filled_mixer(lambda: build(f"Comba{arguments}", 16, 9, n_head=2))
    d = layer.operator.rows(layer, x, None).dynamics
    gdn = replace(d, mirrors=d.mirrors._replace(read=None, reads_before_decay=False))
    decayed = replace(d, mirrors=d.mirrors._replace(read=d.log_gate.exp() * d.mirrors.w))
    assert difference(scores(decayed).tril(), scores(gdn).tril()) < 1e-14
    assert difference(scores(d).tril(), scores(gdn).tril()) > 1e-3


@torch.no_grad()
def test_without_output_correction_the_inputs_equal_those_of_gated_deltanet():
    layer, x = filled_mixer(lambda: build("Comba!", 16, 9, n_head=2))
    layer.D.zero_()
    gdn = build("GDN!", 16, 9, n_head=2).double()
    gdn.load_state_dict({name: each for name, each in layer.state_dict().items() if name not in ("D", "decay")})
    ours, theirs = (each.operator.rows(each, x, None).dynamics for each in (layer, gdn))
    for name in ("q", "k", "v", "log_gate"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for name in ("w", "beta"):
        assert torch.equal(getattr(ours.mirrors, name), getattr(theirs.mirrors, name)), name


@torch.no_grad()
def test_feedback_scales_the_removal_unless_p_has_length_one():
    layer, x = filled_mixer(lambda: build("Comba", 16, 9, n_head=2))
    p = layer.operator.rows(layer, x, None).dynamics.mirrors.read
    share = layer.decay.sigmoid().view(2, 1)
    assert difference(p.norm(dim=-1), share.expand(2, 9).expand_as(p.norm(dim=-1))) < 1e-4
    layer, x = filled_mixer(lambda: build("Comba(unit)", 16, 9, n_head=2))
    d = layer.operator.rows(layer, x, None).dynamics
    assert difference(d.mirrors.read, d.mirrors.w) < 1e-4


def theirs(layer):
    """The library's layer with the widths of our layer."""
    import fla.layers

    dims = layer.dims
    widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
    return fla.layers.Comba(hidden_size=dims.d, **widths)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["Comba", "Comba(unit)!"])
    def test_state_dicts_and_initial_values_equal_the_librarys(self, label):
        load_both_ways(label, theirs)
        layer = build(label, 32, 8, n_head=2)
        assert torch.equal(theirs(layer).decay, layer.decay) and torch.equal(theirs(layer).D, layer.D)

    @pytest.mark.parametrize("length", [1, 63, 64, 65])
    @pytest.mark.parametrize("is_unit", [True, False])
    def test_outputs_and_states_equal_the_librarys_layer_with_its_plain_chunks(self, length, is_unit, monkeypatch):
        """The library's kernel normalizes p. Without that, it is the equation of the paper."""
        from fla.layers import comba
        from fla.ops.comba import naive

        layer, x = filled_mixer(lambda: build("Comba(unit)" if is_unit else "Comba", 32, length, n_head=2))
        states, recurrence = [], in_float64(naive, naive.naive_chunk_comba)

        def chunks(q, k, v, p, g, beta, **_):
            p = unit(p) if is_unit else unit(k) * layer.decay.sigmoid()[:, None]
            o, state = recurrence(unit(q), unit(k), v, p, g, beta, output_final_state=True)
            states.append(state)
            return o, state

        use_plain_modules(monkeypatch)
        keep_float64(monkeypatch)
        monkeypatch.setattr(comba, "chunk_comba", chunks)
        other = theirs(layer).double()
        other.load_state_dict(layer.state_dict())
        expected = other(x)[0]
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, states[0]) < 1e-13

    def test_the_librarys_plain_recurrence_differs_because_it_reads_after_the_decay(self):
        from fla.ops.comba import naive

        layer, x = filled_mixer(lambda: build("Comba", 32, 65, n_head=2))
        d = layer.operator.rows(layer, x, None).dynamics
        w, beta, _, read, _ = d.mirrors
        q, k, v, p, g, beta = (side.transpose(1, 2) for side in (d.q, w, d.v, read, d.log_gate, beta[..., None]))
        options = {"g": g.squeeze(-1), "beta": beta.squeeze(-1), "scale": 1.0}
        chunks, recurrence = (
            in_float64(naive, function)(q, k, v, p, **options)[0].transpose(1, 2)
            for function in (naive.naive_chunk_comba, naive.naive_recurrent_comba)
        )
        assert difference(scores(d).tril() @ d.v, chunks) < 1e-13 and difference(recurrence, chunks) > 1e-3
        after = replace(d, mirrors=d.mirrors._replace(reads_before_decay=False))
        assert difference(scores(after).tril() @ d.v, recurrence) < 1e-13
