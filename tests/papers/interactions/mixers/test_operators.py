"""HyperFeatureAttention and HyperAttention equal their explicit sums on every path, in outputs and gradients."""

from __future__ import annotations

import contextlib
import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.models.blocks import Backbone
from madbench.models.gpt import GPT, generate
from madbench.models.mad import MadModel
from madbench.papers.interactions.mixers.ha.operator import HyperAttention
from madbench.papers.interactions.mixers.hfa.budget import factor_widths
from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention
from madbench.training.cost import PeakMemory

KINDS = {"": lambda newer, older: newer >= older, "s": lambda newer, older: newer > older, "a": lambda *_: True}


def rotate_rows(x, steps):
    """Rotate rows of x by ``steps`` positions, as complex numbers of half-split pairs."""
    half = x.shape[-1] // 2
    angle = steps * 10000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    pairs = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((pairs.real, pairs.imag))


def weighted(scores, values, linear, like):
    if not scores:
        return torch.zeros_like(like)
    weights = torch.stack(scores)
    if not linear:
        weights = weights.exp() / weights.exp().sum()
    return sum(weight * value for weight, value in zip(weights, values))


def feature_attention(mixer, x, widths):
    """Equations 39 and 40 for one sequence. ``widths`` are those of the factors of every head."""
    w, d_vo = dict(mixer.named_parameters()), mixer.d_vo
    rows = []
    for i in range(len(x)):
        heads, q_row, v_row = [], 0, 0
        for of_head in widths:
            values = len(of_head) if mixer.product else 1
            scores, found = [], []
            for j in range(i + 1 if mixer.causal else len(x)):
                z, at = 1.0, q_row
                for width in of_head:
                    q, k = (w[f"{name}.weight"][at : at + width] @ x[t] for name, t in (("q", i), ("k", j)))
                    q, k = (rotate_rows(q, i), rotate_rows(k, j)) if mixer.rope else (q, k)
                    z, at = z * (q @ k) / width**0.5, at + width
                scores.append(z)
                parts = [w["v.weight"][v_row + a * d_vo : v_row + (a + 1) * d_vo] @ x[j] for a in range(values)]
                found.append(torch.stack(parts).prod(0))
            heads.append(weighted(scores, found, mixer.linear, x[0, :d_vo]))
            q_row, v_row = q_row + sum(of_head), v_row + values * d_vo
        rows.append(w["o.weight"] @ torch.cat(heads))
    return torch.stack(rows)


def tuple_attention(mixer, x):
    """Definitions G.1 and G.3 for one sequence."""
    w, heads = dict(mixer.named_parameters()), mixer.n_head
    q = (x @ w["q.weight"].T).view(len(x), heads, -1)
    k_of_slots, v_of_slots = ((x @ w[f"{name}.weight"].T).view(len(x), sum(mixer.slots), -1) for name in "kv")
    rows = []
    for i in range(len(x)):
        found = []
        for h, (degree, slots) in enumerate(zip(mixer.degrees, mixer.slots)):
            before = sum(mixer.slots[:h])
            k, v = (of[:, before : before + slots] for of in (k_of_slots, v_of_slots))
            scores, values = [], []
            for tokens in itertools.product(range(len(x)), repeat=degree - 1):
                if not all(KINDS[mixer.tuples](*pair) for pair in itertools.pairwise(tokens)):
                    continue
                if mixer.causal and max(tokens) > i:
                    continue
                key, value = (math.prod(of[j, min(m, slots - 1)] for m, j in enumerate(tokens)) for of in (k, v))
                key = rotate_rows(key, sum(tokens) - i * len(tokens)) if mixer.rope else key
                scores.append(q[i, h] @ key / mixer.d_qk**0.5)
                values.append(value)
            found.append(weighted(scores, values, mixer.linear, v[0, 0]))
        rows.append(w["o.weight"] @ torch.cat(found))
    return torch.stack(rows)


def gradients_of(y, variables):
    """The gradients of the sum of squares. Zero for parameters that a sequence without tuples does not use."""
    return torch.autograd.grad(y.square().sum(), variables, materialize_grads=True)


