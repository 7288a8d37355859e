"""The language-model half of the ablation table: losses and steps to thresholds, a label a row."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.cells import Cell, Column, is_over_budget, legend, sorted_labels, with_noise
from madbench.analysis.language_caption import caption, equal_time_heading, timing_differences
from madbench.analysis.language_runs import only_protocol
from madbench.analysis.loss_curves import (
    LOSSES,
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    run_losses,
    steps_name,
    thresholds_above,
)
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.config import PUBLISHED as PUBLISHED_TABLES
from madbench.errors import ConfigError
from madbench.store.runs import Run

BRIEF = ("loss_l5", "budget_ratio")
"""What a table has beside the steps to thresholds where it is one half of a larger one."""


@dataclass(frozen=True)
class LanguageTable(TextTable):
    """Rows of :class:`Cell`, by label and column; see :func:`language_table`."""

    columns: list[Column]
    rows: dict[str, dict[str, Cell]]
    published: dict[str, dict[str, float]]
    """The paper's numbers by label and column; empty where they may not be set against ours."""
    protocol: str
    """The part of the caption that says what the numbers are of."""

    @property
    def over_budget(self) -> set[str]:
        """The labels that do not compete."""
        return {label for label, row in self.rows.items() if is_over_budget(label, row["budget_ratio"].mean)}

    @property
    def legend(self) -> list[str]:
        """The part of the caption that says how to read the cells."""
        return legend(self.columns, self.rows, bool(self.over_budget))

    @property
    def caption(self) -> str:
        return " ".join([self.protocol, *self.legend])

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", *(column.heading for column in self.columns), "n"]
        lines = []
        for label, row in self.rows.items():
            n = row["loss_l5"].expected
            lines.append([label, *(row[column.name].text(column, n) for column in self.columns), str(n)])
            if theirs := self.published.get(label):
                numbers = [theirs.get(column.name, "") for column in self.columns]
                lines.append([PUBLISHED, *(f"{x:.3f}" if isinstance(x, float) else str(x) for x in numbers), ""])
        return headings, lines

    def marks(self) -> dict[tuple[str, int], str]:
        return {
            (label, i): row[column.name].mark
            for label, row in self.rows.items()
            for i, column in enumerate(self.columns, 1)
        }

    def records(self) -> list[dict[str, Any]]:
        return [
            {"label": label, "quantity": column.name}
            | row[column.name].numbers(column)
            | {"seeds": row[column.name].expected, "diverged": row[column.name].diverged}
            | {"published": self.published.get(label, {}).get(column.name)}
            for label, row in self.rows.items()
            for column in self.columns
        ]

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """What rows may be sorted by: numbers by label, and whether the highest comes first."""
        keys = {
            column.name: (
                {label: row[column.name].mean for label, row in self.rows.items()},
                column.name == "tokens_per_second",
            )
            for column in self.columns
        }
        return keys | {"n": ({label: float(row["loss_l5"].expected) for label, row in self.rows.items()}, True)}

    def sorted_by(self, key: str) -> LanguageTable:
        """With the best row of column ``key`` first; ``ConfigError`` where there is no such column."""
        labels = sorted_labels(self.sort_keys(), key, self.rows)
        return replace(self, rows={label: self.rows[label] for label in labels})


def language_table(
    runs: Sequence[Run],
    labels: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    is_brief: bool = False,
) -> LanguageTable:
    """The table of ``runs``, means over seeds.

    Args:
        runs: finished and diverged language-model runs of one protocol, with their curves.
        labels: order of the rows; that of the runs by default.
        thresholds: losses x of the columns "to x": by default the paper's where its rows are shown, else the four
            multiples of 0.1 down to the lowest training loss of any run.
        is_brief: only L5, the steps to thresholds and the budget.

    Raises ``ConfigError`` for no run, for runs of several protocols, and for a threshold that is no loss.
    """
    protocol = only_protocol(runs)
    published = published_losses() if protocol.is_comparable_with_paper else {}
    if thresholds is None:
        lowest = min((row["train_loss"] for run in runs for row in evaluations(run)), default=math.nan)
        thresholds = PAPER_THRESHOLDS if published else thresholds_above(lowest)
    _check(thresholds)
    losses = run_losses(runs, thresholds)
    losses["budget_ratio"] = [run.record.details.get("budget_ratio", math.nan) for run in runs]
    by_label = dict(list(losses.groupby("label", sort=False)))
    columns = _columns(runs, losses, thresholds)
    if is_brief:
        columns = [column for column in columns if column.name in BRIEF or column.name.startswith("steps_to_")]
    rows = {
        label: {column.name: _cell(by_label[label], column) for column in columns}
        for label in labels or by_label
        if label in by_label
    }
    diverged = set(losses.label[losses.status == "diverged"])
    text = caption(runs, losses, thresholds, [column.name for column in columns], bool(published))
    table = LanguageTable(columns, rows, published, text)
    return replace(table, rows=with_noise(columns, rows, table.over_budget | diverged))


def _check(thresholds: Sequence[float]) -> None:
    for threshold in thresholds:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
    if len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")


def _columns(runs: Sequence[Run], losses: pd.DataFrame, thresholds: Sequence[float]) -> list[Column]:
    """The columns that say something: no bytes or no comparison of times, no column of them."""
    one_seed = losses.label.is_unique
    columns = [_loss("loss_l5", "L5"), _loss("validation_loss", "Val")]
    if losses.validation_bits_per_byte.notna().any():
        columns.append(_loss("validation_bits_per_byte", "Bits/byte"))
    columns += [
        Column(steps_name(x), f"to {float(x)}", 0 if one_seed else 1, "lower", is_pooled=True, resolution=1.0)
        for x in thresholds
    ]
    if not timing_differences(runs):
        common = common_seconds(runs)
        if losses.label.nunique() > 1 and math.isfinite(common):
            columns.append(_loss("equal_time_validation_loss", equal_time_heading(common)))
        columns.append(Column("tokens_per_second", "Tokens/s", 0))
    return [*columns, Column("budget_ratio", "Budget", 3)]


def _loss(name: str, heading: str) -> Column:
    return Column(name, heading, 3, "lower", is_pooled=True)


def _cell(of_label: pd.DataFrame, column: Column) -> Cell:
    values = of_label[column.name].to_numpy(float)
    diverged = of_label.status.tolist().count("diverged") if column.name in LOSSES else 0
    known = values[~np.isnan(values)]
    n = len(known)
    if diverged:
        return Cell(math.nan, math.nan, n, len(values), len(values), diverged)
    mean = float(known.mean()) if n else math.nan
    has_noise = column.better and n > 1  # what differs in speed is not the noise of the seeds
    return Cell(mean, float(known.std(ddof=1)) if has_noise else math.nan, n, n, len(values))


@functools.cache
def published_losses() -> dict[str, dict[str, float]]:
    """Table 1, right, of the HyperMLP paper: loss_l5 and steps_to_x by label, without the steps it has not."""
    with open(PUBLISHED_TABLES / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {"loss_l5": float(row["nanogpt_loss_l5"])}
            | {name: int(value) for name, value in row.items() if name.startswith("steps_to_") and value}
            for row in csv.DictReader(file)
        }
