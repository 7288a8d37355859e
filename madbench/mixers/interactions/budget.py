"""What a mixer of interactions costs, and the ranks at which it costs what softmax attention of the same width costs.

Ranks are summed over heads: r_qk = H d_qk, r_vo = H d_vo; d is the width of the model. The budget is 4 d^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from madbench.config import check_at_least
from madbench.errors import BudgetError
from madbench.mixers.interactions.grammar import InteractionLabel
from madbench.mixers.ranks import RankAllocation, floor


@dataclass(frozen=True)
class Settings:
    """What mixers of interactions have besides their label and size."""

    rank_multiple: int = 1
    """Coarsens the per-head widths the budget solver may choose."""

    def __post_init__(self):
        check_at_least(self, 1, "rank_multiple")


class InteractionAllocation(RankAllocation):
    """See :class:`madbench.mixers.ranks.RankAllocation`. With base ``C`` there are no ranks."""

    label: InteractionLabel
    slots = property(lambda self: self.size.n_head, doc="Keys and values of a token, of all heads.")
    head_multiple = property(lambda self: len(self.label.parts))
    flops_of_tuples: Callable[..., float]
    """(seq_len, causal) -> per token, of the effects and the values of the tuples that rows see, all heads."""
    flops_of_sums: Callable[[], float]
    """Per token, of the running sums of base ``L``, all heads."""

    @property
    def ranks(self) -> dict[str, int]:
        """What the budget decided."""
        return {} if self.label.base == "C" else super().ranks

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes the decoding cache grows by with each token: none where a sum of fixed size replaces it.

        Keys and values are held in float32 at least, the inputs of base ``C`` as they come.
        """
        if self.label.base == "C":
            return self.size.d_model * bytes_per_element
        return self.slots * sum(self.widths.values()) * max(bytes_per_element, 4) * (self.label.base != "L")

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

        Strict budget, as :meth:`matched` has it: the paying side starts at d/4 and pays down to d/8 before the other
        does; a label without ``q``, ``v`` and ``!`` starts at r_qk = r_vo = d. ``!`` and the paper's budget stay there.
        Parts take equal shares of the heads, of which a label has as many more as that needs, if it is not one of
        couplings, which are a head each. Admissible ranks are those of :meth:`sides`, d_qk from the largest order up
        (twice that with p).

        Raises ``BudgetError`` for a size no mixer of the label has, and under the strict budget where none fits.
        """
        label, d, heads = self.label, self.size.d_model, self.size.n_head
        if more := -heads % self.head_multiple:
            if label.base == "C":  # whose heads are those of a world, one coupling each
                raise BudgetError(
                    f"{label}: its {self.head_multiple} parts take equal shares of the heads, and n_head {heads} is not"
                    f" a multiple of {self.head_multiple}; use n_head {heads + more}"
                )
            return replace(self, size=replace(self.size, n_head=heads + more)).solved(rank_multiple)
        if label.base == "C":
            return self
        if rank_multiple > d:
            raise BudgetError(f"{label}: rank_multiple {rank_multiple} exceeds d_model {d}")
        qk, vo = self.sides(rank_multiple)
        if label.over or self.size.budget == "paper":
            return replace(self, r_qk=floor(qk, d), r_vo=floor(vo, d))
        return self.match_budget(qk, vo)

    def payment(self) -> tuple[int, int]:
        d = self.size.d_model
        return d // 4 if self.label.rank else d, -(-d // 8)
