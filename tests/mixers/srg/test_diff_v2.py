"""differential=v2: DIFF V2 against its equation with interleaved heads, counts, start, settings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from madbench.errors import ConfigError
from madbench.mixers import build, effective_settings, own_settings, solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.family import Settings
from srg_rows import decode, fast_paths

LABELS = ["D", "D-pm", "D-pcgkasnmhe-v-12o", "D-m-q-1", "D-kshe-q", "D-pw"]


@pytest.mark.parametrize("label", LABELS)
def test_every_path_and_decoding_equal_the_reference_loops(label, make, randn):
    settings = {"kv_heads": 2} if "m" in label else {}
    settings |= {"window": 3} if "w" in label else {}
    mixer, x = make(label, d_model=32, n_head=4, differential="v2", **settings), randn(2, 5, 32)
    cotangent = randn(2, 5, 32, seed=2)

    def results(path):
        mixer.path = path
        y = mixer(x)
        return y, torch.autograd.grad((y * cotangent).sum(), list(mixer.parameters()))

    expected, gradients = results("reference")
    largest = max(gradient.norm() for gradient in gradients)
    for path in fast_paths(mixer):
        y, given = results(path)
        torch.testing.assert_close(y, expected)
        assert all((a - b).norm() < 1e-9 * largest for a, b in zip(given, gradients)), path
    torch.testing.assert_close(decode(mixer, x), expected)
    rows, cache = mixer.prefill(x[:, :3])
    torch.testing.assert_close(rows, expected[:, :3])
    torch.testing.assert_close(mixer.step(x[:, 3], cache)[0], expected[:, 3])


def test_diff_v2_equals_the_published_equation_with_interleaved_pairs(make, randn):
    """attn[0::2] - sigmoid(x W) attn[1::2] with 2 h query heads, of which each pair shares a key and a value."""
    mixer, x = make("D-m", d_model=32, n_head=4, kv_heads=2, differential="v2"), randn(2, 5, 32)
    p = mixer.project(x, 0)
    q = p.q.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)  # heads 0 and 1 are the pair of the first head
    k, v = (each.repeat_interleave(4, dim=1) for each in (p.k, p.v))  # GQA: consecutive heads share
    attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    factor = torch.sigmoid(x @ mixer.contrast_gate.weight.T).transpose(1, 2)[..., None]
    o = attn[:, 0::2] - factor * attn[:, 1::2]
    torch.testing.assert_close(mixer(x), mixer.o(o.transpose(1, 2).flatten(-2)))


def test_without_the_second_softmax_it_is_softmax_attention(make, randn):
    """Its query and key heads are half as wide, so its weights are scaled and padded with zeros."""
    mixer, plain, x = make("D", differential="v2"), make("S"), randn(2, 5, 16)
    x[..., 0] = 1
    nn.init.zeros_(mixer.contrast_gate.weight)
    nn.init.constant_(mixer.contrast_gate.weight[:, 0], -80)  # sigmoid is 0
    width = mixer.allocation.qk_width
    assert plain.allocation.qk_width == 2 * width
    with torch.no_grad():
        for name, weight in (("q", mixer.q.weight[: 2 * width]), ("k", mixer.k.weight)):
            padded = F.pad(weight.unflatten(0, (2, width)) * 2**0.25, (0, 0, 0, width))
            getattr(plain, name).weight.copy_(padded.flatten(0, 1))
        plain.v.weight.copy_(mixer.v.weight), plain.o.weight.copy_(mixer.o.weight)
    torch.testing.assert_close(mixer(x), plain(x))


def test_counts_equal_the_built_module_and_shared_keys_widen_qk():
    """d 64, 4 heads: 8 query heads of 10 channels, and 4 heads of keys. What remains goes to VO."""
    allocation = solve("D-p", 64, 4, 32, differential="v2")
    assert (allocation.r_qk, allocation.r_k, allocation.r_vo, allocation.key_heads) == (80, 40, 68, 4)
    assert allocation.target == 4 * 64**2 + 64 * 4
    assert set(allocation.terms) == {"qk", "vo", "contrast_gate"} and allocation.terms["contrast_gate"] == 64 * 4
    assert sum(p.numel() for p in DynamicMLP(allocation).parameters()) == allocation.total <= allocation.target
    assert allocation.state_bytes_per_token(1) == 40 + 68
    pairs = 2 * (80 + 68) * 33 / 2
    assert allocation.flops_per_token(32) == 2 * 64 * (80 + 40 + 68 + 68) + 2 * 64 * 4 + pairs
    first = solve("D-p", 64, 4, 32)
    assert (first.r_qk, first.key_heads) == (64, 8) and "contrast_gate" not in first.terms


def test_lambda_starts_near_one_half_and_nothing_is_normalized():
    mixer = build("D-p", 64, 8, n_head=4, differential="v2")
    assert mixer.head_norm is None and mixer.contrast is None and mixer.contrast_gate.bias is None
    assert mixer.contrast_gate.weight.shape == (4, 64) and 0.015 < mixer.contrast_gate.weight.std() < 0.025


def test_differential_v2_is_in_the_settings_and_lambda_init_is_not():
    second = Settings(differential="v2", lambda_init=0.5)
    assert "differential" not in own_settings("S-p", second) and own_settings("D-p", second)["differential"] == "v2"
    effective = effective_settings(solve("D-p", 32, 2, 8, differential="v2"), vars(second))
    assert "lambda_init" not in effective and effective["differential"] == "v2"
    with pytest.raises(ConfigError, match="differential has no effect on 'S'"):
        build("S", 32, 8, differential="v2")
    with pytest.raises(ConfigError, match="differential"):
        build("D", 32, 8, differential="v3")
