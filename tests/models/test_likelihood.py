"""Log-probabilities of continuations are sums over the model's own, one request at a time in float64."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch
from torch import nn

from madbench import mixers
from madbench.mixers.lengths import depends_on_length
from madbench.mixers.traits import Traits
from madbench.models.gpt import GPT
from madbench.models.likelihood import Likelihood, log_likelihoods, windows
from madbench.suites import suite_of
from sample_jobs import language_job

VOCAB, SEQ_LEN = 257, 16
HOW = {"seq_len": SEQ_LEN, "batch_tokens": 64, "device": "cpu", "autocast": contextlib.nullcontext()}


@pytest.fixture(scope="module", params=["S-p", "G-cg-q-12o"])
def model(request):
    job = language_job(request.param)
    torch.manual_seed(0)
    built = suite_of(job).Trial.build(job).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # far from uniform
    return built


@pytest.fixture(scope="module")
def requests():
    """Contexts and continuations of many lengths: single ids, longer than the window, and with or without shared
    parts."""
    rng = random.Random(0)

    def ids(count: int) -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(count)]

    shared = ids(9)
    pairs = [(shared, [i]) for i in range(5)] + [(shared[:6], [*shared[6:], 7]), (shared, [1, 2, 3])]
    pairs += [(ids(a), ids(b)) for a, b in [(1, 1), (1, 16), (40, 5), (16, 1), (17, 1), (3, 16), (5, 37), (30, 40)]]
    return [*pairs, (ids(4), [])]


def direct(model, context, continuation) -> Likelihood:
    """The likelihood in float64, one id after the other, from the newest ids that fit into the window."""
    whole, answer = [*context, *continuation], Likelihood()
    model = model.double()
    with torch.inference_mode():
        for place in range(len(context), len(whole)):
            piece_end = min(len(context) + SEQ_LEN * (1 + (place - len(context)) // SEQ_LEN), len(whole))
            inputs = whole[max(0, piece_end - 1 - SEQ_LEN) : place]
            log_p = model(torch.tensor([inputs]))[0, -1].log_softmax(-1)
            answer.log_p += float(log_p[whole[place]])
            answer.is_greedy &= int(log_p.argmax()) == whole[place]
    model.float()
    return answer


@pytest.mark.slow
def test_log_likelihoods_equal_direct_sums_in_float64(model, requests):
    with torch.inference_mode():  # one continuation that is greedy
        ids = [3, 1, 4]
        for _ in range(4):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    asked = [*requests, (ids[:3], ids[3:])]
    found = dict(log_likelihoods(model, asked, **HOW))
    assert sorted(found) == [*range(len(asked))]
    for place, (context, continuation) in enumerate(asked):
        expected = direct(model, context, continuation)
        assert found[place].log_p == pytest.approx(expected.log_p, abs=2e-4, rel=1e-6), place
        assert found[place].is_greedy == expected.is_greedy, place
    assert found[len(asked) - 1].is_greedy and not all(answer.is_greedy for answer in found.values())


def test_a_long_continuation_is_greedy_in_all_of_its_windows_or_not_at_all(model):
    first = [*range(40, 40 + SEQ_LEN)]
    with torch.inference_mode():
        last = int(model(torch.tensor([first]))[0, -1].argmax())
    ((_, whole),) = log_likelihoods(model, [([3], [*first, last])], **HOW)
    ((_, end),) = log_likelihoods(model, [([3, *first], [last])], **HOW)
    assert end.is_greedy and not whole.is_greedy


def test_the_order_and_the_repetition_of_requests_change_nothing(model, requests):
    found = dict(log_likelihoods(model, requests, **HOW))
    order = random.Random(1).sample(range(len(requests)), len(requests))
    shuffled = dict(log_likelihoods(model, [requests[i] for i in order], **HOW))
    assert [shuffled[i] for i in range(len(order))] == [found[i] for i in order]
    twice = dict(log_likelihoods(model, [*requests, *requests], **HOW))
    assert all(twice[i] == twice[i + len(requests)] == found[i] for i in range(len(requests)))


def test_contexts_are_cut_from_the_left(model):
    context = [*range(40)]
    (_, whole), (_, newest) = log_likelihoods(model, [(context, [41, 42]), (context[-15:], [41, 42])], **HOW)
    assert whole == newest
    (_, older) = next(log_likelihoods(model, [(context[:15], [41, 42])], **HOW))
    assert older.log_p != whole.log_p


def test_requests_that_differ_in_the_last_id_share_a_row(model):
    rows = []

    class Counting(torch.nn.Module):
        readout = model.readout

        def hidden(self, ids):
            rows.append(len(ids))
            return model.hidden(ids)

    list(log_likelihoods(Counting(), [([1, 2, 3], [i]) for i in range(50)] + [([1], [2, 3, 4])], **HOW))
    assert rows == [1]


def test_batches_have_a_limited_number_of_rows_and_tokens(model):
    shapes = []

    class Counting(torch.nn.Module):
        readout = model.readout

        def hidden(self, ids):
            shapes.append(tuple(ids.shape))
            return model.hidden(ids)

    asked = [([i, *range(length)], [5]) for i in range(4) for length in (2, 7, 11)]
    list(log_likelihoods(Counting(), asked, **HOW))
    assert shapes == [(5, 12), (7, 8)]
    shapes.clear()
    list(log_likelihoods(Counting(), asked, **HOW, batch_size=2))
    assert {rows for rows, _ in shapes} == {2}


def test_every_target_of_a_window_comes_once():
    pieces = list(windows([9, 9], [*range(10)], 4))
    assert [inputs for inputs, _ in pieces] == [(9, 0, 1, 2), (3, 4, 5, 6), (5, 6, 7, 8)]
    assert sum((targets for _, targets in pieces), ()) == (*range(10),)


class MeanOfPrefix(nn.Module):
    """Prefix sums divided by the length of the input: causal, but dependent on the length."""

    def __init__(self, d_model: int):
        super().__init__()
        self.o = nn.Linear(d_model, d_model)
        self.traits = Traits()

    def forward(self, x):
        return self.o(x.cumsum(1) / x.shape[1])


def model_of(make_mixer):
    torch.manual_seed(0)
    built = GPT(VOCAB, 16, 2, make_mixer, SEQ_LEN).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return built


def sliced_from_end():
    return mixers.build("R-q-12", 16, SEQ_LEN, n_head=2, budget="paper", mix_rank=2, position_rows="from_end")


@pytest.mark.slow
@pytest.mark.parametrize("make_mixer", [lambda: MeanOfPrefix(16), sliced_from_end])
def test_mixers_that_depend_on_the_length_are_scored_without_padding(make_mixer, requests):
    model = model_of(make_mixer)
    found = dict(log_likelihoods(model, requests, **HOW))
    for place, request in enumerate(requests):
        [(_, alone)] = log_likelihoods(model, [request], **HOW)
        assert found[place].log_p == pytest.approx(alone.log_p, abs=1e-4), place


@pytest.mark.parametrize(
    "make_mixer, expected",
    [
        (lambda: MeanOfPrefix(16), True),
        (sliced_from_end, True),
        (lambda: mixers.build("R-q-12", 16, SEQ_LEN, n_head=2, budget="paper", mix_rank=2), False),
        (lambda: mixers.build("S-p", 16, SEQ_LEN, n_head=2), False),
        (lambda: mixers.build("cd:gdn", 16, SEQ_LEN, n_head=2), False),
    ],
)
def test_depends_on_length_detects_mixers_whose_outputs_depend_on_it(make_mixer, expected):
    assert depends_on_length(make_mixer(), 16, SEQ_LEN) is expected


def test_mixers_that_do_not_compute_in_float64_are_measured_in_their_own_dtype():
    class Single(MeanOfPrefix):
        is_scaled = True

        def forward(self, x):
            if x.dtype != torch.float32:
                raise RuntimeError("expected float32")
            return self.o(x.cumsum(1) / (x.shape[1] if self.is_scaled else 1))

    mixer = Single(16)
    assert depends_on_length(mixer, 16, SEQ_LEN)
    mixer.is_scaled = False
    assert not depends_on_length(mixer, 16, SEQ_LEN)
