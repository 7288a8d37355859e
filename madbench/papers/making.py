"""How an item of a paper is made: what it trains, and what its runs say beside the published numbers."""

from __future__ import annotations

import csv
import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from madbench.config import key_of, parse_seeds
from madbench.errors import ConfigError, StoreError
from madbench.experiment import Experiment, prepare
from madbench.files import parse_json, read_file, write_atomically
from madbench.grid import Grid, Row
from madbench.jobs import Job
from madbench.labels import expand
from madbench.labels.plugins import isolated, resolve
from madbench.papers import QUICK, Item, Paper
from madbench.suites import suites
from madbench.suites.addressing import tasks_by_suite

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.claims import Claim
    from madbench.analysis.rendering import Listing, TextTable
    from madbench.analysis.scores import Results

REPRODUCED, CONTRADICTED, OPEN = "reproduced", "contradicted", "not decided"
FAILS = "fails here"
"""The state of an item whose operator or check is wrong here, so that it says nothing of the paper."""
_FOR, _AGAINST = ("supported", "reproduced"), ("contradicted", "not reproduced")


@dataclass(frozen=True)
class Request:
    """An item and what was asked of it."""

    paper: Paper
    item: Item
    profile: str = QUICK
    seeds: str | None = None
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    results: Path = Path("results")

    @property
    def profile_name(self) -> str:
        """The profile of the size that was asked for; any other name or file is one itself."""
        return self.item.profiles.get(self.profile, self.profile)


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it; ``draw`` takes a layout."""

    stem: str
    draw: Any  # of a Layout, a Page
    frame: pd.DataFrame


@dataclass(frozen=True)
class Made:
    """An item as it was made."""

    tables: Sequence[TextTable]
    verdicts: Mapping[str, str]
    content: Mapping[str, Any]  # for a program
    figures: Iterable[Drawn] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)  # numbers behind a verdict


class Measure(Protocol):
    """What an item names under ``measure``: a module's or a class's functions."""

    # Optional: operators, the labels whose operators are called by an item that trains nothing and has no labels.

    def keeps_weights(self, request: Request) -> bool:
        """Whether it measures trained models."""

    def introduction(self, request: Request) -> Sequence[str]:
        """Sentences above what is made."""

    def plan(self, request: Request) -> Grid | Experiment | None:
        """What is to be trained; None where nothing is."""

    def decide(self, request: Request, results: Results | None) -> Made:
        """What the runs say."""


class PlainMeasure:
    """What measures no trained models and is introduced by the item's rule; it trains nothing if it plans nothing."""

    def plan(self, request: Request) -> Grid | None:
        refuse_choices(request, request.item.id)
        return None

    def keeps_weights(self, request: Request) -> bool:
        return False

    def introduction(self, request: Request) -> Sequence[str]:
        return [request.item.rule] if request.item.rule else []


class TableMeasure(PlainMeasure):
    """An item of labels and columns: our numbers beside the published ones, and the claims that they decide."""

    def plan(self, request: Request) -> Grid:
        item, changed = request.item, [key_of(word) for word in request.overrides]
        overrides = (*(word for word in item.overrides if key_of(word) not in changed), *request.overrides)
        rows = map(Row, expand(request.labels or item.labels))
        return grid_of(replace(request, overrides=overrides), rows, request.tasks or item.tasks or None)

    def decide(self, request: Request, results: Results | None) -> Made:
        from madbench.analysis.claims import load_claims

        item, asked = request.item, []
        if item.claims:
            asked = [claim for claim in load_claims(request.paper.claims_file) if claim.name in item.claims]
        table, (verdicts, remarks) = beside_published(request, results), judge(results, asked)
        return Made([table], verdicts, {"cells": table.records()}, plots(request, results), remarks)


def grid_of(request: Request, rows: Iterable[Row], tasks: Sequence[str] | None, axes: Sequence[str] = ()) -> Grid:
    """These rows on these tasks, with what the request asks for and the item's seeds and budget."""
    return Grid(
        tuple(rows),
        profile=request.profile_name,
        tasks=tasks,
        overrides=request.overrides,
        axes=tuple(axes),
        seeds=seeds_of(request),
        budget=request.item.budget,
    )


