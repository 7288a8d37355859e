"""Making result tables of stored runs, of one suite or of several suites side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, get_args

import pandas as pd

from madbench.analysis.baselines import BASELINES, Baseline, baseline_values
from madbench.analysis.cells import Cell, cells_of, with_marks, with_ranks
from madbench.analysis.marked_text import Origin, Shows
from madbench.analysis.quantities import BUDGET_RATIO, NUM_SEEDS, TASK_MEAN, column, is_average
from madbench.analysis.result_table import ResultTable
from madbench.analysis.samples import differences_from
from madbench.analysis.scores import Results, budget_ratios
from madbench.config import check_choices
from madbench.errors import ConfigError
from madbench.labels.budgets import COUNTINGS
from madbench.labels.names import row_display_name
from madbench.rows import Row
from madbench.suites import Column, Suite
from madbench.suites.code_marks import CodeMarks
from madbench.suites.outcomes import JobOutcome
from madbench.suites.protocol import Protocol
from madbench.suites.published import published_sentence
from madbench.suites.scoring import mean_over, profile_text, scoring_of

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True)
class TableOptions:
    """Options for the content of a result table: columns, rows and cells."""

    thresholds: Sequence[float] | None = None
    """The losses x, in nats per token, for the columns "to x", which count the training steps until the loss is x.

    None stands for the default thresholds of each suite.
    """
    has_baseline: bool = False
    """True to compare all rows with the first row."""
    shows_published: bool = False
    """True to show published numbers below all rows, also if they cannot be compared with the profile's numbers."""
    shows: Shows = "interval"
    """The content of a cell: a mean with its interval, a mean with a standard deviation, or a rank."""
    shows_baselines: bool = False
    """True to show rows for a random guess and for the best answer that ignores the context."""

    def __post_init__(self) -> None:
        if self.shows not in get_args(Shows):
            check_choices(self, "shows")  # raises, and suggests a choice


def _side_by_side(results: Results, parts: Sequence[ResultTable]) -> ResultTable:
    """One table with the columns of several suites, made from ``parts``, the tables of the single suites.

    From the second suite on, the headings of the budget and of the number of seeds begin with the name of the suite.
    The notes name the rows that have no runs in a suite.
    """
    rows = {name: row for part in parts for name, row in part.rows.items()}
    names = [name for name in results.names if name in rows]
    first, *others = parts
    columns, cells = list(first.columns), {name: dict(first.cells.get(name, {})) for name in names}
    for part in others:
        (suite,) = part.suites
        columns_by_name = {column.name: column for column in part.columns}
        for extra in (BUDGET_RATIO, NUM_SEEDS):
            heading = f"{suite.short_name.upper()} {extra.heading.lower()}"
            columns_by_name[extra.name] = replace(extra, name=f"{suite.short_name}_{extra.name}", heading=heading)
        columns += columns_by_name.values()
        for name in names:
            cells[name] |= {columns_by_name[key].name: cell for key, cell in part.cells.get(name, {}).items()}

    def describe() -> str:
        sentences = [f"{part.title}: {part.describe()}" for part in parts]
        for part in parts:
            if missing := [row_display_name(name) for name in names if name not in part.rows]:
                sentences.append(f"No runs ({part.title}): {', '.join(missing)}.")
        return " ".join(sentences)

    published = {name: {k: v for part in parts for k, v in part.published.get(name, {}).items()} for name in names}

    def score_baselines() -> dict[Baseline, dict[str, float]]:
        return {
            baseline: {name: value for part in parts for name, value in part.baselines.get(baseline, {}).items()}
            for baseline in BASELINES
        }

    return replace(
        first,
        suites=tuple(suite for part in parts for suite in part.suites),
        columns=columns,
        rows={name: rows[name] for name in names},
        cells=cells,
        published=published,
        published_sources=tuple(dict.fromkeys(text for part in parts for text in part.published_sources)),
        origin=_origin(results, [suite for part in parts for suite in part.suites]),
        other_code=frozenset(name for part in parts for name in part.other_code),
        score_baselines=score_baselines,
        short=", ".join(part.short for part in parts),
        describe=describe,
        parts=tuple(parts),
    )


def result_table(results: Results, options: TableOptions = TableOptions()) -> ResultTable | None:
    """One table of all suites that have a result, with their columns side by side. None if no suite has a result.

    The rows of ``results`` have one protocol per suite, or they are the rows of a grid. With several suites, the table
    has only the main results, the steps to thresholds and the budget of each suite.

    Raises ``ConfigError`` in these cases:

    - Rows of one suite follow different protocols, and ``options.has_baseline`` is False.
    - One of ``options.thresholds`` is invalid or repeated.
    - Thresholds are given, and no suite of the table counts steps to a loss.
    """
    suites, thresholds = results.suites_with_result, options.thresholds
    tables = [_suite_results(results, suite, options, is_brief=len(suites) > 1) for suite in suites]
    if thresholds is not None and not any(column.is_steps for table in tables for column in table.columns):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: no table here counts steps to a loss")
    if options.has_baseline:
        tables = [_with_differences(table, results) for table in tables]
    return _side_by_side(results, tables) if len(tables) > 1 else next(iter(tables), None)


