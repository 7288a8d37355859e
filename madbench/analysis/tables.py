"""The table of results: a label, or a row of a grid, a row; a task or a loss a column; published rows below ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis import captions
from madbench.analysis.cells import Cell, is_over_budget, legend, seed_means, sorted_names, with_noise
from madbench.analysis.differences import Difference, paired_differences
from madbench.analysis.loss_curves import (
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    thresholds_above,
    timing_differences,
)
from madbench.analysis.protocols import by_protocol, check_one_protocol, language_protocol
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, heading, loss_column, mad_columns, steps_column
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.scores import language_scores, mean_over, published_scores
from madbench.errors import ConfigError
from madbench.experiment import PlannedRow
from madbench.grid import Row
from madbench.suites import LANGUAGE, MAD, SUITES, Column, Suite

if TYPE_CHECKING:
    from rich.console import RenderableType

    from madbench.analysis.stored import Results
    from madbench.store.runs import Run

VS_BASELINE = "vs baseline"


@dataclass(frozen=True)
class Part:
    """The columns of one suite."""

    suite: Suite
    columns: list[Column]
    cells: dict[str, dict[str, Cell]]
    """By name of the row, of which there may be fewer than in the table, and of the column."""
    budget_ratios: dict[str, float]
    over_budget: set[str]
    """Names of the rows that do not compete."""
    published: Mapping[str, Mapping[str, float]]
    """The paper's numbers by name of the row and of the column."""
    about: str
    """The part of the caption that says what the numbers are of."""
    compared: Column | None = None
    """The column whose differences from the baseline are shown; it need not be one of ``columns``."""
    baseline: str = ""
    """Name of the row they are from."""
    differences: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    """By names of the row and of the column."""

    @property
    def title(self) -> str:
        return "Language model" if self.suite is LANGUAGE else "MAD tasks"

    @property
    def headings(self) -> list[str]:
        return [*(column.heading for column in self.columns), "Budget", "n", *[VS_BASELINE] * bool(self.compared)]

    def seeds(self, name: str) -> int:
        """The most seeds that a cell of the row has."""
        return max((cell.n for cell in self.cells[name].values()), default=0)

    def texts(self, name: str) -> list[str]:
        """The row as text."""
        if name not in self.cells:
            return [column.missing for column in self.columns] + [""] * (len(self.headings) - len(self.columns))
        cells, n, ratio = self.cells[name], self.seeds(name), self.budget_ratios.get(name, math.nan)
        texts = [
            cells[column.name].text(column, n) if column.name in cells else column.missing for column in self.columns
        ]
        return [*texts, "" if math.isnan(ratio) else f"{ratio:.3f}", str(n or ""), *self._difference(name)]

    def _difference(self, name: str) -> list[str]:
        if self.compared is None:
            return []
        if name == self.baseline:
            return ["baseline"]
        difference = self.differences.get((name, self.compared.name))
        return [difference.text(self.compared.digits) if difference else "-"]

    def published_texts(self, name: str) -> list[str]:
        """The published numbers below the row as text; nothing but empty texts where there are none."""
        numbers = self.published.get(name, {}) if name in self.cells else {}
        texts = [
            f"{numbers[column.name]:.{column.digits}f}"
            if isinstance(numbers.get(column.name), float)
            else str(numbers.get(column.name, ""))
            for column in self.columns
        ]
        return texts + [""] * (len(self.headings) - len(self.columns))

    def marks(self, name: str) -> list[str]:
        """The marks of the row's cells."""
        cells = self.cells.get(name, {})
        return [cells[column.name].mark if column.name in cells else "" for column in self.columns]

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """What rows may be sorted by: numbers by name, and whether the highest comes first."""
        keys = {
            column.name: (
                {name: cells[column.name].mean for name, cells in self.cells.items() if column.name in cells},
                column.better != "lower",
            )
            for column in self.columns
        }
        seeds = {name: float(self.seeds(name)) for name in self.cells}
        return keys | {"budget_ratio": (self.budget_ratios, False), "n": (seeds, True)}

    def records(self, row: Row) -> list[dict[str, Any]]:
        """The row's cells as mappings."""
        records, ratio = [], self.budget_ratios.get(row.name, math.nan)
        for column in self.columns:
            cell = self.cells.get(row.name, {}).get(column.name)
            if cell is None:
                continue
            record = {"label": row.name, "task": column.name} | cell.numbers(column)
            record |= {name: getattr(cell, name) for name in ("done", "expected", "diverged")}
            record["budget_ratio"] = None if math.isnan(ratio) else ratio
            record["published"] = self.published.get(row.name, {}).get(column.name)
            if self.baseline:
                record = {"row": row.name} | record | {"label": row.label, "changes": " ".join(row.changes)}
                difference = self.differences.get((row.name, column.name))
                for key, name in (("difference", "mean"), ("difference_low", "low"), ("difference_high", "high")):
                    value = getattr(difference, name, math.nan)
                    record[key] = None if math.isnan(value) else value
                record["difference_n"] = difference.n if difference else 0
            records.append(record)
        return records


