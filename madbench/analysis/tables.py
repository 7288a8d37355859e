"""Tables of what is stored: of the MAD tasks, of language models, and of both side by side."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis import captions
from madbench.analysis.cells import Cell, cells_of, is_over_budget, with_marks
from madbench.analysis.loss_curves import (
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    thresholds_above,
    timing_differences,
)
from madbench.analysis.protocols import check_one_protocol, language_protocol
from madbench.analysis.quantities import (
    BUDGET_RATIO,
    LOSS,
    MAD_AVERAGE,
    PERPLEXITIES,
    SEEDS,
    SPEED,
    STEPS,
    TASK_MEAN,
    column,
    mad_columns,
    steps_name,
)
from madbench.analysis.result_table import ResultTable
from madbench.analysis.samples import differences_from
from madbench.analysis.scores import (
    Results,
    language_scores,
    mean_over,
    published_perplexities,
    published_scores,
)
from madbench.errors import ConfigError, StoreError
from madbench.experiment import PlannedRow
from madbench.store.runs import Run
from madbench.suites import LANGUAGE, MAD, SUITES, Column, Suite
from madbench.tasks import MAD_TASKS

if TYPE_CHECKING:
    from madbench.analysis.stored import Selection


def _side_by_side(results: Results, mad: ResultTable, language: ResultTable) -> ResultTable:
    rows = mad.rows | language.rows
    names = [name for name in _ordered(results) if name in rows]
    own = {one.name: one for one in language.columns}
    for one in (BUDGET_RATIO, SEEDS):
        own[one.name] = replace(one, name=f"lm_{one.name}", heading=f"LM {one.heading.lower()}")
    cells: dict[str, dict[str, Cell]] = {}
    for name in names:
        of_language = language.cells.get(name, {})
        cells[name] = mad.cells.get(name, {}) | {own[key].name: cell for key, cell in of_language.items()}
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
    mad = _mad_table(results, shows_published)
    language = _language_table(results, thresholds, is_brief, has_baseline, shows_published)
    if has_baseline:
        mad, language = (one and _with_differences(one, results) for one in (mad, language))
    return _side_by_side(results, mad, language) if mad and language else mad or language


def stored_table(selection: Selection, **choices: Any) -> ResultTable:
    """:func:`result_table` of what a user asked to see; raises ``StoreError`` where no run of it has a result."""
    if table := result_table(selection.select(), **choices):
        return table
    raise StoreError(f"{selection.results}: no result yet, every run asked for failed; madbench status says why")


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


def _mad_table(results: Results, shows_published: bool) -> ResultTable | None:
    rows = results.rows(MAD)
    if not rows or not results.collected.status.isin(["finished", "diverged"]).any():
        return None
    protocol = rows[0].protocol
    changes = rows[0].row.changes
    protocol = replace(protocol, overrides=tuple(word for word in protocol.overrides if word not in changes))
    scores = results.scores[results.scores.suite == MAD.name]
    about = functools.partial(captions.about_mad, protocol, results.collected)
    return suite_table(results, MAD, mad_columns(protocol.tasks), [scores], about, shows_published)


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
    groups, names = _by_settings(results)
    if thresholds is None:
        thresholds = _usual_thresholds(groups)
    for threshold in thresholds:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
    if len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")
    protocols = [row.protocol for row in results.rows(LANGUAGE)]
    has_perplexities = any(published_perplexities(one.profile_name, one.overrides) for one in protocols)
    frames = [language_scores(found, thresholds, of, has_perplexities) for found, of in zip(groups, names)]
    of_groups = [_language_columns(found, frame, thresholds) for found, frame in zip(groups, frames)]
    columns = [column for column in of_groups[0] if all(column in others for others in of_groups)]
    if is_brief:
        columns = [column for column in columns if column.name == LOSS or column.name.startswith(STEPS)]
    first = names[0][0] if len(groups) > 1 else ""
    about = functools.partial(captions.about_language, groups[0], columns, first)
    return suite_table(results, LANGUAGE, columns, frames, about, shows_published)


def _by_settings(results: Results) -> tuple[list[list[Run]], list[list[str]]]:
    """The runs of rows with the same settings of the preset, and their rows' names; rows may share runs."""
    found: dict[tuple, tuple[list[Run], list[str]]] = {}
    for row in results.rows(LANGUAGE):
        protocol, own = row.protocol, results.runs.get(row.name, [])
        if own:
            runs, names = found.setdefault((protocol.profile_name, protocol.overrides, protocol.precision), ([], []))
            runs += own
            names += [row.name] * len(own)
    return [runs for runs, _ in found.values()], [names for _, names in found.values()]


