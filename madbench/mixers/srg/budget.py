"""The ranks of S/R/G mixers that match the parameters of softmax attention of the same width.

Softmax attention of width d has 4 d^2 parameters. This is the budget of a label without ``!``. The letters with
``raises_budget`` raise it by the parameters that they add, which are in ``TERMS``. The ``strict`` budget is enforced
for all parameters. The ``paper`` budget uses the ranks of the HyperMLP paper (Section 2.6, Appendix F.2.2, eq. 57) and
is not enforced. The symbols are those of :mod:`madbench.mixers.srg.allocation`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from madbench.errors import BudgetError
from madbench.mixers import Size
from madbench.mixers.ranks import WIDE_MODEL, WIDE_VO_STEP, Payment, Side, match_budget, over_budget
from madbench.mixers.srg.allocation import SrgAllocation
from madbench.mixers.srg.grammar import SrgLabel


def solve(
    label: SrgLabel,
    size: Size,
    mix_rank: int = 16,
    rank_multiple: int = 1,
    **own: Any,
) -> SrgAllocation:
    """Choose the ranks of a mixer, so that it meets the budget of ``size``.

    ``own`` are the settings of the label's letters, fields of :class:`SrgAllocation` such as ``registers``. d is
    ``d_model``; r_qk and r_vo are the ranks of the QK and VO sides, summed over heads; r is the rank of R(1) and R(2).

    Strict budget of a label with ``q`` (``v`` exchanges the sides): the ranks start at r_qk = d/4, r_vo = d and
    r = ``mix_rank``. If over budget, they are reduced in this order, each only as far as needed: r_qk down to d/8, r
    down to 1, r_vo down to d/2, r_qk below d/8. Unused parameters then increase r_vo. A label without ``q`` and ``v``
    starts at r_qk = r_vo = d, and one with ``!`` keeps these ranks. If heads share keys or values, unused parameters of
    a label without ``q``, ``v`` and ``!`` increase r_qk first, and then r_vo.

    A rank is admissible if its width per head is a multiple of ``rank_multiple``. For labels with p, d_qk must also be
    even. From d_model 256 up, d_vo must be a multiple of 8. d_qk is at least 2 for labels with n, and d_vo is at least
    2 for labels with e. The full rank d is admissible too if it can be divided evenly among the heads.

    Paper's budget: r = ``mix_rank``. The rank of the side that ``q`` or ``v`` names is d/4, or d/8 if the mixer with
    d/4, including tables, exceeds the budget. A rank that no letter names is d. Section 2.6 derives d/4 for labels with
    g, whose VO gate uses the d^2 that the QK side saves. Eq. 57 states d/4 "throughout our experiments", and Section 3
    calls every row without ``!`` strictly matched. For S-c-q, S-c-v, R-c-q and R-c-v, which have no gate, these two
    statements contradict each other: with d/4 they have 2.5 d^2 parameters, 0.63 of the budget. The paper gives no
    other ranks for them.

    Raises ``BudgetError`` for a size that no mixer can have. Under the strict budget it is also raised if the smallest
    mixer of the label exceeds the budget; the message says what would fit.
    """
    solver = _Solver(label, size, mix_rank, rank_multiple, own)
    solver.check()
    if size.rule.chooses_ranks and not label.over:
        ranks = solver.match_budget()
    elif label.over or not label.rank:
        ranks = solver.start(1)
    else:
        ranks = solver.start(4) if solver.room(solver.start(4)) >= 0 else solver.start(8)
    return solver.allocate(ranks)


@dataclass(frozen=True)
class _Solver:
    """Solver for the ranks of a label at a size: see :func:`solve`.

    Ranks are mappings by the names ``qk`` and ``vo``, both summed over heads, and ``mix``, the rank of the mixing
    matrices R(1) and R(2).
    """

    label: SrgLabel
    size: Size
    mix_rank: int
    rank_multiple: int
    own: Mapping[str, Any]

    @property
    def d(self) -> int:
        return self.size.d_model

    @property
    def qk_step(self) -> int:
        return 2 if self.label.rope else 1

    def at(self, **changes: Any) -> _Solver:
        return replace(self, size=replace(self.size, **changes))

    def check(self) -> None:
        """Raise ``BudgetError`` for a size that no mixer of this label can have."""
        n_head, kv_heads = self.size.n_head, self.own.get("kv_heads") or 1
        if n_head % kv_heads:
            divisors = ", ".join(str(n) for n in range(1, n_head + 1) if n_head % n == 0)
            raise BudgetError(
                f"{self.label}: {kv_heads} heads of keys and values cannot be shared evenly by {n_head} heads;"
                f" use kv_heads of {divisors}"
            )
        if self.label.exclusive and self.own.get("window") == 1 and not self.label.registers:
            raise BudgetError(
                f"{self.label}: in a window of one token a row reads its own value alone, which e removes; use window"
                " 2 or more"
            )
        window, length, rule = self.own.get("window", 0), self.size.max_len, self.size.rule
        if rule.quantity == "state" and 0 < window < length and not self.label.over:
            raise BudgetError(
                f"{self.label} cannot match {rule.name}: it keeps {window} tokens of {length}, and no rank makes up"
                f" for the others; use model.window={length}, or --match parameters"
            )
        if self.rank_multiple > self.d:
            raise BudgetError(f"{self.label}: rank_multiple {self.rank_multiple} exceeds d_model {self.d}")
        if not self.has_room_for_heads():
            n_head = self.size.n_head
            unit = max(self.label.query_heads(n_head) * self.qk_step, self.qk.least, self.vo.least)
            fewer = (n for n in range(min(n_head, self.d), 0, -1) if self.at(n_head=n).has_room_for_heads())
            fitting = next(fewer, None)
            raise BudgetError(
                f"{self.label}: d_model {self.d} is too narrow for {n_head} heads: the smallest ranks are"
                f" r_qk {self.qk.smallest} and r_vo {self.vo.smallest}, and neither may exceed d_model;"
                f" use {f'n_head {fitting} or ' if fitting else ''}d_model {-(-self.d // unit) * unit}"
            )

    def has_room_for_heads(self) -> bool:
        return max(self.qk.smallest, self.vo.smallest) <= self.d

    @property
    def qk(self) -> Side:
        heads, step = self.label.query_heads(self.size.n_head), self.qk_step
        least = 2 if self.label.qk_norm else 1  # normed, a head of one channel keeps only its sign
        return Side.of_heads(self.d, heads, step=step, multiple=self.rank_multiple, least=least, whole_step=step)

    @property
    def vo(self) -> Side:
        step = WIDE_VO_STEP if self.d >= WIDE_MODEL else 1
        least = 2 if self.label.exclusive else 1  # a head of one channel has no direction besides its own value
        return Side.of_heads(self.d, self.size.n_head, step=step, multiple=self.rank_multiple, least=least)

    @property
    def sides(self) -> dict[str, Side]:
        """The admissible ranks of QK, VO and the mixing matrices, by the names ``qk``, ``vo`` and ``mix``.

        The first entry is the side that the budget reduces first: VO for the letter ``v``, otherwise QK. ``mix`` is the
        last entry.
        """
        qk, vo = self.qk, self.vo
        return ({"vo": vo, "qk": qk} if self.label.rank == "v" else {"qk": qk, "vo": vo}) | {"mix": Side()}

    def allocate(self, ranks: Mapping[str, int]) -> SrgAllocation:
        ranks = {name: ranks[name] for name in ("qk", "vo", "mix")}
        return SrgAllocation(self.label, self.size, ranks, **self.own)

    def room(self, ranks: Mapping[str, int]) -> float:
        """The part of the budget that a mixer with these ranks leaves unused. Negative if it exceeds the budget.

        It is an affine function of each rank.
        """
        return self.allocate(ranks).slack

    def start(self, divisor: int) -> dict[str, int]:
        """The initial ranks: d_model / ``divisor`` for the side that is reduced first, and d_model for the other.

        Both are rounded down to admissible ranks. ``mix`` is ``mix_rank``, or 0 without mixing.
        """
        pays, keeps, mix = self.sides
        mix_rank = self.mix_rank * self.label.has_mixing
        return {pays: self.sides[pays].floor(self.d // divisor), keeps: self.sides[keeps].floor(self.d), mix: mix_rank}

    def smallest(self) -> dict[str, int]:
        """The smallest ranks that :meth:`match_budget` may choose.

        The side that is not reduced first keeps at least half of d_model, and ``mix`` is 1, or 0 without mixing.
        """
        pays, keeps, mix = self.sides
        half = self.sides[keeps].ceil(-(-self.d // 2))
        return {pays: self.sides[pays].smallest, keeps: half, mix: int(self.label.has_mixing)}

    def fits(self) -> bool:
        return self.has_room_for_heads() and self.room(self.smallest()) >= 0

    def match_budget(self) -> dict[str, int]:
        """Return the ranks that meet the budget. Raises ``BudgetError`` if the smallest ranks exceed it."""
        (pays, keeps, mix), least = self.sides, self.smallest()
        payments = [Payment(pays, self.sides[pays].ceil(-(-self.d // 8)))]
        if self.label.has_mixing:
            payments.append(Payment(mix, least[mix]))
        payments += [Payment(keeps, least[keeps]), Payment(pays, least[pays])]
        start = self.start(4 if self.label.rank else 1)
        if self.allocate(start).shares_heads and not self.label.rank:
            start = match_budget(self.room, start, self.sides, [], grows=pays)
        ranks = match_budget(self.room, start, self.sides, payments, keeps)
        if self.room(ranks) < 0:
            raise BudgetError(self.why_infeasible())
        return ranks

    def why_infeasible(self) -> str:
        ranks, n_head, max_len = self.smallest(), self.size.n_head, self.size.max_len
        smallest = self.allocate(ranks)
        if self.size.rule.quantity != "parameters":
            return over_budget(smallest)
        term = max(smallest.terms, key=smallest.terms.__getitem__)
        per_position = int(smallest.slack - self.at(max_len=max_len + 1).room(ranks))  # parameters
        # candidate widths, from the first at which the tables and the side at d/2 (at least d^2) fit into 4 d^2
        widths = itertools.count(max(math.isqrt(per_position * max_len // 3), 1))
        ways = [f"d_model {next(d for d in widths if self.at(d_model=d).fits())}"]
        longest = max_len + smallest.slack // per_position if per_position else 0
        if longest > 0:
            ways.insert(0, f"max_len {longest} or less")
        ways.append("the paper's budget (--budget paper), which is reported and not enforced")
        mix = f", r {smallest.r}" if self.label.has_mixing else ""
        return (
            f"{self.label} does not fit its budget at d_model {self.d}, n_head {n_head}, max_len {max_len}:"
            f" its smallest form (r_qk {smallest.r_qk}, r_vo {smallest.r_vo}{mix}) has {smallest.total:,}"
            f" parameters of {smallest.target:,} allowed, most of them in {term} ({smallest.terms[term]:,})."
            f" These would fit: {'; '.join(ways)}"
        )
