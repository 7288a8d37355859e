"""What the letters of a label of coefficient dynamics say."""

from __future__ import annotations

from madbench.labels import Explanation
from madbench.mixers.cd.grammar import Label


def explain(label: Label) -> list[Explanation]:
    """A row a letter, then cautions."""
    return [Explanation(label.readout, "readout", "phi of the score", "", "eq. 3c")]
