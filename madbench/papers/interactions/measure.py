"""The items of the paper that train models of interacting agents.

They give tables of errors by length, verdicts on claims, and figures of learned matrices. Each task is a world of
agents (:mod:`madbench.papers.interactions.worlds`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import Override, parse_seeds
from madbench.errors import ConfigError
from madbench.experiment import Experiment, Protocol
from madbench.jobs import Job
from madbench.labels import expand
from madbench.papers.interactions.profile import CONTROLS, TASKS, InteractionProfile
from madbench.papers.interactions.rows import (
    InteractionRow,
    interaction_rows,
    row_name,
    shown_row_name,
    statement_verdicts,
)
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.papers.interactions.worlds import Colliding
from madbench.papers.making import REPRODUCED, DrawnFigure, ItemResult, Measure, PlainMeasure, Request, require_results
from madbench.papers.quantities import MeasuredQuantity, Values
from madbench.rows import Grid, Row, SuiteRow
from madbench.store.runs import Store
from madbench.suites.profile import check_task, check_tasks_of
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results

NO_CONTROLS = Override.of("controls", [])
SHORT = {"controls=false": NO_CONTROLS}
SHORT |= {"controls=true": Override.of("controls", list(CONTROLS), f"[{','.join(CONTROLS)}]")}
"""Short forms of overrides: short form to override. In addition, the key ``embedding`` is short for ``embeddings``."""
DEVISED, EXACT = Colliding(positions=360, radius=5, embedding="sinusoidal"), 1e-10
"""The world of Figure 1, and the largest difference of two effects that counts as rounding."""
FIGURES = {"figure2": ("sinusoidal", "_coordinates"), "figure3": ("one_hot", ""), "figure4": ("sinusoidal", "")}
"""Figures of the paper: id of the item to the embedding and the suffix of the figure's file name.

