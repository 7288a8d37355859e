"""The numbers on the slides of the talk on HyperMLP, compared with Tables 1 and 2 of the paper."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from madbench.config import PAPERS
from madbench.papers.hypermlp.table2 import COLUMNS
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, ItemResult, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

Rows = dict[tuple[str, ...], dict[str, str]]

GAINS = ("ARC-C", "HS", "PIQA", "COPA", "OBQA", "SciQ")
"""The benchmarks on which, according to the talk, HyperGLU improves over SoftmaxAttn at 340M: columns of Table 2."""
SMALL, LARGE = "340M", "1.3B"


class SlideNumbers(PlainMeasure):
    """A measure that compares the numbers on the slides with the published tables. It trains nothing."""

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        of_labels, of_models = (
            _rows("hypermlp/table1.csv", "label"),
            _rows("hypermlp/table2_lm_eval.csv", "scale", "model"),
        )
        outcomes = [*_printed_numbers(of_labels, of_models), *_gains(of_models), _at_scale(of_models)]
        verdicts = {statement: verdict for statement, verdict, _ in outcomes}
        remarks = {statement: remark for statement, _, remark in outcomes if remark}
        return ItemResult([], verdicts, {}, (), remarks)


def _rows(name: str, *keys: str) -> Rows:
    with open(PAPERS / name, newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


def _printed_numbers(of_labels: Rows, of_models: Rows) -> Iterator[tuple[str, str, str]]:
    """Yield (statement, verdict, remark) for every number on a slide.

    ``of_labels`` has the rows of Table 1 by (label,), and ``of_models`` those of Table 2 by (scale, model).
    """
    for (scale, name), row in _rows("talk/slides.csv", "scale", "name").items():
        printed_numbers, table = (of_models[scale, name], "Table 2") if scale else (of_labels[(name,)], "Table 1")
        for column, number in row.items():
            if column not in ("scale", "name") and number:
                statement = f"{name}{scale and ' at '}{scale}: {column} is {number}"
                yield (
                    statement,
                    _is(float(number) == float(printed_numbers[column])),
                    f"{table} has {printed_numbers[column]}",
                )


def _gains(of_models: Rows) -> Iterator[tuple[str, str, str]]:
    ours, softmax = (of_models[SMALL, model] for model in ("HyperGLU", "SoftmaxAttn"))
    for column in GAINS:
        is_larger = float(ours[column]) > float(softmax[column])
        statement = f"HyperGLU improves over SoftmaxAttn on {column} at {SMALL}"
        yield statement, _is(is_larger), f"{ours[column]} against {softmax[column]}"


def _at_scale(of_models: Rows) -> tuple[str, str, str]:
    """(statement, verdict, remark) on whether HyperGLU leads SoftmaxAttn by more at 1.3B than at 340M.

    The lead is measured in Avg Rank, and as a mean over the columns. Not decided if the two disagree.
    """
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