def result_tables(results: Results, has_baseline: bool = False) -> list[ResultTable]:
    """One result table per suite that has a result. With ``has_baseline``, all rows are compared with the first row."""
    options = TableOptions(has_baseline=has_baseline)
    tables = (result_table(results.for_suite(suite), options) for suite in results.suites_with_result)
    return [table for table in tables if table is not None]


def _suite_results(results: Results, suite: Suite, options: TableOptions, is_brief: bool) -> ResultTable:
    """The table of one suite, without differences from a baseline.

    If ``is_brief``, the columns are only the main results, the steps to thresholds and the budget. If rows follow
    different protocols, each protocol is scored separately. Raises ``ConfigError`` for different protocols if
    ``options.has_baseline`` is False, and for a threshold that is given twice.
    """
    scoring, groups = scoring_of(suite), _protocol_groups(results, suite)
    if len(groups) > 1 and not options.has_baseline:
        protocol_names = ", ".join(f"{group.protocol.name} ({group.first_row})" for group in groups)
        raise ConfigError(f"the rows follow {len(groups)} protocols, which cannot be compared: {protocol_names}")
    thresholds = options.thresholds
    if thresholds is None:
        outcomes, protocols = [group.outcomes for group in groups], [group.protocol for group in groups]
        thresholds = scoring.thresholds(outcomes, protocols)
    elif len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")
    frames = [scoring.frame(group.outcomes, thresholds) for group in groups]
    of_groups = [
        scoring.columns(group.protocol, group.outcomes, frame, thresholds) for group, frame in zip(groups, frames)
    ]
    columns = [column for column in of_groups[0] if all(column in others for others in of_groups)]
    if is_brief:
        columns = [column for column in columns if column.is_attributed or column.is_steps]
    first = groups[0]
    protocol = results.protocol(suite) if len(groups) == 1 else first.protocol
    name = row_display_name(first.first_row) if len(groups) > 1 else ""

    def describe() -> str:
        return scoring_of(suite).about(protocol, first.outcomes, columns, name)

    return suite_table(results, suite, columns, frames, describe, options)


class _ProtocolGroup(NamedTuple):
    """The rows of one suite that follow the same protocol, and are scored together."""

    protocol: Protocol
    first_row: str
    outcomes: list[JobOutcome]


def _protocol_groups(results: Results, suite: Suite) -> list[_ProtocolGroup]:
    """The rows of a suite that have a result, by protocol. With one protocol, rows without a result count, too."""
    by_row: dict[str, list[JobOutcome]] = {}
    for outcome in results.outcomes(suite):
        by_row.setdefault(outcome.row, []).append(outcome)
    rows = [row for row in results.rows_of(suite) if any(outcome.record for outcome in by_row[row.name])]
    groups: dict[Hashable, _ProtocolGroup] = {}
    for row, key in zip(rows, scoring_of(suite).groups([row.protocol for row in rows])):
        groups.setdefault(key, _ProtocolGroup(row.protocol, row.name, [])).outcomes.extend(by_row[row.name])
    if len(groups) == 1 and len(rows) < len(results.rows_of(suite)):
        (group,) = groups.values()
        return [group._replace(outcomes=results.outcomes(suite))]
    return list(groups.values())


def _origin(results: Results, of_suites: Sequence[Suite]) -> Origin:
    """Sentences on how the results of some suites were made (:meth:`Results.origin`), and on runs of unknown code."""
    origin = results.origin(of_suites[0]) if len(of_suites) == 1 else results.origin()
    marks = CodeMarks.merge([results.code_marks(suite) for suite in of_suites])
    code = " ".join(filter(None, [origin.code, marks.unrecorded]))
    return origin._replace(code=code, code_in_paper=marks.unrecorded_fact)  # a sign marks the other runs


