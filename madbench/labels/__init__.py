"""Labels: one spelling for every sequence mixer, the key of every table, file name and plot."""

from __future__ import annotations

from madbench.labels.diagnosis import InvalidLabel
from madbench.labels.factors import FACTORS, Explanation, Variant
from madbench.labels.grammar import ALIASES, all_labels, all_variants
from madbench.labels.registry import (
    diff,
    explain,
    factors,
    families,
    family_identity,
    family_of,
    levels,
    neighbours,
    parse,
)
from madbench.labels.sets import LabelSet, available_sets, expand

__all__ = [
    "ALIASES", "FACTORS", "Explanation", "InvalidLabel", "LabelSet", "Variant", "all_labels", "all_variants",
    "available_sets", "diff", "expand", "explain", "factors", "families", "family_identity", "family_of", "levels",
    "neighbours", "parse",
]  # fmt: skip