def _usual_thresholds(groups: Sequence[Sequence[Run]]) -> Sequence[float]:
    """The paper's where all protocols are of its size, else those just above the lowest training loss."""
    if all(language_protocol(*runs).profile.comparable_with_paper for runs in groups):
        return PAPER_THRESHOLDS
    losses = (row["train_loss"] for runs in groups for run in runs for row in evaluations(run))
    return thresholds_above(min(losses, default=math.nan))


def _language_columns(runs: Sequence[Run], scores: pd.DataFrame, thresholds: Sequence[float]) -> list[Column]:
    """The columns that say something: no bytes or no comparison of times, no column of them."""
    shown = [replace(column(LOSS), heading="L5"), replace(column("validation_loss"), heading="Val")]
    if scores[scores.column == "validation_bits_per_byte"].value.notna().any():
        shown.append(column("validation_bits_per_byte"))
    shown += [column(name) for name in (*PERPLEXITIES, *map(steps_name, thresholds)) if name in set(scores.column)]
    if not timing_differences(runs):
        common = common_seconds(runs)
        if scores.label.nunique() > 1 and math.isfinite(common):
            heading = captions.equal_time_heading(common)
            shown.append(replace(column("equal_time_validation_loss"), heading=heading))
        shown.append(SPEED)
    return shown


def suite_table(
    results: Results,
    suite: Suite,
    columns: list[Column],
    frames: Sequence[pd.DataFrame],
    about: Callable[[], str],
    shows_published: bool = False,
) -> ResultTable:
    """The table of one suite; ``frames`` are scores of one protocol each.

    Rows of several protocols do not compete, so none is marked as the best. Published numbers stand below rows whose
    profile is comparable with the paper, with ``shows_published`` below all.
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
        if name in ratios:
            row[BUDGET_RATIO.name] = Cell.of(ratios[name])
        if seeds:
            row[SEEDS.name] = Cell.of(seeds)
    rows = {name: planned[name].row for name in _ordered(results) if name in cells}
    published = {name: _published(planned[name], columns, shows_published) for name in rows}
    protocol = planned[next(iter(rows))].protocol
    short = f"{protocol.profile.noun} {protocol.profile_name}"
    return ResultTable((suite,), [*columns, BUDGET_RATIO, SEEDS], rows, cells, published, short, about)


def _published(row: PlannedRow, columns: Sequence[Column], shows_always: bool) -> dict[str, float]:
    """The paper's numbers of a row, by name of the column."""
    protocol = row.protocol
    numbers: dict[str, float] = {}
    if protocol.profile.comparable_with_paper or shows_always:
        numbers |= published_scores().get(row.name, {})
    perplexities = published_perplexities(protocol.profile_name, protocol.overrides)
    if row.name in perplexities:
        numbers[PERPLEXITIES[0]] = perplexities[row.name]
    return {column.name: numbers[column.name] for column in columns if column.name in numbers}


def _with_differences(table: ResultTable, results: Results) -> ResultTable:
    """The table of one suite with the differences from its first row: of L5, of the one task, or of all tasks' mean."""
    (suite,) = table.suites
    rows, compared = results.rows(suite), table.columns[0]
    tasks, scores = rows[0].protocol.tasks, results.scores[results.scores.suite == suite.name]
    of_what = f"{compared.heading}, in percentage points"
    if suite is LANGUAGE:
        of_what, scores = "L5, in nats per token", scores[scores.column.isin([LOSS, "validation_loss"])]
    elif len(tasks) > 1:
        of_what, mean = "the mean over the tasks, in percentage points", TASK_MEAN
        if set(tasks) == set(MAD_TASKS):
            mean = MAD_AVERAGE
        elif len(means := mean_over(scores, tasks, mean)):
            scores = pd.concat([scores, means], ignore_index=True)
        compared = replace(compared, name=mean)

    def about() -> str:
        return " ".join([table.about(), *captions.about_baseline([row.row for row in rows], of_what)])

    shown = compared if len(rows) > 1 else None
    differences = differences_from(scores, rows[0].name)
    return replace(table, about=about, baseline=rows[0].name, compared=shown, differences=differences)
