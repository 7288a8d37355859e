"""Labels: one spelling for every sequence mixer, the key of every table, file name and plot."""

from __future__ import annotations

from madbench.labels.registry import FamilyLabel, families, family_of
from madbench.labels.grammar import ALIASES, InvalidLabel, Variant, all_labels, all_variants, format, parse
from madbench.labels.meaning import FACTORS, Explanation, diff, explain, neighbourhood
from madbench.labels.sets import LabelSet, available_sets, expand

__all__ = [
    "ALIASES",
    "FACTORS",
    "Explanation",
    "FamilyLabel",
    "InvalidLabel",
    "LabelSet",
    "Variant",
    "all_labels",
    "all_variants",
    "available_sets",
    "diff",
    "expand",
    "explain",
    "families",
    "family_of",
    "format",
    "neighbourhood",
    "parse",
]
