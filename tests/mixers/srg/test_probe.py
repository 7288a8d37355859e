"""The numbers of a probe reproduce the output of the mixer."""

from __future__ import annotations

import pytest
import torch

import madbench
from madbench.mixers.srg.reference import mixing_matrix

LABELS = ["S", "S-p", "S-12!", "R-pcg-q", "R-12!", "R-cg-q-12o", "G-cg-v-12o", "G-1!", "R-2o!"]


@pytest.fixture(params=LABELS)
def probed(request):
    torch.manual_seed(0)
    mixer = madbench.build(request.param, d_model=16, max_len=9, budget="paper", mix_rank=3).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 7, 16).double()
    return mixer.requires_grad_(False), x, mixer.probe(x)


def test_probed_weights_by_lag_reproduce_the_output(probed):
    mixer, x, probe = probed
    v = mixer.v(mixer.v_conv(x) if mixer.v_conv else x).unflatten(-1, (2, -1)).transpose(1, 2)
    o = torch.zeros_like(v)
    for t in range(7):
        for lag in range(t + 1):
            o[:, :, t] += probe.weights[:, :, t, lag, None] * v[:, :, t - lag]
    torch.testing.assert_close(mixer.read_out(o, x), mixer(x), rtol=1e-9, atol=1e-12)
    assert not probe.weights.triu(1).any() and not probe.scores.triu(1).any()


def test_active_slots_are_those_with_a_positive_score_and_softmax_has_none(probed):
    mixer, x, probe = probed
    if mixer.label.base == "S":
        assert probe.active is None
        return
    assert torch.equal(probe.active, probe.scores > 0)
    assert 0 < probe.active.double().mean() < 1


def test_scores_without_mixing_are_products_of_query_and_key_at_each_lag():
    mixer = madbench.build("R", d_model=16, max_len=9).double().requires_grad_(False)
    x = torch.randn(1, 6, 16).double()
    q, k, scores = mixer.q(x)[0], mixer.k(x)[0], mixer.probe(x).scores
    for head, columns in enumerate(torch.arange(q.shape[-1]).split(q.shape[-1] // 2)):
        for t in range(6):
            for lag in range(t + 1):
                expected = q[t, columns] @ k[t - lag, columns]
                torch.testing.assert_close(scores[0, head, t, lag], expected, rtol=1e-9, atol=1e-12)


def test_kernels_are_the_matrices_of_the_reference(probed):
    mixer, x, probe = probed
    names = {"R(1)": "mix1", "R(2)": "mix2"}
    assert set(probe.kernels) == {name for name, own in names.items() if getattr(mixer, own)}
    for name in probe.kernels:
        one = mixer.probe(x[:1, :1]).kernels[name]  # of one row, whose strengths are the mean ones
        for head in range(len(one.p)):
            low_rank = one.A[head] @ torch.diag(one.s[head]) @ one.B[head].T
            expected = mixing_matrix(dict(mixer.named_parameters()), names[name], head, x[0, 0], 9)
            torch.testing.assert_close(torch.diag(1 + one.p[head]) + low_rank, expected, rtol=1e-9, atol=1e-12)
