"""Result tables: a label, or a row of a grid, a row; a task or a loss a column; published numbers below ours."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis import captions, quantities
from madbench.analysis.cells import Cell, cells_of, is_over_budget, legend, row_texts, with_marks
from madbench.analysis.inference import Difference
from madbench.analysis.loss_curves import (
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    thresholds_above,
    timing_differences,
)
from madbench.analysis.protocols import by_protocol, check_one_protocol, language_protocol
from madbench.analysis.quantities import (
    BUDGET_RATIO,
    LOSS,
    MAD_AVERAGE,
    PERPLEXITIES,
    SEEDS,
    SPEED,
    STEPS,
    difference_text,
    loss_column,
    mad_columns,
    steps_column,
    suite_title,
)
from madbench.analysis.rendering import PUBLISHED, TextTable, known
from madbench.analysis.samples import differences_from
from madbench.analysis.scores import (
    Results,
    language_scores,
    mean_over,
    perplexity_scores,
    published_perplexities,
    published_scores,
)
from madbench.errors import ConfigError, did_you_mean
from madbench.experiment import PlannedRow
from madbench.grid import Row
from madbench.store.runs import Run
from madbench.suites import LANGUAGE, MAD, SUITES, Column, Suite

if TYPE_CHECKING:
    from rich.console import RenderableType

_VS_BASELINE = "vs baseline"


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
    short: str
    """The protocol in a few words."""
    about: Callable[[], str]
    """The part of the notes that says what the numbers are of; worked out where notes are shown."""
    has_over_budget: bool = False
    """Whether rows do not compete."""
    baseline: str = ""
    """Name of the row that the others are compared with; empty for none."""
    compared: Column | None = None
    """The column whose differences from the baseline are shown; it need not be one of ``columns``."""
    differences: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    """By names of the row and of the column."""
    shows_notes: bool = False
    parts: tuple[ResultTable, ...] = ()
    """The tables of single suites that stand side by side in this one."""

    @property
    def title(self) -> str:
        return " and ".join(map(suite_title, self.suites))

    @property
    def caption(self) -> str:
        texts = "".join(text for name in self.rows for text in row_texts(self.columns, self.cells[name]))
        marks = "".join(self.marks().values())
        signs = {
            "±: 95% interval": "±" in texts,
            "[k/n]: k of n seeds solve the task, or get there": "[" in texts,
            "†: single seed": "†" in texts,
            "‡: with diverged runs": "‡" in texts,
            "(d/e): jobs done": "(" in texts,
            "bold: best; underlined: may be the best": marks,
            f"vs baseline: less {self.baseline}": self.compared,
        }
        of_suite = {MAD: "accuracy in percent", LANGUAGE: "loss in nats per token"}
        what = " and ".join(of_suite[suite] for suite in self.suites)
        shown = "; ".join(text for text, is_there in signs.items() if is_there)
        return f"{what[:1].upper()}{what[1:]}, mean over n seeds ({self.short}){shown and f'. {shown}'}."

    @functools.cached_property
    def notes(self) -> str:
        return " ".join([self.about(), *legend(self.columns, self.cells, self.has_over_budget)])

    def texts(self, name: str) -> list[str]:
        """The row ``name`` as text, one a column, and the difference from the baseline."""
        texts = row_texts(self.columns, self.cells.get(name, {}))
        if self.compared is None:
            return texts
        found = self.differences.get((name, self.compared.name))
        text = difference_text(found, self.compared.name) if found else "-"
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
        found = self.differences.get((row.name, column.name))
        names = {"difference": "estimate", "difference_low": "low", "difference_high": "high", "difference_p": "p"}
        numbers = {key: getattr(found, name, math.nan) for key, name in names.items()}
        return record | known(numbers) | {"difference_n": found.n if found else 0}

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


def _side_by_side(results: Results, mad: ResultTable, language: ResultTable) -> ResultTable:
    rows = mad.rows | language.rows
    names = [name for name in _ordered(results) if name in rows]
    own = {column.name: column for column in language.columns}
    for column in (BUDGET_RATIO, SEEDS):
        own[column.name] = replace(column, name=f"lm_{column.name}", heading=f"LM {column.heading.lower()}")
    cells: dict[str, dict[str, Cell]] = {}
    for name in names:
        of_language = language.cells.get(name, {})
        cells[name] = mad.cells.get(name, {}) | {own[key].name: cell for key, cell in of_language.items() if key in own}
    parts = (mad, language)

    def about() -> str:
        sentences = [f"{part.title}: {part.about()}" for part in parts]
        lacking = {part.title: [name for name in names if name not in part.rows] for part in parts}
        sentences += [f"Without runs ({title}): {', '.join(found)}." for title, found in lacking.items() if found]
        return " ".join(sentences)

    return replace(
        mad,
        suites=(*mad.suites, *language.suites),
        columns=[*mad.columns, *own.values()],
        rows={name: rows[name] for name in names},
        cells=cells,
        published={name: {**mad.published.get(name, {}), **language.published.get(name, {})} for name in names},
        short=", ".join(part.short for part in parts),
        about=about,
        has_over_budget=mad.has_over_budget or language.has_over_budget,
        parts=parts,
    )


def result_table(
    results: Results,
    *,
    thresholds: Sequence[float] | None = None,
    is_brief: bool = False,
    has_baseline: bool = False,
    shows_published: bool = False,
) -> ResultTable | None:
    """The table of both suites as far as they have a result, side by side; None without any.

    Args:
        results: of one protocol a suite, or of the rows of a grid.
        thresholds: losses x of the columns "to x": by default the paper's where its rows are shown, else the four
            multiples of 0.1 down to the lowest training loss of any run.
        is_brief: of the language model only L5, the steps to thresholds and the budget.
        has_baseline: whether the rows are compared with the first one.
        shows_published: whether published numbers stand below rows of a profile that is not comparable with the paper.

    Raises ``ConfigError`` for a threshold that is no loss, and without ``has_baseline`` for language models of several
    protocols.
    """
    mad = _mad_table(results, has_baseline, shows_published)
    language = _language_table(results, thresholds, is_brief, has_baseline, shows_published)
    return _side_by_side(results, mad, language) if mad and language else mad or language


def result_tables(results: Results, has_baseline: bool = False) -> list[ResultTable]:
    """A table of each suite that has a result (:func:`result_table`)."""
    tables = [result_table(results.of(suite), has_baseline=has_baseline) for suite in (MAD, LANGUAGE)]
    return [table for table in tables if table]


def _ordered(results: Results) -> list[str]:
    """Names of rows in the order of the grid; a suite's row leaves out what does not concern it."""
    given = results.experiment.grid.rows
    names = [name for row in given for name in (row.name, *(row.of_suite(suite).name for suite in SUITES))]
    rows = [row.name for row in results.experiment.rows]
    return [name for name in dict.fromkeys([*names, *rows]) if name in rows]


