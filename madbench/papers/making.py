"""Requests for items of papers, the measures that make the items, their results and verdicts, and stored states."""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import Override, parse_seeds
from madbench.errors import ConfigError, StoreError, no_effect
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.files import parse_json, read_file, write_atomically
from madbench.jobs import Budget, Job
from madbench.labels import parse
from madbench.papers import QUICK, Item, Paper
from madbench.plugins.registry import resolve, wrap_load_errors
from madbench.rows import Grid, Row
from madbench.suites.addressing import parse_overrides
from madbench.suites.corpora import NoCorpusError

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.rendering import TextTable
    from madbench.analysis.scores import Results
    from madbench.papers.quantities import MeasuredQuantity

REPRODUCED, CONTRADICTED, OPEN = "reproduced", "contradicted", "not decided"
FAILS = "fails here"
"""The state of an item if an operator or a check of madbench is wrong. It says nothing about the paper."""
DIFFERS = "differs here"
"""The state of an item if settings of madbench differ from the paper's. It says nothing about the paper's results."""
SMALL = "not at this size"
"""The state of an item if models that are smaller than the paper's contradict it."""
PARTLY = "partly"
"""The state of an item if only a part of the paper's statement is reproduced.

The text of the item's field ``part`` follows it in parentheses, as in ``partly (PART)``.
"""
STATES = (REPRODUCED, CONTRADICTED, OPEN, PARTLY, SMALL, FAILS, DIFFERS)
"""The states of items with a verdict."""
_FOR, _AGAINST = ("supported", "reproduced"), ("contradicted", "not reproduced")


@dataclass(frozen=True)
class Request:
    """A request to make an item of a paper, with the options that the user gave to ``madbench paper``."""

    paper: Paper
    item: Item
    profile: str = QUICK
    seeds: str | None = None
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    overrides: tuple[Override, ...] = ()
    device: str = "auto"
    results: Path = Path("results")
    budget: Budget | None = None
    """The budget given by the user. None for the budget of the item."""

    @property
    def is_small(self) -> bool:
        """True if the item trains models with overrides, or under a profile that does not have the paper's size.

        Profiles of the paper's size are the item's profile ``full``, and those that its ``published_rows`` or
        ``budgets`` name.
        """
        of_item = {self.item.profiles.get("full"), *self.item.published_rows.values(), *self.item.budgets}
        return bool(self.item.profiles) and (bool(self.overrides) or self.profile_name not in of_item)

    @property
    def effective_budget(self) -> Budget:
        """The budget under which the labels are trained, for the requested profile."""
        return self.budget_at(self.profile_name)

    def budget_at(self, profile: str) -> Budget:
        """The budget for a profile: the one that the user gave, otherwise the item's budget for this profile."""
        return self.budget or self.item.budgets.get(profile, self.item.budget)

    @property
    def profile_name(self) -> str:
        """The name of the profile to train under: the item's for the requested size, otherwise the requested one."""
        return self.item.profiles.get(self.profile, self.profile)


@dataclass(frozen=True)
class DrawnFigure:
    """A figure of an item: a function that draws it, and the numbers that it shows."""

    stem: str
    draw: Any
    """A function that takes a layout and returns the page."""
    frame: pd.DataFrame


@dataclass(frozen=True)
class ItemResult:
    """The result of making an item. ``verdicts`` and ``remarks`` map statements of the paper to texts."""

    tables: Sequence[TextTable]
    verdicts: Mapping[str, str]
    content: Mapping[str, Any]
    """The result for programs, as values that can be written as JSON."""
    figures: Iterable[DrawnFigure] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)
    """A text with the numbers behind a verdict, for some statements."""
    heading: str = ""
    """A sentence that is printed above the verdicts. Empty for none."""
    failed: bool = False
    """True if a check of madbench that the item runs fails."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 if a check fails or a verdict is ``fails here``, otherwise 0."""
        return int(self.failed or FAILS in self.verdicts.values())


