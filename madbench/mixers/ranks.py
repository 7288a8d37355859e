"""What mixers with a QK and a VO rank cost, and the ranks at which they cost what softmax attention costs.

Ranks are summed over heads: r_qk = H d_qk, r_vo = H d_vo; d is the width of the model. Softmax attention has 4 d^2
parameters. That is the budget, plus the conv taps of a label that has them.
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
WIDE_VO_STEP = 8  # from WIDE_MODEL up, a d_vo off this grid halves the speed of a GPU matrix product


@dataclass(frozen=True)
class RankAllocation:
    """What a mixer is built from and what it costs. Every count is exact for the built module."""

    label: Any  # with ``rope``, ``rank`` and ``over``
    size: Size
    r_qk: int = 0
    r_vo: int = 0

    head_multiple: ClassVar[int] = 1
    """What n_head has to be a multiple of."""
    other_rank: ClassVar[dict[str, str]] = {"q": "v", "v": "q"}
    """The field ``rank`` of the label for which the other side pays."""
    ways_to_fit: ClassVar[tuple[str, ...]] = ()
    """What the family's labels fit by besides another label and the paper's budget."""

    ranks = property(lambda self: {"qk": self.r_qk, "vo": self.r_vo}, doc="What the budget decided.")
    widths = property(lambda self: {k: rank // self.size.n_head for k, rank in self.ranks.items()}, doc="Of one head.")
    terms = property(lambda self: {name: row[0] for name, row in self.rows.items()}, doc="Parameters by term.")
    formulas = property(lambda self: {name: row[1:] for name, row in self.rows.items()}, doc="Formula and tensors.")
    total = property(lambda self: sum(self.terms.values()), doc="Every parameter of the mixer.")
    target = property(lambda self: 4 * self.size.d_model**2 + self.terms.get("conv", 0), doc="The budget.")
    slack = property(lambda self: self.target - self.total, doc="Parameters left; negative when over budget.")
    ratio = property(lambda self: self.total / self.target, doc="``total / target``.")
    least_qk_width = property(lambda self: 2 if self.label.rope else 1, doc="The narrowest d_qk of the label.")

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """Parameters, formula and tensors of every term that the label has."""
        raise NotImplementedError

    def payment(self) -> tuple[int, int]:
        """The rank that the paying side starts at, and that down to which it pays before the other side does."""
        raise NotImplementedError

    def sides(self, rank_multiple: int = 1) -> tuple[list[int], list[int]]:
        """The admissible ranks of QK and of VO, ascending; more than 2 d never fits.

        d_qk of a multiple of 1 (2 with p), d_vo of a multiple of 1 (8 from d_model 256 up), both of ``rank_multiple``,
        and d where it divides among the heads. Raises ``BudgetError`` where the narrowest rank exceeds d.
        """
        d, heads = self.size.d_model, self.size.n_head
        qk, vo = self._admissible(heads, rank_multiple)
        if max(qk[0], vo[0]) > d:
            fits = (n for n in range(heads - self.head_multiple, 0, -self.head_multiple))
            narrower = (n for n in fits if max(side[0] for side in self._admissible(n, rank_multiple)) <= d)
            fewer = next(narrower, None)
            raise BudgetError(
                f"{self.label}: d_model {d} is too narrow for {heads} heads: the narrowest take r_qk {qk[0]} and r_vo"
                f" {vo[0]}, and neither may exceed d_model; use {f'n_head {fewer} or ' if fewer else ''}"
                f"d_model {max(qk[0], vo[0])}"
            )
        return qk, vo

    def _admissible(self, heads: int, rank_multiple: int) -> tuple[list[int], list[int]]:
        d = self.size.d_model

        def side(step: int, unit: int, least: int) -> list[int]:
            """Multiples of ``unit`` a head from ``least`` up, and d where a head's share of it is one of ``step``."""
            first = -(-least // unit) * unit * heads
            whole = {d} if d % (heads * step) == 0 and d >= least * heads else set()
            return sorted({*range(first, max(2 * d, first) + 1, unit * heads), *whole})

        qk_step, vo_step = 2 if self.label.rope else 1, WIDE_VO_STEP if d >= WIDE_MODEL else 1
        return (
            side(qk_step, math.lcm(qk_step, rank_multiple), self.least_qk_width),
            side(1, math.lcm(vo_step, rank_multiple), 1),
        )

    def matched(self, qk: list[int], vo: list[int]) -> Self:
        """The allocation with ranks within the budget, of the admissible ones of each side.

        The paying side, which is VO for ``v`` and else QK, starts where :meth:`payment` says, the other at d. Over
        budget, they pay in this order, each only as far as needed: the paying side as far as :meth:`payment` says, the
        other down to d/2, the paying side as far as it goes. What is then left goes to the other. Raises
        ``BudgetError`` where nothing fits, and says what would.
        """
        allocation = self._closest(qk, vo)
        if allocation.slack >= 0:
            return allocation
        label, size, terms = self.label, self.size, allocation.terms
        term = max(terms, key=terms.__getitem__)
        other = replace(self, label=replace(label, rank=self.other_rank[label.rank]))._closest(qk, vo)
        ways = [str(other.label)] * (other.slack >= 0) + [str(replace(label, rank="", over=True)), *self.ways_to_fit]
        raise BudgetError(
            f"{label} does not fit its budget at d_model {size.d_model}, n_head {size.n_head}: the smallest it can be"
            f" (r_qk {allocation.r_qk}, r_vo {allocation.r_vo}) is {allocation.total:,} parameters of"
            f" {allocation.target:,} allowed, most of them in {term} ({terms[term]:,}); what would fit:"
            f" {'; '.join(ways)}; the paper's budget (--budget paper), which is not enforced"
        )

    def _closest(self, qk: list[int], vo: list[int]) -> Self:
        """The ranks within the budget; where none are, the smallest."""
        d, heads, swaps = self.size.d_model, self.size.n_head, self.label.rank == "v"
        paying, keeping = (vo, qk) if swaps else (qk, vo)

        def at(pay: int, keep: int) -> Self:
            r_qk, r_vo = (keep, pay) if swaps else (pay, keep)
            return replace(self, r_qk=r_qk, r_vo=r_vo)

        def shrunk(ranks: list[int], rank: int, least: int, price: int) -> int:
            """The largest admissible rank that meets the budget, but none below the first one from ``least`` up."""
            slack = at(pay, keep).slack
            if slack >= 0:
                return rank
            return max(floor(ranks, rank + slack // price * heads), min(rank, ranks[bisect_left(ranks, least)]))

        # what one more of the width of each head costs; the count is affine in both
        of_pay, of_keep = (at(0, 0).slack - at(*ranks).slack for ranks in ((heads, 0), (0, heads)))
        start, least = self.payment()
        pay, keep = floor(paying, start), floor(keeping, d)
        pay = shrunk(paying, pay, least, of_pay)
        keep = shrunk(keeping, keep, -(-d // 2), of_keep)
        pay = shrunk(paying, pay, 0, of_pay)
        return at(pay, floor(keeping, keep + max(at(pay, keep).slack, 0) // of_keep * heads))


def floor(ranks: Sequence[int], rank: int) -> int:
    """The largest of ``ranks`` up to ``rank``, or the smallest."""
    return ranks[max(bisect_right(ranks, rank) - 1, 0)]
