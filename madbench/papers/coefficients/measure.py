"""The principles as items of the paper: what each trains, and what is made of its runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from madbench.config import key_of, parse_seeds
from madbench.errors import ConfigError
from madbench.grid import Grid, Row
from madbench.papers.coefficients import Principle, Study
from madbench.papers.coefficients.studies import principle
from madbench.papers.making import Drawn, Made, Request
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.scores import Results


class PrincipleMeasure:
    """Plans and decides the principle that an item such as ``principle3`` names."""

    def keeps_weights(self, request: Request) -> bool:
        return principle_of(request).keeps_weights

    def introduction(self, request: Request) -> Sequence[str]:
        principle = principle_of(request)
        first = f"Principle {principle.number}  {principle.claim} {principle.source}"
        lines = [first, f"The paper: {principle.expected}."]
        return [*lines, *([principle.limits] if principle.limits else [])]

    def plan(self, request: Request) -> Grid | None:
        chosen, study = principle_of(request), study_of(request)
        if chosen.judge == "time":
            inputs = {"--seeds": request.seeds, "--tasks": request.tasks, "--profile": request.profile != "quick"}
            inputs |= dict.fromkeys((*request.labels, *request.overrides), True)
            for name in (name for name, value in inputs.items() if value):
                raise ConfigError(f"{name} has no effect on principle {chosen.number}: it trains nothing")
            return None
        if request.labels:
            raise ConfigError(f"{request.labels[0]} has no effect on principle {chosen.number}, which has its labels")
        overrides = request.overrides
        return Grid(
            rows_of(study),
            profile=request.profile_name,
            tasks=study.tasks,
            overrides=(*(own for own in study.overrides if key_of(own) not in map(key_of, overrides)), *overrides),
            seeds=tuple(parse_seeds(request.seeds or chosen.seeds)),
            budget="paper",
        )

    def decide(self, request: Request, results: Results | None) -> Made:
        principle = principle_of(request)
        if results is None:
            from madbench.papers.coefficients.timing import decide_time

            decision, tables = decide_time(principle, resolve_device(request.device)), []
        else:
            from madbench.analysis.tables import result_tables
            from madbench.papers.coefficients.deciding import decide

            decision, tables = decide(principle, study_of(request), results), result_tables(results)
        statement = {"principle": principle.number, "claim": principle.claim, "expected": principle.expected}
        content = statement | {"limits": principle.limits}
        content |= {"verdicts": dict(decision.verdicts), "rows": decision.table.records()}
        content |= {"cells": [cell for table in tables for cell in table.records()]}
        content |= {"measured": decision.measured.records()} if decision.measured else {}
        listings = [table for table in (*tables, decision.measured, decision.table) if table is not None]
        drawn = Drawn(f"principle_{principle.number}", decision.draw, decision.frame)
        return Made(listings, decision.verdicts, content, [drawn])


def principle_of(request: Request) -> Principle:
    """The principle of an item's id."""
    return principle(request.item.id.removeprefix("principle"))


def study_of(request: Request) -> Study:
    """What is trained at the size that was asked for, on other tasks where these were."""
    study = principle_of(request).study(request.profile_name)
    return dataclasses.replace(study, tasks=request.tasks) if request.tasks else study


def rows_of(study: Study) -> tuple[Row, ...]:
    """Every label under every combination of the settings that vary."""
    axes = [[f"{key}={value}" for value in values] for key, values in (study.vary or {}).items()]
    return tuple(Row(label, changes, changes) for label in study.labels for changes in itertools.product(*axes))
