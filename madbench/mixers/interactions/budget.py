"""What a mixer of interactions costs, and the ranks at which it costs what softmax attention of the same width costs.

Ranks are summed over heads: r_qk = H d_qk, r_vo = H d_vo; d is the width of the model. The budget is 4 d^2.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from madbench.config import check_at_least
from madbench.errors import BudgetError
from madbench.mixers import Size
from madbench.mixers.interactions.grammar import InteractionLabel

WIDE_MODEL = 256
WIDE_VO_STEP = 8  # from WIDE_MODEL up, a d_vo off this grid halves the speed of a GPU matrix product


@dataclass(frozen=True)
class Settings:
    """What mixers of interactions have besides their label and size."""

    rank_multiple: int = 1
    """Coarsens the per-head widths the budget solver may choose."""

    def __post_init__(self):
        check_at_least(self, 1, "rank_multiple")


@dataclass(frozen=True)
class InteractionAllocation:
    """What a mixer is built from and what it costs. Every count is exact for the built module.

    With base ``C`` there are no ranks.
    """

    label: InteractionLabel
    size: Size
    ranks: dict[str, int]  # ``qk`` and ``vo``, summed over heads

    r_qk = property(lambda self: self.ranks["qk"])
    r_vo = property(lambda self: self.ranks["vo"])
    widths = property(lambda self: {k: rank // self.size.n_head for k, rank in self.ranks.items()}, doc="Of one head.")
    terms = property(lambda self: {name: row[0] for name, row in self.rows.items()}, doc="Parameters by term.")
    formulas = property(lambda self: {name: row[1:] for name, row in self.rows.items()}, doc="Formula and tensors.")
    total = property(lambda self: sum(self.terms.values()), doc="Every parameter of the mixer.")
    target = property(lambda self: 4 * self.size.d_model**2, doc="The budget.")
    slack = property(lambda self: self.target - self.total, doc="Parameters left; negative when over budget.")
    ratio = property(lambda self: self.total / self.target, doc="``total / target``.")

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """Parameters, formula and tensors of every term."""
        raise NotImplementedError

    @property
    def least_qk_width(self) -> int:
        """The narrowest d_qk of the label."""
        return 2 if self.label.rope else 1

    @property
    def head_multiple(self) -> int:
        """What n_head has to be a multiple of."""
        return 1

    @property
    def slots(self) -> int:
        """The slots of a tuple that have keys and values of their own."""
        return 1

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """Per token, of the effects and the values of the tuples that rows see, all heads."""
        raise NotImplementedError

    def flops_of_sums(self) -> float:
        """Per token, of the running sums of base ``L``, all heads."""
        raise NotImplementedError

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes the decoding cache grows by with each token: none where a sum of fixed size replaces it.

        Keys and values are held in float32 at least, the inputs of base ``C`` as they come.
        """
        if self.label.base == "C":
            return self.size.d_model * bytes_per_element
        return self.slots * sum(self.ranks.values()) * max(bytes_per_element, 4) * (self.label.base != "L")

    def flops_per_token(self, seq_len: int, causal: bool = True) -> float:
        """Forward FLOPs per token of a sequence of ``seq_len`` tokens, two for each multiply-add.

        Twice the parameters, and the tuples that rows see, with ``causal`` only those that causality keeps; of base
        ``L`` its running sums where they are less. Softmax and RoPE, where it is not of pairs, are left out.
        """
        if seq_len < 1:
            raise BudgetError(f"{self.label}: seq_len must be at least 1, got {seq_len}")
        of_tuples = self.flops_of_tuples(seq_len, causal)
        return 2 * self.total + (min(of_tuples, self.flops_of_sums()) if self.label.base == "L" else of_tuples)

    def solved(self, rank_multiple: int) -> Self:
        """The allocation with the ranks of its label at its size.

        Strict budget, QK paying (``v`` exchanges the sides): starts at r_qk = d/4, r_vo = d. Over budget, it pays in
        this order, each only as far as needed: r_qk down to d/8, r_vo down to d/2, r_qk as far as it goes. What is then
        left goes to r_vo. A label without ``q``, ``v`` and ``!`` starts at r_qk = r_vo = d; ``!`` and the paper's
        budget stay there. Admissible are d_qk of a multiple of 1 (2 with p), from the largest order up (twice that with
        p), d_vo of a multiple of 1 (8 from d_model 256 up), both of ``rank_multiple``, and d where it divides among the
        heads.

        Raises ``BudgetError`` for a size no mixer of the label has, and under the strict budget where none fits.
        """
        label, d, heads = self.label, self.size.d_model, self.size.n_head
        if heads % self.head_multiple:
            nearest = max(1, round(heads / self.head_multiple)) * self.head_multiple
            raise BudgetError(
                f"{label}: its {self.head_multiple} parts take equal shares of the heads, and n_head {heads} is not a"
                f" multiple of {self.head_multiple}; use n_head {nearest}"
            )
        if label.base == "C":
            return self
        if rank_multiple > d:
            raise BudgetError(f"{label}: rank_multiple {rank_multiple} exceeds d_model {d}")
        qk, vo = self._sides(heads, rank_multiple)
        if max(qk[0], vo[0]) > d:
            fits = (n for n in range(heads - self.head_multiple, 0, -self.head_multiple))
            fewer = next((n for n in fits if max(side[0] for side in self._sides(n, rank_multiple)) <= d), None)
            raise BudgetError(
                f"{label}: d_model {d} is too narrow for {heads} heads: the narrowest take r_qk {qk[0]} and r_vo"
                f" {vo[0]}, and neither may exceed d_model; use {f'n_head {fewer} or ' if fewer else ''}"
                f"d_model {max(qk[0], vo[0])}"
            )
        if label.over or self.size.budget == "paper":
            return self._at(floor(qk, d), floor(vo, d))
        found = self._matched(qk, vo)
        if found.slack < 0:
            other = replace(found, label=replace(label, rank={"q": "v", "v": "q"}[label.rank]))._matched(qk, vo)
            raise BudgetError(self._why_infeasible(found, [str(other.label)] * (other.slack >= 0)))
        return found

    def _at(self, qk: int, vo: int) -> Self:
        return replace(self, ranks={"qk": qk, "vo": vo})

    def _sides(self, heads: int, rank_multiple: int) -> tuple[list[int], list[int]]:
        """The admissible ranks of QK and of VO, ascending; more than 2 d never fits."""
        d = self.size.d_model

        def admissible(step: int, unit: int, least: int) -> list[int]:
            """Multiples of ``unit`` a head from ``least`` up, and d where a head's share of it is one of ``step``."""
            first = -(-least // unit) * unit * heads
            whole = {d} if d % (heads * step) == 0 and d >= least * heads else set()
            return sorted({*range(first, max(2 * d, first) + 1, unit * heads), *whole})

        qk_step, vo_step = 2 if self.label.rope else 1, WIDE_VO_STEP if d >= WIDE_MODEL else 1
        return (
            admissible(qk_step, math.lcm(qk_step, rank_multiple), self.least_qk_width),
            admissible(1, math.lcm(vo_step, rank_multiple), 1),
        )

    def _matched(self, qk: list[int], vo: list[int]) -> Self:
        """The ranks within the budget, of the admissible ones of each side; where none are, the smallest."""
        d, heads, swaps = self.size.d_model, self.size.n_head, self.label.rank == "v"
        paying, keeping = (vo, qk) if swaps else (qk, vo)

        def at(pay: int, keep: int) -> Self:
            return self._at(keep, pay) if swaps else self._at(pay, keep)

        def shrunk(ranks: list[int], rank: int, least: int, price: int) -> int:
            """The largest admissible rank that meets the budget, but none below the first one from ``least`` up."""
            slack = at(pay, keep).slack
            if slack >= 0:
                return rank
            return max(floor(ranks, rank + slack // price * heads), min(rank, ceil(ranks, least)))

        # what one more of the width of each head costs; the count is affine in both
        of_pay, of_keep = (at(0, 0).slack - at(*ranks).slack for ranks in ((heads, 0), (0, heads)))
        pay, keep = floor(paying, d // 4 if self.label.rank else d), floor(keeping, d)
        pay = shrunk(paying, pay, -(-d // 8), of_pay)
        keep = shrunk(keeping, keep, -(-d // 2), of_keep)
        pay = shrunk(paying, pay, 0, of_pay)
        return at(pay, floor(keeping, keep + max(at(pay, keep).slack, 0) // of_keep * heads))

    def _why_infeasible(self, smallest: Self, ways: Sequence[str]) -> str:
        label, size = self.label, self.size
        term = max(smallest.terms, key=smallest.terms.__getitem__)
        ways = [
            *ways,
            str(replace(label, rank="", over=True)),
            "the paper's budget (--budget paper), which is not enforced",
        ]
        return (
            f"{label} does not fit its budget at d_model {size.d_model}, n_head {size.n_head}: the smallest it can be"
            f" (r_qk {smallest.r_qk}, r_vo {smallest.r_vo}) is {smallest.total:,} parameters of {smallest.target:,}"
            f" allowed, most of them in {term} ({smallest.terms[term]:,}); what would fit: {'; '.join(ways)}"
        )


def floor(ranks: Sequence[int], rank: int) -> int:
    """The largest of ``ranks`` up to ``rank``, or the smallest."""
    return ranks[max(bisect_right(ranks, rank) - 1, 0)]


def ceil(ranks: Sequence[int], rank: int) -> int:
    """The smallest of ``ranks`` from ``rank`` up."""
    return ranks[bisect_left(ranks, rank)]
