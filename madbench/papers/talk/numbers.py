"""The numbers on the slides of the talk on HyperMLP, against Tables 1 and 2 of the paper."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from madbench.config import PUBLISHED
from madbench.papers.hypermlp.table2 import COLUMNS
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, Made, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

Rows = dict[tuple[str, ...], dict[str, str]]

TAKEAWAYS = {
    "R-cg-q": {"mad_average": "66.78", "nanogpt_loss_l5": "3.0828", "steps_to_3.1": "76"},
    "R-cg-q-12o": {"mad_average": "81.01", "nanogpt_loss_l5": "2.9956", "steps_to_3.1": "26"},
    "R-12!": {"mad_average": "46.27", "nanogpt_loss_l5": "4.3567"},
    "R-12o!": {"mad_average": "81.82", "nanogpt_loss_l5": "3.0497"},
    "S-pc": {"mad_average": "80.15", "nanogpt_loss_l5": "3.0466"},
    "R-pc": {"mad_average": "80.50", "nanogpt_loss_l5": "3.0481"},
    "G-cg-q-12o": {"mad_average": "81.12", "nanogpt_loss_l5": "2.9865"},
}
STANDINGS = {
    ("340M", "SoftmaxAttn"): ("5.28", "3"),
    ("340M", "ReLUAttn+KVConv"): ("5.13", "1"),
    ("340M", "HyperMLP"): ("2.97", "4"),
    ("340M", "HyperGLU"): ("2.31", "6"),
    ("1.3B", "SoftmaxAttn"): ("4.22", "2"),
    ("1.3B", "GSA"): ("2.84", "4"),
    ("1.3B", "HyperGLU"): ("1.88", "9"),
}
"""Avg Rank and #Top1 by size and model."""
GAINS = ("ARC-C", "HS", "PIQA", "COPA", "OBQA", "SciQ")
"""Columns in which HyperGLU is said to improve over SoftmaxAttn at 340M."""
SMALL, LARGE = "340M", "1.3B"


class SlideNumbers(PlainMeasure):
    """The item's measure; it reads the published tables and trains nothing."""

    def decide(self, request: Request, results: Results | None) -> Made:
        of_labels, of_models = (
            _rows("hypermlp_table1.csv", "label"),
            _rows("hypermlp_table2_lm_eval.csv", "scale", "model"),
        )
        outcomes = [*_printed(of_labels, of_models), *_gains(of_models), _at_scale(of_models)]
        verdicts = {statement: verdict for statement, verdict, _ in outcomes}
        remarks = {statement: remark for statement, _, remark in outcomes if remark}
        return Made([], verdicts, {}, (), remarks)


def _rows(name: str, *keys: str) -> Rows:
    with open(PUBLISHED / name, newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


def _printed(of_labels: Rows, of_models: Rows) -> Iterator[tuple[str, str, str]]:
    for label, numbers in TAKEAWAYS.items():
        for column, number in numbers.items():
            printed = of_labels[(label,)][column]
            yield f"{label}: {column} is {number}", _is(float(number) == float(printed)), f"Table 1 has {printed}"
    for (scale, model), (rank, top1) in STANDINGS.items():
        row = of_models[scale, model]
        is_printed = (float(rank), int(top1)) == (float(row["avg_rank"]), int(row["top1"]))
        statement = f"{model} at {scale}: Avg Rank {rank}, {top1} times first"
        yield statement, _is(is_printed), f"Table 2 has {row['avg_rank']} and {row['top1']}"


def _gains(of_models: Rows) -> Iterator[tuple[str, str, str]]:
    ours, softmax = (of_models[SMALL, model] for model in ("HyperGLU", "SoftmaxAttn"))
    for column in GAINS:
        is_larger = float(ours[column]) > float(softmax[column])
        statement = f"HyperGLU improves over SoftmaxAttn on {column} at {SMALL}"
        yield statement, _is(is_larger), f"{ours[column]} against {softmax[column]}"


def _at_scale(of_models: Rows) -> tuple[str, str, str]:
    """By how much HyperGLU is above SoftmaxAttn at the two sizes; open where its two measures disagree."""
    distances = []
    for scale in (SMALL, LARGE):
        ours, softmax = (of_models[scale, model] for model in ("HyperGLU", "SoftmaxAttn"))
        in_rank = float(softmax["avg_rank"]) - float(ours["avg_rank"])
        in_columns = fmean(float(ours[c.heading]) - float(softmax[c.heading]) for c in COLUMNS)
        distances.append((in_rank, in_columns))
    grows = {large > small for small, large in zip(*distances)}
    verdict = OPEN if len(grows) > 1 else _is(True in grows)
    remark = "; ".join(
        f"{scale}: {rank:.2f} in Avg Rank, {mean:.3f} a column"
        for scale, (rank, mean) in zip((SMALL, LARGE), distances)
    )
    return f"The advantage over SoftmaxAttn appears stronger at {LARGE}", verdict, remark


def _is(holds: bool) -> str:
    return REPRODUCED if holds else CONTRADICTED
