"""Gated attention beside Qwen3-Next's whole layer."""

from __future__ import annotations

import pytest
import torch

from library_layers import causal_mask, keep_float64, load_both_ways, module_of_transformers
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def theirs(layer):
    """The library's layer and its positions, with the widths of ours."""
    qwen, dims = module_of_transformers("qwen3_next"), layer.dims
    rotated = 2 * max(1, dims.key // 8)
    config = qwen.Qwen3NextConfig(
        hidden_size=dims.d, num_attention_heads=dims.heads, num_key_value_heads=dims.heads, head_dim=dims.key,
        partial_rotary_factor=rotated / dims.key, attn_implementation="eager",
    )  # fmt: skip
    return qwen.Qwen3NextAttention(config, 0), qwen.Qwen3NextRotaryEmbedding(config)


@pytest.mark.parametrize("label", ["GatedAttention", "GatedAttention!"])
def test_a_state_dict_is_loaded_in_both_directions(label):
    load_both_ways(label, lambda layer: theirs(layer)[0])


@pytest.mark.parametrize("d, heads", [(32, 2), (64, 2), (48, 3)])
def test_the_layer_equals_the_librarys_whole_layer(d, heads, monkeypatch):
    layer, x = filled_mixer(lambda: build("GatedAttention!", d, 33, n_head=heads))
    keep_float64(monkeypatch)
    other, rotary = theirs(layer)
    other.double().load_state_dict(layer.state_dict())
    expected, _ = other(x, rotary(x, torch.arange(33)[None]), causal_mask(33))
    assert difference(layer(x), expected) < 1e-13
