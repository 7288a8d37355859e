"""Budgets of mixers. Each names the quantity that is limited, its limit, and the way it is counted.

Jobs, files and the command line contain the name of a budget. The solver and the families use its rule.
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
"""Largest ratio at which a mixer counts as matched. A label with a larger ratio is over budget, and tables do not rank
it."""


@dataclass(frozen=True)
class Measure:
    """A quantity of a mixer and its limit. The quantity must be affine in each rank while other ranks are fixed."""

    name: str
    """Name of the quantity in sentences."""
    amount: Callable[[Allocation], float]
    target: Callable[[Allocation], float]
    """The limit: the quantity of the reference."""


def softmax_flops(size: Size) -> float:
    """Forward FLOPs per token of softmax attention on the longest input: 8 d^2 + 2 d (L + 1).

    d is ``size.d_model``, and L is ``size.max_len`` in tokens. Only causal pairs of tokens are counted.
    """
    return 8 * size.d_model**2 + 2 * size.d_model * (size.max_len + 1)


def softmax_state(size: Size) -> int:
    """The number of elements in the keys and values that softmax attention caches for the longest input: 2 d L.

    d is ``size.d_model``, and L is ``size.max_len`` in tokens.
    """
    return 2 * size.d_model * size.max_len


def _state(allocation: Allocation) -> int:
    """The number of elements in a mixer's decoding state after the longest input.

    The method ``state`` of an allocation is optional. A family whose allocations lack it cannot match the state.
    """
    return allocation.state(allocation.size.max_len)  # type: ignore[attr-defined]  # an optional member


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
    """A budget: a quantity of a mixer, which may not exceed the same quantity of a reference."""

    quantity: Quantity
    reference: Literal["softmax attention"]
    """The mixer whose quantities are the limits. It has the same width."""
    counting: Literal["all", "paper"]
    """``all``: everything counts, and the budget chooses the ranks. ``paper``: the family's paper chooses the ranks and
    says what counts."""
    chooses_steps: bool = False
    """True if the number of training steps is chosen so that a job has the same training FLOPs as the reference."""

    @property
    def chooses_ranks(self) -> bool:
        """True if the budget chooses the ranks of a mixer. False if a family uses the ranks of its paper."""
        return self.counting == "all"

    @property
    def name(self) -> str:
        """The name of the quantity in sentences, such as ``FLOPs per token``."""
        return MEASURES[self.quantity].name

    def amount(self, allocation: Allocation) -> float:
        """The quantity that this budget limits, for an allocation: for example its number of parameters."""
        return MEASURES[self.quantity].amount(allocation)

    def target(self, allocation: Allocation) -> float:
        """The limit: the quantity of softmax attention at the size of an allocation."""
        return MEASURES[self.quantity].target(allocation)

    def room(self, allocation: Allocation) -> float:
        """The part of the budget that an allocation leaves. Negative if it exceeds the budget."""
        return self.target(allocation) - self.amount(allocation)

    def ratio(self, allocation: Allocation) -> float:
        """The quantity of an allocation divided by that of the reference."""
        return self.amount(allocation) / self.target(allocation)


BUDGETS: Mapping[Budget, BudgetRule] = {
    "strict": BudgetRule("parameters", "softmax attention", "all"),
    "paper": BudgetRule("parameters", "softmax attention", "paper"),
    "flops": BudgetRule("flops", "softmax attention", "all"),
    "state": BudgetRule("state", "softmax attention", "all"),
    "compute": BudgetRule("parameters", "softmax attention", "all", chooses_steps=True),
}
"""The rule of every budget by its name."""
COUNTINGS: tuple[Budget, ...] = ("strict", "paper")
"""The names of the budgets in parameters. The runs of a paper may use either."""


def budget_words(budget: Budget) -> list[str]:
    """The words that choose a budget on the command line, such as ``["--match", "flops"]``."""
    return ["--budget" if budget in COUNTINGS else "--match", budget]
