"""The budget solver: the ranks at which a mixer costs what softmax attention of the same width costs.

Softmax attention of width d has 4 d^2 parameters. A label without ``!`` claims to have no more, apart from the conv
taps, which are counted on both sides. The ``strict`` budget enforces that on every parameter. The ``paper`` budget takes
the HyperMLP paper's ranks (Section 2.6, Appendix F.2.2, eq. 57) and enforces nothing. Ranks are summed over heads;
``madbench.mixers.srg.allocation`` has the symbols and the count.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from madbench.errors import BudgetError
from madbench.labels import Variant
from madbench.mixers.family import Size
from madbench.mixers.srg.allocation import Allocation

WIDE_MODEL = 256
WIDE_VO_STEP = 8  # from WIDE_MODEL up, a d_vo off this grid halves the speed of a GPU matrix product


def solve(variant: Variant, size: Size, mix_rank: int = 16, rank_multiple: int = 1) -> Allocation:
    """The ranks of ``variant`` at this size.

    Strict budget, ``q`` (``v`` exchanges the sides): starts at r_qk = d/4, r_vo = d, r = ``mix_rank``. Over budget,
    it pays in this order, each only as far as needed: r_qk down to d/8, r down to 1, r_vo down to d/2, r_qk below
    d/8. What is then left goes to r_vo. A label without ``q``, ``v`` and ``!`` starts at r_qk = r_vo = d; with ``!``
    it stays there.

    Admissible are ranks whose width per head is a multiple of 1 (d_qk of 2 with p, d_vo of 8 from d_model 256 up) and
    of ``rank_multiple``; the uncompressed rank d also is, whenever it divides among the heads.

    Paper's budget: r = ``mix_rank``; the compressed rank is d/4, or d/8 when the mixer with d/4, tables included,
    exceeds the budget; the other rank is d.

    Raises ``BudgetError`` for a size no mixer can have, and under the strict budget when the smallest mixer the
    label allows exceeds it: the message says what would make it fit.
    """
    solver = _Solver(variant, size, mix_rank, rank_multiple)
    solver.check()
    if variant.over or (size.budget == "paper" and not variant.rank):
        ranks = solver.start(1)
    elif size.budget == "paper":
        ranks = solver.start(4) if solver.room(*solver.start(4)) >= 0 else solver.start(8)
    else:
        ranks = solver.matched()
    return solver.allocate(*ranks)


@dataclass(frozen=True)
class _Side:
    """The admissible ranks of one side: the multiples of ``unit``, and ``whole`` where it is not 0."""

    unit: int
    whole: int

    def floor(self, rank: int) -> int:
        """The largest admissible rank up to ``rank``, or 0."""
        multiple = rank // self.unit * self.unit
        return max(multiple, self.whole) if self.whole <= rank else multiple

    def ceil(self, rank: int) -> int:
        """The smallest admissible rank from ``rank`` up."""
        multiple = -(-rank // self.unit) * self.unit
        return min(multiple, self.whole) if self.whole >= rank else multiple


@dataclass(frozen=True)
class _Solver:
    """A variant at a size, and its admissible ranks: (pay, keep, mix) for the side that pays, the other one, and r."""

    variant: Variant
    size: Size
    mix_rank: int
    rank_multiple: int

    @property
    def d(self) -> int:
        return self.size.d_model

    def at(self, **changes: int) -> _Solver:
        return replace(self, size=replace(self.size, **changes))

    def check(self) -> None:
        """Raises ``BudgetError`` for a size that no mixer of this label can have."""
        if self.rank_multiple > self.d:
            raise BudgetError(f"{self.variant}: rank_multiple {self.rank_multiple} exceeds d_model {self.d}")
        if not self.has_room_for_heads():
            n_head = self.size.n_head
            unit = self.variant.query_heads(n_head) * self.qk_step
            fewer = (n for n in range(min(n_head, self.d), 0, -1) if self.at(n_head=n).has_room_for_heads())
            fitting = next(fewer, None)
            raise BudgetError(
                f"{self.variant}: d_model {self.d} is too narrow for {n_head} heads: the narrowest take"
                f" r_qk {self.qk.ceil(1)} and r_vo {self.vo.ceil(1)}, and neither may exceed d_model;"
                f" use {f'n_head {fitting} or ' if fitting else ''}d_model {-(-self.d // unit) * unit}"
            )

    def has_room_for_heads(self) -> bool:
        return max(self.qk.ceil(1), self.vo.ceil(1)) <= self.d

    @property
    def qk_step(self) -> int:
        return 2 if self.variant.rope else 1

    @property
    def qk(self) -> _Side:
        heads = self.variant.query_heads(self.size.n_head)
        whole = self.d if self.d % (heads * self.qk_step) == 0 else 0
        return _Side(heads * math.lcm(self.qk_step, self.rank_multiple), whole)

    @property
    def vo(self) -> _Side:
        step = WIDE_VO_STEP if self.d >= WIDE_MODEL else 1
        whole = self.d if self.d % self.size.n_head == 0 else 0
        return _Side(self.size.n_head * math.lcm(step, self.rank_multiple), whole)

    @property
    def sides(self) -> tuple[_Side, _Side]:
        """The side that pays and the side that keeps its rank and grows."""
        return (self.vo, self.qk) if self.variant.rank == "v" else (self.qk, self.vo)

    def allocate(self, pay: int, keep: int, mix: int) -> Allocation:
        qk, vo = (keep, pay) if self.variant.rank == "v" else (pay, keep)
        return Allocation(self.variant, self.size, {"qk": qk, "vo": vo, "mix": mix})

    def room(self, pay: int, keep: int, mix: int) -> int:
        """Parameters left in the budget; negative when it is exceeded. Affine in each rank."""
        return self.allocate(pay, keep, mix).slack

    def start(self, divisor: int) -> tuple[int, int, int]:
        """The paying side at d / ``divisor``, the other at d, r at ``mix_rank``."""
        paying, keeping = self.sides
        pay = max(paying.floor(self.d // divisor), paying.ceil(1))
        return pay, keeping.floor(self.d), self.mix_rank * self.variant.has_mixing

    def smallest(self) -> tuple[int, int, int]:
        """The smallest mixer the order of payment reaches."""
        paying, keeping = self.sides
        return paying.ceil(1), keeping.ceil(-(-self.d // 2)), 1 * self.variant.has_mixing

    def fits(self) -> bool:
        return self.has_room_for_heads() and self.room(*self.smallest()) >= 0

    def matched(self) -> tuple[int, int, int]:
        """Ranks within the budget."""
        paying, keeping = self.sides
        pay, keep, mix = self.start(4 if self.variant.rank else 1)
        least_pay, least_keep, least_mix = self.smallest()
        none = self.room(0, 0, 0)  # what one more of each costs:
        of_pay, of_keep, of_mix = (none - self.room(*unit) for unit in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))

        def shrink(side: _Side, rank: int, least: int, cost: int) -> int:
            """The largest admissible rank that meets the budget, but none below ``least``."""
            room = self.room(pay, keep, mix)
            return rank if room >= 0 else min(rank, max(side.floor(rank + room // cost), least))

        pay = shrink(paying, pay, paying.ceil(-(-self.d // 8)), of_pay)
        if self.room(pay, keep, mix) < 0 and mix:
            mix = max(mix + self.room(pay, keep, mix) // of_mix, least_mix)
        keep = shrink(keeping, keep, least_keep, of_keep)
        pay = shrink(paying, pay, least_pay, of_pay)
        if self.room(pay, keep, mix) < 0:
            raise BudgetError(self.why_infeasible())
        return pay, keeping.floor(keep + self.room(pay, keep, mix) // of_keep), mix

    def why_infeasible(self) -> str:
        ranks, n_head, max_len = self.smallest(), self.size.n_head, self.size.max_len
        smallest = self.allocate(*ranks)
        term = max(smallest.terms, key=smallest.terms.__getitem__)
        a_position = smallest.slack - self.at(max_len=max_len + 1).room(*ranks)
        # widths from where the tables and the side that keeps d/2 (at least d^2) fit into 4 d^2
        widths = itertools.count(max(math.isqrt(a_position * max_len // 3), 1))
        ways = [f"d_model {next(d for d in widths if self.at(d_model=d).fits())}"]
        longest = max_len + smallest.slack // a_position if a_position else 0
        if longest > 0:
            ways.insert(0, f"max_len {longest} or less")
        ways.append("the paper's budget (--budget paper), which is reported and not enforced")
        mix = f", r {smallest.r}" if self.variant.has_mixing else ""
        return (
            f"{self.variant} does not fit its budget at d_model {self.d}, n_head {n_head}, max_len {max_len}:"
            f" the smallest it can be (r_qk {smallest.r_qk}, r_vo {smallest.r_vo}{mix}) is {smallest.total:,} parameters"
            f" of {smallest.target:,} allowed, most of them in {term} ({smallest.terms[term]:,});"
            f" what would fit: {'; '.join(ways)}"
        )
