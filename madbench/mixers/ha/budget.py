"""What HyperAttention costs: 4 d^2 with shared slots for any degree, 2 n d^2 unshared, at ranks of d."""

from __future__ import annotations

import math

from madbench.mixers.ha.grammar import Label
from madbench.mixers.interactions.budget import InteractionAllocation
from madbench.mixers.interactions.tuples import ALL, STRICT


class Allocation(InteractionAllocation):
    """See :class:`madbench.mixers.interactions.budget.InteractionAllocation`; m slots, 1 shared, n - 1 unshared."""

    label: Label

    @property
    def slots(self) -> int:
        return self.label.degree - 1 if self.label.unshared else 1

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, n, m = self.size.d_model, self.size.n_head, self.label.degree, self.slots
        if self.label.base == "C":
            return {
                "c": (heads * d**n, f"H d^{n}", "C of every head"),
                "w": (heads * d**n, f"H d^{n}", "W of every head"),
            }
        return {
            "qk": ((1 + m) * d * self.r_qk, f"{1 + m} d r_qk", "W_q, W_k" + " of every slot" * (m > 1)),
            "v": (m * d * self.r_vo, f"{m} d r_vo" if m > 1 else "d r_vo", "W_v" + " of every slot" * (m > 1)),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    def mean_tuples(self, seq_len: int) -> float:
        n = self.label.degree
        if self.label.tuples == ALL:  # by how many tokens a tuple has: t^k = sum_j surjections(k, j) C(t, j)
            count = sum(_surjections(n - 1, j) * math.comb(seq_len + 1, j + 1) for j in range(1, n))
        else:
            count = math.comb(seq_len + 1 if self.label.tuples == STRICT else seq_len + n - 1, n)
        return count / seq_len

    def flops_of_tuple(self) -> float:
        if self.label.base == "C":
            return 4 * self.size.n_head * self.size.d_model
        return 2 * self.r_qk + 2 * self.r_vo


def _surjections(slots: int, tokens: int) -> int:
    """Ways to fill slots with all of so many tokens."""
    return sum((-1) ** i * math.comb(tokens, i) * (tokens - i) ** slots for i in range(tokens + 1))
