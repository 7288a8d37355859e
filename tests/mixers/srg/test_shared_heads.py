"""The letter m: heads that share keys and values."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import BudgetError, ConfigError
from madbench.labels import differing_factors, explain, parse
from madbench.mixers import build, solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from srg_rows import decode, fast_paths

HEADS = 4


def repeat_rows(weight, heads, group):
    """The rows of a weight, with the rows of each head repeated ``group`` times."""
    return weight.unflatten(0, (heads, -1)).repeat_interleave(group, 0).flatten(0, 1)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("label", ["S-pm", "D-cme", "G-pgkam-q-12o"])
def test_shared_heads_equal_heads_with_equal_weights(label, kv_heads, make, randn):
    """With one kv head per head, all weights equal those of the mixer without m."""
    shared, x = make(label, d_model=32, n_head=HEADS, kv_heads=kv_heads), randn(2, 5, 32)
    plain = make(label.replace("m", ""), d_model=32, n_head=HEADS)
    weights, sets = dict(shared.state_dict()), plain.query_heads // HEADS
    for name, heads in {"k": sets * kv_heads, "v": kv_heads, **({"v_up": kv_heads} if "a" in label else {})}.items():
        weights[f"{name}.weight"] = repeat_rows(weights[f"{name}.weight"], heads, HEADS // kv_heads)
    plain.load_state_dict(weights)
    for path in fast_paths(shared):
        shared.path = plain.path = path
        torch.testing.assert_close(shared(x), plain(x))
    torch.testing.assert_close(decode(shared, x), plain(x))


@pytest.mark.parametrize("label", ["S-pm", "G-gkm-q-2"])
def test_gradients_of_every_path_equal_the_reference(label, make, randn):
    mixer, x, cotangent = make(label, n_head=HEADS, kv_heads=2), randn(2, 5, 16), randn(2, 5, 16, seed=2)

    def gradients(path):
        mixer.path = path
        return torch.autograd.grad((mixer(x) * cotangent).sum(), list(mixer.parameters()))

    expected = gradients("reference")
    largest = max(gradient.norm() for gradient in expected)
    for path in fast_paths(mixer):
        assert all((a - b).norm() < 1e-9 * largest for a, b in zip(gradients(path), expected)), path


def test_the_cache_holds_each_shared_key_and_value_once(make, randn):
    mixer = make("S-pm", n_head=HEADS, kv_heads=2)
    _, cache = mixer.prefill(randn(1, 5, 16))
    allocation = mixer.allocation
    assert cache.k.shape == (1, 2, 5, allocation.qk_width) and cache.v.shape == (1, 2, 5, allocation.vo_width)
    assert allocation.state_bytes_per_token(1) == 2 * (allocation.qk_width + allocation.vo_width)


def test_parameters_saved_by_shared_heads_increase_the_rank_of_qk():
    """d 64 and 4 heads: W_q and W_o of 64 ranks, W_k and W_v of a quarter of them."""
    allocation = solve("S-m", 64, 4, 32)
    assert (allocation.r_qk, allocation.r_k, allocation.r_vo, allocation.r_v) == (140, 35, 64, 16)
    assert allocation.total == 64 * (140 + 35 + 16 + 64) == 16320 and allocation.target == 4 * 64**2
    assert solve("S-m", 64, 4, 32, kv_heads=4).ranks == solve("S", 64, 4, 32).ranks
    assert solve("S-m", 64, 4, 32, "paper").ranks == {"qk": 64, "vo": 64, "mix": 0}
    pairs = 2 * (140 + 64) * 33 / 2
    assert allocation.flops_per_token(32) == 2 * 64 * (140 + 35 + 16 + 64) + pairs
    q, v = solve("S-m-q", 64, 4, 32), solve("S-m-v", 64, 4, 32)
    assert (q.r_qk, v.r_vo) == (16, 16) and q.r_vo > 128 and v.r_qk > 128
    assert differing_factors(parse("S-pm"), parse("S-p")) == ("shared_kv",)
    assert [row.name for row in explain(parse("S-pm"))][-1] == "QK widened"


@pytest.mark.slow
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("label", ["S-pm", "D-cm", "G-pgm-v-12", "R-kam-q-1o", "L-m-v"])
def test_counts_equal_the_built_module_and_no_larger_rank_fits(label, kv_heads):
    allocation = solve(label, 60, 6, 9, kv_heads=kv_heads)
    assert sum(parameter.numel() for parameter in DynamicMLP(allocation).parameters()) == allocation.total
    assert 0 <= allocation.slack < 2 * 60 * (12 + 12)


def test_numbers_of_kv_heads_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(BudgetError, match="3 heads of keys and values .* by 4 heads; use kv_heads of 1, 2, 4"):
        build("S-m", 32, 8, n_head=4, kv_heads=3)
    with pytest.raises(ConfigError, match="kv_heads has no effect on 'S-p'"):
        build("S-p", 32, 8, kv_heads=2)
    with pytest.raises(ConfigError, match="kv_heads"):
        build("S-m", 32, 8, kv_heads=0)


def test_float64_naive_attention_of_flash_linear_attention_agrees(make, randn):
    naive = pytest.importorskip("fla.ops.attn.naive")
    mixer, x = make("S-m", d_model=32, n_head=HEADS, kv_heads=2), randn(2, 7, 32)
    p = mixer.project(x, 0)
    q, k, v = (each.transpose(1, 2) for each in (p.q, p.k, p.v))
    expected = naive.naive_parallel_attn(q, k, v, scale=mixer.scale)
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(mixer(x), mixer.o(expected.flatten(-2)))
