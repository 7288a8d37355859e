"""The ablation table: a label a row, a task a column, the published row below ours."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis.scores import MAD_AVERAGE, published_scores, with_average
from madbench.tasks import TASK_NAMES

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = {
    "compression": "Compr.",
    "fuzzy_in_context_recall": "Fuzzy recall",
    "in_context_recall": "In-ctx recall",
    "memorization": "Memor.",
    "noisy_in_context_recall": "Noisy recall",
    "selective_copying": "Sel. copy",
    MAD_AVERAGE: "MAD avg",
}

_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
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
class AblationTable:
    """Rows of :class:`Cell`, by label and task; see :func:`ablation_table`."""

    tasks: list[str]
    rows: dict[str, dict[str, Cell]]
    budget_ratios: dict[str, float]
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as text; the published row of a label follows it."""
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
                lines.append(["  published", *(f"{published[task]:.1f}" for task in self.tasks), "", ""])
        return headings, lines

    def to_rich(self, width: int) -> Table:
        """For a terminal ``width`` columns wide, without the caption.

        Where it is narrow a cell takes several lines, and where it is very narrow a task has a line of its own.
        """
        from rich import box
        from rich.table import Table

        headings, lines = self.text_rows()
        widths = [max(map(len, column)) for column in zip(headings, *lines)]
        is_wide = sum(widths) + 2 * len(widths) <= width
        if not is_wide:
            stacked = [[line[0], *(text.replace(" ", "\n") for text in line[1:])] for line in [headings, *lines]]
            widths = [max(len(part) for text in column for part in text.split("\n")) for column in zip(*stacked)]
            if sum(widths) + len(widths) - 1 > width:
                headings, lines = _by_task(headings, lines)
            else:
                headings, lines = stacked[0], stacked[1:]
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, int(is_wide), 0, 0))
        for i, heading in enumerate(headings):
            table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=i == 0, overflow="fold")
        for line in lines:
            table.add_row(*line, style="dim" if line[0] == "  published" else None)
        return table

    def to_markdown(self) -> str:
        headings, lines = self.text_rows()
        rule = ["---", *["---:"] * (len(headings) - 1)]
        body = [[line[0].replace("  published", "*published*"), *line[1:]] for line in lines]
        rows = "\n".join("| " + " | ".join(row) + " |" for row in [headings, rule, *body])
        return f"{rows}\n\n{self.caption}\n"

    def to_latex(self) -> str:
        """A ``table`` environment; needs the booktabs package."""
        headings, lines = self.text_rows()
        rows = [" & ".join(_latex(text) for text in headings) + r" \\", r"\midrule"]
        for line in lines:
            name = r"\quad published" if line[0].startswith(" ") else rf"\texttt{{{_latex(line[0])}}}"
            rows.append(" & ".join([name, *(_latex(text) for text in line[1:])]) + r" \\")
        columns = "l" + "r" * (len(headings) - 1)
        head = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.caption)}}}"]
        head.append(rf"\begin{{tabular}}{{{columns}}}")
        return "\n".join([*head, r"\toprule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def to_csv(self) -> str:
        """Long form, a line a cell, for other programs."""
        buffer = io.StringIO()
        pd.DataFrame(self.records()).to_csv(buffer, index=False)
        return buffer.getvalue()

    def records(self) -> list[dict[str, Any]]:
        """Every cell as a mapping; numbers that do not exist are ``None``."""
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


def _by_task(headings: list[str], lines: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The same table with a line for every column of a label, and the published numbers in a column."""
    turned = []
    for line, following in zip(lines, [*lines[1:], [""]]):
        if line[0].startswith(" "):
            continue
        published = following if following[0].startswith(" ") else [""] * len(line)
        turned.append([line[0], "", ""])
        turned += [[f" {name}", *texts] for name, *texts in zip(headings[1:], line[1:], published[1:])]
    return ["Label", "ours", "published"], turned


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
