"""The range of a label's coefficients, which decides which checks apply in float64 and in float32."""

from __future__ import annotations

from madbench.mixers.cd.grammar import Label

FLOAT32_EXPONENT, FLOAT64_EXPONENT = 80, 700  # the ranges end at e^88 and e^709
LARGEST_SCORE = 16
OVERFLOW = "exp of a growing score leaves the range of float64"


def leaves_float64(label: Label, length: int) -> bool:
    """True if exp of a score can be infinite in float64 after the growth of the score over ``length`` tokens."""
    return growth(label, length) * LARGEST_SCORE > FLOAT64_EXPONENT


def growth(label: Label, length: int) -> float:
    """The growth factor of a score over ``length`` tokens for exp with a constant gate. 0 for other labels."""
    return float(label.gate) ** length if label.readout == "exp" and label.is_constant else 0.0
