"""The budget solver of all families, and the costs of mixers with a QK and a VO rank.

Ranks are summed over heads: r_qk = H d_qk and r_vo = H d_vo. d is the width of the model. The budget is the 4 d^2
parameters of softmax attention, plus the convolution taps if the label has any.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from madbench.errors import BudgetError
from madbench.mixers import Size

T = TypeVar("T")
CONV_TAPS = 4
"""Taps of a short convolution, unless a named layer has another number. The last tap applies to the current token."""
WIDE_MODEL = 256
WIDE_VO_STEP = 8  # if d >= WIDE_MODEL, GPU matrix products need twice the time unless d_vo is a multiple of this


@dataclass(frozen=True)
class Side:
    """The admissible values of a rank: the multiples of ``unit`` that are at least ``least``, and ``whole``.

    If ``whole`` is 0, only the multiples are admissible.
    """

    unit: int = 1
    whole: int = 0
    least: int = 1

    @classmethod
    def of_heads(
        cls, d_model: int, heads: int, *, step: int, multiple: int, least: int = 1, whole_step: int = 1
    ) -> Side:
        """The admissible ranks for ``heads`` heads of equal width. A rank is summed over the heads.

        The width of a head is a multiple of ``step`` and of ``multiple``, and at least ``least``. The rank ``d_model``
        is admissible too, if d_model / heads is a multiple of ``whole_step`` and at least ``least``.
        """
        whole = d_model if d_model % (heads * whole_step) == 0 and d_model >= least * heads else 0
        return cls(heads * math.lcm(step, multiple), whole, least * heads)

    @property
    def smallest(self) -> int:
        """The smallest admissible rank."""
        return self.ceil(self.least)

    def floor(self, rank: int) -> int:
        """The largest admissible rank that is at most ``rank``, or the smallest rank if all are larger."""
        multiple = rank // self.unit * self.unit
        return max(multiple, self.whole if self.whole <= rank else 0, self.smallest)

    def ceil(self, rank: int) -> int:
        """The smallest admissible rank that is at least ``rank``."""
        rank = max(rank, self.least)
        multiple = -(-rank // self.unit) * self.unit
        return min(multiple, self.whole) if self.whole >= rank else multiple


@dataclass(frozen=True)
class Payment:
    """A step of :func:`match_budget`, which reduces one rank as far as needed, but not below ``least``.

    ``rank`` is the name of the rank.
    """

    rank: str
    least: int
    """The limit of the reduction, an admissible rank."""


def match_budget(
    room: Callable[[Mapping[str, int]], float],
    start: Mapping[str, int],
    sides: Mapping[str, Side],
    payments: Sequence[Payment],
    grows: str,
    unit: int = 1,
) -> dict[str, int]:
    """Return ranks by name that meet the budget, or the ranks after all ``payments`` if even these exceed the budget.

    Args:
        room: maps ranks to the unused part of the budget, which is negative if they exceed it. If only one rank
            changes, in multiples of ``unit``, the result must be an affine function of this rank.
        start: the initial ranks by name.
        sides: the admissible values of each rank.
        payments: the reductions of ranks, in order. Each goes only as far as needed.
        grows: the name of the rank that is finally increased to use the rest of the budget.
        unit: the number of heads if ``room`` depends on widths per head, otherwise 1.
    """
    ranks = dict(start)

    def change(name: str) -> int:
        """The largest number that can be added to the rank ``name`` within the budget.

        It is negative if the rank must be reduced because the budget is exceeded. 0 if the rank costs nothing.
        """
        left = room(ranks)
        price = left - room({**ranks, name: ranks[name] + unit})
        return int(left // price) * unit if price else 0  # a rank that costs nothing stays

    for payment in payments:
        name = payment.rank
        if room(ranks) < 0:
            ranks[name] = min(ranks[name], max(sides[name].floor(ranks[name] + change(name)), payment.least))
    if room(ranks) >= 0:
        ranks[grows] = sides[grows].floor(ranks[grows] + change(grows))
    return ranks


def last_that_fits(candidates: Sequence[T], room: Callable[[T], float]) -> T | None:
    """The most expensive candidate within the budget. None if all candidates exceed it.

    ``candidates`` are in ascending order of cost. ``room`` maps a candidate to the unused part of the budget, which is
    negative if the candidate exceeds it.
    """
    fitting = bisect_right(candidates, 0.0, key=lambda candidate: -room(candidate))
    return candidates[fitting - 1] if fitting else None


def over_budget(smallest: Any) -> str:
    """The error message for a label that exceeds a budget of FLOPs or of state even with its smallest ranks.

    ``smallest`` is the allocation with these ranks.
    """
    rule, size = smallest.size.rule, smallest.size
    ranks = ", ".join(f"{name} {rank}" for name, rank in smallest.ranks.items())
    return (
        f"{smallest.label} cannot match the {rule.name} of softmax attention at d_model {size.d_model}, n_head "
        f"{size.n_head}, max_len {size.max_len}: with its smallest ranks ({ranks}) it has "
        f"{rule.amount(smallest):,.0f}, and softmax attention {rule.target(smallest):,.0f}; use another max_len or "
        "d_model, or --match parameters"
    )


class CountedParameters:
    """A base class of allocations. It computes the number of parameters, the budget and their ratio.

    Subclasses have ``size``, and ``terms``: the number of parameters of each part of the mixer, by name of the part.
    """

    if TYPE_CHECKING:

        @property
        def size(self) -> Size: ...

        @property
        def terms(self) -> Mapping[str, int]: ...

    @property
    def total(self) -> int:
        """The number of parameters of the mixer."""
        return sum(self.terms.values())

    @property
    def target(self) -> int:
        """The budget in parameters: 4 d_model^2, plus the term ``conv`` (taps of convolutions) if there is one."""
        return 4 * self.size.d_model**2 + self.terms.get("conv", 0)

    @property
    def ratio(self) -> float:
        """The number of parameters divided by the budget: ``total / target``."""
        return self.total / self.target


@dataclass(frozen=True)
class RankAllocation(CountedParameters):
    """The ranks and the cost of a mixer with a QK and a VO rank.

    Counts of parameters are those of the built module, exactly. Subclasses have the methods ``flops_per_token`` and
    ``state_bytes_per_token``.

    The QK rank is the number of channels of queries or keys, summed over heads. The VO rank is that of values and
    outputs. Both share one budget. The *paying side* is the side, QK or VO, whose rank is reduced first if the budget
    is exceeded.
    """

    label: Any
    """The label. It must have the fields ``rope``, ``rank`` and ``over``."""
    size: Size
    r_qk: int = 0
    r_vo: int = 0

    head_multiple: ClassVar[int] = 1
    """``n_head`` must be a multiple of this number."""
    other_rank: ClassVar[dict[str, str]] = {"q": "v", "v": "q"}
    """Map the letter ``rank`` of a label to the letter with which the other side, QK or VO, would be reduced first. An
    error message uses it to suggest a label that fits."""
    ways_to_fit: ClassVar[tuple[str, ...]] = ()
    """Further advice of the family for the error message about a label that does not fit its budget."""

    if TYPE_CHECKING:

        def flops_per_token(self, seq_len: int) -> float: ...

        def state_bytes_per_token(self, bytes_per_element: int = 2) -> float: ...

    @property
    def ranks(self) -> dict[str, int]:
        """The ranks that the budget determines, by side: ``qk`` and ``vo``, summed over heads."""
        return {"qk": self.r_qk, "vo": self.r_vo}

    @property
    def widths(self) -> dict[str, int]:
        """The widths of one head, by side: ``qk`` and ``vo``."""
        return {k: rank // self.size.n_head for k, rank in self.ranks.items()}

    @property
    def terms(self) -> dict[str, int]:
        """The number of parameters by term. A term is a part of the mixer, such as ``conv`` for the convolutions."""
        return {name: row[0] for name, row in self.rows.items()}

    @property
    def formulas(self) -> dict[str, tuple[str, str]]:
        """The formula and the names of the tensors of each term, by name of the term."""
        return {name: row[1:] for name, row in self.rows.items()}

    @property
    def slack(self) -> float:
        """The part of the budget that the mixer leaves unused. Negative if the mixer exceeds the budget."""
        return self.size.rule.room(self)

    @property
    def least_qk_width(self) -> int:
        """The smallest allowed d_qk, the width of a QK head: 2 if the label has RoPE, else 1."""
        return 2 if self.label.rope else 1

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """The number of parameters, the formula and the names of the tensors of each term, by term.

        A term is a part of the mixer, such as ``conv`` for the convolutions.
        """
        raise NotImplementedError

    @property
    def full(self) -> int:
        """The full rank: ``d_model``.

        The side that is reduced second, QK or VO, starts at the largest admissible rank that is at most the full rank.
        """
        return self.size.d_model

    def payment(self) -> tuple[int, int]:
        """Return two ranks of the paying side, the side (QK or VO) that is reduced first: its start and a limit.

        When the paying side has been reduced to the limit, the other side is reduced before it is reduced further.
        """
        raise NotImplementedError

    def sides(self, rank_multiple: int = 1) -> dict[str, Side]:
        """The admissible ranks of the sides ``qk`` and ``vo``.

        The width of a QK head, d_qk, is even if the label has RoPE. That of a VO head, d_vo, is a multiple of 8 if
        d_model is at least 256. Both are multiples of ``rank_multiple``. The rank d_model is admissible too if the
        number of heads divides it, with an even quotient for QK if the label has RoPE. Raises ``BudgetError`` if the
        smallest admissible rank exceeds d_model.
        """
        d, heads = self.size.d_model, self.size.n_head
        sides = self._admissible(heads, rank_multiple)
        qk, vo = (side.smallest for side in sides.values())
        if max(qk, vo) > d:
            fits = (n for n in range(heads - self.head_multiple, 0, -self.head_multiple))
            narrower = (n for n in fits if max(s.smallest for s in self._admissible(n, rank_multiple).values()) <= d)
            fewer = next(narrower, None)
            raise BudgetError(
                f"{self.label}: d_model {d} is too narrow for {heads} heads: the smallest ranks are r_qk {qk} and"
                f" r_vo {vo}, and neither may exceed d_model; use {f'n_head {fewer} or ' if fewer else ''}"
                f"d_model {max(qk, vo)}"
            )
        return sides

    def _admissible(self, heads: int, rank_multiple: int) -> dict[str, Side]:
        d, step = self.size.d_model, 2 if self.label.rope else 1
        wide, least = WIDE_VO_STEP if d >= WIDE_MODEL else 1, self.least_qk_width
        return {
            "qk": Side.of_heads(d, heads, step=step, multiple=rank_multiple, least=least, whole_step=step),
            "vo": Side.of_heads(d, heads, step=wide, multiple=rank_multiple),
        }

    def match_budget(self, sides: Mapping[str, Side]) -> Self:
        """Return the allocation that meets the budget, with ranks that are admissible by ``sides``.

        The paying side, whose rank is reduced first, is VO if the label's ``rank`` is ``v``, and QK otherwise. It
        starts at the first rank of :meth:`payment`, and the other side starts at :attr:`full`. If the budget is
        exceeded, ranks are reduced in three steps, each only as far as needed:

        - the paying side to the second rank of :meth:`payment`;
        - the other side to half of :attr:`full`;
        - the paying side to its smallest rank.

        Then the other side grows as far as the budget allows. Raises ``BudgetError`` with possible remedies if no ranks
        fit.
        """
        allocation = self._closest(sides)
        if allocation.slack >= 0:
            return allocation
        if self.size.rule.quantity != "parameters":
            raise BudgetError(over_budget(allocation))
        label, size, terms = self.label, self.size, allocation.terms
        term = max(terms, key=terms.__getitem__)
        other = replace(self, label=replace(label, rank=self.other_rank[label.rank]))._closest(sides)
        ways = [str(other.label)] if other.slack >= 0 else []
        ways += [str(replace(label, rank="", over=True)), *self.ways_to_fit]
        raise BudgetError(
            f"{label} does not fit its budget at d_model {size.d_model}, n_head {size.n_head}: its smallest form"
            f" (r_qk {allocation.r_qk}, r_vo {allocation.r_vo}) has {allocation.total:,} parameters of"
            f" {allocation.target:,} allowed, most of them in {term} ({terms[term]:,}). These would fit:"
            f" {'; '.join(ways)}; the paper's budget (--budget paper), which is not enforced"
        )

    def _closest(self, sides: Mapping[str, Side]) -> Self:
        """The allocation that meets the budget, or the one with the smallest ranks if even this one exceeds it."""
        full, (pays, keeps) = self.full, ("vo", "qk") if self.label.rank == "v" else ("qk", "vo")
        start, least = self.payment()
        payments = [
            Payment(pays, sides[pays].ceil(least)),
            Payment(keeps, sides[keeps].ceil(-(-full // 2))),
            Payment(pays, sides[pays].smallest),
        ]
        ranks = {pays: sides[pays].floor(start), keeps: sides[keeps].floor(full)}

        def room(ranks: Mapping[str, int]) -> float:
            return self._with(ranks).slack

        return self._with(match_budget(room, ranks, sides, payments, keeps, unit=self.size.n_head))

    def _with(self, ranks: Mapping[str, int]) -> Self:
        return replace(self, r_qk=ranks["qk"], r_vo=ranks["vo"])
