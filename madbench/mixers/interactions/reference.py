"""The operators straight from their equations: float64, one row, one head and one tuple at a time.

This is the independent truth of the checks; it shares no code with the fast paths but the list of tuples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from madbench.mixers.interactions.tuples import visible_tuples


def coupling_reference(
    c: Sequence[Tensor], w: Sequence[Tensor], x: Tensor, degree: int, tuples: str, causal: bool
) -> Tensor:
    """Def. 5.1 (``degree`` 2) or 6.1: x (B, T, d) -> (B, T, d2) in float64; ``c`` and ``w`` by head."""
    c, w, x = [each.double() for each in c], [each.double() for each in w], x.double()
    return torch.stack([torch.stack(_coupled(c, w, sequence, degree, tuples, causal)) for sequence in x])


def _coupled(c: list[Tensor], w: list[Tensor], x: Tensor, degree: int, tuples: str, causal: bool) -> list[Tensor]:
    length, rows = len(x), []
    for i in range(length):
        y = x.new_zeros(w[0].shape[-1])
        for c_h, w_h in zip(c, w):
            for tokens in visible_tuples(i + 1 if causal else length, degree - 1, tuples):
                if degree == 2:
                    (j,) = tokens
                    effect, value = x.new_ones(()), torch.ones_like(y)
                    for matrix in c_h:
                        effect = effect * (x[i] @ matrix @ x[j])
                    for matrix in w_h:
                        value = value * (x[j] @ matrix)
                else:
                    effect, value = torch.tensordot(x[i], c_h, 1), w_h
                    for j in tokens:
                        effect, value = torch.tensordot(x[j], effect, 1), torch.tensordot(x[j], value, 1)
                y = y + effect * value
        rows.append(y)
    return rows
