"""Gated DeltaNet 2: with one gate per head it is KDA. Beside flash-linear-attention: parameters and rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolve_projection, in_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.recurrence.forms import scores


@pytest.mark.parametrize("arguments", ["", "(neg)"])
@torch.no_grad()
def test_with_one_gate_per_head_it_is_kda(arguments):
    layer, x = filled_mixer(lambda: build(f"GDN-2{arguments}!", 16, 9, n_head=2))
    kda = build(f"KDA{arguments}!", 16, 9, n_head=2).double()
    kda.load_state_dict(
        {k: v[:2] if k == "b_proj.weight" else v for k, v in layer.state_dict().items() if "w_" not in k}
    )
    of_head = layer.b_proj.weight[:2].clone()
    layer.b_proj.weight.copy_(of_head.repeat_interleave(layer.dims.key, dim=0))
    layer.w_proj.weight.copy_(of_head.repeat_interleave(layer.dims.value, dim=0))
    theirs = kda.operator.rows(kda, x, None).dynamics
    if arguments:  # KDA doubles what is written too
        ours = layer.operator.rows(layer, x, None).dynamics
        mirrors = theirs.mirrors._replace(length=torch.ones_like(theirs.mirrors.beta))
        assert difference(scores(ours).tril(), scores(replace(theirs, mirrors=mirrors)).tril()) < 1e-14
    else:
        assert difference(layer(x), kda(x)) < 1e-14


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["GDN-2", "GDN-2(neg)!"])
    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        from fla.layers.gdn2 import GatedDeltaNet2

        def theirs(layer):
            dims = layer.dims
            widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
            return GatedDeltaNet2(hidden_size=dims.d, **widths)

        load_both_ways(label, theirs)

    @pytest.mark.parametrize("label", ["GDN-2", "GDN-2(neg)"])
    def test_outputs_and_states_equal_the_librarys_recurrence(self, label):
        from fla.ops.gdn2 import naive

        layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2))
        p, heads = dict(layer.named_parameters()), layer.dims.heads
        q, k, v = (convolve_projection(x, p, side).unflatten(-1, (heads, -1)) for side in "qkv")
        q, k = (side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt() for side in (q, k))
        b, w = ((x @ p[f"{side}_proj.weight"].T).sigmoid().unflatten(-1, (heads, -1)) for side in "bw")
        logits = x @ p["f_proj.0.weight"].T @ p["f_proj.1.weight"].T + p["dt_bias"]
        g = -p["A_log"].exp()[:, None] * F.softplus(logits, threshold=99).unflatten(-1, (heads, -1))
        recurrence = in_float64(naive, naive.naive_recurrent_gdn2)
        o, state = recurrence(q, k, v, g, b * (2 if "neg" in label else 1), w, output_final_state=True)
        gate = (x @ p["g_proj.0.weight"].T @ p["g_proj.1.weight"].T + p["g_proj.1.bias"]).sigmoid()
        expected = (rms_norm(o, p["o_norm.weight"]).flatten(-2) * gate) @ p["o_proj.weight"].T
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, state) < 1e-13
