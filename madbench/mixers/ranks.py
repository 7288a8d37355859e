"""Costs of mixers with a QK and a VO rank, and the ranks that match the parameters of softmax attention.

Ranks are summed over heads: r_qk = H d_qk and r_vo = H d_vo. d is the width of the model. The budget is the 4 d^2
parameters of softmax attention, plus the convolution taps if the label has any.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from madbench.errors import BudgetError
from madbench.mixers import Size

WIDE_MODEL = 256
WIDE_VO_STEP = 8  # from WIDE_MODEL up, a d_vo that is no multiple of this halves the speed of GPU matrix products


@dataclass(frozen=True)
class RankAllocation:
    """The ranks and the cost of a mixer. Every count is exact for the built module."""

    label: Any  # must have the fields ``rope``, ``rank`` and ``over``
    size: Size
    r_qk: int = 0
    r_vo: int = 0

    head_multiple: ClassVar[int] = 1
    """``n_head`` must be a multiple of this."""
    other_rank: ClassVar[dict[str, str]] = {"q": "v", "v": "q"}
    """The value of the label's ``rank`` that exchanges the paying side, by value."""
    ways_to_fit: ClassVar[tuple[str, ...]] = ()
    """Advice on how the family's labels can fit, besides another label and the paper's budget."""

    ranks = property(lambda self: {"qk": self.r_qk, "vo": self.r_vo}, doc="The ranks that the budget determines.")
    widths = property(
        lambda self: {k: rank // self.size.n_head for k, rank in self.ranks.items()}, doc="The widths of one head."
    )
    terms = property(lambda self: {name: row[0] for name, row in self.rows.items()}, doc="Parameters by term.")
    formulas = property(lambda self: {name: row[1:] for name, row in self.rows.items()}, doc="Formulas and tensors.")
    total = property(lambda self: sum(self.terms.values()), doc="All parameters of the mixer.")
    target = property(lambda self: 4 * self.size.d_model**2 + self.terms.get("conv", 0), doc="The budget.")
    slack = property(lambda self: self.target - self.total, doc="Unused parameters; negative when over budget.")
    ratio = property(lambda self: self.total / self.target, doc="``total / target``.")
    least_qk_width = property(lambda self: 2 if self.label.rope else 1, doc="The smallest d_qk of the label.")

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """The parameters, formula and tensors of each term of the label."""
        raise NotImplementedError

    def payment(self) -> tuple[int, int]:
        """The initial rank of the paying side, and the rank down to which it is reduced before the other side is."""
        raise NotImplementedError

    def sides(self, rank_multiple: int = 1) -> tuple[list[int], list[int]]:
        """The admissible ranks of QK and of VO, in ascending order, up to 2 d; larger ranks never fit.

        d_qk is a multiple of 1 (2 with p) and d_vo of 1 (8 from d_model 256 up). Both are multiples of
        ``rank_multiple``. The rank d is admissible too if the heads divide it. Raises ``BudgetError`` if the smallest
        rank exceeds d.
        """
        d, heads = self.size.d_model, self.size.n_head
        qk, vo = self._admissible(heads, rank_multiple)
        if max(qk[0], vo[0]) > d:
            fits = (n for n in range(heads - self.head_multiple, 0, -self.head_multiple))
            narrower = (n for n in fits if max(side[0] for side in self._admissible(n, rank_multiple)) <= d)
            fewer = next(narrower, None)
            raise BudgetError(
                f"{self.label}: d_model {d} is too narrow for {heads} heads: the smallest ranks are r_qk {qk[0]} and"
                f" r_vo {vo[0]}, and neither may exceed d_model; use {f'n_head {fewer} or ' if fewer else ''}"
                f"d_model {max(qk[0], vo[0])}"
            )
        return qk, vo

    def _admissible(self, heads: int, rank_multiple: int) -> tuple[list[int], list[int]]:
        d = self.size.d_model

        def side(step: int, unit: int, least: int) -> list[int]:
            """Multiples of ``unit`` per head, from ``least`` up, and d if d per head is a multiple of ``step``."""
            first = -(-least // unit) * unit * heads
            whole = {d} if d % (heads * step) == 0 and d >= least * heads else set()
            return sorted({*range(first, max(2 * d, first) + 1, unit * heads), *whole})

        qk_step, vo_step = 2 if self.label.rope else 1, WIDE_VO_STEP if d >= WIDE_MODEL else 1
        return (
            side(qk_step, math.lcm(qk_step, rank_multiple), self.least_qk_width),
            side(1, math.lcm(vo_step, rank_multiple), 1),
        )

    def match_budget(self, qk: list[int], vo: list[int]) -> Self:
        """Returns the allocation with admissible ranks ``qk`` and ``vo`` that meets the budget.

        The paying side is VO for ``v`` and QK otherwise. It starts at the rank given by :meth:`payment`; the other side
        starts at d. If over budget, ranks are reduced in this order, each only as far as needed: the paying side to the
        limit of :meth:`payment`, the other side to d/2, the paying side to its smallest rank. Parameters left over go
        to the other side. Raises ``BudgetError`` with possible remedies if nothing fits.
        """
        allocation = self._closest(qk, vo)
        if allocation.slack >= 0:
            return allocation
        label, size, terms = self.label, self.size, allocation.terms
        term = max(terms, key=terms.__getitem__)
        other = replace(self, label=replace(label, rank=self.other_rank[label.rank]))._closest(qk, vo)
        ways = [str(other.label)] if other.slack >= 0 else []
        ways += [str(replace(label, rank="", over=True)), *self.ways_to_fit]
        raise BudgetError(
            f"{label} does not fit its budget at d_model {size.d_model}, n_head {size.n_head}: its smallest form"
            f" (r_qk {allocation.r_qk}, r_vo {allocation.r_vo}) has {allocation.total:,} parameters of"
            f" {allocation.target:,} allowed, most of them in {term} ({terms[term]:,}). These would fit:"
            f" {'; '.join(ways)}; the paper's budget (--budget paper), which is not enforced"
        )

    def _closest(self, qk: list[int], vo: list[int]) -> Self:
        """The allocation within the budget, or the smallest one if nothing fits."""
        d, heads, swaps = self.size.d_model, self.size.n_head, self.label.rank == "v"
        paying, keeping = (vo, qk) if swaps else (qk, vo)

        def at(pay: int, keep: int) -> Self:
            r_qk, r_vo = (keep, pay) if swaps else (pay, keep)
            return replace(self, r_qk=r_qk, r_vo=r_vo)

        def shrink(ranks: list[int], rank: int, least: int, price: int) -> int:
            """The largest admissible rank that meets the budget, but at least the first one from ``least`` up."""
            slack = at(pay, keep).slack
            if slack >= 0:
                return rank
            return max(floor(ranks, rank + slack // price * heads), min(rank, ranks[bisect_left(ranks, least)]))

        # parameters per unit of head width of either side; the count is affine in both widths
        of_pay, of_keep = (at(0, 0).slack - at(*ranks).slack for ranks in ((heads, 0), (0, heads)))
        start, least = self.payment()
        pay, keep = floor(paying, start), floor(keeping, d)
        pay = shrink(paying, pay, least, of_pay)
        keep = shrink(keeping, keep, -(-d // 2), of_keep)
        pay = shrink(paying, pay, 0, of_pay)
        return at(pay, floor(keeping, keep + max(at(pay, keep).slack, 0) // of_keep * heads))


def floor(ranks: Sequence[int], rank: int) -> int:
    """The largest of ``ranks`` that is at most ``rank``. The smallest of them if all are larger."""
    return ranks[max(bisect_right(ranks, rank) - 1, 0)]
