"""The lemmas, corollaries and Table 1 of the paper as checks of ``cd:`` labels, named V3, V5 to V13 and V16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from madbench.labels import Label, family_of
from madbench.mixers import Check
from madbench.mixers.cd import grammar
from madbench.mixers.cd.ranges import FLOAT64_EXPONENT, OVERFLOW, growth, leaves_float64
from madbench.mixers.cd.sample_mixers import LENGTH, LONGER, SampleMixers
from madbench.papers.coefficients.theorems import statements


def checks(label: Label) -> Iterator[Check]:
    """The checks of the paper's lemmas, corollaries and Table 1 for a label. Empty for a label of another family.

    A check is marked as not applicable if its quantities overflow float64.
    """
    if not isinstance(label, grammar.CdLabel):
        return
    for check in statements.checks(SampleMixers(family_of(label), label)):
        if check.run and _is_beyond_float64(label, check.name):
            check = replace(check, reason=OVERFLOW)
        yield check


def _is_beyond_float64(label: grammar.CdLabel, check: str) -> bool:
    """True if quantities of a check, given by its name, overflow float64 at the length of the check's sequences."""
    if check.startswith("V11"):
        return label.norm not in ("sum", "max") and growth(label, LONGER) > FLOAT64_EXPONENT
    return check.startswith("V8") and leaves_float64(label, LENGTH)
