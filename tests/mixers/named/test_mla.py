"""Latent attention: the whole layers of DeepSeek-V3 and Kimi Linear, softmax attention, and its decoding."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from library_layers import causal_mask, keep_float64, load_both_ways, module_of_transformers
from madbench.mixers import build
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer

needs_library = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def theirs(layer):
    """The library's layer and its positions, with the widths of ours."""
    dims, is_kimi = layer.dims, layer.operator.nope
    module = module_of_transformers("kimi_linear" if is_kimi else "deepseek_v3")
    config = (module.KimiLinearConfig if is_kimi else module.DeepseekV3Config)(
        hidden_size=dims.d, num_attention_heads=dims.heads, num_key_value_heads=dims.heads, q_lora_rank=None,
        kv_lora_rank=dims.latent, qk_rope_head_dim=dims.rope, qk_nope_head_dim=dims.key - dims.rope,
        v_head_dim=dims.value, attn_implementation="eager",
    )  # fmt: skip
    if is_kimi:
        return module.KimiLinearAttention(config, 0), lambda x, positions: None
    return module.DeepseekV3Attention(config, 0), module.DeepseekV3RotaryEmbedding(config)


@pytest.mark.parametrize("label", ["MLA", "MLA!", "MLA(nope)"])
class TestLibrary:
    pytestmark = needs_library

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, lambda layer: theirs(layer)[0])

    def test_the_layer_equals_the_librarys_whole_layer(self, label, monkeypatch):
        layer, x = filled_mixer(lambda: build(label, 48, 33, n_head=3))
        keep_float64(monkeypatch)
        other, rotary = theirs(layer)
        other.double().load_state_dict(layer.state_dict())
        positions = {} if "nope" in label else {"position_embeddings": rotary(x, torch.arange(33)[None])}
        expected, _ = other(x, attention_mask=causal_mask(33), **positions)
        assert difference(layer(x), expected) < 1e-13


@torch.no_grad()
def test_with_an_identity_for_compression_it_is_softmax_attention():
    layer, x = filled_mixer(lambda: build("MLA(nope)!", 8, 7, n_head=2))
    dims, eye = layer.dims, torch.eye(8)
    layer.kv_a_proj_with_mqa.weight[:] = torch.cat((eye, eye, torch.zeros(dims.rope, 8)))  # C is 16
    layer.kv_a_layernorm.weight[:] = 1
    c = rms_norm(torch.cat((x, x), dim=-1), (dims.latent,), None, 1e-6)
    k, v = (c @ layer.kv_b_proj.weight.T).unflatten(-1, (2, 8)).transpose(1, 2).split(4, dim=-1)
    q = (x @ layer.q_proj.weight.T).unflatten(-1, (2, dims.key)).transpose(1, 2)[..., :4]
    o = scaled_dot_product_attention(q, k, v, is_causal=True, scale=dims.key**-0.5)
    assert difference(layer(x), o.transpose(1, 2).flatten(-2) @ layer.o_proj.weight.T) < 1e-13


def test_decoding_with_a_hooked_projection_computes_keys_and_values():
    layer, x = filled_mixer(lambda: build("MLA", 16, 9, n_head=2))
    expected, calls = decode_tokens(layer, x), []
    layer.kv_b_proj.register_forward_hook(lambda *call: calls.append(1))
    assert not calls and difference(decode_tokens(layer, x), expected) < 1e-13 and len(calls) == 9


def test_the_cache_is_narrower_than_that_of_softmax_attention():
    mla, softmax = build("MLA", 128, 16, n_head=4), build("S-p", 128, 16, n_head=4)
    _, cache = mla.prefill(torch.randn(1, 16, 128))
    held = sum(part.numel() for part in cache.cached.values())
    assert held == 16 * (58 + 16) == mla.allocation.state(16)
    assert held < 0.3 * 16 * softmax.allocation.state_bytes_per_token(1)
