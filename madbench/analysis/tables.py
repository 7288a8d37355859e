"""From results to their tables: of each suite alone, or of both side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from madbench.analysis import captions
from madbench.analysis.cells import Cell, is_over_budget, seed_means, with_noise
from madbench.analysis.loss_curves import (
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    thresholds_above,
    timing_differences,
)
from madbench.analysis.protocols import by_protocol, check_one_protocol, language_protocol
from madbench.analysis.quantities import BUDGET_RATIO, LOSS, MAD_AVERAGE, SEEDS, loss_column, mad_columns, steps_column
from madbench.analysis.result_table import ResultTable, paired_differences, side_by_side
from madbench.analysis.scores import Results, language_scores, mean_over, published_scores
from madbench.errors import ConfigError
from madbench.experiment import PlannedRow
from madbench.store.runs import Run
from madbench.suites import LANGUAGE, MAD, SUITES, Column, Suite


def result_table(
    results: Results, *, thresholds: Sequence[float] | None = None, is_brief: bool = False, has_baseline: bool = False
) -> ResultTable | None:
    """The table of both suites as far as they have a result, side by side; None without any.

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
    mad = _mad_table(results, has_baseline)
    language = _language_table(results, thresholds, is_brief, has_baseline)
    if mad and language:
        either = mad.rows | language.rows
        return side_by_side(mad, language, [name for name in _ordered(results) if name in either])
    return mad or language


def result_tables(results: Results, has_baseline: bool = False) -> list[ResultTable]:
    """A table of each suite that has a result (:func:`result_table`)."""
    tables = [result_table(results.of(suite), has_baseline=has_baseline) for suite in SUITES.values()]
    return [table for table in tables if table]


def _ordered(results: Results) -> list[str]:
    """Names of rows in the order of the grid; a suite's row leaves out what does not concern it."""
    given = results.experiment.grid.rows
    names = [name for row in given for name in (row.name, *(row.of_suite(suite).name for suite in SUITES))]
    rows = [row.name for row in results.experiment.rows]
    return [name for name in dict.fromkeys([*names, *rows]) if name in rows]


def _mad_table(results: Results, has_baseline: bool) -> ResultTable | None:
    rows = results.rows(MAD)
    if not rows or not results.collected.status.isin(["finished", "diverged"]).any():
        return None
    protocol = rows[0].protocol
    if has_baseline:
        changes = rows[0].row.changes
        protocol = replace(protocol, overrides=tuple(word for word in protocol.overrides if word not in changes))
    scores = results.scores[results.scores.suite == MAD.name]
    columns = mad_columns(protocol.tasks)
    table = suite_table(results, MAD, columns, [scores], captions.about_mad(protocol, results.collected), has_baseline)
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
    results: Results, thresholds: Sequence[float] | None, is_brief: bool, has_baseline: bool
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
    has_one_seed = all(found[found.column == LOSS].label.is_unique for found in frames)
    of_groups = [_language_columns(found, frame, thresholds, has_one_seed) for found, frame in zip(groups, frames)]
    columns = [column for column in of_groups[0] if all(column in others for others in of_groups)]
    if is_brief:
        columns = [column for column in columns if column.name == LOSS or column.name.startswith("steps_to_")]
    about = captions.about_language(groups[0], frames[0], columns)
    if len(groups) > 1:
        about = f"At the settings of {row_of[groups[0][0].job.id]}: {about}"
    table = suite_table(results, LANGUAGE, columns, frames, about, has_baseline or not is_comparable)
    if not has_baseline:
        return table
    losses = pd.concat(frames, ignore_index=True)
    losses = losses[losses.column.isin([LOSS, "validation_loss"])]
    return _compared(table, results.rows(LANGUAGE), losses, columns[0], "L5, in nats per token")


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


def suite_table(
    results: Results,
    suite: Suite,
    columns: list[Column],
    frames: Sequence[pd.DataFrame],
    about: str,
    only_comparable: bool = False,
) -> ResultTable:
    """The table of one suite; ``frames`` are scores of one protocol each.

    Rows of one protocol alone have noise in common; of several none may be the best. With ``only_comparable``,
    published numbers stand below rows whose profile is comparable with the paper, and below no others.
    """
    planned = {row.name: row for row in results.rows(suite)}
    scores = pd.concat(frames, ignore_index=True)
    jobs = scores[scores.column == LOSS if suite is LANGUAGE else scores.column != MAD_AVERAGE]
    ratios = jobs.groupby("label", sort=False).budget_ratio.mean().dropna().to_dict()
    over = {name for name, ratio in ratios.items() if is_over_budget(planned[name].row.label, ratio)}
    cells: dict[str, dict[str, Cell]] = {}
    for frame in frames:
        cells |= with_noise(columns, seed_means(frame, columns), over, has_marks=len(frames) == 1)
    for name, row in cells.items():
        seeds = max((cell.n for cell in row.values()), default=0)
        row |= {BUDGET_RATIO.name: Cell.of(ratios[name])} if name in ratios else {}
        row |= {SEEDS.name: Cell.of(seeds)} if seeds else {}
    names = [name for name in _ordered(results) if name in cells]
    published = {
        name: {column.name: numbers[column.name] for column in columns if column.name in numbers}
        for name, numbers in published_scores().items()
        if name in cells and (planned[name].protocol.profile.comparable_with_paper or not only_comparable)
    }
    rows = {name: planned[name].row for name in names}
    return ResultTable((suite,), [*columns, BUDGET_RATIO, SEEDS], rows, cells, published, about, bool(over))


def _compared(
    table: ResultTable, rows: Sequence[PlannedRow], scores: pd.DataFrame, compared: Column, of_what: str
) -> ResultTable:
    """``table`` with the differences of ``scores`` from those of the first row."""
    about = " ".join([table.about, *captions.about_baseline([row.row for row in rows], of_what)])
    shown = compared if len(rows) > 1 else None
    differences = paired_differences(scores, rows[0].name)
    return replace(table, about=about, baseline=rows[0].name, compared=shown, differences=differences)
