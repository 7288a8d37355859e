"""Measures of the items about design principles. A measure plans the runs of an item and decides the item from them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from madbench.config import Override
from madbench.errors import no_effect
from madbench.papers.coefficients import FULL, QUICK, Principle, Study
from madbench.papers.coefficients.studies import COPY, FIGURES, principle
from madbench.papers.making import (
    DrawnFigure,
    ItemResult,
    Measure,
    Request,
    grid_of,
    refuse_choices,
    require_results,
    seeds_of,
)
from madbench.rows import Grid, Row
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.rendering import TextTable
    from madbench.analysis.scores import Results
    from madbench.papers.quantities import MeasuredQuantity

LENGTHS = {QUICK: (32, 128), FULL: (128, 512)}
"""The two sequence lengths in tokens of the item figure9_lengths, by profile. Their ratio is 4, as in Figure 9."""


class PrincipleMeasure(Measure):
    """A measure of an item that is a principle, such as ``principle3``, or a figure of one, such as ``figure1``.

    It trains the labels of the principle's study, except for principle 1, which times forward passes. It decides the
    principle and draws its figure.
    """

    @property
    def operators(self) -> list[str]:
        from madbench.papers.coefficients.timing import FORMS

        return [label for label, _, _ in FORMS.values()]

    def quantity(self, request: Request) -> MeasuredQuantity | None:
        decision_method = principle_of(request).decision_method
        if decision_method == "rank":
            from madbench.papers.coefficients.coefficients import SHARES

            return SHARES
        if decision_method == "count":
            from madbench.papers.coefficients.suppression import SUPPRESSED

            return SUPPRESSED
        return None

    def introduction(self, request: Request) -> Sequence[str]:
        principle = principle_of(request)
        first = f"Principle {principle.number}  {principle.claim} {principle.source}"
        lines = [first, f"The paper: {principle.expected}.", principle.limits, f"Rule: {request.item.rule}"]
        return [line for line in lines if line]

    def plan(self, request: Request) -> Grid | None:
        principle, study = principle_of(request), study_of(request)
        if principle.decision_method == "time":
            refuse_choices(request, f"principle {principle.number}")
            return None
        if request.labels:
            raise no_effect(request.labels[0], f"on principle {principle.number}, which has its labels")
        overrides = request.overrides
        of_tasks = [override for override in study.overrides if override.key.startswith("tasks.")]
        others = [override for override in of_tasks if override.key.split(".")[1] not in study.tasks]
        changed_paths = {override.path for override in (*overrides, *others)}
        return Grid(
            rows_of(study),
            profile=request.profile_name,
            tasks=study.tasks,
            overrides=(
                *(override for override in study.overrides if override.path not in changed_paths),
                *overrides,
            ),
            seeds=seeds_of(request),
            budget=request.budget or "paper",
        )

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        principle = principle_of(request)
        tables: Sequence[TextTable]
        if results is None:
            from madbench.papers.coefficients.timing import decide_time

            decision, tables = decide_time(principle, resolve_device(request.device)), ()
        else:
            from madbench.analysis.tables import result_tables
            from madbench.papers.coefficients.decisions import decide
            from madbench.papers.coefficients.sweeps import both_choices

            decision, chosen = decide(principle, study_of(request), results), both_choices(results)
            tables = [*result_tables(results), *([chosen] if chosen else [])]
        statement = {"principle": principle.number, "claim": principle.claim, "expected": principle.expected}
        content: dict[str, Any] = statement | {"limits": principle.limits}
        content |= {"verdicts": dict(decision.verdicts), "remarks": dict(decision.remarks)}
        content |= {"rows": decision.table.json_rows()}
        content |= {"cells": [cell for table in tables for cell in table.json_rows()]}
        content |= {"measured": decision.measured.json_rows()} if decision.measured else {}
        listings = [table for table in (*tables, decision.measured, decision.table) if table is not None]
        stem = f"principle_{principle.number}"
        if request.item.id in FIGURES:
            stem = f"coefficients_{request.item.id}"
        figure = DrawnFigure(stem, decision.draw, decision.frame)
        return ItemResult(listings, decision.verdicts, content, [figure], decision.remarks)


class LengthsMeasure(Measure):
    """A measure that trains the two kernels of Figure 9 at two sequence lengths, and counts suppressed coefficients."""

    def quantity(self, request: Request) -> MeasuredQuantity:
        from madbench.papers.coefficients.suppression import SUPPRESSED

        return SUPPRESSED

    def plan(self, request: Request) -> Grid:
        item, key = request.item.id, f"tasks.{COPY}.setting.seq_len"
        if request.labels:
            raise no_effect(request.labels[0], f"on {item}, which has its own labels")
        if {*request.tasks} - {COPY}:
            raise no_effect(f"--tasks {','.join(request.tasks)}", f"on {item}, which has only {COPY}")
        lengths = LENGTHS.get(request.profile_name, LENGTHS[QUICK])
        study = Study(("cd:k{softplus,exp}-sum-p",), (COPY,), vary={key: lengths})
        return grid_of(request, rows_of(study), study.tasks, (key,))

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        from madbench.papers.coefficients.lengths import decide_lengths

        return decide_lengths(request, require_results(results))


def principle_of(request: Request) -> Principle:
    """The principle of the requested item, which is a principle or a figure of one."""
    figure = FIGURES.get(request.item.id)
    return principle(figure.principle if figure else request.item.id.removeprefix("principle"))


def study_of(request: Request) -> Study:
    """The study of the item's principle for the requested profile.

    Tasks of the request, or else of the item, replace the tasks of the study. If the item is a figure, its panels
    replace those of the study.
    """
    study, tasks = principle_of(request).study(request.profile_name), request.tasks or request.item.tasks
    if request.item.id in FIGURES:
        study = dataclasses.replace(study, shown=FIGURES[request.item.id].shown)
    return dataclasses.replace(study, tasks=tasks) if tasks else study


def rows_of(study: Study) -> tuple[Row, ...]:
    """The rows of a study's grid: one per label and combination of the values in ``Study.vary``."""
    axes = [[Override.of(key, value) for value in values] for key, values in (study.vary or {}).items()]
    return tuple(Row(label, changes, changes) for label in study.labels for changes in itertools.product(*axes))
