"""A result table: a label, or a row of a grid, a row; a task or a loss a column; published numbers below ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from madbench.analysis.cells import Cell, legend, row_texts
from madbench.analysis.quantities import BUDGET_RATIO, SEEDS, suite_title
from madbench.analysis.rendering import PUBLISHED, TextTable, known
from madbench.analysis.statistics import students_t
from madbench.errors import ConfigError, did_you_mean
from madbench.grid import Row
from madbench.suites import Column, Suite

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

_VS_BASELINE = "vs baseline"


class Difference(NamedTuple):
    """A row's mean minus that of the baseline, paired by seed."""

    mean: float = math.nan
    low: float = math.nan
    """Lower end of the 95% interval of Student's t; NaN for a single pair."""
    high: float = math.nan
    n: int = 0
    """Pairs."""

    def text(self, digits: int) -> str:
        """``+1.3 [-0.2,+2.8]``."""
        interval = "" if math.isnan(self.low) else f" [{self.low:+.{digits}f},{self.high:+.{digits}f}]"
        return f"{self.mean:+.{digits}f}{interval}"


def paired_differences(scores: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """Differences of scores from those of the label ``baseline`` by (label, column), over the seeds that both have.

    A seed counts once all its jobs are done. None where a seed of either side has no number, because it diverged.
    """
    whole = scores.loc[scores.done == scores.expected, ["label", "column", "seed", "value"]]
    pairs = whole[whole.label != baseline].merge(whole[whole.label == baseline], on=["column", "seed"])
    differences = (pairs.value_x - pairs.value_y).groupby([pairs.label_x, pairs.column], sort=False)
    found = {}
    for key, values in differences:
        if not values.isna().any():
            n, mean = len(values), math.fsum(values) / len(values)
            half = students_t(n - 1) * values.std() / math.sqrt(n) if n > 1 else math.nan
            found[key] = Difference(mean, mean - half, mean + half, n)
    return found


@dataclass(frozen=True)
class ResultTable(TextTable):
    """Rows of cells and published numbers; :func:`result_table` makes one."""

    suites: tuple[Suite, ...]
    columns: list[Column]
    """Those of the suites, each followed by its budget ratio and its number of seeds."""
    rows: dict[str, Row]
    """By name, in their order."""
    cells: dict[str, dict[str, Cell]]
    """By name of the row and of the column."""
    published: Mapping[str, Mapping[str, float]]
    """The paper's numbers by name of the row and of the column."""
    about: str
    """The part of the caption that says what the numbers are of."""
    has_over_budget: bool = False
    """Whether rows do not compete."""
    baseline: str = ""
    """Name of the row that the others are compared with; empty for none."""
    compared: Column | None = None
    """The column whose differences from the baseline are shown; it need not be one of ``columns``."""
    differences: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    """By names of the row and of the column."""
    parts: tuple[ResultTable, ...] = ()
    """The tables of single suites that stand side by side in this one."""

    @property
    def title(self) -> str:
        return " and ".join(map(suite_title, self.suites))

    @property
    def caption(self) -> str:
        return " ".join([self.about, *legend(self.columns, self.cells, self.has_over_budget)])

    def texts(self, name: str) -> list[str]:
        """The row ``name`` as text, one a column, and the difference from the baseline."""
        texts = row_texts(self.columns, self.cells.get(name, {}))
        if self.compared is None:
            return texts
        difference = self.differences.get((name, self.compared.name))
        text = difference.text(self.compared.digits) if difference else "-"
        return [*texts, "baseline" if name == self.baseline else text]

    def published_texts(self, name: str) -> list[str]:
        """The published numbers below the row as text; nothing but empty texts where there are none."""
        numbers = self.published.get(name, {})
        found = [(numbers.get(column.name, ""), column.digits) for column in self.columns]
        texts = [f"{value:.{digits}f}" if isinstance(value, float) else str(value) for value, digits in found]
        return texts + [""] * bool(self.compared)

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = []
        for name in self.rows:
            lines.append([name, *self.texts(name)])
            if any(theirs := self.published_texts(name)):
                lines.append([PUBLISHED, *theirs])
        headings = [column.heading for column in self.columns]
        return ["Label", *headings, *[_VS_BASELINE] * bool(self.compared)], lines

    def marks(self) -> dict[tuple[str, int], str]:
        return {
            (name, i): row[column.name].mark
            for name, row in self.cells.items()
            for i, column in enumerate(self.columns, 1)
            if column.name in row
        }

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """As any table, but where it is narrow the suites are below each other."""
        from rich.console import Group

        if not self.parts or self.keeps_columns(width, has_styles):
            return super().to_rich(width, has_styles)
        first, *others = (part.to_rich(width, has_styles) for part in self.parts)
        return Group(first, *(item for other in others for item in ("", other)))

    def records(self) -> list[dict[str, Any]]:
        """Every result, suite by suite; ``task`` is the column."""
        if self.parts:
            return [record for part in self.parts for record in part.records()]
        shown = [column for column in self.columns if column.name not in (BUDGET_RATIO.name, SEEDS.name)]
        pairs = itertools.product(self.rows.values(), shown)
        return [self._record(row, column) for row, column in pairs if column.name in self.cells[row.name]]

    def _record(self, row: Row, column: Column) -> dict[str, Any]:
        cells = self.cells[row.name]
        cell = cells[column.name]
        record = {"label": row.name, "task": column.name} | cell.numbers(column)
        record |= {name: getattr(cell, name) for name in ("done", "expected", "diverged")}
        record["budget_ratio"] = cells[BUDGET_RATIO.name].mean if BUDGET_RATIO.name in cells else None
        record["published"] = self.published.get(row.name, {}).get(column.name)
        if not self.baseline:
            return record
        record = {"row": row.name} | record | {"label": row.label, "changes": " ".join(row.changes)}
        found = self.differences.get((row.name, column.name), Difference())
        numbers = {"difference": found.mean, "difference_low": found.low, "difference_high": found.high}
        return record | known(numbers) | {"difference_n": found.n}

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """What rows may be sorted by: numbers by name, and whether the highest comes first."""
        return {
            column.name: (
                {name: row[column.name].mean for name, row in self.cells.items() if column.name in row},
                column.better != "lower" and not column.name.endswith(BUDGET_RATIO.name),
            )
            for column in self.columns
        }

    def sorted_by(self, key: str) -> ResultTable:
        """With the best row of column ``key`` first, those without a number last; ``ConfigError`` for no column."""
        if key == "label":
            return self
        keys = self.sort_keys()
        if key not in keys:
            raise ConfigError(f"--sort {key!r}: no such column{did_you_mean(key, ['label', *keys])}")
        numbers, is_descending = keys[key]
        numbers = {name: number for name, number in numbers.items() if not math.isnan(number)}
        first = sorted(filter(numbers.__contains__, self.rows), key=numbers.__getitem__, reverse=is_descending)
        return self._in_order(list(dict.fromkeys([*first, *self.rows])))

    def _in_order(self, names: Sequence[str]) -> ResultTable:
        rows = {name: self.rows[name] for name in names if name in self.rows}
        return replace(self, rows=rows, parts=tuple(part._in_order(names) for part in self.parts))


def side_by_side(mad: ResultTable, language: ResultTable, names: Sequence[str]) -> ResultTable:
    """One table of both suites, with the rows ``names``."""
    own = {column.name: column for column in language.columns}
    for column in (BUDGET_RATIO, SEEDS):
        own[column.name] = replace(column, name=f"lm_{column.name}", heading=f"LM {column.heading.lower()}")
    cells: dict[str, dict[str, Cell]] = {}
    for name in names:
        of_language = language.cells.get(name, {})
        cells[name] = mad.cells.get(name, {}) | {own[key].name: cell for key, cell in of_language.items() if key in own}
    parts = (mad, language)
    sentences = [f"{part.title}: {part.about}" for part in parts]
    for part in parts:
        if lacking := [name for name in names if name not in part.rows]:
            sentences.append(f"Without runs ({part.title}): {', '.join(lacking)}.")
    rows = mad.rows | language.rows
    return replace(
        mad,
        suites=(*mad.suites, *language.suites),
        columns=[*mad.columns, *own.values()],
        rows={name: rows[name] for name in names},
        cells=cells,
        published={name: {**mad.published.get(name, {}), **language.published.get(name, {})} for name in names},
        about=" ".join(sentences),
        has_over_budget=mad.has_over_budget or language.has_over_budget,
        parts=parts,
    )
