"""The default way to make an item: train labels, show our numbers beside the published ones, and test claims."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from madbench.errors import BudgetError
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Budget
from madbench.labels import expand
from madbench.labels.budgets import COUNTINGS
from madbench.labels.names import row_display_name
from madbench.papers.claim_family import judge_item
from madbench.papers.making import ItemResult, Measure, Request, grid_of, item_figures, require_results, row_of
from madbench.rows import Grid, Row
from madbench.suites.addressing import parse_overrides
from madbench.text.options import CorpusOptions

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results


class TableMeasure(Measure):
    """The default measure: it trains an item's labels, shows our and the published numbers, and tests its claims."""

    def plan(self, request: Request) -> Grid:
        item, changed_paths = request.item, {override.path for override in request.overrides}
        item_overrides = (
            override for override in parse_overrides(item.overrides) if override.path not in changed_paths
        )
        overrides = (*item_overrides, *request.overrides)
        rows = map(Row, expand(request.labels or item.labels))
        return grid_of(replace(request, overrides=overrides), rows, request.tasks or item.tasks or None)

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        trained = require_results(results)
        parts = [trained, *stored_under_other_budgets(trained)]
        table, (verdicts, remarks, command) = beside_published(request, parts), judge_item(request, trained)
        heading = ""
        if verdicts and command:
            heading = f"Lines of the tests of all claims of the paper on all stored runs of the protocol: {command}"
        return ItemResult(
            [table], verdicts, {"cells": table.json_rows()}, item_figures(request, trained), remarks, heading
        )


def stored_under_other_budgets(results: Results) -> list[Results]:
    """The stored results of the same labels and tasks under other budgets that limit parameters, one per budget.

    The budgets are those in ``COUNTINGS``. A budget is left out if no run is stored, if a suite does not have the
    budget, or if a label cannot meet it.
    """
    others = (_stored_under(results, budget) for budget in COUNTINGS if budget != results.grid.budget)
    return [stored for stored in others if stored]


def _stored_under(results: Results, budget: Budget) -> Results | None:
    from madbench.analysis.scores import Results

    if any(budget not in suite.budgets for suite in results.suites):
        return None
    corpora = [row.protocol.corpus.folder for row in results.rows if row.protocol.corpus]
    data = CorpusOptions(corpora[0] if corpora else None)
    grid, device = replace(results.grid, budget=budget), results.rows[0].protocol.device
    try:
        experiment = prepare(grid, ExperimentOptions(device, results.store.root, data))
    except BudgetError:  # a label has no ranks under this budget
        return None
    own_results = Results.from_rows(experiment, results.store)
    return own_results if own_results.suites_with_result else None


def beside_published(request: Request, parts: Sequence[Results]) -> Listing:
    """The table of an item: our means with intervals, and the published numbers below each label.

    ``parts`` has the results under each budget. Those under the requested budget come first. If there are several
    parts, each label has one row per budget, and the name of the row contains the budget.
    """
    import numpy as np

    from madbench.analysis.cells import Cell, cells_of
    from madbench.analysis.inference import Sample
    from madbench.analysis.marked_text import with_minus
    from madbench.analysis.quantities import column, in_order
    from madbench.analysis.rendering import PUBLISHED, Listing

    published, first = published_numbers(request), parts[0]
    names = list(request.item.columns) or in_order(first.scores.column.unique())
    columns, lines, json_rows = [column(name) for name in names], [], []
    no_cell = Cell(Sample(np.array([])), 0)
    cells_by_budget = {part.grid.budget: cells_of(part.scores, columns) if len(part.scores) else {} for part in parts}
    for row in {row.name: row.row for row in first.rows}.values():
        theirs = published.get(row.name, {})
        for budget, cells in cells_by_budget.items():
            ours = [cells.get(row.name, {}).get(name, no_cell) for name in names]
            seeds = max((cell.n for cell in ours), default=0)
            for of_column, cell in zip(columns, ours):
                json_row = {"label": row.name, "budget": budget, "column": of_column.name} | cell.numbers(of_column)
                json_rows.append(json_row | {"published": theirs.get(of_column.name)})
            shown = row_display_name(row.name)
            name = f"{shown}, {budget}" if len(parts) > 1 else row.name
            lines.append([name, *(cell.text(c, seeds) for c, cell in zip(columns, ours)), str(seeds)])
        if theirs:
            numbers = [theirs.get(name, math.nan) for name in names]
            texts = ("-" if math.isnan(x) else with_minus(f"{x:.{c.digits}f}") for x, c in zip(numbers, columns))
            lines.append([PUBLISHED, *texts, ""])
    headings = ["Label", *(c.heading for c in columns), "n"]
    notes = " ".join(first.sentences())
    numbers_note = ", and the published numbers below them" if published else ""
    caption = (
        f"{request.item.place} of {request.paper.title}: means over n seeds, ±: half of their 95% interval"
        f"{numbers_note}. †: a single seed."
    )
    if len(parts) > 1:
        caption += (
            f" Ranks are those of the budget in the row's name; claims are tested under {first.grid.budget} alone."
        )
    return Listing(json_rows, headings, lines, json_rows, caption, notes, f"tab:{request.item.id}")


def published_numbers(request: Request) -> dict[str, dict[str, float]]:
    """The published numbers of an item: name of a row to a mapping from our name of a column to the number.

    Empty if the item has none. The name of a row of the item's CSV file consists of its label and, if there is a column
    ``overrides``, of the changes in this column. Cells that are not numbers are left out.
    """
    item = request.item
    if not item.published:
        return {}
    with open(request.paper.file(item.published), newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("label") and item.published_rows.items() <= row.items()]
    columns = item.columns or {name: name for name in (rows[0] if rows else {}) if name != "label"}
    numbers = {}
    for row in rows:
        name = row_of(f"{row['label']} {row.get('overrides') or ''}").name
        numbers[name] = {ours: float(row[theirs]) for ours, theirs in columns.items() if _is_number(row.get(theirs))}
    return numbers


def _is_number(text: str | None) -> bool:
    try:
        return math.isfinite(float(text or "nan"))
    except ValueError:
        return False
