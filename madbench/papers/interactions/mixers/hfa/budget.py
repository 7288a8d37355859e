"""The ranks and costs of HyperFeatureAttention.

With r_qk = r_vo = d, there are 4 d^2 parameters, or (3 + A) d^2 with a value product, for order A and width d.
"""

from __future__ import annotations

import math

from madbench.papers.interactions.mixers.budget import InteractionAllocation
from madbench.papers.interactions.mixers.hfa.grammar import HfaLabel


class HfaAllocation(InteractionAllocation):
    """The ranks and costs of a mixer of ``hfa:``. See :class:`InteractionAllocation`.

    In the formulas, A_h is the order of head h.
    """

    label: HfaLabel

    @property
    def orders(self) -> tuple[int, ...]:
        """The order A of each head: the number of factors of a score."""
        return self.label.by_head(self.size.n_head)

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, orders = self.size.d_model, self.size.n_head, self.orders
        values, formula = (sum(orders), "sum_h A_h") if self.label.product else (heads, "H")
        if self.label.base == "C":
            return {
                "c": (sum(orders) * d**2, "sum_h A_h d^2", "C of every head and factor"),
                "w": (values * d**2, f"{formula} d^2", f"W of every head{' and factor' if self.label.product else ''}"),
            }
        formula = "sum_h A_h d d_vo" if self.label.product else "d r_vo"
        return {
            "qk": (2 * d * self.r_qk, "2 d r_qk", "W_q, W_k"),
            "v": (values * d * (self.r_vo // heads), formula, "W_v"),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    @property
    def least_qk_width(self) -> int:
        """The smallest d_qk of the label: one channel per factor, or two with RoPE."""
        return max(self.label.orders) * (2 if self.label.rope else 1)

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """The FLOPs per token of the effects and values of the pairs of the token with the tokens that it sees.

        A token sees ``seq_len`` tokens, or (``seq_len`` + 1) / 2 on average if ``causal``. A pair takes 2 (r_qk +
        r_vo), plus A_h - 1 products per head. For base ``C`` it takes 2 d per factor and 2 d per head instead of 2
        (r_qk + r_vo).
        """
        factors, heads = sum(self.orders), self.size.n_head
        widths = (factors + heads) * self.size.d_model if self.label.base == "C" else self.r_qk + self.r_vo
        return (2 * widths + factors - heads) * ((seq_len + 1) / 2 if causal else seq_len)

    def flops_of_sums(self) -> float:
        """The FLOPs per token of the running sums: per head, 4 d_vo prod_a e_a to add a token and to read the sum.

        e_a is the width of factor a of the head.
        """
        return 4 * self.numbers_of_sums()

    def numbers_of_sums(self) -> int:
        """The number of entries in the running sums of all heads: d_vo prod_a e_a per head.

        e_a is the width of factor a of the head.
        """
        widths = (factor_widths(self.widths["qk"], order, self.label.rope) for order in self.orders)
        return self.widths["vo"] * sum(map(math.prod, widths))


def factor_widths(d_qk: int, order: int, rope: bool) -> list[int]:
    """The widths of the ``order`` factors of a head, which split d_qk as evenly as possible, wider ones first.

    Widths are multiples of 1, or of 2 with RoPE.

    >>> factor_widths(256, 3, rope=True)
    [86, 86, 84]
    """
    step = 2 if rope else 1
    units, more = divmod(d_qk // step, order)
    return [(units + (a < more)) * step for a in range(order)]