def suite_table(
    results: Results,
    suite: Suite,
    columns: list[Column],
    frames: Sequence[pd.DataFrame],
    describe: Callable[[], str],
    options: TableOptions = TableOptions(),
) -> ResultTable:
    """The table of one suite, made from frames of scores.

    Args:
        results: the results of all suites of the table.
        suite: the suite.
        columns: the columns of results. The columns of budget and number of seeds are added.
        frames: the scores, one frame per protocol. With several protocols no cell is marked as the best, because
            protocols cannot be compared.
        describe: returns the sentences of the notes on the protocol.
        options: the content of the table.
    """
    row_by_name = {row.name: row for row in results.rows_of(suite)}
    cells = _cells(results, suite, columns, frames, options.shows)
    rows = {name: row_by_name[name].row for name in results.names if name in cells}
    names = {column.name for column in columns}
    numbers = {name: results.published_numbers(row_by_name[name], options.shows_published) for name in rows}
    published = {name: {key: x for key, x in of_row.items() if key in names} for name, of_row in numbers.items()}
    protocols = {name: row.protocol for name, row in row_by_name.items()}
    has_published = any(published.values())
    sources = published_sentence(published, protocols, options.shows_published) if has_published else ""
    jobs = [job for row in row_by_name.values() for job in row.jobs]

    def score_baselines() -> dict[Baseline, dict[str, float]]:
        if not jobs or len(frames) > 1:
            return {}
        return {baseline: baseline_values(baseline, jobs, known=results.untrained_scores) for baseline in BASELINES}

    return ResultTable(
        (suite,),
        [*columns, BUDGET_RATIO, NUM_SEEDS],
        rows,
        cells,
        published,
        _protocol_text(row_by_name[next(iter(rows))].shared_protocol),
        describe,
        published_sources=(sources,) if sources else (),
        origin=_origin(results, [suite]) if jobs else Origin(),
        other_code=results.code_marks(suite).rows if jobs else frozenset(),
        score_baselines=score_baselines,
        shows=options.shows,
        shows_baselines=options.shows_baselines,
    )


def _cells(
    results: Results, suite: Suite, columns: list[Column], frames: Sequence[pd.DataFrame], shows: Shows
) -> dict[str, dict[str, Cell]]:
    """The cells of the table of one suite, with marks, budgets and numbers of seeds, by row and column."""
    row_by_name = {row.name: row for row in results.rows_of(suite)}
    ratios = budget_ratios(pd.concat(frames, ignore_index=True))
    over_budget = {name for name, ratio in ratios.items() if results.is_over_budget(row_by_name[name].row.label, ratio)}
    competing = row_by_name.keys() - over_budget if len(frames) == 1 else ()
    cells: dict[str, dict[str, Cell]] = {}
    for frame in frames:
        marked_cells = with_marks(columns, cells_of(frame, columns), competing)
        cells |= with_ranks(columns, marked_cells, competing) if shows == "rank" else marked_cells
    for name, row in cells.items():
        seeds = max((cell.n for cell in row.values()), default=0)
        if name in ratios:
            row[BUDGET_RATIO.name] = replace(Cell.of_number(ratios[name]), is_over_budget=name in over_budget)
        if seeds:
            row[NUM_SEEDS.name] = Cell.of_number(seeds)
    return cells


def _protocol_text(protocol: Protocol) -> str:
    """The protocol in a few words, with the matched quantity if the budget does not count parameters."""
    text = profile_text(protocol)
    return text if protocol.budget in COUNTINGS else f"{text}, matched by {protocol.budget}"


def _with_differences(table: ResultTable, results: Results) -> ResultTable:
    """A copy of the table of one suite with the differences of all rows from the first row, its baseline.

    The table shows the differences in the main column of the suite, or in the mean over the main columns if there are
    several.
    """
    (suite,) = table.suites
    rows = results.rows_of(suite)
    names, scores = suite.headline(rows[0].protocol.tasks), results.scores[results.scores.suite == suite.name]
    if len(names) > 1:
        mean_column, of_what = replace(column(names[0]), name=TASK_MEAN), "the mean over the tasks"
        if len(means := mean_over(scores, names, TASK_MEAN)):
            scores = pd.concat([scores, means], ignore_index=True)
    else:
        mean_column = column(names[0])
        of_what = "the mean over the tasks" if is_average(names[0]) else mean_column.heading
        kept_names = [column_of_table.name for column_of_table in table.columns if column_of_table.is_compared] + [
            names[0]
        ]
        scores = scores[scores.column.isin(kept_names) | scores.column.isin(rows[0].protocol.tasks)]
    what = f"{of_what}, in {mean_column.difference.partition(' of ')[0]}"

    def describe() -> str:
        return " ".join([table.describe(), *_about_baseline([row.row for row in rows], what)])

    compared_column = mean_column if len(rows) > 1 else None
    differences = differences_from(scores, rows[0].name)
    return replace(table, describe=describe, baseline=rows[0].name, compared=compared_column, differences=differences)


def _about_baseline(rows: Sequence[Row], of_what: str) -> list[str]:
    """Sentences for the notes of a grid's table, on the baseline and on the column "vs baseline".

    The baseline is the first of ``rows``. ``of_what`` names the quantity and the unit of the column, such as ``the mean
    over the tasks, in percentage points``.
    """
    baseline, keys = rows[0], [change.key for row in rows for change in row.changes]
    unnamed_changes = [str(change) for change in baseline.changes if change not in baseline.named_changes]
    sentences = {
        f"Baseline: {row_display_name(baseline.name)}, the first row.": True,
        f"Settings that a row does not name: {', '.join(unnamed_changes)}.": unnamed_changes,
        "The sizes given are the baseline's.": any(key.startswith("model.") for key in keys),
        f"Vs baseline: {of_what}, minus that of the baseline, with a 95% interval over seeds. In brackets: none.": rows[
            1:
        ],
    }
    return [text for text, is_shown in sentences.items() if is_shown]