class Measure(abc.ABC):
    """The base class of measures, which plan the runs of an item and decide the item from their results.

    A measure is made without arguments.
    """

    @property
    def operators(self) -> Sequence[str]:
        """The labels of the operators that the measure calls, if the item trains nothing and names no labels."""
        return ()

    def keeps_weights(self, request: Request) -> bool:
        """True if the item measures trained models, so that their weights must be kept.

        By default, True if the item has a :meth:`quantity`.
        """
        return self.quantity(request) is not None

    def introduction(self, request: Request) -> Sequence[str]:
        """Lines that are printed above the result. By default the item's rule."""
        return [request.item.rule] if request.item.rule else []

    def quantity(self, request: Request) -> MeasuredQuantity | None:
        """The quantity that is measured on every run and stored with it, so that weights are needed only once.

        None if nothing is measured, which is the default.
        """
        return None

    @abc.abstractmethod
    def plan(self, request: Request) -> Grid | Experiment | None:
        """The grid or experiment to train. None if nothing is trained."""

    @abc.abstractmethod
    def decide(self, request: Request, results: Results | None) -> ItemResult:
        """Decide the item from the results of its runs. ``results`` is None if :meth:`plan` returned None."""


def require_results(results: Results | None) -> Results:
    """Return ``results``, which must not be None. For ``Measure.decide`` of measures that plan runs."""
    assert results is not None
    return results


class PlainMeasure(Measure):
    """The base class of measures that train nothing.

    :meth:`plan` raises ``ConfigError`` if the user gave an option that has an effect only on training, such as seeds.
    """

    def plan(self, request: Request) -> Grid | Experiment | None:
        refuse_choices(request, request.item.id)
        return None


def row_of(text: str) -> Row:
    """Parse the name of a row: a label and changed settings, such as ``R-cg-q model.gates=vo``."""
    label, *changes = text.split()
    overrides = parse_overrides(changes)
    return Row(str(parse(label)), overrides, overrides)


def grid_of(request: Request, rows: Iterable[Row], tasks: Sequence[str] | None, axes: Sequence[str] = ()) -> Grid:
    """The grid of rows and tasks with the profile, overrides, seeds and budget of a request.

    ``tasks`` None means all tasks. ``axes`` are the keys of settings in which rows differ.
    """
    return Grid(
        tuple(rows),
        profile=request.profile_name,
        tasks=None if tasks is None else tuple(tasks),
        overrides=request.overrides,
        axes=tuple(axes),
        seeds=seeds_of(request),
        budget=request.effective_budget,
    )


def grid_of_one_task(request: Request, task: str, labels: Iterable[str]) -> Grid:
    """The grid of labels on the only task of an item. Raises ``ConfigError`` if the request names another task."""
    if set(request.tasks) - {task}:
        raise no_effect(f"--tasks {','.join(request.tasks)}", f"on {request.item.id}, of {task} alone")
    return grid_of(request, map(Row, labels), (task,))


def item_figures(request: Request, results: Results) -> Iterator[DrawnFigure]:
    """Yield the figures of ``madbench plot`` that the item names, drawn from ``results``."""
    for name in request.item.figures:
        from madbench.analysis.figures.registry import drawing_of, figure_frame

        frame = figure_frame(name, results)
        draw = functools.partial(drawing_of(name).draw, frame)
        yield DrawnFigure(f"{request.paper.name}_{request.item.id}", draw, frame)


def seeds_of(request: Request) -> tuple[int, ...]:
    """The seeds given by the user, otherwise those of the item."""
    return tuple(parse_seeds(request.seeds or request.item.seeds))


def measure_of(item: Item) -> Measure:
    """The measure that makes an item: the one that the item names, otherwise the default for its kind.

    Raises ``ConfigError`` if the measure cannot be loaded.
    """
    of_tables, of_theorems = "madbench.papers.table_measure:TableMeasure", "madbench.papers.theorems:TheoremMeasure"
    name = item.measure or (of_theorems if item.checks else of_tables)
    with wrap_load_errors(f"{item.id}: measure {name}", ConfigError):
        measure = resolve(name)()
        if not isinstance(measure, Measure):
            raise ConfigError(f"expected a subclass of madbench.papers.making.Measure, got {type(measure).__name__}")
    return measure


def jobs_of(request: Request) -> list[Job]:
    """The jobs that the requested item trains.

    Empty if nothing is trained, or if the item needs a corpus that is not prepared yet.
    """
    item = request.item
    plan = measure_of(item).plan(request) if item.labels or item.measure else None
    if isinstance(plan, Grid):
        try:
            plan = prepare(plan, ExperimentOptions(request.device, request.results, makes_corpus=False))
        except NoCorpusError:
            return []
    return plan.jobs if plan else []


def state_of_verdicts(verdicts: Mapping[str, str]) -> str:
    """The state of an item that follows from its verdicts.

    The first that applies: ``fails here`` or ``differs here`` if a verdict says so, ``contradicted`` if one contradicts
    the paper, ``reproduced`` if all agree with the paper, otherwise ``not decided``.
    """
    values = list(verdicts.values())
    for state in (FAILS, DIFFERS):
        if state in values:
            return state
    if any(value in _AGAINST for value in values):
        return CONTRADICTED
    return REPRODUCED if values and all(value in _FOR for value in values) else OPEN


