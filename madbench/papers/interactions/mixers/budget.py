"""Costs of the mixers of ``hfa:`` and ``ha:``, and ranks with which they have as many parameters as softmax attention.

Softmax attention of width d has 4 d^2 parameters, which is the budget. Ranks are summed over H heads: r_qk = H d_qk and
r_vo = H d_vo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from madbench.config import check_at_least
from madbench.errors import BudgetError
from madbench.mixers.ranks import RankAllocation
from madbench.papers.interactions.mixers.grammar import InteractionLabel


@dataclass(frozen=True)
class Settings:
    """The settings of mixers of ``hfa:`` and ``ha:``, in addition to their label and size."""

    rank_multiple: int = 1
    """Common divisor of the head widths that the budget solver may choose."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "rank_multiple")


class InteractionAllocation(RankAllocation):
    """The ranks and costs of a mixer of ``hfa:`` or ``ha:``. See :class:`madbench.mixers.ranks.RankAllocation`.

    Labels with base ``C`` have no ranks, because full coupling matrices or tensors take the place of queries and keys.
    """

    label: InteractionLabel

    @property
    def slots(self) -> int:
        """The number of keys, and of values, per token, over all heads."""
        return self.size.n_head

    head_multiple = property(lambda self: len(self.label.parts))
    flops_of_tuples: Callable[..., float]
    """Function of seq_len and causal: FLOPs per token of the effects and values of visible tuples, over all heads."""
    flops_of_sums: Callable[[], float]
    """Function without arguments: FLOPs per token of the running sums of base ``L``, over all heads."""
    numbers_of_sums: Callable[[], int]
    """Function without arguments: the number of entries of the running sums of base ``L``, over all heads."""

    @property
    def ranks(self) -> dict[str, int]:
        """The ranks that the budget determines: name to rank. Empty for base ``C``, which has no ranks."""
        return {} if self.label.base == "C" else super().ranks

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """The bytes by which each token extends the decoding cache.

        They are 0 for base ``L``, whose running sums have a fixed size. ``bytes_per_element`` is the size of an element
        of the inputs. Keys and values are kept in float32 or wider. For base ``C``, the inputs themselves are kept.
        """
        if self.label.base == "C":
            return self.size.d_model * bytes_per_element
        if self.label.base == "L":
            return 0
        return self.slots * sum(self.widths.values()) * max(bytes_per_element, 4)

    def state(self, seq_len: int) -> int:
        """The number of entries in the decoding cache after ``seq_len`` tokens. A complex entry counts as two."""
        if self.label.base == "C":
            return self.size.d_model * seq_len
        if self.label.base == "L":
            return self.numbers_of_sums()
        return self.slots * sum(self.widths.values()) * seq_len

    def flops_per_token(self, seq_len: int, causal: bool = True) -> float:
        """The forward FLOPs per token on sequences of ``seq_len`` tokens. A multiply-add counts as two.

        They are twice the number of parameters, plus the cost of the tuples that each token sees. For base ``L``,
        running sums are counted instead of tuples if they cost less. Softmax and the RoPE of pairs are not counted.
        Raises ``BudgetError`` if ``seq_len`` is below 1.
        """
        if seq_len < 1:
            raise BudgetError(f"{self.label}: seq_len must be at least 1, got {seq_len}")
        of_tuples = self.flops_of_tuples(seq_len, causal)
        return 2 * self.total + (min(of_tuples, self.flops_of_sums()) if self.label.base == "L" else of_tuples)

    def with_ranks(self, rank_multiple: int) -> Self:
        """Return the allocation with the ranks r_qk and r_vo that its label and size give. Base ``C`` has no ranks.

        d is the width ``d_model``. With ``!`` or under the paper's budget, each rank is the largest up to d that
        :meth:`sides` allows. Otherwise :meth:`match_budget` chooses both ranks, with the reductions of :meth:`payment`:
        the paying side starts at d/4 for labels with ``q`` or ``v``, and at d for others. It is reduced to d/8 before
        the other side is reduced.

        All parts of a label get the same number of heads. Except for base ``C``, heads are added if the number of parts
        does not divide ``n_head``.

        Raises ``BudgetError`` in these cases:

        - ``rank_multiple`` or the smallest admissible rank exceeds d;
        - no ranks fit the strict budget;
        - the number of heads is not a multiple of the number of parts, for base ``C``;
        - FLOPs or state must be matched, for base ``C`` or ``L``.
        """
        label, d, heads = self.label, self.size.d_model, self.size.n_head
        if more := -heads % self.head_multiple:
            if label.base == "C":  # each head is one coupling of a world, so none is added
                raise BudgetError(
                    f"{label}: its {self.head_multiple} parts have equal shares of the heads, and n_head {heads} is not"
                    f" a multiple of {self.head_multiple}; use n_head {heads + more}"
                )
            return replace(self, size=replace(self.size, n_head=heads + more)).with_ranks(rank_multiple)
        if self.size.rule.quantity != "parameters" and label.base in ("C", "L"):
            why = "it has no ranks" if label.base == "C" else "the cost of its sums is a product of its ranks"
            raise BudgetError(f"{label} cannot match {self.size.rule.name}: {why}; use --match parameters")
        if label.base == "C":
            return self
        if rank_multiple > d:
            raise BudgetError(f"{label}: rank_multiple {rank_multiple} exceeds d_model {d}")
        sides = self.sides(rank_multiple)
        if label.over or not self.size.rule.chooses_ranks:
            return replace(self, r_qk=sides["qk"].floor(d), r_vo=sides["vo"].floor(d))
        return self.match_budget(sides)

    def payment(self) -> tuple[int, int]:
        d = self.size.d_model
        return d // 4 if self.label.rank else d, -(-d // 8)
