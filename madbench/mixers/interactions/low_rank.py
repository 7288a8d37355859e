"""Softmax HyperAttention in low rank: a polynomial for the exponential of the scores, summed slot by slot (G.3).

The weight of a tuple is exp(z), z = sum_s q_s k^1_s k^2_s .. . A polynomial of degree g in z is a sum over monomials m
of the channels, of degree up to g::

    sum_(k <= g) z^k / k! = sum_m phi(q)_m phi(k^1)_m phi(k^2)_m ..
    phi(x)_m = (prod_s x_s^(m_s)) / (prod_s m_s!)^(1/n)

as z^k / k! is the sum over the monomials of degree k of the products of their n values (the multinomial theorem). phi
has R2 = C(R + g, g) numbers, R the width of a head, and eq. 43 sums over the tuples in O(T R2 d_vo) instead of O(T^n).
Source: Appendix G.3, after Alman and Song, whose polynomials these are; the paper does not give its phi, and says that
R2 is O(R). That holds at g = 1 alone.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


def rank(width: int, degree: int) -> int:
    """R2, the monomials of ``width`` channels up to a degree."""
    return math.comb(width + degree, degree)


def monomials(x: Tensor, degree: int, order: int) -> Tensor:
    """phi(x) (..., R2) of x (..., R), for weights of ``order`` n factors; degree 0 first."""
    columns = [torch.ones_like(x[..., 0])]
    for k in range(1, degree + 1):
        for channels in itertools.combinations_with_replacement(range(x.shape[-1]), k):
            size = math.prod(math.factorial(count) for count in Counter(channels).values())
            columns.append(x[..., list(channels)].prod(-1) * size ** (-1 / order))
    return torch.stack(columns, dim=-1)


def approximate(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], degree: int, causal: bool = True
) -> Tensor:
    """Softmax HyperAttention over all tuples, with the polynomial for the exponential; (B, H, T, d_vo).

    Args:
        q: (B, H, T, R), scaled.
        keys: k^m (B, H, T, R) of every slot.
        values: v^m (B, H, T, d_vo) of every slot.
        degree: g. Of even degree every weight is positive; of odd degree nothing keeps their sum from 0.
        causal: whether a tuple has tokens up to the row's alone.
    """
    order = len(keys) + 1
    sums = weights = None
    for key, value in zip(keys, values):
        features = monomials(key, degree, order)
        with_value = _summed(features[..., None] * value[..., None, :], causal)
        alone = _summed(features, causal)
        sums = with_value if sums is None else sums * with_value
        weights = alone if weights is None else weights * alone
    of_query = monomials(q, degree, order)
    numerator = torch.einsum("bhtm,bhtmv->bhtv", of_query, sums.expand(*of_query.shape, -1))
    return numerator / (of_query * weights).sum(-1, keepdim=True)


def _summed(x: Tensor, causal: bool) -> Tensor:
    """Sums over tokens, axis 2: up to each of them, or over all."""
    return x.cumsum(2) if causal else x.sum(2, keepdim=True)


def flops(tokens: int, width: int, value_width: int, degree: int, order: int) -> float:
    """FLOPs of a head and sequence: R2 (d_vo + 1) products and running sums a slot, their product, and the query's."""
    of_token = rank(width, degree) * (value_width + 1)
    return tokens * of_token * (2 * (order - 1) + (order - 2) + 2)


def exact_flops(tokens: int, width: int, value_width: int, order: int, causal: bool = True) -> float:
    """FLOPs of the same sums tuple by tuple: 2 R of a score and 2 d_vo of a value, each tuple of its last slot."""
    tuples = sum(t ** (order - 1) for t in range(1, tokens + 1)) if causal else tokens**order
    return tuples * 2 * (width + value_width)