def state_of(request: Request, outcome: ItemResult) -> str:
    """The state of an item: that of its verdicts (:func:`state_of_verdicts`), or ``made`` if it has no verdicts.

    There are two exceptions. If small models contradict the paper, the state is :data:`SMALL`. If the result is
    ``reproduced`` but the item covers only a part of the paper's statement, the state is :data:`PARTLY` with the text
    of the item's field ``part``. The field is ignored if the user requested tasks. It is also ignored if the item names
    profiles and its models have the paper's size (:attr:`Request.is_small` is False).
    """
    state = state_of_verdicts(outcome.verdicts) if outcome.verdicts else "made"
    if state == CONTRADICTED and request.is_small:
        return SMALL
    is_whole = not request.item.part or request.tasks or (request.item.profiles and not request.is_small)
    return state if state != REPRODUCED or is_whole else f"{PARTLY} ({request.item.part})"


def statement_verdict(request: Request, verdict: str) -> str:
    """The text of a verdict on a statement. ``at this size`` is added if small models contradict the paper."""
    return f"{verdict} at this size" if request.is_small and verdict in _AGAINST else verdict


def budget_words(request: Request) -> list[str]:
    """The option ``--budget`` with its value, as one text in a list. Empty if the user did not give it."""
    return [f"--budget {request.budget}"] if request.budget else []


def _record(request: Request) -> Path:
    return request.results / "papers" / request.paper.name / f"{request.item.id}.json"


def chosen_settings(results: Results | None) -> str:
    """A note that settings were chosen by the published order of labels. It names the sets of these labels.

    Empty if no settings of the runs were chosen in this way, or if ``results`` is None.
    """
    from madbench.analysis.findings import choice_note

    return choice_note(row.protocol.profile.chosen_on for row in (results.rows if results else ()))


def store_verdicts(request: Request, outcome: ItemResult, runs: Sequence[str] = (), note: str = "") -> None:
    """Store the verdicts of a made item in the results folder, under the requested size or profile.

    ``runs`` are the names of the shipped archives whose runs were used. ``note`` is a text that is printed beside the
    verdicts.
    """
    path, states = _record(request), stored_verdicts(request)
    states[request.profile] = {
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "seeds": request.seeds or request.item.seeds,
        "runs": list(runs),
        "note": note,
        "changes": [*request.labels, *request.tasks, *map(str, request.overrides), *budget_words(request)],
        "verdicts": dict(outcome.verdicts),
        "state": state_of(request, outcome),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(states, indent=2) + "\n").encode())


def stored_verdicts(request: Request) -> dict[str, Any]:
    """The entries that :func:`store_verdicts` stored for the item, by size or profile. Empty if it was not made.

    Raises ``StoreError`` if the file of the entries is invalid.
    """
    try:
        states: dict[str, Any] = parse_json(read_file(_record(request)))
        if not all(isinstance(entry, dict) and isinstance(entry["state"], str) for entry in states.values()):
            raise ValueError("expected an object with a state for each size")
        return states
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, OSError, ValueError) as error:
        raise StoreError(f"{_record(request)}: cannot be read: {error}; remove it and make the item again") from None


def command_of(paper: Paper, item: Item) -> str:
    """The command that makes an item. Empty if madbench does not make the item."""
    return f"madbench paper {paper.name} {item.id}" if item.is_made_here else ""


def check_profile(item: Item, profile: str) -> None:
    """Raise ``ConfigError`` if ``profile`` is a size, quick or full, at which the item is not made.

    Files and names of profiles are accepted.
    """
    if profile in (QUICK, "full") and item.profiles and profile not in item.profiles:
        raise ConfigError(f"{item.id}: made at {', '.join(item.profiles)}, not {profile}. {item.needs}".strip())


def refuse_choices(request: Request, name: str) -> None:
    """Raise ``ConfigError`` if the user gave an option that has an effect only on training, such as seeds or labels.

    It is called for items that train nothing. ``name`` is the item's name in the message.
    """
    choices = {"--seeds": request.seeds, "--tasks": request.tasks, "--profile": request.profile != QUICK}
    choices |= {"--budget": request.budget}
    choices |= dict.fromkeys((*request.labels, *map(str, request.overrides)), True)
    for choice in (choice for choice, value in choices.items() if value):
        raise no_effect(choice, f"on {name}", "it trains nothing")
