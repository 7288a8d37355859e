"""Low-rank softmax HyperAttention: a polynomial replaces the exponential of the scores (Appendix G.3).

The weight of a tuple is exp(z) with z = sum_s q_s k^1_s k^2_s .. . A polynomial of degree g in z is a sum over the
monomials m of the channels, of degree up to g::

    sum_(k <= g) z^k / k! = sum_m phi(q)_m phi(k^1)_m phi(k^2)_m ..
    phi(x)_m = (prod_s x_s^(m_s)) / (prod_s m_s!)^(1/n)

By the multinomial theorem, z^k / k! is the sum over the monomials of degree k of the products of their n values. phi
has R2 = C(R + g, g) entries, where R is the width of a head. Eq. 43 sums over the tuples in O(T R2 d_vo) instead of
O(T^n). The polynomials are those of Alman and Song. The paper does not give its phi, and says that R2 is O(R), which
holds only for g = 1.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor


def rank(width: int, degree: int) -> int:
    """R2, the number of monomials of degree at most ``degree`` in ``width`` variables."""
    return math.comb(width + degree, degree)


def monomials(x: Tensor, degree: int, order: int) -> Tensor:
    """The features phi(x) (..., R2) of vectors x (..., R), one per monomial of degree at most ``degree``.

    Monomials are sorted by degree, from 0 on. phi is defined in the docstring of this module. ``order`` is its n, the
    number of vectors (the query and n - 1 keys) whose features are multiplied.
    """
    columns = [torch.ones_like(x[..., 0])]
    for k in range(1, degree + 1):
        for channels in itertools.combinations_with_replacement(range(x.shape[-1]), k):
            size = math.prod(math.factorial(count) for count in Counter(channels).values())
            columns.append(x[..., list(channels)].prod(-1) * size ** (-1 / order))
    return torch.stack(columns, dim=-1)


def approximate(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], degree: int, causal: bool = True
) -> Tensor:
    """The output (B, H, T, d_vo) of softmax HyperAttention with a polynomial in place of the exponential.

    The output of a row is the weighted mean, over tuples of tokens, of the product of the tokens' values. A tuple has
    one token per slot, and each slot has keys and values of its own. The weight of a tuple is the polynomial of its
    score, divided by the sum of the polynomials of all tuples. The docstring of this module defines the polynomial.

    Args:
        q: queries (B, H, T, R), already scaled.
        keys: the keys (B, H, T, R) of each slot.
        values: the values (B, H, T, d_vo) of each slot.
        degree: the degree g of the polynomial. If it is even, all weights are positive. If it is odd, weights may be
            negative and their sum may be near 0.
        causal: True if a tuple has only tokens up to the row's own.
    """
    order = len(keys) + 1
    sums = weights = None
    for key, value in zip(keys, values):
        features = monomials(key, degree, order)
        with_value = _sum_tokens(features[..., None] * value[..., None, :], causal)
        alone = _sum_tokens(features, causal)
        sums = with_value if sums is None else sums * with_value
        weights = alone if weights is None else weights * alone
    of_query = monomials(q, degree, order)
    numerator = torch.einsum("bhtm,bhtmv->bhtv", of_query, cast(Tensor, sums).expand(*of_query.shape, -1))
    return numerator / (of_query * cast(Tensor, weights)).sum(-1, keepdim=True)


def _sum_tokens(x: Tensor, causal: bool) -> Tensor:
    """Sum x over its axis 2, the tokens: up to each token if ``causal``, otherwise over all tokens."""
    return x.cumsum(2) if causal else x.sum(2, keepdim=True)


def flops(tokens: int, width: int, value_width: int, degree: int, order: int) -> float:
    """FLOPs of :func:`approximate` for one head and a sequence of ``tokens`` tokens.

    Every token has R2 (d_vo + 1) sums, where R2 is ``rank(width, degree)`` and d_vo is ``value_width``: one per
    monomial and channel of the values, and one per monomial for the normalization. Each of them takes

    - 2 FLOPs per slot, for a product and the running sum over tokens. There are n - 1 slots, where n is ``order``;
    - n - 2 FLOPs for the product over slots;
    - 2 FLOPs for the product with the query's monomial and the sum over monomials.

    The monomials themselves and the division by the normalization are not counted.
    """
    of_token = rank(width, degree) * (value_width + 1)
    return tokens * of_token * (2 * (order - 1) + (order - 2) + 2)


def exact_flops(tokens: int, width: int, value_width: int, order: int, causal: bool = True) -> float:
    """FLOPs of the exact sums for one head and one sequence, computed tuple by tuple.

    A tuple takes 2 ``width`` FLOPs for its score and 2 ``value_width`` for its value. The products of keys and of
    values are not counted.
    """
    tuples: int = sum(t ** (order - 1) for t in range(1, tokens + 1)) if causal else tokens**order
    return tuples * 2 * (width + value_width)
