"""Budgets as values: the limited quantity, its limit, and the way it is counted.

Jobs, files and the command line hold a budget's name. The solver and the families use its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from madbench.jobs import Budget

if TYPE_CHECKING:
    from madbench.labels.family import Allocation

Quantity = Literal["parameters"]
LEFT: Mapping[Quantity, Callable[[Allocation], float]] = {
    "parameters": lambda allocation: allocation.target - allocation.total,
}
"""The part of the budget that an allocation leaves, by quantity. It must be affine in each rank while the others are
fixed."""


@dataclass(frozen=True)
class BudgetRule:
    """A budget: a quantity of a mixer that may not exceed the quantity of a reference."""

    quantity: Quantity
    reference: Literal["softmax attention"]  # of the same width; it includes the label's convolution taps
    counting: Literal["all", "paper"]
    """``all``: everything counts, and the budget chooses the ranks. ``paper``: the family's paper chooses the ranks and
    says what counts."""

    @property
    def chooses_ranks(self) -> bool:
        """True if ranks are reduced until the budget is met, False if a family has the ranks of its paper."""
        return self.counting == "all"

    def room(self, allocation: Allocation) -> float:
        """The part of the budget that an allocation leaves. Negative if it exceeds the budget."""
        return LEFT[self.quantity](allocation)


BUDGETS: Mapping[Budget, BudgetRule] = {
    "strict": BudgetRule("parameters", "softmax attention", "all"),
    "paper": BudgetRule("parameters", "softmax attention", "paper"),
}
"""The rule of every budget by its name."""
