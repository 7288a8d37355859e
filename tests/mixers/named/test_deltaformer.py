"""DeltaFormer beside flash-linear-attention, its definition as an inverse, and softmax attention."""

from __future__ import annotations

import pytest
import torch

from library_layers import NEEDS_LIBRARY, check_equal_layers, load_both_ways, run_on_cpu, softmax_attention
from madbench.mixers import build
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer
from madbench.mixers.named import attention_ops


def theirs(layer):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims, norm = layer.dims, layer.operator.norm
    return fla.layers.DeltaFormerAttention(hidden_size=dims.d, num_heads=dims.heads, qk_norm=norm)


@pytest.mark.parametrize("label", ["DeltaFormer!", "DeltaFormer(norm)!"])
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("length", [1, 7, 65, 130])
    def test_the_layer_equals_the_librarys_with_its_reference_for_the_kernel(self, label, length, monkeypatch):
        from fla.layers import deltaformer
        from fla.ops.deltaformer.naive import naive_deltaformer_attn

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        layer.chunk = 48
        run_on_cpu(monkeypatch)
        monkeypatch.setattr(
            deltaformer, "deltaformer_attn", lambda q, k, v, beta, **options: naive_deltaformer_attn(q, k, v, beta)
        )
        check_equal_layers(layer, theirs(layer).double(), x)


@pytest.mark.parametrize("path", ["dense", "blocks", "tiled", "sdpa"])
def test_values_are_multiplied_by_an_inverse_of_strict_softmax(path):
    layer, x = filled_mixer(lambda: build("DeltaFormer", 32, 21, n_head=2, path=path))
    layer.chunk = 8
    assert layer.dims.key != layer.dims.value
    raw = layer.operator.tokens(layer, x, 0, {})  # as for a token of decoding, which is not corrected
    z = raw.q @ raw.cached["k"].mT * layer.dims.key**-0.5
    future = torch.ones(21, 21, dtype=torch.bool).triu()
    strict = z.masked_fill(future, -torch.inf).softmax(-1).nan_to_num(0)
    u = torch.linalg.inv(torch.eye(21) + raw.mirrors["beta"] * strict) @ raw.cached["v"]
    o = attention_ops.softmax(z, 0) @ u
    assert difference(layer(x), o.transpose(1, 2).flatten(-2) @ layer.o_proj.weight.T) < 1e-13


@torch.no_grad()
@pytest.mark.parametrize("path", ["dense", "blocks", "tiled", "sdpa"])
def test_without_corrections_it_is_softmax_attention(path):
    layer, x = filled_mixer(lambda: build("DeltaFormer!", 16, 11, n_head=2, path=path))
    assert difference(layer(x), softmax_attention(layer)(x)) > 0.1
    layer.b_proj.weight[:], layer.b_proj.bias[:] = 0, 0
    assert difference(layer(x), softmax_attention(layer)(x)) < 1e-13


def test_past_the_context_values_are_corrected_by_cached_values_only():
    layer, x = filled_mixer(lambda: build("DeltaFormer", 16, 4, n_head=2))
    x = torch.cat((x, x.flip(1), -x), dim=1)
    raw = [layer.operator.tokens(layer, token, t, {}) for t, token in enumerate(x.split(1, dim=1))]
    k, u, rows = [token.cached["k"] for token in raw], [], []
    for t, token in enumerate(raw):
        z = [token.q @ each.mT * layer.dims.key**-0.5 for each in k]
        before, seen = range(max(0, t - 4), t), range(max(0, t - 3), t + 1)
        u.append(token.cached["v"])
        if t:
            shares = torch.cat([z[j] for j in before], dim=-1).softmax(-1)
            u[t] = u[t] - token.mirrors["beta"] * (shares @ torch.cat([u[j] for j in before], dim=-2))
        weights = torch.cat([z[j] for j in seen], dim=-1).softmax(-1)
        o = weights @ torch.cat([u[j] for j in seen], dim=-2)
        rows.append(o.transpose(1, 2).flatten(-2) @ layer.o_proj.weight.T)
    expected = torch.cat(rows, dim=1)
    assert difference(decode_tokens(layer, x, slide=True), expected) < 1e-13
    prompt, cache = layer.prefill(x, slide=True)
    assert difference(prompt, expected) < 1e-13 and cache.cached["v"].shape[-2] == 4


def test_large_scores_have_finite_gradients_in_float32():
    torch.manual_seed(0)
    layer, x = build("DeltaFormer", 16, 40, n_head=2), torch.randn(2, 40, 16)
    layer.chunk = 8
    with torch.no_grad():
        layer.q_proj.weight.mul_(1e4)
    with torch.autograd.set_detect_anomaly(True):  # no intermediate gradient is NaN either
        layer(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