def _mad_table(results: Results, has_baseline: bool, shows_published: bool) -> ResultTable | None:
    rows = results.rows(MAD)
    if not rows or not results.collected.status.isin(["finished", "diverged"]).any():
        return None
    protocol = rows[0].protocol
    if has_baseline:
        changes = rows[0].row.changes
        protocol = replace(protocol, overrides=tuple(word for word in protocol.overrides if word not in changes))
    scores = results.scores[results.scores.suite == MAD.name]
    columns = mad_columns(protocol.tasks)
    about = functools.partial(captions.about_mad, protocol, results.collected)
    table = suite_table(results, MAD, columns, [scores], about, shows_published)
    if not has_baseline:
        return table
    if len(protocol.tasks) == 1:
        return _compared(table, rows, scores, columns[0], f"{columns[0].heading}, in percentage points")
    tasks = scores[scores.column != MAD_AVERAGE]
    means = mean_over(tasks, protocol.tasks, MAD_AVERAGE)
    scores = pd.concat([tasks, means], ignore_index=True) if len(means) else tasks
    compared = replace(columns[0], name=MAD_AVERAGE)
    return _compared(table, rows, scores, compared, "the mean over the tasks, in percentage points")


def _language_table(
    results: Results,
    thresholds: Sequence[float] | None,
    is_brief: bool,
    has_baseline: bool,
    shows_published: bool,
) -> ResultTable | None:
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
    for threshold in thresholds:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
    if len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")
    row_of = {run.job.id: name for name, found in results.runs.items() for run in found}
    frames = [language_scores(found, thresholds, [row_of[run.job.id] for run in found]) for found in groups]
    protocols = [row.protocol for row in results.rows(LANGUAGE)]
    if any(published_perplexities(one.profile_name, one.overrides) for one in protocols):
        frames = [pd.concat([frame, perplexity_scores(frame, found)]) for frame, found in zip(frames, groups)]
    of_groups = [_language_columns(found, frame, thresholds) for found, frame in zip(groups, frames)]
    columns = [column for column in of_groups[0] if all(column in others for others in of_groups)]
    if is_brief:
        columns = [column for column in columns if column.name == LOSS or column.name.startswith(STEPS)]
    first = row_of[groups[0][0].job.id] if len(groups) > 1 else ""
    about = functools.partial(captions.about_language, groups[0], frames[0], columns, first)
    table = suite_table(results, LANGUAGE, columns, frames, about, shows_published)
    if not has_baseline:
        return table
    losses = pd.concat(frames, ignore_index=True)
    losses = losses[losses.column.isin([LOSS, "validation_loss"])]
    return _compared(table, results.rows(LANGUAGE), losses, columns[0], "L5, in nats per token")


