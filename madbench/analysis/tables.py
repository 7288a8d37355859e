"""The ablation table: a label a row, a task a column, the published row below ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.cells import Cell, Column, is_over_budget, legend, sorted_labels, with_noise
from madbench.analysis.quantities import MAD_AVERAGE
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.scores import published_scores, with_average
from madbench.tasks import TASK_NAMES

HEADINGS = {
    "compression": "Compr.",
    "fuzzy_in_context_recall": "Fuzzy recall",
    "in_context_recall": "In-ctx recall",
    "memorization": "Memor.",
    "noisy_in_context_recall": "Noisy recall",
    "selective_copying": "Sel. copy",
    MAD_AVERAGE: "MAD avg",
}


@dataclass(frozen=True)
class AblationTable(TextTable):
    """Rows of :class:`Cell`, by label and task; see :func:`ablation_table`."""

    tasks: list[str]
    rows: dict[str, dict[str, Cell]]
    budget_ratios: dict[str, float]
    protocol: str
    """The part of the caption that says what the numbers are of."""
    published: Mapping[str, Mapping[str, float]]
    """The paper's numbers by label and task."""

    @property
    def columns(self) -> list[Column]:
        limits = (0.0, 100.0)
        return [Column(task, HEADINGS[task], 1, "higher", limits=limits, missing="-") for task in self.tasks]

    @property
    def over_budget(self) -> set[str]:
        """The labels that do not compete."""
        return {label for label, ratio in self.budget_ratios.items() if is_over_budget(label, ratio)}

    @property
    def legend(self) -> list[str]:
        """The part of the caption that says how to read the cells."""
        return legend(self.columns, self.rows, bool(self.over_budget))

    @property
    def caption(self) -> str:
        return " ".join([self.protocol, *self.legend])

    def seeds(self, label: str) -> int:
        """The most seeds that a cell of the row has."""
        return max(cell.n for cell in self.rows[label].values())

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", *(column.heading for column in self.columns), "Budget", "n"]
        lines = []
        for label, cells in self.rows.items():
            n = self.seeds(label)
            texts = [cells[column.name].text(column, n) if column.name in cells else "-" for column in self.columns]
            ratio = self.budget_ratios[label]
            lines.append([label, *texts, "" if math.isnan(ratio) else f"{ratio:.3f}", str(n or "")])
            if theirs := self.published.get(label):
                numbers = [f"{theirs[task]:.1f}" if task in theirs else "" for task in self.tasks]
                lines.append([PUBLISHED, *numbers, "", ""])
        return headings, lines

    def marks(self) -> dict[tuple[str, int], str]:
        return {
            (label, i): cells[task].mark
            for label, cells in self.rows.items()
            for i, task in enumerate(self.tasks, 1)
            if task in cells
        }

    def records(self) -> list[dict[str, Any]]:
        columns = {column.name: column for column in self.columns}
        records = []
        for label, cells in self.rows.items():
            ratio = self.budget_ratios[label]
            for task, cell in cells.items():
                counts = {name: getattr(cell, name) for name in ("done", "expected", "diverged")}
                rest = {"budget_ratio": None if math.isnan(ratio) else ratio}
                rest["published"] = self.published.get(label, {}).get(task)
                records.append({"label": label, "task": task} | cell.numbers(columns[task]) | counts | rest)
        return records

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """What rows may be sorted by: numbers by label, and whether the highest comes first."""
        keys = {
            task: ({label: cells[task].mean for label, cells in self.rows.items() if task in cells}, True)
            for task in self.tasks
        }
        seeds = {label: float(self.seeds(label)) for label in self.rows}
        return keys | {"budget_ratio": (self.budget_ratios, False), "n": (seeds, True)}

    def sorted_by(self, key: str) -> AblationTable:
        """With the best row of column ``key`` first; ``ConfigError`` where there is no such column."""
        labels = sorted_labels(self.sort_keys(), key, self.rows)
        return replace(self, rows={label: self.rows[label] for label in labels})


def ablation_table(
    cells: pd.DataFrame,
    tasks: Sequence[str],
    caption: str,
    published: Mapping[str, Mapping[str, float]] | None = None,
) -> AblationTable:
    """The table of :func:`madbench.analysis.scores.scores`, means over seeds, rows in the order of the labels.

    Args:
        cells: scores of one protocol; ``label`` may hold any names of rows.
        tasks: the columns; the average comes with all six.
        caption: what the numbers are of; how to read the cells is added to it.
        published: numbers of the rows below, by label and task; by default the paper's, of the labels that it has.
    """
    columns = [*tasks, *([MAD_AVERAGE] if set(TASK_NAMES) <= set(tasks) else [])]
    ratios = cells.groupby("label", sort=False).budget_ratio.mean().to_dict()
    averaged = with_average(cells)
    begun = averaged.assign(accuracy=averaged.accuracy.where(averaged.done > 0), is_begun=averaged.done > 0)
    groups = begun.groupby(["label", "task"], sort=False).agg(
        mean=("accuracy", "mean"),
        spread=("accuracy", "std"),
        known=("accuracy", "count"),
        n=("is_begun", "sum"),
        done=("done", "sum"),
        expected=("expected", "sum"),
        diverged=("diverged", "sum"),
    )
    rows: dict[str, dict[str, Cell]] = {}
    for group in groups.itertuples():
        label, task = group.Index
        mean, spread = (group.mean, group.spread) if group.known == group.n else (math.nan, math.nan)
        counts = (int(group.n), int(group.done), int(group.expected), int(group.diverged))
        rows.setdefault(label, {})[task] = Cell(float(mean), float(spread), *counts)
    theirs = published_scores() if published is None else published
    table = AblationTable(columns, rows, ratios, caption, theirs)
    return replace(table, rows=with_noise(table.columns, rows, table.over_budget))
