"""KDA, Gated DeltaNet and DeltaNet beside flash-linear-attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, convolve_projection, in_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

pytestmark = NEEDS_LIBRARY


@pytest.mark.parametrize("label", ["KDA", "KDA(neg)!", "GDN", "GDN(neg)!", "DeltaNet", "DeltaNet(neg)!"])
def test_a_state_dict_is_loaded_in_both_directions(label):
    import fla.layers

    def theirs(layer):
        dims = layer.dims
        options = {"head_dim": dims.key, "expand_v": dims.value / dims.key}
        if label.startswith("DeltaNet"):
            options = {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d}
        options |= {"num_heads": dims.heads, "allow_neg_eigval": "neg" in label}
        return getattr(fla.layers, layer.operator.library)(hidden_size=dims.d, **options)

    load_both_ways(label, theirs)


@pytest.mark.parametrize("label", ["KDA", "KDA(neg)", "GDN", "GDN(neg)", "DeltaNet", "DeltaNet(neg)"])
def test_outputs_and_states_equal_the_librarys_recurrence(label):
    from fla.ops.delta_rule import naive as deltanet
    from fla.ops.gated_delta_rule import naive as gdn
    from fla.ops.kda import naive as kda

    layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2))
    p, heads = dict(layer.named_parameters()), layer.dims.heads
    q, k, v = (convolve_projection(x, p, side).unflatten(-1, (heads, -1)) for side in "qkv")
    q, k = (side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt() for side in (q, k))
    beta = (x @ p["b_proj.weight"].T).sigmoid() * (2 if "neg" in label else 1)
    if label.startswith("KDA"):
        logits = x @ p["f_proj.0.weight"].T @ p["f_proj.1.weight"].T + p["dt_bias"]
        g = -p["A_log"].exp()[:, None] * F.softplus(logits, threshold=99).unflatten(-1, (heads, -1))
        o, state = in_float64(kda, kda.naive_recurrent_kda)(q, k, v, g, beta, output_final_state=True)
        gate = (x @ p["g_proj.0.weight"].T @ p["g_proj.1.weight"].T + p["g_proj.1.bias"]).sigmoid()
    elif label.startswith("DeltaNet"):
        naive = in_float64(deltanet, deltanet.delta_rule_recurrence)
        o, state = naive(*(side.transpose(1, 2) for side in (q, k, v, beta)))
        o, gate = o.transpose(1, 2), torch.ones_like(v)
    else:
        g = -p["A_log"].exp() * F.softplus(x @ p["a_proj.weight"].T + p["dt_bias"], threshold=99)
        naive = in_float64(gdn, gdn.naive_recurrent_gated_delta_rule)
        o, state = naive(q=q, k=k, v=v, g=g, beta=beta, output_final_state=True)
        gate = F.silu(x @ p["g_proj.weight"].T)
    o = rms_norm(o, p["o_norm.weight"]) * gate.view_as(o)
    y, cache = layer.prefill(x)
    expected = o.flatten(-2) @ p["o_proj.weight"].T
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.state, state) < 1e-13
