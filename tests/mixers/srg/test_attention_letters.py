"""The letters w, s and n, which act on scores: identities, sizes, counts, decoding, and comparisons with other
libraries."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from madbench.errors import ConfigError, LabelError, TrainingError
from madbench.labels import differing_factors, explain, parse
from madbench.mixers import build, solve
from madbench.mixers.checks import run_checks
from madbench.suites.mad.suite import MAD
from srg_rows import decode, fast_paths, rows_by_loops

LABELS = ("S-w", "D-pw", "R-pcgkw-q-12o", "G-kw-q-12", "L-w-v-2o", "R-w-q-1")
TOKENS = 7


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(
    "window", [1, 3, pytest.param(6, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow)]
)
def test_windowed_attention_equals_loops_over_the_window(label, window, make, randn):
    mixer, x = make(label, max_len=TOKENS, window=window), randn(1, TOKENS, 16)
    expected = rows_by_loops(mixer, x, window=window)
    for path in ("reference", *fast_paths(mixer)):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    torch.testing.assert_close(decode(mixer, x), expected)


@pytest.mark.parametrize("label", LABELS)
def test_a_window_of_all_tokens_equals_no_window(label, make, randn):
    mixer, x = make(label, window=6), randn(2, 6, 16)
    plain = make(label.replace("w", "").replace("--", "-").removesuffix("-"))
    plain.load_state_dict(mixer.state_dict())
    assert torch.equal(mixer(x), plain(x))


@pytest.mark.parametrize("label", ["S-pw", "R-kw-q-12"])
def test_a_window_of_all_tokens_has_two_sides(label, make, randn):
    mixer, x = make(label, max_len=TOKENS, window=3, causal=False), randn(1, TOKENS, 16)
    for path in ("reference", "dense", "chunked", *["sdpa"] * mixer.uses_sdpa):
        mixer.path = path
        y = mixer(x)
        changed = x.clone()
        changed[:, 5] += 1
        moved = (mixer(changed) - y).abs().amax(-1)[0] > 1e-9
        assert moved.tolist() == [False] * 3 + [True] * 4


def test_the_cache_holds_the_window_and_slides_with_the_context(make, randn):
    mixer, x = make("S-pw", max_len=8, window=3), randn(2, 20, 16)
    with torch.no_grad():
        y, cache = mixer.prefill(x[:, :9])
        assert cache.k.shape[2] == 3 and cache.position == 9 and cache.storage.k.shape[2] <= 6
        for t in range(9, 20):
            row, cache = mixer.step(x[:, t], cache)
            torch.testing.assert_close(row, mixer(x)[:, t])
        assert cache.k.shape[2] == 3 and cache.storage.k.shape[2] <= 8
    for label in ("R-w-q-12", "R-kw-q-12o"):
        mixer = make(label, max_len=8, window=3)
        torch.testing.assert_close(decode(mixer, x, slide=True)[:, -1], mixer(x[:, -8:])[:, -1])


def test_mixing_tables_by_lag_have_one_row_per_window_position(make, randn):
    mixer, x = make("R-w-q-12o", max_len=8, window=3), randn(1, 20, 16)
    assert mixer.mix1.p.shape == (2, 3)
    torch.testing.assert_close(mixer(x)[:, -4:], mixer(x[:, -6:])[:, -4:])
    mixer = make("R-w-q-12", max_len=8, window=3)
    assert mixer.mix1.p.shape == (2, 8)
    with pytest.raises(TrainingError, match="20 tokens, but .* max_len = 8"):
        mixer(x)


def test_a_window_by_lag_is_refused_without_causality():
    with pytest.raises(TrainingError, match="without w or without o"):
        build("R-w-q-12o", 16, 8, causal=False)


def test_paths_without_windows_are_not_chosen():
    mixer = build("R-w", 16, 8)
    assert not mixer.has_tiles and not mixer.has_kernel
    with pytest.raises(
        TrainingError, match=r"'tiled' cannot compute R-w: .* the label has 'w' \(sliding window\); use"
    ):
        build("R-w", 16, 8, path="tiled")


def test_blocks_that_skip_hidden_keys_are_chosen_for_long_sequences():
    mixer = build("S-pw", 64, 1024, n_head=2)
    assert mixer.resolve_path(1, 64) == "sdpa" and mixer.resolve_path(4, 1024) == "tiled"
    with torch.no_grad():
        assert mixer.resolve_path(4, 1024) == "tiled" and build("S-p", 64, 1024).resolve_path(4, 1024) == "sdpa"
    for label, path in (("R-w", "chunked"), ("S-w-q-12o", "chunked"), ("S-w-q-12", "dense")):
        mixer = build(label, 64, 256)
        assert mixer.resolve_path(1, 256) == path and mixer.resolve_path(1, 128) == "dense"


def test_flops_state_and_tables_of_a_window_equal_hand_counts():
    """d 64: 4 d^2 parameters, and 2 * 2 d FLOPs for each of the (1 + ... + 16 + 112 * 16) / 128 tokens of a row."""
    windowed, plain = solve("S-pw", 64, 2, 128, window=16), solve("S-p", 64, 2, 128)
    assert windowed.terms == plain.terms and windowed.ratio == 1
    seen = (16 * 17 / 2 + 112 * 16) / 128
    assert plain.flops_per_token(128) - windowed.flops_per_token(128) == 4 * 64 * (64.5 - seen)
    assert windowed.state_bytes_per_token() * 128 == plain.state_bytes_per_token() * 16
    assert windowed.flops_per_token(16) == plain.flops_per_token(16)
    short, shorter = solve("S-p", 64, 2, 8), solve("S-pw", 64, 2, 8, window=16)  # all tokens are in the window
    assert shorter.state_bytes_per_token() == short.state_bytes_per_token() == 2 * (64 + 64)
    both = windowed.flops_per_token(128, causal=False) - windowed.flops_per_token(128)
    assert both == 4 * 64 * (seen - 1)  # as many later tokens as earlier ones
    assert solve("R-w-q-1o", 64, 2, 128, mix_rank=2, window=16).terms["mix1_tables"] == 2 * 16 * 5
    assert "H_q (w + k) (2 r + 1)" in solve("R-kw-q-1o", 64, 2, 128).formulas["mix1_tables"]


@pytest.mark.slow
def test_window_is_a_setting_of_letter_w_only():
    def ids(label, *changes):
        return [job.id for job in MAD.jobs([label], MAD.Profile.load("quick", changes), tasks=["compression"])]

    assert ids("S-pw") == ids("S-pw", "model.window=8") != ids("S-pw", "model.window=4")
    with pytest.raises(ConfigError, match="window has no effect on 'S-p'"):
        build("S-p", 16, 8, window=4)
    with pytest.raises(ConfigError, match="window"):
        build("S-w", 16, 8, window=0)
    assert differing_factors(parse("S-pw"), parse("S-p")) == ("window",)
    assert any("window" in row.what for row in explain(parse("S-pw")))


@pytest.mark.parametrize("label", ["S-w", "R-w-q-12", "R-kw-q-12o"])
def test_a_probe_has_no_weights_outside_the_window(label, make, randn):
    mixer, x = make(label, max_len=TOKENS, window=3), randn(1, TOKENS, 16)
    with torch.no_grad():
        weights = mixer.probe(x).weights
    assert weights.shape == (1, 2, TOKENS, TOKENS) and not weights[..., 3:].any() and weights[0, 0, -1, :3].all()


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-w", "R-w-q-12o"])
def test_a_wrong_window_fails_its_check(label, monkeypatch):
    assert [outcome.verdict for outcome in run_checks(label, names=["window"])] == ["pass"]
    name = "madbench.mixers.srg.block_attention.in_window"
    wrong = lambda rows, tokens, first_row, *_: torch.ones(rows, tokens, dtype=torch.bool).tril(first_row)  # noqa: E731
    if label == "S-w":
        monkeypatch.setattr(name, wrong)
    else:
        monkeypatch.setattr("madbench.mixers.srg.block_attention.lag_scores", lambda q, k: q @ k[..., :-1, :].mT)
    assert [outcome.verdict for outcome in run_checks(label, names=["window"])] == ["fail"]


@pytest.mark.parametrize("window", [1, 5, 40])
def test_windows_equal_those_of_flash_linear_attention(window, make, randn):
    naive = pytest.importorskip("fla.ops.attn.naive", exc_type=ImportError)
    mixer, x = make("S-pw", max_len=33, window=window), randn(2, 33, 16)
    p = mixer.project(x, 0)
    o, _ = naive.naive_parallel_attn(*(t.transpose(1, 2) for t in (p.q, p.k, p.v)), window_size=window)
    torch.testing.assert_close(mixer.o(o.flatten(2)), mixer(x))


SINKS = ("S-s", "D-ps", "S-cks-q-12o", "D-ws-q-2", "S-pws")


@pytest.mark.parametrize("label", SINKS)
def test_a_sink_is_a_term_of_the_denominator(label, make, randn):
    window = {"window": 3} if "w" in label else {}
    mixer, x = make(label, max_len=TOKENS, **window), randn(1, TOKENS, 16)
    mixer.sink.data += 2
    expected = rows_by_loops(mixer, x, **window)
    for path in ("reference", *fast_paths(mixer)):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    torch.testing.assert_close(decode(mixer, x), expected)


@pytest.mark.parametrize("label", ["S-ps", "D-s-q-12"])
def test_weights_of_a_row_and_of_the_sink_sum_to_one(label, make, randn):
    mixer, x = make(label), randn(1, 5, 16)
    maps = mixer.maps(x)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    exponentials = maps.hidden.exp() * visible
    sums = exponentials.sum(-1) / (exponentials.sum(-1) + mixer.sink.exp()[:, None])
    sums = sums if label[0] == "S" else sums[:, :2] - mixer.contrast() * sums[:, 2:]
    torch.testing.assert_close(maps.activations.sum(-1), sums)


def test_sinks_under_bfloat16_equal_those_in_float32(randn):
    x = randn(2, 70, 32).float()
    for label in ("S-ps", "D-pws"):
        torch.manual_seed(0)
        mixer = build(label, 32, 70).requires_grad_(False)
        torch.nn.init.constant_(mixer.sink, 4)
        expected = mixer(x)
        with torch.autocast("cpu", torch.bfloat16):
            for path in ("sdpa", "dense"):
                mixer.path = path
                assert (mixer(x).float() - expected).norm() < 0.03 * expected.norm(), (label, path)


def test_sinks_start_as_those_of_gpt_oss_and_cost_one_number_per_softmax():
    sink = build("S-s", 64, 8, n_head=64).sink
    assert sink.shape == (64,) and 0.015 < sink.std() < 0.025
    for label, count in (("S-ps", 4), ("D-ps", 8)):
        allocation, plain = solve(label, 64, 4, 32), solve(label.replace("s", ""), 64, 4, 32)
        assert allocation.ranks == plain.ranks and allocation.slack == plain.slack
        assert allocation.total - plain.total == allocation.target - plain.target == count
        assert allocation.flops_per_token(32) == plain.flops_per_token(32)
    assert differing_factors(parse("S-ps"), parse("S-p")) == ("sink",)


@pytest.mark.parametrize("label", ["R-s", "G-cs", "L-ps-q"])
def test_a_sink_without_a_softmax_is_refused_with_the_reason(label):
    without = label.replace("s", "").replace("--", "-").removesuffix("-")
    with pytest.raises(LabelError) as caught:
        parse(label)
    reason = f"'s' (attention sink) needs 'S' or 'D' before it; did you mean 'S{label[1:]}' or '{without}'?"
    assert str(caught.value).endswith(f"{' ' * label.index('s')}^ {reason}")


def test_a_closed_sink_that_has_weight_fails_its_check(monkeypatch):
    assert [outcome.verdict for outcome in run_checks("S-s", names=["sink"])] == ["pass"]
    monkeypatch.setattr("madbench.mixers.srg.letter_checks.CLOSED", 0.0)
    assert [outcome.verdict for outcome in run_checks("S-s", names=["sink"])] == ["fail"]


@pytest.mark.parametrize("label", ["S-ps", "S-pws"])
def test_sinks_equal_those_of_flash_linear_attention(label, make, randn):
    naive = pytest.importorskip("fla.ops.attn.naive", exc_type=ImportError)
    window = {"window": 5} if "w" in label else {}
    mixer, x = make(label, max_len=33, **window), randn(2, 33, 16)
    mixer.sink.data += 1
    p = mixer.project(x, 0)
    how = {"sink_bias": mixer.sink, "window_size": mixer.window or None}
    o, _ = naive.naive_parallel_attn(*(t.transpose(1, 2) for t in (p.q, p.k, p.v)), **how)
    y = mixer.o(o.flatten(2))
    torch.testing.assert_close(y, mixer(x))
    weights = list(mixer.parameters())
    cotangent = randn(*y.shape, seed=3)
    for one, other in zip(*(torch.autograd.grad((out * cotangent).sum(), weights) for out in (y, mixer(x)))):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_sinks_equal_those_of_gpt_oss_in_transformers(make, randn, monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", None)  # transformers would take its kernels
    gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    mixer, x = make("S-ps", max_len=33), randn(2, 33, 16)
    p = mixer.project(x, 0)
    module = SimpleNamespace(sinks=mixer.sink, num_key_value_groups=1, training=False)
    mask = torch.full((33, 33), float("-inf"), dtype=torch.float64).triu(1)
    o, _ = gpt_oss.eager_attention_forward(module, p.q, p.k, p.v, mask, mixer.scale)
    torch.testing.assert_close(mixer.o(o.flatten(2)), mixer(x))


@pytest.mark.parametrize("label", ["S-n", "D-pn", "S-pgkn-q", "D-cknm-q-12o", "S-pwsnhe"])
def test_qk_norm_per_head_equals_loops(label, make, randn):
    how = {"window": 3} if "w" in label else {}
    mixer, x = make(label, max_len=TOKENS, d_model=32, **how), randn(1, TOKENS, 32)
    expected = rows_by_loops(mixer, x, **how)
    for path in ("reference", *fast_paths(mixer)):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    torch.testing.assert_close(decode(mixer, x), expected)


def test_qk_norm_makes_the_scale_of_queries_and_keys_irrelevant(make, randn):
    mixer, x = make("S-pn", d_model=32), randn(2, 5, 32)
    y = mixer(x)
    mixer.q.weight.data *= 1000
    mixer.k.weight.data *= 1000
    torch.testing.assert_close(mixer(x), y, rtol=1e-3, atol=1e-3)
    p = mixer.project(x, 0)
    for rows, gain in ((p.q, mixer.q_norm.weight), (p.k, mixer.k_norm.weight)):
        torch.nn.init.ones_(gain)
        rows = mixer.project(x, 0).q if gain is mixer.q_norm.weight else mixer.project(x, 0).k
        torch.testing.assert_close(rows.square().mean(-1), torch.ones(rows.shape[:3]).double(), rtol=1e-5, atol=0)


def test_gains_start_at_one_and_are_shared_by_heads():
    mixer = build("D-pn", 64, 8, n_head=2)
    assert torch.equal(mixer.q_norm.weight, torch.ones(16)) and torch.equal(mixer.k_norm.weight, torch.ones(16))
    allocation, plain = solve("S-pn", 64, 4, 32), solve("S-p", 64, 4, 32)
    assert allocation.ranks == plain.ranks and allocation.slack == plain.slack
    assert allocation.total - plain.total == allocation.target - plain.target == 2 * 16
    assert solve("D-n-v", 16, 4, 8).qk_width >= 2 and solve("S-n-q", 16, 8, 8).qk_width == 2
    assert differing_factors(parse("S-pn"), parse("S-p")) == ("qk_norm",)


@pytest.mark.slow
def test_a_layer_with_qk_norm_equals_that_of_qwen3_in_transformers(make, randn, monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", None)
    qwen3 = pytest.importorskip("transformers.models.qwen3")
    config = qwen3.Qwen3Config(
        hidden_size=32, num_attention_heads=2, num_key_value_heads=2, head_dim=16, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    theirs = qwen3.modeling_qwen3.Qwen3Attention(config, 0).double()
    angles = qwen3.modeling_qwen3.Qwen3RotaryEmbedding(config)
    mixer, x = make("S-pn", d_model=32, max_len=9), randn(2, 9, 32)
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "q_norm": "q_norm", "k_norm": "k_norm"}
    theirs.load_state_dict({f"{their}.weight": mixer.state_dict()[f"{own}.weight"] for own, their in names.items()})
    mask = torch.full((9, 9), float("-inf"), dtype=torch.float64).triu(1)
    y, _ = theirs(x, position_embeddings=angles(x, torch.arange(9)[None]), attention_mask=mask)
    torch.testing.assert_close(y, mixer(x), rtol=1e-5, atol=1e-5)  # transformers computes norms in float32
