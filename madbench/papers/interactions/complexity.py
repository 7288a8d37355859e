"""Table 3 of the paper: for each of its attention models, the exponent with which time grows with sequence length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from madbench.papers.complexity import PAIRS, Case, ComplexityMeasure

LONG = (512, 1024, 2048, 4096, 8192)


class Table3Measure(ComplexityMeasure):
    """A measure of the exponents in Table 3, and of how they grow with the order n of HyperAttention.

    The growth is measured over the orders 2 to 4 with softmax, where order 2 is softmax attention, and over the orders
    3 to 5 without softmax.
    """

    cases = (
        Case("Self Attention", "S", "chunked", 2, PAIRS),
        Case("HyperFeatureAttention", "hfa:2", "chunked", 2, PAIRS),
        Case("HyperAttention of order 3", "ha:3", "dense", 3, (72, 96, 128, 176, 240)),
        Case("HyperAttention of order 4", "ha:4", "chunked", 4, (56, 72, 96, 128, 168)),
        Case("Linear Self Attention", "hfa:L1", "linear_time", 1, LONG),
        Case("Linear HyperFeatureAttention", "hfa:L2", "linear_time", 1, LONG),
        Case("Linear HyperAttention of order 3", "ha:L3a", "linear_time", 1, LONG),
        Case("Linear HyperAttention of order 4", "ha:L4a", "linear_time", 1, LONG),
        Case("Linear HyperAttention of order 5", "ha:L5a", "linear_time", 1, LONG),
    )

    def further(self, rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
        made = {}
        for name, labels, growth in (
            ("", ("S", "ha:3", "ha:4"), 1.0),
            ("linear ", ("ha:L3a", "ha:L4a", "ha:L5a"), 0.0),
        ):
            times = [row["time"] for row in rows if row["label"] in labels]
            statement = f"the exponent of {name}HyperAttention grows by {growth:g} with the order n"
            made[statement] = (float(np.polyfit(range(len(times)), times, 1)[0]), growth)
        return made
