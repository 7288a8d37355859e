"""Table 3 of the HyperMLP paper: how the cost of a pass grows with the length, with and without sequence mixing.

The module also checks how the cost that mixing adds grows with the rank of the mixing and with the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from madbench.mixers import Allocation, solve
from madbench.papers.complexity import HEADS, PAIRS, WIDTH, Case, ComplexityMeasure

RANKS = (2, 4, 8, 16)
TOKENS = 1024
MIXED, PLAIN = "R-12o!", "R"


class Table3Measure(ComplexityMeasure):
    """A measure of how the time of softmax attention, ReLU attention and HyperMLP grows with the length.

    It also counts the FLOPs that sequence mixing adds, for several ranks and lengths.
    """

    cases = (
        Case("Softmax attention, training", "S", "chunked", 2, PAIRS),
        Case("ReLU attention, training", PLAIN, "tiled", 2, PAIRS),
        Case("HyperMLP, training", MIXED, "tiled", 2, PAIRS),
    )

    def further(self, rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
        def allocated(label: str, length: int, **settings: Any) -> Allocation:
            return solve(label, WIDTH, HEADS, length, "paper", **settings)

        def overhead(rank: int, length: int) -> float:
            """The FLOPs that mixing of this rank adds per token of a sequence of ``length`` tokens."""
            mixed, plain = allocated(MIXED, length, mix_rank=rank), allocated(PLAIN, length)
            return mixed.flops_per_token(length) - plain.flops_per_token(length)

        def exponent(values: Sequence[int], costs: Sequence[float]) -> float:
            return float(np.polyfit(np.log(values), np.log(costs), 1)[0])

        of_rank = [overhead(rank, TOKENS) - overhead(1, TOKENS) for rank in RANKS]
        states = [allocated(label, TOKENS).state_bytes_per_token() for label in (MIXED, PLAIN)]
        return {
            "overhead of a step grows as r_s": (exponent([rank - 1 for rank in RANKS], of_rank), 1.0),
            "overhead of a step grows as t": (exponent(PAIRS, [overhead(4, length) for length in PAIRS]), 1.0),
            "mixing adds nothing per token to the state of decoding": (states[0] - states[1], 0.0),
        }