def grid_of_one_task(request: Request, task: str, labels: Iterable[str]) -> Grid:
    """The grid of labels on the only task of an item; ``ConfigError`` where others are asked for."""
    if set(request.tasks) - {task}:
        raise ConfigError(f"--tasks {','.join(request.tasks)}: has no effect on {request.item.id}, of {task} alone")
    return grid_of(request, map(Row, labels), (task,))


def judge(results: Results, claims: Sequence[Claim]) -> tuple[dict[str, str], dict[str, str]]:
    """The verdict of each claim on each quantity, tested together; the gain and the reason, by the statement."""
    from madbench.analysis.findings import findings
    from madbench.analysis.quantities import difference_text

    verdicts, remarks = {}, {}
    for row in findings(results.scores, claims=claims) if claims else ():
        statement = f"{row.claim.title}, {row.quantity}"
        gain = f"{difference_text(row.ours, row.quantity)}. " if row.ours else ""
        verdicts[statement], remarks[statement] = row.verdict, gain + row.reason
    return verdicts, remarks


def plots(request: Request, results: Results) -> Iterator[Drawn]:
    """The figures of madbench plot that the item names, of its runs."""
    for name in request.item.figures:
        from madbench.analysis.figures.registry import drawing_of, figure_frame

        frame = figure_frame(name, results)
        draw = functools.partial(drawing_of(name).draw, frame)
        yield Drawn(f"{request.paper.name}_{request.item.id}", draw, frame)


def seeds_of(request: Request) -> tuple[int, ...]:
    """The seeds that were asked for, or the item's."""
    return tuple(parse_seeds(request.seeds or request.item.seeds))


def measure_of(item: Item) -> Measure:
    """What plans and decides the item; a ``ConfigError`` where its own cannot be loaded."""
    name = "madbench.papers.theorems:TheoremMeasure" if item.checks else item.measure
    if not name:
        return TableMeasure()
    with isolated(f"{item.id}: measure {name}", ConfigError):
        measure = resolve(name)()
        if missing := [name for name in ("plan", "decide") if not hasattr(measure, name)]:
            raise ConfigError(f"expected a class as madbench.papers.making.Measure, got one without {missing[0]}")
    return measure


def jobs_of(request: Request) -> list[Job]:
    """The jobs that make the item as it stands; none where nothing is trained, or the text for it is not here yet."""
    from madbench.text.prepare import has_default_corpus

    item = request.item
    planned = measure_of(item).plan(request) if item.labels or item.measure else None
    if isinstance(planned, Grid):
        needs_text = any(suites()[name].takes_corpus for name in tasks_by_suite(planned.tasks))
        if needs_text and not has_default_corpus(request.results):
            return []
        planned = prepare(planned, is_remote=False, device=request.device, results=request.results)
    return planned.jobs if planned else []


def beside_published(request: Request, results: Results) -> Listing:
    """Our means with intervals and, below each label, the published numbers; columns are the item's, or all."""
    import numpy as np

    from madbench.analysis.cells import Cell, cells_of
    from madbench.analysis.inference import Sample
    from madbench.analysis.marked_text import with_minus
    from madbench.analysis.quantities import column, in_order
    from madbench.analysis.rendering import PUBLISHED, Listing

    published, scores = published_numbers(request), results.scores
    names = list(request.item.columns) or in_order(scores.column.unique())
    columns, lines, records = [column(name) for name in names], [], []
    cells, nothing = cells_of(scores, columns) if len(scores) else {}, Cell(Sample(np.array([])), 0)
    for row in {row.name: row.row for row in results.experiment.rows}.values():
        ours = [cells.get(row.name, {}).get(name, nothing) for name in names]
        theirs = {} if row.named_changes else published.get(row.label, {})
        seeds = max((cell.n for cell in ours), default=0)
        for of_column, cell in zip(columns, ours):
            record = {"label": row.name, "column": of_column.name} | cell.numbers(of_column)
            records.append(record | {"published": theirs.get(of_column.name)})
        lines.append([row.name, *(cell.text(c, seeds) for c, cell in zip(columns, ours)), str(seeds)])
        if theirs:
            numbers = [theirs.get(name, math.nan) for name in names]
            texts = ("-" if math.isnan(x) else with_minus(f"{x:.{c.digits}f}") for x, c in zip(numbers, columns))
            lines.append([PUBLISHED, *texts, ""])
    headings = ["Label", *(c.heading for c in columns), "n"]
    notes = " ".join(results.sentences())
    below = ", and the published numbers below them" * bool(published)
    caption = (
        f"{request.item.place} of {request.paper.title}: means over n seeds, ±: half of their 95% interval{below}."
        " †: a single seed."
    )
    return Listing(records, headings, lines, records, caption, notes, f"tab:{request.item.id}")