@dataclass(frozen=True)
class ResultTable(TextTable):
    """A row for every row that a suite has, each suite under its own protocol; see :func:`result_table`."""

    parts: list[Part]
    rows: dict[str, Row]
    """By name, in their order."""

    @property
    def caption(self) -> str:
        sentences = [self.parts[0].about]
        if len(self.parts) > 1:
            sentences = [f"{part.title}: {part.about}" for part in self.parts]
            for part in self.parts:
                if lacking := [name for name in self.rows if name not in part.cells]:
                    sentences.append(f"Without runs ({part.title}): {', '.join(lacking)}.")
        columns = [column for part in self.parts for column in part.columns]
        cells = {name: {} for name in self.rows}
        for part in self.parts:
            for name, row in part.cells.items():
                cells[name] = cells[name] | row
        return " ".join([*sentences, *legend(columns, cells, any(part.over_budget for part in self.parts))])

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        first, *others = (part.headings for part in self.parts)
        again = {"Budget": "LM budget", "n": "LM n"}
        headings = ["Label", *first, *(again.get(name, name) for names in others for name in names)]
        lines = []
        for name in self.rows:
            lines.append([name, *(text for part in self.parts for text in part.texts(name))])
            theirs = [text for part in self.parts for text in part.published_texts(name)]
            if any(theirs):
                lines.append([PUBLISHED, *theirs])
        return headings, lines

    def marks(self) -> dict[tuple[str, int], str]:
        marks, start = {}, 1
        for part in self.parts:
            marks |= {(name, i): mark for name in self.rows for i, mark in enumerate(part.marks(name), start) if mark}
            start += len(part.headings)
        return marks

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """As any table, but where it is narrow the suites are below each other."""
        from rich.console import Group

        if len(self.parts) == 1 or self.keeps_columns(width, has_styles):
            return super().to_rich(width, has_styles)
        shown = []
        for part in self.parts:
            rows = {name: row for name, row in self.rows.items() if name in part.cells}
            shown += [replace(self, parts=[part], rows=rows).to_rich(width, has_styles), ""]
        return Group(*shown[:-1])

    def records(self) -> list[dict[str, Any]]:
        """Every cell, suite by suite; ``task`` is the column."""
        return [record for part in self.parts for row in self.rows.values() for record in part.records(row)]

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """What rows may be sorted by (:meth:`Part.sort_keys`); budget and n are the first suite's."""
        return {key: value for part in reversed(self.parts) for key, value in part.sort_keys().items()}

    def sorted_by(self, key: str) -> ResultTable:
        """With the best row of column ``key`` first; ``ConfigError`` where there is no such column."""
        return replace(self, rows={name: self.rows[name] for name in sorted_names(self.sort_keys(), key, self.rows)})


def result_table(
    results: Results,
    *,
    thresholds: Sequence[float] | None = None,
    is_brief: bool = False,
    has_baseline: bool = False,
) -> ResultTable | None:
    """The table of all suites that have a result, side by side; None without any.

    Args:
        results: of one protocol a suite, or of the rows of a grid.
        thresholds: losses x of the columns "to x": by default the paper's where its rows are shown, else the four
            multiples of 0.1 down to the lowest training loss of any run.
        is_brief: of the language model only L5, the steps to thresholds and the budget.
        has_baseline: whether the rows are compared with the first one, and published rows stand only below those that
            are comparable.

    Raises ``ConfigError`` for a threshold that is no loss, and without ``has_baseline`` for language models of several
    protocols.
    """
    parts = [_mad_part(results, has_baseline)] if results.rows(MAD) else []
    parts.append(_language_part(results, thresholds, is_brief, has_baseline))
    shown = [part for part in parts if part is not None]
    rows = {name: row for name, row in _named(results).items() if any(name in part.cells for part in shown)}
    return ResultTable(shown, rows) if shown else None


def result_tables(results: Results, has_baseline: bool = False) -> list[ResultTable]:
    """A table of each suite that has a result (:func:`result_table`)."""
    tables = [result_table(results.of(suite), has_baseline=has_baseline) for suite in (MAD, LANGUAGE)]
    return [table for table in tables if table]


def _named(results: Results) -> dict[str, Row]:
    """The rows of the table by name, in the order of the grid; a suite leaves out what does not concern it."""
    rows = {row.name: row.row for row in results.experiment.rows}
    given = results.experiment.grid.rows
    names = [name for row in given for name in (row.name, *(row.of_suite(suite).name for suite in SUITES))]
    return {name: rows[name] for name in dict.fromkeys([*names, *rows]) if name in rows}


