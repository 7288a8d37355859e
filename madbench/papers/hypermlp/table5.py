"""The parts of Table 5 that need no timing: FLOPs of models that madbench has, and ratios of printed latencies."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from madbench.bench.language import paper_flops_per_token
from madbench.papers.making import CONTRADICTED, REPRODUCED, ItemResult, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

PRINTED = "table5_l40s.csv"
WIDTH = 768
ROWS = {"SM(Flash)": ("S flash", "S", 12, 0), "SM(Naive)": ("S naive", "S", 12, 0)}
ROWS |= {"HyperGLU": ("G-cg-q-12o", "G-cg-q-12o", 2, WIDTH // 4)}
"""The rows of Table 5 that madbench counts: printed name to (our name, label, number of heads, r_qk of eq. 57).

If r_qk is 0, the budget chooses it.
"""
NEAR = 0.002
"""The largest relative difference between our count and the printed number at which they count as equal."""
ORDER = 10.0
"""The largest ratio of two latencies that count as being of the same order of magnitude."""


class Table5Measure(PlainMeasure):
    """A measure that compares printed FLOPs with counted ones, and printed latencies with each other.

    It times nothing.
    """

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        with open(request.paper.file(PRINTED), newline="", encoding="utf-8") as file:
            published = {row["model"]: row for row in csv.DictReader(file)}
        verdicts, remarks, cells = {}, {}, []
        for name, (row, label, heads, qk_rank) in ROWS.items():
            ours, theirs = (
                paper_flops_per_token(row, label, heads, qk_rank=qk_rank) / 1e6,
                float(published[name]["fwd_mflop_per_token"]),
            )
            sentence = f"{name}: forward MFLOPs per token follow from the products of the blocks"
            verdicts[sentence] = _verdict(abs(ours - theirs) <= NEAR * theirs)
            remarks[sentence] = f"{ours:.2f} counted, {theirs:.2f} printed"
            cells.append({"model": name, "mflop_per_token": ours, "published": theirs})
        for column in ("fwd", "train"):
            seconds = {name: float(row[f"{column}_latency_s"]) for name, row in published.items()}
            others = {name: seconds["HyperGLU"] / value for name, value in seconds.items() if name != "HyperGLU"}
            sentence = f"HyperGLU is of the same order of magnitude as every other model, {column} (section 2.6)"
            verdicts[sentence] = _verdict(max(others.values()) <= ORDER)
            slower = max(others, key=others.__getitem__)
            remarks[sentence] = (
                f"at most {others[slower]:.2f} times as slow as another, {slower}; of the printed latencies"
            )
        return ItemResult((), verdicts, {"cells": cells}, (), remarks)


def _verdict(is_so: bool) -> str:
    return REPRODUCED if is_so else CONTRADICTED
