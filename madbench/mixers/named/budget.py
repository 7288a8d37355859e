"""Costs of named layers, and the widths that meet a budget."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from madbench.errors import BudgetError
from madbench.mixers import Layer, Size
from madbench.mixers.named.arguments import written
from madbench.mixers.named.operator import Operator
from madbench.mixers.named.parts import Taps, count
from madbench.mixers.named.recurrent import Recurrent
from madbench.mixers.named.widths import Dims, width_steps
from madbench.mixers.ranks import WIDE_MODEL, WIDE_VO_STEP, CountedParameters, last_that_fits, over_budget

FILLED = 0.97
"""The share of a budget in parameters that a layer should use. If it uses less, finer steps of widths are tried."""
NEAR = 6
"""The number of model widths, multiples of ``n_head``, that :func:`_scaled` compares on each side of its estimate."""


@dataclass(frozen=True)
class NamedLabel:
    """The label of a named layer: an operator with its arguments.

    If ``over`` is true (``!`` in the label's text), the widths are those of the published layer in its library,
    whatever the budget. Otherwise they meet the budget.
    """

    operator: Operator
    over: bool = False

    def __str__(self) -> str:
        return f"{self.operator.name}{written(self.operator)}{'!' if self.over else ''}"


@dataclass(frozen=True)
class NamedAllocation(CountedParameters):
    """The widths of a named layer and their cost. Counts of parameters are those of the built module, exactly."""

    label: NamedLabel
    size: Size
    dims: Dims

    @property
    def operator(self) -> Operator:
        """The operator with the label's arguments."""
        return self.label.operator

    @functools.cached_property
    def terms(self) -> Mapping[str, int]:
        """The number of parameters by part of the layer. ``conv`` counts the taps of all convolutions together."""
        terms: dict[str, int] = {}
        for name, part in self.operator.parts(self.dims).items():
            if isinstance(part, Taps):
                taps = part.taps * part.channels
                terms["conv"] = terms.get("conv", 0) + taps
                if part.bias:
                    terms[name] = count(part) - taps
            else:
                terms[name] = count(part)
        return terms

    @property
    def ranks(self) -> Mapping[str, int]:
        """The widths that the budget determines, and the size of the decoding state of an empty sequence, by name.

        ``qk`` is the number of key channels of all heads together, and ``vo`` that of value channels. Some operators
        have further widths. ``state`` counts numbers. It does not include a cache that grows by every token.
        """
        dims, operator = self.dims, self.operator
        sides = {"qk": dims.key_dim, "vo": dims.value_dim}
        return {**sides, **operator.further_ranks(dims), "state": operator.state_size(dims)}

    @property
    def widths(self) -> Mapping[str, int]:
        """The key channels ``qk`` and the value channels ``vo`` of one head."""
        return {"qk": self.dims.key, "vo": self.dims.value}

    def flops_per_token(self, seq_len: int) -> float:
        """Approximate forward FLOPs per token of a sequence of ``seq_len`` tokens. A multiply-add counts as two.

        They are twice the number of parameters, plus the operator's ``flops`` for its state or its attention.
        """
        return 2.0 * self.total + self.operator.flops(self.dims, seq_len)

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to the decoding cache. Zero if the state has a fixed size.

        ``bytes_per_element`` is the size of one number.
        """
        return float(bytes_per_element * sum(self.operator.cached(self.dims).values()))

    def state(self, seq_len: int) -> int:
        """The size of the decoding state after ``seq_len`` tokens, as a count of numbers."""
        return self.operator.state_size(self.dims, seq_len)


@functools.cache
def solve(label: NamedLabel, size: Size) -> NamedAllocation:
    """Choose the widths of a named layer that use as much as possible of the budget of ``size``.

    A budget in parameters is 4 d_model^2, where taps of convolutions are not counted. Widths are multiples of a step,
    and the steps of :func:`width_steps` are tried in order. For each step, the widest layer within the budget is found.
    The search ends at the first step whose layer uses at least the share ``FILLED`` of the budget. If there is none,
    the layer with the most parameters is taken.

    :func:`_scaled` matches a budget of FLOPs or of state. For a label with ``!`` and for the budget ``paper``, the
    widths are those of the library's layer, and no budget is enforced.

    The layer's place in the model (``size.layer``) does not change the widths of keys and values. Raises
    ``BudgetError`` if no width fits.
    """
    found = _widths(label, replace(size, layer=Layer()))
    return replace(found, size=size, dims=found.operator.placed(found.dims, size.layer))


@functools.cache
def _widths(label: NamedLabel, size: Size) -> NamedAllocation:
    """The allocation that :func:`solve` returns, before it is adapted to the layer's place in a model."""
    operator, d, heads = label.operator, size.d_model, size.n_head
    if label.over or not size.rule.chooses_ranks:
        return NamedAllocation(label, size, operator.library_dims(d, heads))
    if size.rule.quantity != "parameters":
        return _scaled(label, size)

    def at(dims: Dims) -> NamedAllocation:
        return NamedAllocation(label, size, dims)

    def room(dims: Dims) -> float:
        return size.rule.room(at(dims))

    fullest: NamedAllocation | None = None
    candidates: list[Dims] = []
    for step in width_steps(d):
        candidates = operator.candidates(d, heads, step)
        widest = last_that_fits(candidates, room)
        if widest and (fullest is None or at(widest).total > fullest.total):
            fullest = at(widest)
        if fullest and fullest.ratio >= FILLED:
            break
    if not candidates:
        raise BudgetError(
            f"{label} has no layer at d_model {d} with {heads} heads; use a larger d_model or fewer heads"
        )
    if fullest is None:
        excess = -room(candidates[0])
        raise BudgetError(
            f"{label}: the smallest layer at d_model {d} with {heads} heads is {excess:,} parameters over the budget "
            f"of {4 * d * d:,}; use a larger d_model, fewer heads, or {replace(label, over=True)}"
        )
    return fullest


def _scaled(label: NamedLabel, size: Size) -> NamedAllocation:
    """Choose the widths of a layer that match a budget of FLOPs or of state.

    To have the usual proportion of keys to values, the widths are copied from a layer that meets the budget in
    parameters (4 w^2) of a model of another width w. The search for w has two steps:

    - The estimate is the largest multiple of the number of heads whose copied widths fit the budget.
    - All candidates of the operator are compared at the estimate and at the ``NEAR`` next multiples on both sides. Of
      the candidates that fit, the one that uses most of the budget is taken.

    Candidates change in steps of 8 channels if w is at least ``WIDE_MODEL``. These steps are coarse for a narrower
    model. In a model narrower than ``WIDE_MODEL``, the values of a recurrence are therefore widened channel by channel
    as far as the budget allows.

    Raises ``BudgetError`` if no layer fits, or if wider layers stop using more of the budget.
    """
    heads, rule, operator = size.n_head, size.rule, label.operator

    def at(dims: Dims) -> NamedAllocation:
        return NamedAllocation(label, size, replace(dims, d=size.d_model))

    def proportional(steps: int) -> NamedAllocation:
        """The layer with the keys and values that meet the budget in parameters of width ``steps * heads``.

        If no layer meets the budget of this width, the next larger multiple of ``heads`` is tried.
        """
        try:
            return at(_widths(label, replace(size, d_model=steps * heads, budget="strict")).dims)
        except BudgetError:
            return proportional(steps + 1)

    smallest = proportional(1)
    if rule.room(smallest) < 0:
        raise BudgetError(over_budget(smallest))
    most = 1
    while rule.room(wider := proportional(2 * most)) >= 0:
        if rule.amount(wider) == rule.amount(proportional(most)) and most > NEAR:
            raise BudgetError(
                f"{label} has no width that changes its {rule.name} further than to {rule.amount(wider):,.0f}, and "
                f"softmax attention has {rule.target(wider):,.0f}; use --match parameters"
            )
        most *= 2
    steps = last_that_fits(range(most, 2 * most), lambda steps: rule.room(proportional(steps))) or most
    near = range(max(1, steps - NEAR), steps + NEAR + 1)

    def widest(candidates: Sequence[Dims]) -> Dims | None:
        return last_that_fits(candidates, lambda dims: rule.room(at(dims)))

    fitting = (widest(operator.candidates(each * heads, heads, width_steps(each * heads)[0])) for each in near)
    best = max((at(dims) for dims in fitting if dims), key=rule.amount, default=smallest)
    if isinstance(operator, Recurrent) and size.d_model < WIDE_MODEL:
        values = range(best.dims.value, best.dims.value + 8 * WIDE_VO_STEP)
        best = at(widest([replace(best.dims, value=value) for value in values]) or best.dims)
    return best