def assert_every_path_is(mixer, written_out, tokens):
    generator = torch.Generator().manual_seed(0)
    mixer.double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=0.5, generator=generator)
    x = torch.randn(tokens, mixer.width, generator=generator, dtype=torch.float64).requires_grad_()
    expected, variables = written_out(mixer, x), (x, *mixer.parameters())
    expected_gradients = gradients_of(expected, variables)
    largest = max(float(gradient.abs().max()) for gradient in expected_gradients)
    for path in ("reference", "dense", "chunked", *["linear_time"] * mixer.linear):
        mixer.path = path
        y = mixer(x[None])[0]
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-11)
        for gradient, of_expected in zip(gradients_of(y, variables), expected_gradients):
            torch.testing.assert_close(gradient, of_expected, rtol=0, atol=1e-11 * max(largest, 1))
    if mixer.causal:
        with torch.no_grad():
            torch.testing.assert_close(decode_by_steps(mixer, x), expected.detach(), rtol=0, atol=1e-11)


def decode_by_steps(mixer, x, **how):
    cache, rows = None, []
    for token in x:
        row, cache = mixer.step(token[None], cache, **how)
        rows.append(row[0])
    return torch.stack(rows)


def feature_mixer(orders, product, linear, rope, causal):
    d_qk = {False: 5, True: 8}[rope]
    how = {"linear": linear, "rope": rope, "causal": causal, "chunk": 2}
    return HyperFeatureAttention(6, orders, product, d_qk * len(orders), 2 * len(orders), **how)


def widths_of(mixer):
    d_qk, even = mixer.d_qk, mixer.rope
    table = {(5, 1): [5], (5, 2): [3, 2], (5, 3): [2, 2, 1], (8, 1): [8], (8, 2): [4, 4], (8, 3): [4, 2, 2]}
    assert all(factor_widths(d_qk, order, even) == table[d_qk, order] for order in mixer.orders)
    return [table[d_qk, order] for order in mixer.orders]


def tuple_mixer(degree, unshared, tuples, linear, rope, causal):
    how = {"linear": linear, "rope": rope, "causal": causal, "chunk": 2}
    degrees = degree if isinstance(degree, tuple) else (degree, degree)
    return HyperAttention(5, degrees, unshared, tuples, 8 if rope else 6, 4, **how)


FLAGS = (False, True)
ALL_FEATURE_CASES = [*itertools.product([(1, 1), (2,), (3, 3), (1, 2)], FLAGS, FLAGS, FLAGS, FLAGS)]
ALL_TUPLE_CASES = [*itertools.product([2, 3, 4], FLAGS, ["", "s", "a"], FLAGS, FLAGS, FLAGS)]


@pytest.mark.parametrize(
    "case",
    [
        ((1, 1), False, False, True, True),
        ((2,), False, False, False, True),
        ((3, 3), False, False, True, True),
        ((1, 2), True, False, True, True),
        ((1, 2), True, True, True, True),
        ((2,), False, True, True, False),
        ((3, 3), True, True, False, True),
        ((1, 2), False, False, False, False),
    ],
)
def test_feature_attention_equals_the_explicit_sum(case):
    mixer = feature_mixer(*case)
    assert_every_path_is(mixer, lambda mixer, x: feature_attention(mixer, x, widths_of(mixer)), 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        (2, False, "", False, True, True),
        (3, False, "", False, False, True),
        (3, True, "", False, True, True),
        (3, True, "s", False, True, True),
        (3, False, "a", False, False, False),
        (3, True, "s", True, True, True),
        (3, False, "a", True, True, True),
        (3, True, "", True, False, False),
        (4, True, "", False, False, True),
        (4, True, "s", False, True, True),
        (4, False, "a", False, False, True),
        (4, True, "s", True, True, False),
        (4, True, "a", True, False, True),
        ((2, 3), False, "", False, True, True),
        ((2, 3), True, "s", False, True, True),
        ((2, 3), False, "a", True, True, True),
        ((3, 4), True, "", True, False, True),
        ((2, 3), True, "a", True, False, False),
    ],
)
def test_tuple_attention_equals_the_explicit_sum(case):
    mixer = tuple_mixer(*case)
    assert_every_path_is(mixer, tuple_attention, 4)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("case", ALL_FEATURE_CASES)
