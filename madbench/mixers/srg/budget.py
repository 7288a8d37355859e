"""The budget solver: the ranks at which a mixer costs what softmax attention of the same width costs.

Softmax attention of width d has 4 d^2 parameters. A label without ``!`` claims to have no more, apart from the conv
taps, which are counted on both sides. ``strict`` counting enforces that on every parameter. ``published`` counting
takes the HyperMLP paper's ranks (Section 2.6, Appendix F.2.2, eq. 57) and enforces nothing. Ranks are summed over
heads; ``madbench.mixers.srg.allocation`` has the symbols and the count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from madbench.errors import BudgetError, did_you_mean
from madbench.labels.grammar import Variant
from madbench.mixers.srg.allocation import CONV_TAPS, Allocation, Counting, Ranks, budget

__all__ = ["Allocation", "Counting", "Ranks", "solve"]

WIDE_MODEL = 256
WIDE_VO_STEP = 8  # from WIDE_MODEL up, a d_vo off this grid halves the speed of a GPU matrix product


def solve(
    variant: Variant,
    d_model: int,
    n_head: int = 2,
    max_len: int = 1024,
    counting: Counting = "strict",
    mix_rank: int = 16,
    rank_multiple: int = 1,
) -> Allocation:
    """The ranks of ``variant`` at this size.

    Strict counting, ``q`` (``v`` exchanges the sides): starts at r_qk = d/4, r_vo = d, r = ``mix_rank``. Over budget,
    it pays in this order, each only as far as needed: r_qk down to d/8, r down to 1, r_vo down to d/2, r_qk below
    d/8. What is then left goes to r_vo. A label without ``q``, ``v`` and ``!`` starts at r_qk = r_vo = d; with ``!``
    it stays there.

    Admissible are ranks whose width per head is a multiple of 1 (d_qk of 2 with p, d_vo of 8 from d_model 256 up) and
    of ``rank_multiple``; the uncompressed rank d also is, whenever it divides among the heads.

    Published counting: r = ``mix_rank``; the compressed rank is d/4, or d/8 when the mixer with d/4, tables included,
    exceeds the budget; the other rank is d.

    Raises ``BudgetError`` for arguments no mixer can have, and under strict counting when the smallest mixer the
    label allows exceeds the budget: the message says what would make it fit.
    """
    size = _Size(variant, d_model, n_head, max_len, mix_rank, rank_multiple)
    size.check()
    if counting not in get_args(Counting):
        raise BudgetError(f"counting {counting!r} is unknown{did_you_mean(str(counting), get_args(Counting))}")
    if variant.over or (counting == "published" and not variant.rank):
        ranks = size.uncompressed()
    elif counting == "published":
        ranks = size.published()
    else:
        ranks = size.matched()
    if ranks is None:
        raise BudgetError(_why_infeasible(size))
    return size.allocate(ranks, counting)


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

    @property
    def smallest(self) -> int:
        return self.ceil(1)


@dataclass(frozen=True)
class _Size:
    """A variant at a size: its admissible ranks, and its count as an affine function of them."""

    variant: Variant
    d: int
    n_head: int
    max_len: int
    mix_rank: int
    rank_multiple: int

    def check(self) -> None:
        """Raises ``BudgetError`` for arguments that no mixer can have."""
        names = dict(d_model=self.d, n_head=self.n_head, max_len=self.max_len)
        names |= dict(mix_rank=self.mix_rank, rank_multiple=self.rank_multiple)
        for name, value in names.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BudgetError(f"{self.variant}: {name} must be a whole number of at least 1, got {value!r}")
        if self.rank_multiple > self.d:
            raise BudgetError(f"{self.variant}: rank_multiple {self.rank_multiple} exceeds d_model {self.d}")
        if not self.has_room_for_heads():
            heads = self.variant.query_heads(1)
            enough = -(-self.d // (heads * self.n_head * self.qk_step)) * heads * self.n_head * self.qk_step
            fewer = (n for n in range(min(self.n_head, self.d), 0, -1) if self.at(n_head=n).has_room_for_heads())
            fitting = next(fewer, None)
            raise BudgetError(
                f"{self.variant}: d_model {self.d} is too narrow for {self.n_head} heads: the narrowest take"
                f" r_qk {self.qk.smallest} and r_vo {self.vo.smallest}, and neither may exceed d_model;"
                f" use {f'n_head {fitting} or ' if fitting else ''}d_model {enough}"
            )

    def has_room_for_heads(self) -> bool:
        return max(self.qk.smallest, self.vo.smallest) <= self.d

    def at(self, **changes: int) -> _Size:
        return _Size(**{**vars(self), **changes})

    def allocate(self, ranks: Ranks, counting: Counting) -> Allocation:
        return Allocation(self.variant, self.d, self.n_head, self.max_len, counting, ranks)

    @property
    def qk_step(self) -> int:
        return 2 if self.variant.rope else 1

    @property
    def qk(self) -> _Side:
        heads = self.variant.query_heads(self.n_head)
        whole = self.d if self.d % (heads * self.qk_step) == 0 else 0
        return _Side(heads * math.lcm(self.qk_step, self.rank_multiple), whole)

    @property
    def vo(self) -> _Side:
        step = WIDE_VO_STEP if self.d >= WIDE_MODEL else 1
        whole = self.d if self.d % self.n_head == 0 else 0
        return _Side(self.n_head * math.lcm(step, self.rank_multiple), whole)

    @property
    def sides(self) -> tuple[_Side, _Side]:
        """The side that pays and the side that is kept and grows."""
        return (self.vo, self.qk) if self.variant.rank == "v" else (self.qk, self.vo)

    @property
    def mixing_heads(self) -> int:
        return self.variant.query_heads(self.n_head) * self.variant.mix1 + self.n_head * self.variant.mix2

    @property
    def cost_of_rank(self) -> int:
        """Parameters of one more unit of r_qk, and of r_vo."""
        return 2 * self.d + (self.d + 1) * self.variant.gates

    @property
    def cost_of_mix(self) -> int:
        """Parameters of one more unit of r."""
        return self.mixing_heads * (self.d + 1 + 2 * self.max_len)

    def room(self, pay: int, keep: int, mix: int) -> int:
        """Parameters left in the budget; negative when it is exceeded."""
        fixed = 2 * CONV_TAPS * self.d * self.variant.conv + self.mixing_heads * self.max_len
        used = fixed + self.cost_of_rank * (pay + keep) + self.cost_of_mix * mix
        return budget(self.variant, self.d) - used

    def ranks(self, pay: int, keep: int, mix: int) -> Ranks:
        return Ranks(keep, pay, mix) if self.variant.rank == "v" else Ranks(pay, keep, mix)

    def start(self, divisor: int) -> tuple[int, int, int]:
        """The paying side at d / ``divisor``, the other at d, r at ``mix_rank``."""
        paying, kept = self.sides
        pay = max(paying.floor(self.d // divisor), paying.smallest)
        return pay, kept.floor(self.d), self.mix_rank * self.variant.has_mixing

    def uncompressed(self) -> Ranks:
        return self.ranks(*self.start(1))

    def published(self) -> Ranks:
        quarter = self.start(4)
        return self.ranks(*(quarter if self.room(*quarter) >= 0 else self.start(8)))

    def smallest(self) -> tuple[int, int, int]:
        """The smallest mixer the order of payment reaches."""
        paying, kept = self.sides
        return paying.smallest, kept.ceil(-(-self.d // 2)), 1 * self.variant.has_mixing

    def fits(self) -> bool:
        return self.has_room_for_heads() and self.room(*self.smallest()) >= 0

    def matched(self) -> Ranks | None:
        """Ranks within the budget, or None when there are none."""
        paying, kept = self.sides
        pay, keep, mix = self.start(4 if self.variant.rank else 1)
        least_pay, least_keep, least_mix = self.smallest()

        pay = self.shrink(paying, pay, paying.ceil(-(-self.d // 8)), self.room(pay, keep, mix))
        if self.room(pay, keep, mix) < 0 and mix:
            mix = max(mix + self.room(pay, keep, mix) // self.cost_of_mix, least_mix)
        keep = self.shrink(kept, keep, least_keep, self.room(pay, keep, mix))
        pay = self.shrink(paying, pay, least_pay, self.room(pay, keep, mix))
        if self.room(pay, keep, mix) < 0:
            return None
        keep = kept.floor(keep + self.room(pay, keep, mix) // self.cost_of_rank)
        return self.ranks(pay, keep, mix)

    def shrink(self, side: _Side, rank: int, least: int, room: int) -> int:
        """The largest admissible rank that removes a negative ``room``, but none below ``least``."""
        if room >= 0:
            return rank
        return min(rank, max(side.floor(rank + room // self.cost_of_rank), least))


def _why_infeasible(size: _Size) -> str:
    smallest = size.allocate(size.ranks(*size.smallest()), "strict")
    term = max(smallest.terms, key=smallest.terms.__getitem__)
    ranks = f"r_qk {smallest.ranks.qk}, r_vo {smallest.ranks.vo}"
    if size.variant.has_mixing:
        ranks += f", r {smallest.ranks.mix}"
    ways = [f"d_model {next(d for d in _widths_worth_trying(size) if size.at(d=d).fits())}"]
    longest = _longest(size)
    if longest:
        ways.insert(0, f"max_len {longest} or less")
    ways.append("published counting (--budget published), which reports the budget without enforcing it")
    return (
        f"{size.variant} does not fit its budget at d_model {size.d}, n_head {size.n_head}, max_len {size.max_len}:"
        f" the smallest it can be ({ranks}) is {smallest.total:,} parameters of {smallest.target:,} allowed,"
        f" most of them in {term} ({smallest.terms[term]:,}); what would fit: {'; '.join(ways)}"
    )


def _longest(size: _Size) -> int:
    """The largest max_len at which the smallest mixer fits, or 0: each position costs 3 parameters a mixing head."""
    if not size.mixing_heads:
        return 0
    without_tables = size.at(max_len=0).room(*size.smallest())
    return max(without_tables // (3 * size.mixing_heads), 0)


def _widths_worth_trying(size: _Size) -> Iterator[int]:
    """Every d_model, upwards, from where the tables and the kept side at d/2 (at least d^2) alone fit into 4 d^2."""
    tables = 3 * size.mixing_heads * size.max_len
    return itertools.count(max(math.isqrt(tables // 3), 1))
