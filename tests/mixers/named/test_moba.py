"""MoBA beside flash-linear-attention, masks made by hand, and softmax attention."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F

from library_layers import NEEDS_LIBRARY, load_both_ways, run_on_cpu, softmax_attention
from madbench.mixers import build
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer


def theirs(layer):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims, operator = layer.dims, layer.operator
    options = {"qk_norm": operator.norm, "moba_topk": operator.topk, "moba_chunk_size": 16}
    return fla.layers.MoBA(hidden_size=dims.d, num_heads=dims.heads, **options)


def packed_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, **options):
    """Attention within packed sequences (T, H, K) and the log of its denominators (H, T), as by flash-attn."""
    outputs, sums = torch.zeros_like(q), q.new_zeros(q.shape[1], len(q))
    borders = zip(*(ends[i : len(ends) - 1 + i].tolist() for ends in (cu_seqlens_q, cu_seqlens_k) for i in (0, 1)))
    for start, end, first, last in borders:
        z = torch.einsum("thk,jhk->htj", q[start:end], k[first:last]) * q.shape[-1] ** -0.5
        if causal:
            z = z.masked_fill(torch.ones(z.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        outputs[start:end] = torch.einsum("htj,jhk->thk", z.softmax(-1), v[first:last])
        sums[:, start:end] = z.logsumexp(-1)
    return outputs, sums, None, None


@pytest.mark.parametrize("label", ["MoBA!", "MoBA(topk=2)!", "MoBA(topk=3,norm)!"])
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("length", [1, 15, 33, 80, 130])
    def test_outputs_equal_the_librarys_layer_with_attention_by_torch(self, label, length, monkeypatch):
        from fla.ops.moba import parallel

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        run_on_cpu(monkeypatch)
        monkeypatch.setattr(parallel, "_flash_attn_varlen_forward", packed_attention)
        monkeypatch.setattr(
            parallel,
            "flash_attn_varlen_func",
            lambda q, k, v, ends_q, ends_k, *most, causal: packed_attention(q, k, v, ends_q, ends_k, causal)[0],
        )
        context = types.SimpleNamespace(save_for_backward=lambda *tensors: None)
        apply = parallel.ParallelMoBAFunction.forward
        monkeypatch.setattr(parallel.ParallelMoBAFunction, "apply", lambda *inputs: apply(context, *inputs))
        other = theirs(layer).double()
        other.load_state_dict(layer.state_dict())
        assert difference(layer(x), other(x)[0]) < 1e-13


def normed_softmax_attention(layer, x):
    """Softmax attention with the norm of the output that MoBA has."""
    plain, eye = softmax_attention(layer), torch.eye(x.shape[-1], dtype=x.dtype)
    plain.o.weight.data.copy_(eye)
    o = plain(x).unflatten(-1, (layer.dims.heads, -1))
    return F.rms_norm(o, o.shape[-1:], layer.o_norm.weight, 1e-6).flatten(-2) @ layer.o_proj.weight.T


@torch.no_grad()
@pytest.mark.parametrize("path", ["dense", "blocks"])
def test_with_all_blocks_it_is_softmax_attention(path):
    layer, x = filled_mixer(lambda: build("MoBA!", 16, 97, n_head=2, path=path))
    expected = normed_softmax_attention(layer, x)
    assert difference(layer(x[:, :64]), expected[:, :64]) < 1e-13  # four blocks
    assert difference(layer(x), expected) > 0.01
    layer, x = filled_mixer(lambda: build("MoBA(topk=7)!", 16, 97, n_head=2, path=path))
    assert difference(layer(x), expected) < 1e-13


@pytest.mark.parametrize("topk", [1, 2, 4])
def test_a_row_reads_its_block_and_the_earlier_blocks_with_the_best_mean_keys(topk):
    layer, x = filled_mixer(lambda: build(f"MoBA(topk={topk})", 16, 100, n_head=2))
    tokens = layer.operator.tokens(layer, x, 0, None)
    q, k = tokens.q, tokens.cached["k"]
    weights = layer.operator.weights(layer, q, tokens.cached, 0)
    for t in (0, 15, 16, 31, 63, 64, 99):
        own = t // 16
        for b, h in ((0, 0), (0, 1), (1, 0)):
            score = {c: float(q[b, h, t] @ k[b, h, 16 * c : 16 * c + 16].mean(0)) for c in range(own)}
            best = sorted(score, key=score.get)[len(score) - min(topk - 1, own) :]
            expected = [j for j in range(t + 1) if j // 16 in (own, *best)]
            assert weights[b, h, t].nonzero().flatten().tolist() == expected
    assert (weights.sum(-1) - 1).abs().max() < 1e-13


def test_past_the_context_blocks_begin_at_the_oldest_token_that_is_left():
    layer, x = filled_mixer(lambda: build("MoBA(topk=2)", 16, 40, n_head=2))
    x = torch.cat((x, x.flip(1)), dim=1)[:, :60]
    rows = decode_tokens(layer, x, slide=True)
    for t in (39, 40, 47, 48, 55, 59):
        assert difference(rows[:, t], layer(x[:, max(0, t - 39) : t + 1])[:, -1]) < 1e-13
