"""Comba: with p = alpha k it is Gated DeltaNet. Beside flash-linear-attention: parameters, recurrence and kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolved, in_float64, load_both_ways, normed
from madbench.mixers import build
from madbench.mixers.cd.forms import scores
from madbench.mixers.residuals import difference, filled_mixer


@pytest.mark.parametrize("arguments", ["", "(neg)"])
def test_if_p_is_the_decayed_key_it_is_gated_deltanet(arguments):
    layer, x = filled_mixer(lambda: build(f"Comba{arguments}", 16, 9, n_head=2))
    d = layer.operator.rows(layer, x, None).dynamics
    gdn = replace(d, read=None, reads_before_decay=False)
    decayed = replace(d, read=d.log_gate.exp() * d.w)
    assert difference(scores(decayed).tril(), scores(gdn).tril()) < 1e-14
    assert difference(scores(d).tril(), scores(gdn).tril()) > 1e-3


@torch.no_grad()
def test_without_a_correction_the_query_is_that_of_gated_deltanet():
    layer, x = filled_mixer(lambda: build("Comba!", 16, 9, n_head=2))
    layer.D.zero_()
    gdn = build("GDN!", 16, 9, n_head=2).double()
    gdn.load_state_dict({name: each for name, each in layer.state_dict().items() if name not in ("D", "decay")})
    ours, theirs = (each.operator.rows(each, x, None).dynamics for each in (layer, gdn))
    for name in ("q", "k", "v", "w", "beta", "log_gate"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


@torch.no_grad()
def test_feedback_scales_what_is_removed_unless_p_has_length_one():
    layer, x = filled_mixer(lambda: build("Comba", 16, 9, n_head=2))
    p = layer.operator.rows(layer, x, None).dynamics.read
    share = layer.decay.sigmoid().view(2, 1)
    assert difference(p.norm(dim=-1), share.expand(2, 9).expand_as(p.norm(dim=-1))) < 1e-4
    layer, x = filled_mixer(lambda: build("Comba(unit)", 16, 9, n_head=2))
    d = layer.operator.rows(layer, x, None).dynamics
    assert difference(d.read, d.w) < 1e-4


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["Comba", "Comba(unit)!"])
    def test_state_dicts_and_initial_values_are_the_library_s(self, label):
        import fla.layers

        def theirs(layer):
            dims = layer.dims
            widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
            return fla.layers.Comba(hidden_size=dims.d, **widths)

        load_both_ways(label, theirs)
        layer = build(label, 32, 8, n_head=2)
        other = theirs(layer)
        assert torch.equal(other.decay, layer.decay) and torch.equal(other.D, layer.D)

    def rows_of_the_library(self, layer, x, recurrence):
        """Outputs and the last state of the library's layer, whose kernel is replaced by a plain ``recurrence``."""
        p, heads = dict(layer.named_parameters()), layer.dims.heads
        q, k, v = (convolved(x, p, side).unflatten(-1, (heads, -1)) for side in "qkv")
        read = k * p["decay"].sigmoid()[:, None]
        q = q - p["D"][:, None] * read
        q, unit_k, unit_p = (side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt() for side in (q, k, read))
        read = unit_p if layer.operator.unit else unit_k * p["decay"].sigmoid()[:, None]
        beta = (x @ p["b_proj.weight"].T).sigmoid() * (2 if layer.operator.neg else 1)
        g = -p["A_log"].exp() * F.softplus(x @ p["a_proj.weight"].T + p["dt_bias"], threshold=99)
        o, state = recurrence(q=q, k=unit_k, v=v, p=read, g=g, beta=beta, output_final_state=True)
        gate = (x @ p["g_proj.weight"].T).sigmoid()
        return (normed(o, p["o_norm.weight"]).flatten(-2) * gate) @ p["o_proj.weight"].T, state

    @pytest.mark.parametrize("label", ["Comba", "Comba(neg)", "Comba(unit)"])
    @pytest.mark.parametrize("length", [1, 63, 64, 65])
    def test_outputs_and_states_are_those_of_the_library_s_chunks(self, label, length):
        from fla.ops.comba import naive

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        expected, state = self.rows_of_the_library(layer, x, in_float64(naive, naive.naive_chunk_comba))
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, state) < 1e-13

    def test_the_library_s_recurrence_is_another_operator_that_reads_after_the_decay(self):
        from fla.ops.comba import naive

        layer, x = filled_mixer(lambda: build("Comba", 32, 65, n_head=2))
        chunks, recurrence = (
            self.rows_of_the_library(layer, x, in_float64(naive, function))[0]
            for function in (naive.naive_chunk_comba, naive.naive_recurrent_comba)
        )
        assert difference(recurrence, chunks) > 1e-3
        d = layer.operator.rows(layer, x, None).dynamics
        y = scores(replace(d, reads_before_decay=False)).tril() @ d.v
        assert difference(layer.operator.read_out(layer, y, x, layer.operator.rows(layer, x, None)), recurrence) < 1e-13
