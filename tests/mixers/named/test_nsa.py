"""Native sparse attention beside flash-linear-attention, softmax attention, and sliding windows."""

from __future__ import annotations

import pytest
import torch

from library_layers import NEEDS_LIBRARY, check_equal_layers, load_both_ways, run_on_cpu, softmax_attention
from madbench.mixers import build
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer
from madbench.mixers.named.operators.nsa import GATES


def theirs(layer):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims = layer.dims
    sizes = {"block_size": 16, "block_counts": layer.operator.topk, "window_size": 32}
    heads = {"num_heads": dims.heads, "num_kv_heads": dims.heads, "head_dim": dims.key}
    return fla.layers.NativeSparseAttention(hidden_size=dims.d, **heads, **sizes)


def attention_by_references(q, k, v, g_cmp, g_slc, g_swa, block_size, block_counts, window_size, **options):
    """Attention composed of the library's references of its three parts.

    The library's reference of the whole needs 16 heads per key.
    """
    from fla.ops.attn.naive import naive_parallel_attn
    from fla.ops.nsa import naive

    scale, length = q.shape[-1] ** -0.5, q.shape[1]
    ends = [min(start + block_size, length) for start in range(0, length, block_size)]
    mean_k, mean_v = (
        torch.stack([x[:, block_size * c : end].mean(1) for c, end in enumerate(ends)], dim=1) for x in (k, v)
    )
    compressed, _ = naive.naive_nsa_compression(q, mean_k, mean_v, block_size, scale)
    with torch.no_grad():
        chosen = naive.naive_nsa_topk(q, mean_k, block_counts, block_size, scale)
    selected = naive.naive_nsa_selection(q, k, v, chosen, block_size, scale)
    near, _ = naive_parallel_attn(q, k, v, window_size=window_size)
    return g_cmp[..., None] * compressed + g_slc[..., None] * selected + g_swa[..., None] * near


@pytest.mark.parametrize("label", ["NSA(topk=3)!", "NSA!", "NSA(topk=6)!"])
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("length", [1, 15, 16, 33, 97, 130])
    def test_the_layer_equals_the_librarys_with_its_references_for_the_kernels(self, label, length, monkeypatch):
        from fla.layers import nsa

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        run_on_cpu(monkeypatch)
        monkeypatch.setattr(nsa, "parallel_nsa", attention_by_references)
        check_equal_layers(layer, theirs(layer).double(), x)


def with_gates(layer, x, *gates):
    """The output of a layer with the given gate values in all rows."""
    tokens = layer.operator.tokens(layer, x, 0, None)
    q = torch.cat((tokens.q[..., : layer.dims.key], tokens.q.new_tensor(gates).expand(*tokens.q.shape[:3], 3)), dim=-1)
    return layer.operator.read_out(layer, layer.operator.attend(layer, q, tokens.cached, 0), x, tokens)


@torch.no_grad()
def test_chosen_blocks_are_softmax_attention_if_they_are_all_blocks():
    layer, x = filled_mixer(lambda: build("NSA!", 16, 97, n_head=2))
    expected = softmax_attention(layer)(x)
    assert difference(with_gates(layer, x[:, :64], 0, 1, 0), expected[:, :64]) < 1e-13  # four blocks
    assert difference(with_gates(layer, x, 0, 1, 0), expected) > 0.01
    layer, x = filled_mixer(lambda: build("NSA(topk=7)!", 16, 97, n_head=2))
    assert difference(with_gates(layer, x, 0, 1, 0), expected) < 1e-13


@torch.no_grad()
def test_the_window_is_softmax_attention_with_a_sliding_window():
    layer, x = filled_mixer(lambda: build("NSA!", 16, 97, n_head=2))
    plain = softmax_attention(layer)
    window = build("S-pw", 16, 97, n_head=2, window=32).double()
    window.load_state_dict(plain.state_dict())
    assert difference(with_gates(layer, x, 0, 0, 1), window(x)) < 1e-13


@torch.no_grad()
def test_block_means_are_visible_from_the_last_token_of_their_block():
    layer, x = filled_mixer(lambda: build("NSA", 16, 49, n_head=2))
    rows = with_gates(layer, x, 1, 0, 0)
    assert not rows[:, :15].any() and rows[:, 15].any()
    tokens = layer.operator.tokens(layer, x, 0, None)
    q, k, v = tokens.q[:, :, -1, : layer.dims.key], tokens.cached["k"], tokens.cached["v"]
    mean_k, mean_v = (side[:, :, :48].unflatten(2, (3, 16)).mean(3) for side in (k, v))
    weights = ((mean_k @ q[..., None]).squeeze(-1) * layer.dims.key**-0.5).softmax(-1)
    o = (weights[..., None] * mean_v).sum(2).flatten(1)
    assert difference(rows[:, -1], o @ layer.o_proj.weight.T) < 1e-13
    assert sorted(layer.probe(x).gates) == sorted(GATES)


def test_past_the_context_blocks_begin_at_the_oldest_token_that_is_left():
    layer, x = filled_mixer(lambda: build("NSA(topk=3)", 16, 72, n_head=2))
    x = torch.cat((x, x.flip(1)), dim=1)[:, :90]
    rows = decode_tokens(layer, x, slide=True)
    for t in (71, 72, 79, 80, 89):
        assert difference(rows[:, t], layer(x[:, max(0, t - 71) : t + 1])[:, -1]) < 1e-13
