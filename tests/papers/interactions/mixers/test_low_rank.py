"""Low-rank HyperAttention equals loops over tuples, and approximates the exact operator."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from madbench.mixers import build
from madbench.papers.interactions.low_rank import error_rows, exact_attention
from madbench.papers.interactions.mixers.low_rank import approximate, exact_flops, flops, monomials, rank


def random_factors(slots: int, tokens: int = 5, width: int = 3, size: float = 1.0) -> tuple:
    generator = torch.Generator().manual_seed(0)
    q, *rest = torch.randn(1 + 2 * slots, 2, 2, tokens, width, dtype=torch.float64, generator=generator) * size
    return q, rest[:slots], rest[slots:]


@pytest.mark.parametrize("order", [2, 3, 4])
def test_monomials_multiply_to_the_polynomial_of_the_score(order):
    vectors = torch.randn(order, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    z = vectors.prod(0).sum().item()
    for degree in range(5):
        features = monomials(vectors, degree, order)
        assert features.shape == (order, rank(4, degree))
        expected = sum(z**k / math.factorial(k) for k in range(degree + 1))
        assert features.prod(0).sum().item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_sums_over_slots_are_those_over_tuples(slots, causal):
    q, keys, values = random_factors(slots)
    given = approximate(q, keys, values, 2, causal)
    for b, h, i in ((0, 0, 0), (1, 0, 3), (0, 1, 4)):
        numerator, denominator = torch.zeros(3, dtype=torch.float64), 0.0
        for tokens in itertools.product(range(i + 1 if causal else 5), repeat=slots):
            z = q[b, h, i]
            value = torch.ones(3, dtype=torch.float64)
            for key, own, j in zip(keys, values, tokens):
                z, value = z * key[b, h, j], value * own[b, h, j]
            weight = 1 + z.sum() + z.sum() ** 2 / 2
            numerator, denominator = numerator + weight * value, denominator + weight
        torch.testing.assert_close(given[b, h, i], numerator / denominator)


def test_a_high_degree_is_hyperattention_over_all_tuples():
    torch.manual_seed(0)
    mixer = build("ha:3a", 8, 6, n_head=2).double().eval()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        q, k, v = mixer.project(x)
        q = q * 3
        heads = approximate(q, [k] * 2, [v] * 2, 8)
        true = exact_attention(q, [k] * 2, [v] * 2)
        torch.testing.assert_close(heads, true, atol=1e-8, rtol=1e-6)
        q, k, v = mixer.project(x)
        heads = approximate(q, [k] * 2, [v] * 2, 8)
        given = mixer.o(heads.transpose(1, 2).flatten(2))
        torch.testing.assert_close(given, mixer(x), atol=1e-10, rtol=1e-8)


@pytest.mark.slow
def test_the_approximation_error_falls_and_the_cost_grows_with_the_degree():
    frame = error_rows()
    of_small = frame[(frame.tokens == 16) & (frame["size"] == 0.5)]
    assert (of_small.error.diff().iloc[1:] < 0).all() and (of_small.flops.diff().iloc[1:] > 0).all()
    assert flops(64, 4, 4, 2, 3) < exact_flops(64, 4, 4, 3) and exact_flops(3, 1, 1, 2) == 6 * 4