The suffix is ``_coordinates`` for a figure of C itself, which is in the coordinates of the embedding.
"""
APART = 0.1
"""The smallest :func:`distance_of_c` at which the learned C of Figure 2 counts as different from the devised C."""
LEARNED_C = MeasuredQuantity("learned_c", {"against": "devised C"})
"""The measurement that is stored with the run of the first seed: the distance of its learned C from the devised C."""


class WorldMeasure(Measure):
    """The measure of items whose tasks are worlds of agents.

    It trains the profile's labels on these tasks, and shows tables of errors, figures, and verdicts on the paper's
    statements.
    """

    def keeps_weights(self, request: Request) -> bool:
        return True

    def plan(self, request: Request) -> Experiment:
        requested_tasks = list(request.tasks or request.item.tasks)
        for task in requested_tasks:
            check_task(task, TASKS, "--task: ")
        overrides = tuple(map(_long_form, request.overrides))
        labels = expand(request.labels)
        seeds = parse_seeds(request.seeds or request.item.seeds)
        profile = InteractionProfile.load(request.profile_name, overrides)
        check_tasks_of(overrides, requested_tasks)
        device = "cpu" if request.device == "auto" else resolve_device(request.device)
        shared: tuple[Any, ...] = ("corrected", "strict", profile.precision, device)
        protocol = Protocol(INTERACTIONS, profile, request.profile_name, overrides, requested_tasks, *shared)
        jobs = INTERACTIONS.jobs(labels, profile, tasks=requested_tasks, seeds=seeds)
        if not jobs:
            raise ConfigError(
                f"nothing to train: the profile {request.profile_name} names no labels of {', '.join(requested_tasks)}"
            )
        by_row: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            by_row.setdefault((job.task, row_name(job)), []).append(job)
        rows = []
        for (_, name), row_jobs in by_row.items():
            rows.append(SuiteRow(Row(row_jobs[0].label, name_suffix=name), protocol, row_jobs))
        return Experiment(Grid(tuple(row.row for row in rows)), rows, protocol.device, request.results)

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        results = require_results(results)
        store = Store(results.store.root)
        rows = interaction_rows(results.rows, store.records({job.id for job in results.jobs}))
        decisions = statement_verdicts(rows)
        tasks = dict.fromkeys(row.task for row in rows)
        verdicts = {f"{claim.statement} ({claim.source})": claim.verdict for claim in decisions}
        numbers = {f"{claim.statement} ({claim.source})": claim.numbers for claim in decisions}
        content = {"rows": [row.summary() for row in rows], "claims": [vars(claim) for claim in decisions]}
        tables = [error_table([row for row in rows if row.task == task]) for task in tasks]
        return ItemResult(tables, verdicts, content, _figures(rows, store), numbers)


class FigureMeasure(WorldMeasure):
    """The measure of a figure of learned matrices.

    It trains on colliding agents without controls, with the embedding of the figure. If the figure shows the matrix C,
    a verdict says whether the C that the first seed has learned differs from every multiple of the C that the paper
    devises (eq. 17).
    """

    def plan(self, request: Request) -> Experiment:
        embedding, _ = FIGURES[request.item.id]
        figure_overrides = (Override.of("embeddings", embedding), NO_CONTROLS)
        changed_keys = {_long_form(override).key for override in request.overrides}
        unchanged_overrides = tuple(override for override in figure_overrides if override.key not in changed_keys)
        return super().plan(replace(request, overrides=(*unchanged_overrides, *request.overrides)))

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        results = require_results(results)
        outcome, (embedding, end) = super().decide(request, results), FIGURES[request.item.id]
        stem = f"interactions_colliding_hfa_C1_{embedding}{end}"
        own = (
            replace(figure, stem=f"interactions_{request.item.id}") for figure in outcome.figures if figure.stem == stem
        )
        if not end:
            return replace(outcome, figures=own)
        verdicts, remarks, store = {}, {}, Store(results.store.root)
        rows = interaction_rows(results.rows, store.records({job.id for job in results.jobs}))
        for row in (row for row in rows if row.records[0].status == "finished"):
            measured = LEARNED_C.of_run(store, row.jobs[0], functools.partial(_measure, row=row))
            distance = measured.values["distance"]
            statement = f"{embedding}: the learned C is not a multiple of the devised one (Figure 2)"
            verdicts[statement] = REPRODUCED if distance >= APART else "not reproduced"
            remarks[statement] = f"distance {distance:.2f} of at most 1, seed {row.seeds[0]}"
        verdicts, remarks = verdicts | dict(outcome.verdicts), remarks | dict(outcome.remarks)
        return replace(outcome, figures=own, verdicts=verdicts, remarks=remarks)


def _measure(weights: Path, row: InteractionRow) -> Values:
    from madbench.papers.interactions.figures import learned_matrices
    from madbench.training.checkpoints import load_model

    frame = learned_matrices(row, load_model(weights)[0])["_coordinates"].frame
    return {"distance": distance_of_c(frame["learned C"], frame["devised C"])}, {}


def distance_of_c(learned: pd.Series, devised: pd.Series) -> float:
    """The distance of the devised C from the nearest multiple of the learned C, divided by the norm of the devised C.

    The devised C is the one that the paper gives by a formula (eq. 17). Distance and norm are those of Frobenius.
    Multiples count as equal because a factor of C can be moved to the values. The result is the sine of the angle
    between the two matrices: 0 for multiples, and at most 1. Both arguments have the entries of the matrices in the
    same order.
    """
    a, b = learned.to_numpy(float), devised.to_numpy(float)
    cosine = float(a @ b / math.sqrt((a @ a) * (b @ b)))
    return math.sqrt(max(0.0, 1 - cosine**2))


class DevisedMeasure(PlainMeasure):
    """The measure of Figure 1: the diagonal of the paper's devised C for colliding agents at the paper's size.

    Nothing is trained. A verdict says whether the devised C and W give the effects of eq. 5.
    """

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        (c, w), vectors = DEVISED.solution, DEVISED.vectors
        error = float(abs(vectors @ c @ vectors.T * (vectors @ w) - DEVISED.effects).max())
        statement = "The printed diagonal and W give the effects of eq. 5 in sinusoidal positions (section 7.1)"
        verdict = REPRODUCED if error <= EXACT else "not reproduced"
        return ItemResult(
            (), {statement: verdict}, {"error": error}, [_devised_figure()], {statement: f"at most {error:.1e} off"}
        )


def _long_form(override: Override) -> Override:
    """Convert an override with a short key or value, such as ``embedding=one_hot``, to the form that profiles read."""
    if override.path == "embedding":
        return replace(override, key="embeddings")
    return SHORT.get(str(override), override)


def error_table(rows: Sequence[InteractionRow]) -> Listing:
    """The table of mean squared errors per test agent, for rows of one task and with one column per length.

    Each number is the largest over the seeds. Below a row is a line with its lowest possible or predicted error, if
    that is known.
    """
    from madbench.analysis.rendering import Listing

    world = rows[0].world
    lengths = list(dict.fromkeys(n for row in rows for n in row.world.lengths))
    lines = []

    def add(name: str, count: int | str, errors: Mapping[int, float | None], distance: str = "") -> None:
        lines.append([name, str(count), *(_number(errors.get(n)) for n in lengths), distance])

    for row in rows:
        errors = {n: max(row.errors(n)) for n in row.world.lengths}
        add(shown_row_name(row.name), len(row.records), errors, "-" if row.control else _number(row.distance))
        references = {n: row.reference(n) for n in row.world.lengths}
        if any(references.values()):
            add("  predicted" if row.control else "  floor", "", references)
    add("a constant", "", {n: rows[0].variance(n) for n in lengths})
    headings = [world.title, "n", *(f"L {n}*" if n == world.length else f"L {n}" for n in lengths), "T off"]
    caption = (
        "L agents, * trained. Mean squared error of a test agent, the largest of n seeds. T off: of the learned matrix."
    )
    cells = [row.summary() for row in rows]
    return Listing(list(rows), headings, lines, cells, caption, "", f"tab:{rows[0].task}")


def _number(value: float | None) -> str:
    """The number as text, or ``-`` for None and NaN.

    It has three significant digits from 1 on, two from 0.001 on, and one below.
    """
    if value is None or math.isnan(value):
        return "-"
    digits = ".3g" if value >= 1 else ".2g" if value >= 1e-3 else ".0e"
    return "0" if value == 0 else format(value, digits).replace("e-0", "e-")


def _figures(rows: Sequence[InteractionRow], store: Store) -> Iterator[DrawnFigure]:
    """Yield the figures of the rows of an item.

    They show the errors of all rows, and the diagonal of the devised C if some rows have colliding agents. For each row
    that is not a control, further figures show the matrices that the run of the first seed has learned, if its weights
    are stored.
    """
    from madbench.papers.interactions.figures import error_figure, errors_frame, learned_matrices
    from madbench.training.checkpoints import load_model

    if not rows:
        return
    yield DrawnFigure("interactions_errors", lambda layout: error_figure(rows, layout), errors_frame(rows))
    if any(row.task == "colliding" for row in rows):
        yield _devised_figure()
    for row in rows:
        if row.control or row.records[0].status != "finished" or not store.has_weights(row.jobs[0].id):
            continue
        model, _ = load_model(store.kept_file(row.jobs[0].id, "weights.safetensors"))
        name = "_".join([row.task, *re.findall("[A-Za-z0-9]+", row.name)])
        for part, matrices in learned_matrices(row, model).items():
            yield DrawnFigure(f"interactions_{name}{part}", matrices.draw, matrices.frame)


def _devised_figure() -> DrawnFigure:
    """The figure of the diagonal of the devised C at the paper's size."""
    from madbench.papers.interactions.figures import devised_figure

    return DrawnFigure(
        "interactions_devised", lambda layout: devised_figure(DEVISED, layout)[0], devised_figure(DEVISED)[1]
    )
