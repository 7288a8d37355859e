"""Tests if numbers in the mixers of a ``cd:`` label leave the range of a dtype by definition.

Checks do not apply to such labels.
"""

from __future__ import annotations

from madbench.mixers.cd.grammar import CdLabel

FLOAT32_EXPONENT, FLOAT64_EXPONENT = 80, 700  # the ranges end at e^88 and e^709
LARGEST_SCORE = 16
OVERFLOW = "exp of a growing score leaves the range of float64"


def leaves_float64(label: CdLabel, length: int) -> bool:
    """True if e^s of a score s can be infinite in float64, because scores grow over ``length`` tokens."""
    return growth(label, length) * LARGEST_SCORE > FLOAT64_EXPONENT


def growth(label: CdLabel, length: int) -> float:
    """The factor lambda^length by which a constant gate lambda multiplies scores over ``length`` tokens.

    0 for labels without a constant gate, and for readouts other than ``exp``.
    """
    return float(label.gate) ** length if label.readout == "exp" and label.is_constant else 0.0