def _language_columns(runs: Sequence[Run], scores: pd.DataFrame, thresholds: Sequence[float]) -> list[Column]:
    """The columns that say something: no bytes or no comparison of times, no column of them."""
    columns = [loss_column(LOSS, "L5"), loss_column("validation_loss", "Val")]
    if scores[scores.column == "validation_bits_per_byte"].value.notna().any():
        columns.append(loss_column("validation_bits_per_byte", "Bits/byte"))
    columns += [quantities.column(name) for name in PERPLEXITIES if name in set(scores.column)]
    columns += [steps_column(threshold) for threshold in thresholds]
    if not timing_differences(runs):
        common = common_seconds(runs)
        if scores.label.nunique() > 1 and math.isfinite(common):
            columns.append(loss_column("equal_time_validation_loss", captions.equal_time_heading(common)))
        columns.append(SPEED)
    return columns


def suite_table(
    results: Results,
    suite: Suite,
    columns: list[Column],
    frames: Sequence[pd.DataFrame],
    about: Callable[[], str],
    shows_published: bool = False,
) -> ResultTable:
    """The table of one suite; ``frames`` are scores of one protocol each.

    Rows of several protocols do not compete, so none is marked as the best. Published
    numbers stand below rows whose profile is comparable with the paper, with ``shows_published`` below all.
    """
    planned = {row.name: row for row in results.rows(suite)}
    scores = pd.concat(frames, ignore_index=True)
    jobs = scores[scores.column == LOSS if suite is LANGUAGE else scores.column != MAD_AVERAGE]
    ratios = jobs.groupby("label", sort=False).budget_ratio.mean().dropna().to_dict()
    over = {name for name, ratio in ratios.items() if is_over_budget(planned[name].row.label, ratio)}
    competing = planned.keys() - over if len(frames) == 1 else ()
    cells: dict[str, dict[str, Cell]] = {}
    for frame in frames:
        cells |= with_marks(columns, cells_of(frame, columns), competing)
    for name, row in cells.items():
        seeds = max((cell.n for cell in row.values()), default=0)
        row |= {BUDGET_RATIO.name: Cell.of(ratios[name])} if name in ratios else {}
        row |= {SEEDS.name: Cell.of(seeds)} if seeds else {}
    names = [name for name in _ordered(results) if name in cells]
    published: dict[str, dict[str, float]] = {}
    for name in cells:
        protocol, numbers = planned[name].protocol, {}
        if protocol.profile.comparable_with_paper or shows_published:
            numbers |= published_scores().get(name, {})
        perplexities = published_perplexities(protocol.profile_name, protocol.overrides)
        if name in perplexities:
            numbers[PERPLEXITIES[0]] = perplexities[name]
        if shown := {column.name: numbers[column.name] for column in columns if column.name in numbers}:
            published[name] = shown
    rows = {name: planned[name].row for name in names}
    protocol = planned[names[0]].protocol
    short = f"{protocol.profile.noun} {protocol.profile_name}"
    return ResultTable((suite,), [*columns, BUDGET_RATIO, SEEDS], rows, cells, published, short, about, bool(over))


def _compared(
    table: ResultTable, rows: Sequence[PlannedRow], scores: pd.DataFrame, compared: Column, of_what: str
) -> ResultTable:
    """``table`` with the differences of ``scores`` from those of the first row."""

    def about() -> str:
        return " ".join([table.about(), *captions.about_baseline([row.row for row in rows], of_what)])

    shown = compared if len(rows) > 1 else None
    differences = differences_from(scores, rows[0].name)
    return replace(table, about=about, baseline=rows[0].name, compared=shown, differences=differences)