def test_non_causal_feature_attention_equals_the_explicit_sum(case, tokens):
    mixer = feature_mixer(*case)
    assert_every_path_is(mixer, lambda mixer, x: feature_attention(mixer, x, widths_of(mixer)), tokens)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("case", ALL_TUPLE_CASES)
def test_non_causal_tuple_attention_equals_the_explicit_sum(case, tokens):
    assert_every_path_is(tuple_mixer(*case), tuple_attention, tokens)


@pytest.mark.parametrize("label", ["hfa:2-p", "hfa:1+2w-q", "ha:3u-p-q", "ha:3s"])
def test_sliding_steps_equal_a_fresh_window(label):
    torch.manual_seed(0)
    mixer, x = build(label, 16, 3).double(), torch.randn(5, 16).double()
    with torch.no_grad():
        torch.testing.assert_close(decode_by_steps(mixer, x, slide=True)[-1], mixer(x[None, 2:])[0, -1])


def test_a_single_visible_tuple_has_all_the_weight_at_any_score():
    torch.manual_seed(0)
    mixer, x = build("ha:5s", 8, 5, budget="paper", path="dense").double(), torch.randn(2, 5, 8).double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=10)
        found = mixer(x)
        mixer.path = "reference"
        torch.testing.assert_close(found, mixer(x))


@pytest.mark.parametrize("label", ["hfa:L2-p", "ha:L3"])
def test_linear_labels_refuse_to_slide(label):
    mixer, x = build(label, 16, 3), torch.randn(4, 16)
    decode_by_steps(mixer, x[:3], slide=True)
    with pytest.raises(TrainingError, match="cannot forget a token after max_len = 3"):
        decode_by_steps(mixer, x, slide=True)
    decode_by_steps(mixer, x)


@pytest.mark.parametrize("label", ["hfa:3-p", "hfa:L2", "ha:3-p", "ha:L3u-p-q", "hfa:2w-q"])
def test_autocast_changes_no_more_than_the_rounding_of_products_of_matrices(label):
    torch.manual_seed(0)
    mixer, x = build(label, 32, 24), torch.randn(2, 24, 32)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    with torch.no_grad():
        expected = mixer(x)
        with torch.autocast("cpu", torch.bfloat16):
            found = mixer(x)
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).norm() < 0.03 * expected.norm()


def test_rotating_each_key_separately_depends_on_absolute_positions():
    torch.manual_seed(0)
    q, k, other = torch.randn(3, 6, dtype=torch.float64)

    def naive(start):
        return float(rotate_rows(q, start + 4) @ (rotate_rows(k, start + 2) * rotate_rows(other, start)))

    def sum_of_lags(start):
        return float(rotate_rows(q, 2 * (start + 4)) @ rotate_rows(k * other, start + 2 + start))

    assert abs(naive(11) - naive(0)) > 0.1
    assert abs(sum_of_lags(11) - sum_of_lags(0)) < 1e-12


def test_auto_chooses_the_path_by_size():
    assert build("hfa:2", 32, 64).resolve_path(2, 64) == "dense"
    assert build("ha:3", 32, 512).resolve_path(8, 512) == "chunked"
    assert build("hfa:L1", 64, 512).resolve_path(1, 512) == "linear_time"
    assert build("hfa:L4", 128, 64).resolve_path(1, 64) == "dense"
    assert build("ha:L3", 64, 64).resolve_path(1, 64) == "linear_time"
    assert build("hfa:2", 32, 64, path="chunked").resolve_path(2, 64) == "chunked"


def test_tuples_that_are_too_many_and_wrong_paths_are_refused_before_allocation():
    with pytest.raises(TrainingError, match="degree n = 3 at 8 x 8,000 tokens, path 'dense', needs .* sequence of"):
        build("ha:3", 32, 8000, path="dense")(torch.zeros(8, 8000, 32))
    with pytest.raises(TrainingError, match="entries per head, at most 1,048,576"):
        build("hfa:L4", 128, 8, path="linear_time")(torch.zeros(1, 8, 128))
    with pytest.raises(TrainingError, match="path 'linear_time' computes labels with base L"):
        build("ha:3", 32, 8, path="linear_time")
    with pytest.raises(TrainingError, match="did you mean 'chunked'"):
        build("ha:3", 32, 8, path="chunkd")
    with pytest.raises(TrainingError, match="0 tokens"):
        build("ha:3", 32, 8)(torch.zeros(1, 0, 32))
    with pytest.raises(TrainingError, match="a bidirectional mixer cannot decode"):
        build("hfa:2", 32, 8, causal=False).step(torch.zeros(1, 32))
    with pytest.raises(TrainingError, match="a step takes one token"):
        build("hfa:2", 32, 8).step(torch.zeros(1, 1, 32))


