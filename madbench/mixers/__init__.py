"""Sequence mixers by family: from a label to its module, by the family that the label names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from madbench.config import from_mapping
from madbench.labels import family_of, parse
from madbench.mixers.family import Allocation, Budget, Size

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Allocation", "Size", "build", "solve"]


def build(
    label: Any,
    d_model: int,
    max_len: int,
    *,
    n_head: int = 2,
    budget: Budget = "strict",
    path: str = "auto",
    **settings: Any,
) -> nn.Module:
    """The mixer that ``label`` names, (B, T, d_model) -> (B, T, d_model), causal, T <= ``max_len``.

    Args:
        label: a label such as ``G-cg-q-12o`` or ``family:...`` of an installed family, or what it parses to.
        d_model: width; the budget is 4 d_model^2.
        max_len: longest sequence; the mixing tables of S/R/G have this many rows.
        n_head: heads, 2 in the paper for every label.
        budget: ``strict`` enforces the budget on every parameter, ``paper`` takes the ranks of the family's paper.
        path: how it is computed; of S/R/G see :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`.
        settings: of the family alone; of S/R/G see :class:`madbench.mixers.srg.family.Settings`.

    Raises ``LabelError`` for a label that does not parse, ``BudgetError`` where no ranks meet the budget, ``ConfigError``
    for a setting that the family does not have or take, ``TrainingError`` for a path that cannot compute this label.
    """
    label, family, settings = _resolve(label, settings)
    return family.build(family.solve(label, Size(d_model, n_head, max_len, budget), settings), settings, path)


def solve(
    label: Any, d_model: int, n_head: int = 2, max_len: int = 1024, budget: Budget = "strict", **settings: Any
) -> Allocation:
    """The ranks of the mixer that :func:`build` would build, and what it costs; raises what ``build`` does."""
    label, family, settings = _resolve(label, settings)
    return family.solve(label, Size(d_model, n_head, max_len, budget), settings)


def _resolve(label: Any, settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    label = parse(label) if isinstance(label, str) else label
    family = family_of(label)
    return label, family, from_mapping(family.Settings, settings, f"settings of {label}")