def _mad_part(results: Results, has_baseline: bool) -> Part | None:
    rows, collected = results.rows(MAD), results.collected
    if not collected.status.isin(["finished", "diverged"]).any():
        return None
    protocol, comparable = rows[0].protocol, {row.name for row in rows if row.protocol.profile.comparable_with_paper}
    if has_baseline:
        shared = tuple(word for word in protocol.overrides if word not in rows[0].row.changes)
        protocol = replace(protocol, overrides=shared)
    scores = results.scores[results.scores.suite == MAD.name]
    about = captions.about_mad(protocol, collected)
    published = {name: found for name, found in published_scores().items() if name in comparable or not has_baseline}
    ratios = scores[scores.column != MAD_AVERAGE].groupby("label", sort=False).budget_ratio.mean().to_dict()
    part = _part(rows, mad_columns(protocol.tasks), [scores], ratios, published, about)
    if not has_baseline:
        return part
    compared, of_what = part.columns[0], heading(protocol.tasks[0])
    if len(protocol.tasks) > 1:
        compared, of_what = replace(compared, name=MAD_AVERAGE), "the mean over the tasks"
        tasks = scores[scores.column != MAD_AVERAGE]
        means = mean_over(tasks, protocol.tasks, MAD_AVERAGE)
        scores = pd.concat([tasks, means], ignore_index=True) if len(means) else tasks
    return _compared(part, rows, scores, compared, f"{of_what}, in percentage points")


def _language_part(
    results: Results, thresholds: Sequence[float] | None, is_brief: bool, has_baseline: bool
) -> Part | None:
    runs = results.language_runs
    if not runs:
        return None
    if not has_baseline:
        check_one_protocol(runs)
    groups = list(by_protocol(runs).values())
    is_comparable = all(language_protocol(found[0]).profile.comparable_with_paper for found in groups)
    if thresholds is None:
        lowest = min((row["train_loss"] for run in runs for row in evaluations(run)), default=math.nan)
        thresholds = PAPER_THRESHOLDS if is_comparable else thresholds_above(lowest)
    _check(thresholds)
    row_of = {run.job.id: name for name, found in results.runs.items() for run in found}
    frames = [language_scores(found, thresholds, [row_of[run.job.id] for run in found]) for found in groups]
    has_one_seed = all(found[found.column == LOSS].label.is_unique for found in frames)
    of_groups = [_language_columns(found, frame, thresholds, has_one_seed) for found, frame in zip(groups, frames)]
    columns = [column for column in of_groups[0] if all(column in others for others in of_groups)]
    if is_brief:
        columns = [column for column in columns if column.name == LOSS or column.name.startswith("steps_to_")]
    about = captions.about_language(groups[0], frames[0], columns)
    if len(groups) > 1:
        about = f"At the settings of {row_of[groups[0][0].job.id]}: {about}"
    rows = results.rows(LANGUAGE)
    comparable = {row.name for row in rows if row.protocol.profile.comparable_with_paper}
    published = published_scores() if is_comparable else {}
    published = {name: found for name, found in published.items() if name in comparable or not has_baseline}
    scores = pd.concat(frames, ignore_index=True)
    ratios = scores[scores.column == LOSS].groupby("label", sort=False).budget_ratio.mean().to_dict()
    part = _part(rows, columns, frames, ratios, published, about)
    if not has_baseline:
        return part
    losses = scores[scores.column.isin([LOSS, "validation_loss"])]
    return _compared(part, rows, losses, columns[0], "L5, in nats per token")


def _language_columns(
    runs: Sequence[Run], scores: pd.DataFrame, thresholds: Sequence[float], has_one_seed: bool
) -> list[Column]:
    """The columns that say something: no bytes or no comparison of times, no column of them."""
    columns = [loss_column(LOSS, "L5"), loss_column("validation_loss", "Val")]
    if scores[scores.column == "validation_bits_per_byte"].value.notna().any():
        columns.append(loss_column("validation_bits_per_byte", "Bits/byte"))
    columns += [steps_column(threshold, 0 if has_one_seed else 1) for threshold in thresholds]
    if not timing_differences(runs):
        common = common_seconds(runs)
        if scores.label.nunique() > 1 and math.isfinite(common):
            columns.append(loss_column("equal_time_validation_loss", captions.equal_time_heading(common)))
        columns.append(Column("tokens_per_second", "Tokens/s", 0))
    return columns


def _check(thresholds: Sequence[float]) -> None:
    for threshold in thresholds:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
    if len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")


def _part(
    rows: Sequence[PlannedRow],
    columns: list[Column],
    frames: Sequence[pd.DataFrame],
    budget_ratios: dict[str, float],
    published: Mapping[str, Mapping[str, float]],
    about: str,
) -> Part:
    """``frames`` are scores of one protocol each, which alone have noise in common; of several none may be the best."""
    label_of = {row.name: row.row.label for row in rows}
    over = {name for name, ratio in budget_ratios.items() if is_over_budget(label_of[name], ratio)}
    cells: dict[str, dict[str, Cell]] = {}
    for scores in frames:
        cells |= with_noise(columns, seed_means(scores, columns), over, has_marks=len(frames) == 1)
    return Part(rows[0].protocol.suite, columns, cells, budget_ratios, over, published, about)


def _compared(part: Part, rows: Sequence[PlannedRow], scores: pd.DataFrame, compared: Column, of_what: str) -> Part:
    """``part`` with the differences of ``scores`` from those of the first row."""
    baseline = rows[0].name
    about = " ".join([part.about, *captions.about_baseline([row.row for row in rows], of_what)])
    differences = paired_differences(scores, baseline)
    shown = compared if len(rows) > 1 else None
    return replace(part, about=about, compared=shown, baseline=baseline, differences=differences)