@pytest.mark.parametrize("label", ["hfa:2w-q", "ha:3-p", "ha:L3", "hfa:C2"])
def test_a_token_model_and_a_language_model_train_with_these_mixers(label):
    def mixer():
        return build(label, 8, 6, budget="paper")

    tokens, language = torch.randint(7, (2, 6)), GPT(7, 8, 2, mixer, 6)
    for model in (MadModel(Backbone(7, 8, 2, mixer)), language):
        model(tokens).square().mean().backward()
        assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())
    assert len(list(generate(language, [1, 2], 4, generator=torch.Generator()))) == 4


@pytest.mark.parametrize("label", ["hfa:L2w-p-q", "ha:3u-p-q", "ha:4", "ha:L3", "ha:C3"])
def test_costs_are_counted_on_tensors_without_data(label):
    with torch.device("meta"):
        mixer, x = build(label, 16, 6, budget="paper", path="dense"), torch.zeros(1, 6, 16)
    assert mixer(x).shape == x.shape


@pytest.mark.parametrize(("label", "tokens"), [("hfa:2-p", 30), ("ha:3", 30), ("ha:3u-p-q", 28), ("hfa:C2", 9)])
def test_memory_of_blocks_of_rows_is_measured_without_data(label, tokens):
    def peak(mode):
        with mode:
            mixer = build(label, 16, tokens, path="chunked")
            mixer.chunk = 4
            x = torch.empty(3, tokens, 16, requires_grad=True)
            with PeakMemory() as memory:
                y = mixer(x)
                y.sum().backward()
        return memory.peak, y.shape

    assert peak(FakeTensorMode()) == peak(contextlib.nullcontext())


@pytest.mark.slow
def test_an_exported_program_computes_all_blocks_of_rows():
    mixer, x = build("ha:3-p", 16, 20, path="chunked"), torch.randn(2, 20, 16)
    mixer.chunk = 4
    assert torch.equal(torch.export.export(mixer, (x,)).module()(x), mixer(x))


@pytest.mark.parametrize("label", ["hfa:2-p", "hfa:L2-p", "ha:3u-p-q", "ha:L3s", "ha:L2+3a", "hfa:C2"])
def test_prefill_and_a_step_equal_the_parallel_form(label):
    torch.manual_seed(0)
    mixer, x = build(label, 16, 9, budget="paper").double(), torch.randn(2, 9, 16).double()
    with torch.no_grad():
        y = mixer(x)
        paths = [path for path in mixer.paths if mixer.linear or path != "linear_time"]
        for prompt, path in itertools.product((1, 5), paths):
            mixer.path = path
            rows, cache = mixer.prefill(x[:, :prompt])
            mixer.path = "auto"
            after, _ = mixer.step(x[:, prompt], cache)
            torch.testing.assert_close(torch.cat((rows, after[:, None]), dim=1), y[:, : prompt + 1])


@pytest.mark.parametrize("label", ["hfa:2-p", "ha:3s"])
def test_a_prompt_beyond_the_window_slides(label):
    torch.manual_seed(0)
    mixer, x = build(label, 16, 3).double(), torch.randn(5, 16).double()
    with torch.no_grad():
        rows, _ = mixer.prefill(x[None], slide=True)
        torch.testing.assert_close(rows[0], decode_by_steps(mixer, x, slide=True))


def test_prompts_that_cannot_be_decoded_are_errors():
    mixer, x = build("hfa:L2-p", 16, 3), torch.randn(1, 4, 16)
    mixer.prefill(x[:, :3], slide=True)
    with pytest.raises(TrainingError, match="cannot forget a token after max_len = 3"):
        mixer.prefill(x, slide=True)
    with pytest.raises(TrainingError, match="cannot decode"):
        build("hfa:2", 16, 8, causal=False).prefill(x)
