"""Softmax attention in blocks: float64 loops, derivatives, saved tensors, and recordings."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from madbench.mixers.ops import softmax
from madbench.training import replay
from madbench.training.cost import PeakMemory

SHAPES = [  # B, H, T, K, V
    (1, 1, 1, 1, 1),
    (1, 1, 5, 3, 2),
    (2, 3, 7, 4, 6),
    (3, 2, 13, 17, 16),
    (1, 5, 10, 2, 33),
]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(softmax, "BLOCK_ROWS", 5)
    monkeypatch.setattr(softmax, "BLOCK_NUMBERS", 130 // torch.get_num_threads())


def heads(batch, heads, length, width, seed, dtype=torch.float64):
    """A tensor (B, H, T, C) laid out as by a projection: a part of each token's row."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(batch, length, heads * width + 3, generator=generator, dtype=torch.float64).to(dtype)
    return rows[..., 3:].unflatten(-1, (heads, width)).transpose(1, 2)


def inputs(shape, dtype=torch.float64):
    *sizes, k, v = shape
    return [heads(*sizes, width, seed, dtype).requires_grad_() for seed, width in enumerate((k, k, v))]


def loops(q, k, v, window=0, sink=None):
    """Softmax attention by loops over rows and keys."""
    rows = []
    sinks = [0.0] * (q.shape[0] * q.shape[1]) if sink is None else sink.flatten().exp()
    for of_q, of_k, of_v, of_sink in zip(*(x.flatten(0, 1) for x in (q, k, v)), sinks):
        for t, query in enumerate(of_q):
            seen = slice(max(0, t - window + 1) if window else 0, t + 1)
            weights = [((query * key).sum() / len(query) ** 0.5).exp() for key in of_k[seen]]
            rows.append(sum(weight * value for weight, value in zip(weights, of_v[seen])) / (sum(weights) + of_sink))
    return torch.stack(rows).view(*q.shape[:3], v.shape[-1])


def outcome(attend, variables):
    o = attend(*variables)
    weight = heads(*o.shape, seed=9).to(o.dtype)
    return [o, *torch.autograd.grad(o, variables, weight)]


@pytest.mark.parametrize("kept", [0, 2**22])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_equal_a_loop_over_positions(shape, kept, small_blocks, monkeypatch):
    monkeypatch.setattr(softmax, "KEPT_NUMBERS", kept)
    variables = inputs(shape)
    for found, expected in zip(outcome(softmax.attend, variables), outcome(loops, variables)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kept", [0, 2**22])
@pytest.mark.parametrize("shape", [SHAPES[2], pytest.param(SHAPES[3], marks=pytest.mark.slow), SHAPES[4]])
@pytest.mark.parametrize("window", [0, 4, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 6, 20))])
def test_windows_and_sinks_equal_a_loop_over_positions(shape, window, kept, small_blocks, monkeypatch):
    monkeypatch.setattr(softmax, "KEPT_NUMBERS", kept)
    variables = [*inputs(shape), heads(*shape[:2], 1, 1, seed=5).detach().requires_grad_()]
    for has_sink in (True, False):
        some = variables[: 3 + has_sink]
        found, expected = (
            outcome(lambda *of, attend=attend: attend(*of[:3], window, *of[3:]), some)
            for attend in (softmax.attend, loops)
        )
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_second_derivatives_of_windows_and_sinks_equal_finite_differences(small_blocks):
    variables = [*inputs((1, 2, 7, 3, 2)), heads(1, 2, 1, 1, seed=5).detach().requires_grad_()]
    attend = lambda *of: softmax.attend(*of[:3], 3, *of[3:])  # noqa: E731
    assert torch.autograd.gradcheck(attend, variables, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, variables, fast_mode=True)


def test_a_window_stores_weights_only_for_its_keys():
    assert not softmax.keeps_weights(4, 4, 1024) and softmax.keeps_weights(4, 4, 1024, window=16)
    scores = torch.zeros(1, 1, 3, 5)
    assert (softmax._past(scores, -1) == 0).tolist() == [[True] * 5, [False, *[True] * 4], [False, False, *[True] * 3]]


