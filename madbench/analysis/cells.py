"""The cells of the result tables: means over seeds, their intervals, which of a column may be the best, and the legend.

A column's noise is either each label's own or the same for all of them. Accuracies of MAD tasks are bounded: a solved
task has no noise and one that some seeds solve has much, so every cell goes by its own seeds. Losses of language
models, means over many tokens, vary about alike whatever the label, so their spread is pooled over the column; with
two seeds a label that makes intervals several times narrower than their own would be.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.noise import Sample, may_be_best, pooled_spread
from madbench.analysis.rendering import BEST, WITHIN_NOISE, known
from madbench.analysis.scores import SUMS
from madbench.analysis.statistics import LEVEL, half_width
from madbench.labels import factors, parse
from madbench.suites.base import Column

MOST_BUDGET = 1.01
"""Ratio of parameters to softmax attention's above which a label does not compete."""


@dataclass(frozen=True)
class Cell(Sample):
    """One number of a table with everything it rests on."""

    done: int
    """Jobs with a result."""
    expected: int
    """Jobs that the mean is to rest on."""
    diverged: int = 0
    """Jobs that ended in NaN or Inf."""
    half_width: float = math.nan
    """Half of the 95% interval; NaN where there is none."""
    mark: str = ""
    """``best``, ``within_noise`` of the best, or nothing; see :func:`with_noise`."""

    @classmethod
    def of(cls, value: float) -> Cell:
        """A number that is no result, such as a count."""
        return cls(float(value), math.nan, 1, 1, 1)

    def text(self, column: Column, n: int = 0) -> str:
        """``76.1 ±3.0``; ``76.1†`` of one seed; ``76.1† (3/6)`` where half of its jobs are done; ``diverged``.

        ``n`` is what the row says of its seeds; a cell that rests on fewer, but more than one, says so.
        """
        if self.done == 0 or (math.isnan(self.mean) and not self.diverged):
            return column.missing
        partial = f" ({self.done}/{self.expected})" if self.done < self.expected else ""
        if math.isnan(self.mean):
            return f"diverged{partial}"
        number = f"{self.mean:,.{column.digits}f}"
        if not column.better:
            return number
        half = "" if math.isnan(self.half_width) else f"{self.half_width:,.{column.digits}f}"
        noise = "†" if self.n == 1 else f" ±{half}" if half.strip("0.,") else ""
        fewer = f" n={self.n}" if not partial and 1 < self.n < n else ""
        return number + noise + partial + fewer

    def numbers(self, column: Column) -> dict[str, Any]:
        """For programs: mean, low and high of the interval, spread, n and mark; None for what does not exist."""
        low, high = np.clip([self.mean - self.half_width, self.mean + self.half_width], *column.limits).tolist()
        numbers = {"mean": self.mean, "low": low, "high": high, "spread": self.spread}
        return known(numbers | {"n": self.n, "mark": self.mark})


Cells = Mapping[str, Mapping[str, Cell]]
"""By name of the row and of the column."""


def seed_means(scores: pd.DataFrame, columns: Sequence[Column]) -> dict[str, dict[str, Cell]]:
    """The means over seeds of a frame of scores, without intervals and marks; a seed not begun does not count."""
    shown = scores[scores.column.isin([column.name for column in columns])]
    shown = shown.assign(value=shown.value.where(shown.done > 0), is_begun=shown.done > 0)
    groups = shown.groupby(["label", "column"], sort=False).agg(
        mean=("value", "mean"), spread=("value", "std"), known=("value", "count"), n=("is_begun", "sum"), **SUMS
    )
    is_known = groups.pop("known") == groups.n
    results = [column.name for column in columns if column.better]  # what differs in speed is not the noise of seeds
    groups["mean"] = groups["mean"].where(is_known)
    groups["spread"] = groups.spread.where(is_known & groups.index.isin(results, level="column"))
    cells: dict[str, dict[str, Cell]] = {}
    for (name, column), numbers in groups.to_dict("index").items():
        cells.setdefault(name, {})[column] = Cell(**numbers)
    return cells


def is_over_budget(label: str, budget_ratio: float) -> bool:
    """Whether the label has more parameters than the others may have, by its family's word or by its count."""
    return budget_ratio > MOST_BUDGET or factors(parse(label)).get("budget") == "over"


