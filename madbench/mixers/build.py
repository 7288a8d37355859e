"""From a label to its module: the one place that knows which family builds what."""

from __future__ import annotations

from torch import nn

from madbench.labels import FamilyLabel, Variant, parse
from madbench.labels.registry import load_family
from madbench.mixers.srg.budget import solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP


def build(
    label: str | Variant | FamilyLabel,
    d_model: int,
    max_len: int,
    *,
    n_head: int = 2,
    counting: str = "strict",
    mix_rank: int = 16,
    rank_multiple: int = 1,
    rope: str = "rotation",
    path: str = "auto",
) -> nn.Module:
    """The mixer that ``label`` names, (B, T, d_model) -> (B, T, d_model), causal, T <= ``max_len``.

    Args:
        label: an S/R/G label such as ``G-cg-q-12o``, or ``family:...`` of an installed family.
        d_model: width; the budget is 4 d_model^2.
        max_len: longest sequence; the mixing tables have this many rows.
        n_head: heads, 2 in the paper for every label.
        counting: ``strict`` counts every parameter, ``published`` leaves out the length-indexed tables.
        mix_rank: rank r of R(1) and R(2) before the budget is solved.
        rank_multiple: coarsens the per-head widths.
        rope: ``rotation`` or ``published``.
        path: how it is computed; see :class:`DynamicMLP`.

    Raises:
        LabelError: the label does not parse.
        BudgetError: no ranks meet the budget.
    """
    variant = parse(label) if isinstance(label, str) else label
    if isinstance(variant, FamilyLabel):
        return load_family(variant.family).build(variant.value, d_model=d_model, max_len=max_len, n_head=n_head)
    allocation = solve(variant, d_model, n_head, max_len, counting, mix_rank, rank_multiple)
    return DynamicMLP(allocation, rope=rope, path=path)
