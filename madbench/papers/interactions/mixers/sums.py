"""The mask of the tuples that each row sees, and sums over these tuples in time linear in the length."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from madbench.papers.interactions.mixers.tuples import ALL, STRICT


def visibility_mask(slots: int, tuples: str, seen: Tensor, causal: bool, first_row: int, rows: int) -> Tensor:
    """A mask of the tuples that each row sees, bool (``rows``, S, .., S), with one axis per slot.

    The first slot is that of the newest token. ``tuples`` is the kind of tuples, see
    :mod:`madbench.papers.interactions.mixers.tuples`. ``seen`` (.., S, d) are the tokens of which tuples consist. Row m
    is at position ``first_row + m``.
    """
    token = torch.arange(seen.shape[-2], device=seen.device)
    place = [token.view(*(1,) * m, -1, *(1,) * (slots - 1 - m)) for m in range(slots)]
    row = torch.arange(first_row, first_row + rows, device=seen.device).view(-1, *(1,) * slots)
    shape = (rows, *(seen.shape[-2],) * slots)
    is_visible = torch.ones(shape, dtype=torch.bool, device=seen.device)
    if causal:
        for each in place if tuples == ALL else place[:1]:
            is_visible = is_visible & (row >= each)
    if tuples != ALL:
        for newer, older in itertools.pairwise(place):
            is_visible = is_visible & ((newer > older) if tuples == STRICT else (newer >= older))
    return is_visible


def tuple_sums(
    terms: Sequence[Tensor], tuples: str, dim: int, before: Sequence[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The sums, for each row, of the product of one term per slot over the tuples that the row sees.

    They take time linear in the number of tokens T. G^m_t is the term of slot m for token t. For ordered tuples the
    running sums of slot m are P^m_t = P^m_(t-1) + G^m_t P^(m+1)_t, from the innermost slot (oldest token) outward, and
    the result is P^1. Strict tuples use P^(m+1)_(t-1) instead of P^(m+1)_t. For all tuples the result is the product of
    one running sum of G^m per slot (eq. 43).

    Args:
        terms: G^m for slots 1 .. n-1, each (.., T, ..) with T at axis ``dim``. They broadcast against each other.
        tuples: the kind of tuples, see :mod:`madbench.papers.interactions.mixers.tuples`.
        dim: the axis of the tokens.
        before: the running sums after earlier tokens, from an earlier call. None if there are no earlier tokens.

    Return the sums (.., T, ..) and, by slot, the running sums after the last token, with T = 1.
    """
    totals: list[Tensor] = []  # sums of slot m and all inner slots; the outermost is last
    for slot in reversed(range(len(terms))):
        term = terms[slot]
        if totals and tuples != ALL:
            inner = totals[-1]
            if tuples == STRICT:
                first = torch.zeros_like(inner.narrow(dim, 0, 1)) if before is None else before[slot + 1]
                inner = torch.cat((first, inner), dim).narrow(dim, 0, inner.shape[dim])
            term = term * inner
        total = term.cumsum(dim)
        totals.append(total if before is None else total + before[slot])
    after = [total.narrow(dim, total.shape[dim] - 1, 1) for total in reversed(totals)]
    return (cast(Tensor, math.prod(totals)) if tuples == ALL else totals[-1]), after