def with_noise(columns: Sequence[Column], cells: Cells, competing: Container[str] = ()) -> dict[str, dict[str, Cell]]:
    """``cells`` with their intervals and marks.

    In each column those cells of the ``competing`` rows compete that have two seeds or more and nothing missing or
    diverged; of columns with pooled noise none of a row that has diverged. The best mean is marked, with those that
    are printed alike, and all that may be the best as well (:func:`may_be_best`).
    """
    filled = {name: dict(row) for name, row in cells.items()}
    pooled_names = [column.name for column in columns if column.is_pooled]
    diverged = {name for name, row in cells.items() if any(row[x].diverged for x in pooled_names if x in row)}
    for column in (column for column in columns if column.better):
        of_column = {name: row[column.name] for name, row in cells.items() if column.name in row}
        repeated = {name: cell for name, cell in of_column.items() if cell.n > 1 and not math.isnan(cell.mean)}
        common = pooled_spread([*repeated.values()]) if column.is_pooled else None
        without = diverged if column.is_pooled else ()
        whole = {
            name: cell
            for name, cell in repeated.items()
            if cell.done == cell.expected and name in competing and name not in without
        }
        best = []
        if len(whole) > 1:
            resolution = column.resolution or 10**-column.digits
            best = may_be_best(whole, column.better == "higher", resolution, common)
        for name, cell in repeated.items():
            spread, degrees = common or (cell.spread, cell.n - 1)
            is_best = name in best and round(cell.mean, column.digits) == round(of_column[best[0]].mean, column.digits)
            mark = BEST if is_best else WITHIN_NOISE if name in best else ""
            filled[name][column.name] = replace(cell, half_width=half_width(spread, cell.n, degrees), mark=mark)
    return filled


def row_texts(columns: Sequence[Column], row: Mapping[str, Cell]) -> list[str]:
    """The row as text; cells say so where they rest on fewer seeds than others of their suite."""
    shown = [column for column in columns if column.name in row]
    seeds = {
        is_pooled: max((row[x.name].n for x in shown if x.better and x.is_pooled == is_pooled), default=0)
        for is_pooled in (False, True)
    }
    return [
        row[column.name].text(column, seeds[column.is_pooled]) if column in shown else column.missing
        for column in columns
    ]


def legend(columns: Sequence[Column], cells: Cells, has_over_budget: bool) -> list[str]:
    """What the signs in the cells mean, as far as there are any."""
    shown = [
        (column, row[column.name], text)
        for row in cells.values()
        for column, text in zip(columns, row_texts(columns, row))
        if column.better and column.name in row
    ]
    sentences = []
    if with_interval := {column.is_pooled for column, _, text in shown if "±" in text}:
        over = {False: "the seeds of the cell", True: "seeds with the spread pooled over the labels"}
        whose = ", of the language model over ".join(over[is_pooled] for is_pooled in sorted(with_interval))
        sentences.append(f"±: half of the 95% interval of the mean, Student's t over {whose}.")
    if agreeing := [cell.n for _, cell, text in shown if cell.n > 1 and "±" not in text and not math.isnan(cell.mean)]:
        others = 1 - LEVEL ** (1 / min(agreeing))
        sentences.append(
            "Without ±: zero variance to the digits shown; no interval. After"
            f" {min(agreeing)} such seeds up to {others:.0%} of further ones may still differ (95%, binomial)."
        )
    partial = {column.name.startswith("steps_to_") for column, _, text in shown if "/" in text}
    signs = {
        "†: single seed; excluded from tests.": any("†" in text for _, _, text in shown),
        "n=: fewer seeds than the row has.": any("n=" in text for _, _, text in shown),
        "(d/e): d of e jobs are done, so the number is not final and not compared.": False in partial,
        "(k/n): k of n seeds get there; the mean is theirs and is not compared.": True in partial,
    }
    sentences += [text for text, is_there in signs.items() if is_there]
    if marked := {column.is_pooled for column, cell, _ in shown if cell.mark}:
        tests = {False: "Welch's t", True: "Student's t with the pooled spread"}
        how = " and ".join(tests[is_pooled] for is_pooled in sorted(marked))
        sentences.append(
            "Bold: the best mean of its column, to the digits shown. Underlined: may be the best as well, no mean is"
            f" better by more than the noise ({how}, one-sided, {LEVEL:.0%} for the column by Bonferroni)."
        )
        if has_over_budget:
            sentences.append(f"Labels over budget (! or a ratio above {MOST_BUDGET}) do not compete.")
    return sentences
