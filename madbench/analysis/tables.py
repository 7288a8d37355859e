"""The ablation table: a label a row, a task a column, the published row below ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.scores import MAD_AVERAGE, published_scores, with_average
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
class Cell:
    """One number of the table with everything it rests on."""

    mean: float
    """Mean over seeds, in percent."""
    spread: float
    """Standard deviation over seeds (n - 1); NaN for a single seed."""
    n: int
    """Seeds."""
    done: int
    """Jobs with a result."""
    expected: int
    """Jobs the profile asks for."""
    diverged: int
    """Jobs that ended in NaN or Inf."""

    @property
    def text(self) -> str:
        """``76.1 ±1.2``; an incomplete cell says how many of its jobs are done, a diverged one says so."""
        if self.done == 0 or (math.isnan(self.mean) and not self.diverged):
            return "-"
        number = "diverged" if math.isnan(self.mean) else f"{self.mean:.1f}"
        spread = "" if math.isnan(self.spread) else f" ±{self.spread:.1f}"
        partial = f" ({self.done}/{self.expected})" if self.done < self.expected else ""
        return number + spread + partial


@dataclass(frozen=True)
class AblationTable(TextTable):
    """Rows of :class:`Cell`, by label and task; see :func:`ablation_table`."""

    tasks: list[str]
    rows: dict[str, dict[str, Cell]]
    budget_ratios: dict[str, float]
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", *(HEADINGS[task] for task in self.tasks), "Budget", "n"]
        lines = []
        for label, cells in self.rows.items():
            seeds = sorted({cell.n for cell in cells.values() if cell.done})
            n = "-".join(str(count) for count in ([seeds[0], seeds[-1]] if len(seeds) > 1 else seeds))
            ratio = self.budget_ratios[label]
            budget = "" if math.isnan(ratio) else f"{ratio:.3f}"
            lines.append([label, *(cells[task].text if task in cells else "-" for task in self.tasks), budget, n])
            published = published_scores().get(label)
            if published:
                lines.append([PUBLISHED, *(f"{published[task]:.1f}" for task in self.tasks), "", ""])
        return headings, lines

    def records(self) -> list[dict[str, Any]]:
        records = []
        for label, cells in self.rows.items():
            for task, cell in cells.items():
                published = published_scores().get(label, {}).get(task)
                numbers = {"mean": cell.mean, "spread": cell.spread, "budget_ratio": self.budget_ratios[label]}
                numbers = {name: None if math.isnan(value) else value for name, value in numbers.items()}
                counts = {name: getattr(cell, name) for name in ("n", "done", "expected", "diverged")}
                records.append({"label": label, "task": task, **numbers, **counts, "published": published})
        return records


def ablation_table(cells: pd.DataFrame, tasks: Sequence[str], caption: str) -> AblationTable:
    """The table of :func:`madbench.analysis.scores.scores`, averaged over seeds, rows in the order of the labels."""
    columns = [*tasks, *([MAD_AVERAGE] if set(TASK_NAMES) <= set(tasks) else [])]
    ratios = cells.groupby("label", sort=False).budget_ratio.mean().to_dict()
    rows: dict[str, dict[str, Cell]] = {}
    for (label, task), seeds in with_average(cells).groupby(["label", "task"], sort=False):
        begun = seeds[seeds.done > 0]
        rows.setdefault(label, {})[task] = Cell(
            mean=begun.accuracy.mean(skipna=False),
            spread=begun.accuracy.std(skipna=False),
            n=len(begun),
            done=int(seeds.done.sum()),
            expected=int(seeds.expected.sum()),
            diverged=int(seeds.diverged.sum()),
        )
    return AblationTable(columns, rows, ratios, caption)
