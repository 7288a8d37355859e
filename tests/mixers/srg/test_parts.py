"""Layout, activations, mixing and convolution on their own, against loops."""

from __future__ import annotations

import math

import pytest
import torch

from madbench.mixers.ops.short_conv import ShortConv
from madbench.mixers.srg.parts import SequenceMixing, activate, lag_readout, lag_scores, newest_first

BLOCKS = [(1, 1), (1, 7), (2, 2), (3, 8), (7, 7), (5, 13), (63, 65)]  # M rows, the last of which sees W keys


def test_newest_first_reverses_and_adds_a_row_of_zeros(randn):
    x = randn(2, 3, 4)
    expected = torch.stack((x[:, 2], x[:, 1], x[:, 0], torch.zeros(2, 4, dtype=x.dtype)), dim=1)
    assert torch.equal(newest_first(x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("rows, width", BLOCKS)
def test_lag_scores_equal_gathered_scores(rows, width, randn):
    q, k = randn(2, 3, rows, 4), randn(2, 3, width, 4, seed=2)
    z = lag_scores(q, newest_first(k))
    assert z.shape == (2, 3, rows, width)
    for m in range(rows):
        position = width - rows + m
        for lag in range(position + 1):
            torch.testing.assert_close(z[..., m, lag], (q[..., m, :] * k[..., position - lag, :]).sum(-1))


@pytest.mark.parametrize("rows, width", BLOCKS)
def test_lag_readout_equals_the_gathered_sum(rows, width, randn):
    w, v = randn(2, 3, rows, width).tril(width - rows), randn(2, 3, width, 5, seed=2)
    o = lag_readout(w, newest_first(v))
    assert o.shape == (2, 3, rows, 5)
    for m in range(rows):
        position = width - rows + m
        expected = sum(w[..., m, lag, None] * v[..., position - lag, :] for lag in range(position + 1))
        torch.testing.assert_close(o[..., m, :], expected)


@pytest.mark.parametrize("rows, width", [(4, 4), (3, 7)])
@pytest.mark.parametrize("base", "SRG")
def test_activations_equal_those_computed_row_by_row(base, rows, width, randn):
    h = 3 * randn(2, 4, rows, width)
    a, norm = activate(base, h, width - rows)
    if norm is not None:
        a = a / norm
    for batch in range(2):
        for head in range(2 if base == "G" else 4):
            for m in range(rows):
                seen = width - rows + 1 + m
                row = h[batch, head, m, :seen].tolist()
                length = math.sqrt(sum(value * value for value in row) + 1e-12)
                if base == "S":
                    total = sum(map(math.exp, row))
                    expected = [math.exp(value) / total for value in row]
                else:
                    expected = [max(value / length, 0.0) for value in row]
                if base == "G":
                    scale = h[batch, 2 + head, m, :seen].tolist()
                    expected = [a_l * math.log1p(math.exp(s_l)) for a_l, s_l in zip(expected, scale)]
                assert a[batch, head, m].tolist() == pytest.approx(expected + [0.0] * (width - seen), abs=1e-12)


@pytest.mark.parametrize("slots", [1, 5, 9])
def test_mixing_is_the_product_with_its_matrix(slots, randn):
    mixing = SequenceMixing(6, 2, 9, 3).double()
    for seed, parameter in enumerate(mixing.parameters()):
        parameter.data = randn(*parameter.shape, seed=seed)
    y, x = randn(1, 2, 4, slots), randn(1, 4, 6, seed=7)
    s = mixing.strengths(x)
    assert s.shape == (1, 2, 4, 3)
    right, transposed = mixing.right(y, s), mixing.right_transposed(y, s)
    for head in range(2):
        a, b, p = mixing.A[head, :slots], mixing.B[head, :slots], mixing.p[head, :slots]
        for row in range(4):
            logits = [mixing.gate.weight[3 * head + r] @ x[0, row] + mixing.gate.bias[3 * head + r] for r in range(3)]
            strength = torch.stack([1 / (1 + torch.exp(-logit)) for logit in logits])
            matrix = torch.eye(slots) + torch.diag(p) + a @ torch.diag(strength) @ b.T
            torch.testing.assert_close(right[0, head, row], y[0, head, row] @ matrix)
            torch.testing.assert_close(transposed[0, head, row], y[0, head, row] @ matrix.T)


def test_the_last_tap_of_a_short_convolution_is_for_the_current_token(randn):
    conv = ShortConv(5).double()
    conv.weight.data = randn(5, 4)
    x, before = randn(2, 6, 5, seed=2), randn(2, 3, 5, seed=3)
    for history, y in ((torch.zeros_like(before), conv(x)), (before, conv(x, before))):
        padded = torch.cat((history, x), dim=1)
        for t in range(6):
            expected = sum(conv.weight[:, 3 - lag] * padded[:, 3 + t - lag] for lag in range(4))
            torch.testing.assert_close(y[:, t], expected)