@pytest.mark.parametrize("length", [63, 64, 130])
def test_float32_gives_what_the_attention_of_torch_gives(length):
    variables = inputs((3, 4, length, 12, 20), torch.float32)
    expected = outcome(functools.partial(F.scaled_dot_product_attention, is_causal=True), variables)
    for found, other in zip(outcome(softmax.attend, variables), expected):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow():
    q, k, v = (100 * x.detach() for x in inputs((2, 2, 70, 8, 8), torch.float32))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(softmax.attend(q, k, v), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("kept", [0, 2**22])
def test_first_and_second_derivatives_are_differences_of_outputs(kept, small_blocks, monkeypatch):
    monkeypatch.setattr(softmax, "KEPT_NUMBERS", kept)
    variables = inputs((2, 2, 7, 3, 2))
    assert torch.autograd.gradcheck(softmax.attend, variables, fast_mode=True)
    assert torch.autograd.gradgradcheck(softmax.attend, variables, fast_mode=True)


def test_a_second_backward_pass_gives_the_same_bits(small_blocks):
    variables = inputs((2, 2, 13, 3, 2))
    o = softmax.attend(*variables)
    first, second = (torch.autograd.grad(o.sum(), variables, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_keeping_weights_changes_no_bit_and_is_bounded(small_blocks, monkeypatch):
    variables, found, sizes = inputs((2, 3, 13, 4, 4), torch.float32), [], []
    for limit in (softmax.KEPT_NUMBERS, 1):
        monkeypatch.setattr(softmax, "KEPT_NUMBERS", limit)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, kept=kept: (kept.append(x.numel()), x)[1], lambda x: x):
            found.append(outcome(softmax.attend, variables))
        sizes.append(sum(kept))
    assert all(map(torch.equal, *found))
    count = 2 * 3 * (5 * 5 + 5 * 10 + 3 * 13)
    copies = sum(x.numel() for x in variables)  # q, k and v with the heads first
    assert sizes[0] - sizes[1] == count + copies
    monkeypatch.setattr(softmax, "KEPT_NUMBERS", count)
    assert softmax.keeps_weights(2, 3, 13) and not softmax.keeps_weights(2, 3, 14)


def test_attention_under_autocast_computes_in_full_precision():
    variables = inputs((2, 2, 70, 8, 8), torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome(softmax.attend, variables)
    exact = outcome(softmax.attend_at_once, [x.detach().double().requires_grad_() for x in variables])
    for mine, other in zip(found, exact):
        assert mine.dtype == torch.bfloat16
        assert (mine.double() - other).norm() < 4e-3 * other.norm()  # one rounding to 8 bits


@pytest.mark.slow
def test_a_recorded_pass_equals_the_plain_one_bit_for_bit(small_blocks):
    def run(q, k, v, weight):
        variables = [x.requires_grad_() for x in (q, k, v)]
        o = softmax.attend(*variables)
        return [o, *torch.autograd.grad(o, variables, weight)]

    given = [x.detach() for x in (*inputs((2, 2, 13, 4, 3), torch.float32), heads(2, 2, 13, 3, 9, torch.float32))]
    program = replay.record(run, given)
    others = [x.neg() + 1 for x in given]
    assert all(map(torch.equal, program(*others), run(*(x.clone() for x in others))))


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 2**22])
def test_peak_memory_is_found_without_data(kept, monkeypatch):
    monkeypatch.setattr(softmax, "KEPT_NUMBERS", kept)

    def peak(mode):
        with mode:
            q, k, v = (torch.empty(40, 12, 100, 8, requires_grad=True) for _ in range(3))
            with PeakMemory() as memory:
                softmax.attend(q, k, v).sum().backward()
        return memory.peak

    assert softmax.keeps_weights(40, 12, 100) == bool(kept)
    real = peak(torch.device("cpu"))
    assert abs(peak(FakeTensorMode()) - real) < 0.05 * real


def test_gradients_have_the_layout_of_tokens_unless_the_inputs_are_parts_of_one_product():
    rows = torch.randn(2, 70, 72, requires_grad=True)
    q, k, v = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in rows.split(24, dim=-1))
    alone = [x.detach().requires_grad_() for x in (q, k, v)]
    of_parts, of_alone = (torch.autograd.grad(softmax.attend(*x).square().sum(), x) for x in ((q, k, v), alone))
    assert all(map(torch.equal, of_parts, of_alone))
    assert [x.transpose(1, 2).is_contiguous() for x in of_parts + of_alone] == [False] * 3 + [True] * 3
