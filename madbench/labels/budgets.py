"""Budgets: for each, the quantity of a mixer that is limited, its limit, and what counts toward it.

Jobs, files and the command line contain the name of a budget, such as ``strict``. The solver and the families look up
the :class:`BudgetRule` of this name in :data:`BUDGETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from madbench.jobs import Budget

if TYPE_CHECKING:
    from madbench.labels.family import Allocation, Size

Quantity = Literal["parameters", "flops", "state"]
LEAST_MATCHED = 0.9
"""Smallest ratio of a mixer's parameters to those of softmax attention at which the mixer counts as matched."""
MOST_MATCHED = 1.01
"""Largest ratio of a mixer's parameters to those of softmax attention at which the mixer counts as matched. A label
with a larger ratio is over budget, and tables do not rank it."""


@dataclass(frozen=True)
class Measure:
    """A quantity of a mixer that a budget can limit, and the limit.

    The quantity must be affine in each rank of the mixer while the other ranks are fixed.
    """

    name: str
    """Name of the quantity in sentences, such as ``FLOPs per token``."""
    amount: Callable[[Allocation], float]
    """A function that returns the quantity of an allocated mixer."""
    target: Callable[[Allocation], float]
    """A function that returns the limit for an allocated mixer: the same quantity of softmax attention of the same
    size. For a hybrid, it is the sum over its layers."""


def softmax_flops(size: Size) -> float:
    """Forward FLOPs per token of softmax attention on the longest input: 8 d^2 + 2 d (L + 1).

    d is ``size.d_model``, and L is ``size.max_len`` in tokens. A multiply-add counts as two. Pairs in which a token
    attends to a later one are not counted.
    """
    return 8 * size.d_model**2 + 2 * size.d_model * (size.max_len + 1)


def softmax_state(size: Size) -> int:
    """The number of elements in the keys and values that softmax attention caches for the longest input: 2 d L.

    d is ``size.d_model``, and L is ``size.max_len`` in tokens.
    """
    return 2 * size.d_model * size.max_len


def _state(allocation: Allocation) -> int:
    """The number of elements in a mixer's decoding state after the longest input.

    Raises ``AttributeError`` if the allocation lacks the optional method ``state``. Its family then cannot match the
    state.
    """
    elements: int = allocation.state(allocation.size.max_len)  # type: ignore[attr-defined]  # an optional member
    return elements


def _layers(allocation: Allocation) -> int:
    """The number of mixers in an allocation: the number of layers in a hybrid's pattern, otherwise 1."""
    return len(getattr(allocation, "blocks", ())) or 1


MEASURES: Mapping[Quantity, Measure] = {
    "parameters": Measure("parameters", lambda a: a.total, lambda a: a.target),
    "flops": Measure(
        "FLOPs per token", lambda a: a.flops_per_token(a.size.max_len), lambda a: _layers(a) * softmax_flops(a.size)
    ),
    "state": Measure("numbers of state", _state, lambda a: _layers(a) * softmax_state(a.size)),
}
"""The quantities that a budget can limit.

Parameters of softmax attention include the label's convolution taps. FLOPs are forward FLOPs. State is the count of
numbers that decoding carries from token to token. FLOPs and state are counted for the longest input, and for softmax
attention without a convolution."""


@dataclass(frozen=True)
class BudgetRule:
    """The rule of a budget: a quantity of a mixer may not exceed that of softmax attention of the same width."""

    quantity: Quantity
    chooses_ranks: bool = True
    """True if ranks are chosen to meet the budget, and the whole mixer counts. False if a family uses the ranks that
    its paper states, and counts only what its paper counts."""
    chooses_steps: bool = False
    """True if the number of training steps is chosen so that a job has the training FLOPs of softmax attention."""

    @property
    def name(self) -> str:
        """The name of the quantity in sentences, such as ``FLOPs per token``."""
        return MEASURES[self.quantity].name

    def amount(self, allocation: Allocation) -> float:
        """The quantity of an allocated mixer that this budget limits, such as its number of parameters."""
        return MEASURES[self.quantity].amount(allocation)

    def target(self, allocation: Allocation) -> float:
        """The limit: the quantity of softmax attention of the same size.

        For a hybrid, it is multiplied by the number of layers in the hybrid's pattern.
        """
        return MEASURES[self.quantity].target(allocation)

    def room(self, allocation: Allocation) -> float:
        """The limit minus the quantity of an allocated mixer. Negative if the mixer exceeds the budget."""
        return self.target(allocation) - self.amount(allocation)

    def ratio(self, allocation: Allocation) -> float:
        """The quantity of an allocated mixer divided by the limit. Above 1 if the mixer exceeds the budget."""
        return self.amount(allocation) / self.target(allocation)


BUDGETS: Mapping[Budget, BudgetRule] = {
    "strict": BudgetRule("parameters"),
    "paper": BudgetRule("parameters", chooses_ranks=False),
    "flops": BudgetRule("flops"),
    "state": BudgetRule("state"),
    "compute": BudgetRule("parameters", chooses_steps=True),
}
"""The rule of every budget by its name."""
COUNTINGS: tuple[Budget, ...] = ("strict", "paper")
"""The names of the budgets that limit parameters and nothing else. The runs of a paper may use either."""


def budget_words(budget: Budget) -> list[str]:
    """The words that choose a budget on the command line, such as ``["--match", "flops"]``."""
    return ["--budget" if budget in COUNTINGS else "--match", budget]