def published_numbers(request: Request) -> dict[str, dict[str, float]]:
    """The published numbers of an item by label and column; those that are no numbers are left out."""
    item = request.item
    if not item.published:
        return {}
    with open(request.paper.file(item.published), newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("label") and item.published_rows.items() <= row.items()]
    (labels,) = [[expand([row["label"]])[0] for row in rows]]
    names = item.columns or {name: name for name in (rows[0] if rows else {}) if name != "label"}
    return {
        label: {ours: float(row[theirs]) for ours, theirs in names.items() if _is_number(row.get(theirs))}
        for label, row in zip(labels, rows)
    }


def _is_number(text: str | None) -> bool:
    try:
        return math.isfinite(float(text or "nan"))
    except ValueError:
        return False


def judged(verdicts: Mapping[str, str]) -> str:
    """``reproduced`` where every verdict is for the paper, ``contradicted`` where one is against it.

    ``fails here`` where one is of an operator that is wrong.
    """
    values = list(verdicts.values())
    if FAILS in values:
        return FAILS
    if any(value in _AGAINST for value in values):
        return CONTRADICTED
    return REPRODUCED if values and all(value in _FOR for value in values) else OPEN


def _record(request: Request) -> Path:
    return request.results / "papers" / request.paper.name / f"{request.item.id}.json"


def remember(request: Request, made: Made) -> None:
    """Writes the verdicts beside the runs, by the size at which the item was made."""
    path, states = _record(request), remembered(request)
    states[request.profile] = {
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "seeds": request.seeds or request.item.seeds,
        "changes": [*request.labels, *request.tasks, *request.overrides],
        "verdicts": dict(made.verdicts),
        "state": judged(made.verdicts) if made.verdicts else "made",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(states, indent=2) + "\n").encode())


def remembered(request: Request) -> dict[str, Any]:
    """What :func:`remember` wrote of the item, by size; nothing where it was not made."""
    try:
        states = parse_json(read_file(_record(request)))
        if not all(isinstance(entry, dict) and isinstance(entry["state"], str) for entry in states.values()):
            raise ValueError("expected an object with a state for each size")
        return states
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, OSError, ValueError) as error:
        raise StoreError(f"{_record(request)}: cannot be read: {error}; remove it and make the item again") from None


def command_of(paper: Paper, item: Item, profile: str = QUICK) -> str:
    """What makes the item."""
    if not item.is_made_here:
        return ""
    return f"madbench paper {paper.name} {item.id}" + f" --profile {profile}" * (profile != QUICK)


def check_profile(item: Item, profile: str) -> None:
    """Raises ``ConfigError`` for a size at which the item is not made; a file or another profile is allowed."""
    if profile in (QUICK, "full") and item.profiles and profile not in item.profiles:
        raise ConfigError(f"{item.id}: made at {', '.join(item.profiles)}, not {profile}. {item.needs}".strip())


def refuse_choices(request: Request, name: str) -> None:
    """Raises ``ConfigError`` for a choice of what is trained, of an item that trains nothing."""
    choices = {"--seeds": request.seeds, "--tasks": request.tasks, "--profile": request.profile != QUICK}
    choices |= dict.fromkeys((*request.labels, *request.overrides), True)
    for choice in (choice for choice, value in choices.items() if value):
        raise ConfigError(f"{choice} has no effect on {name}: it trains nothing")
