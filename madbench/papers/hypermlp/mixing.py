"""The shares of shifts and averages in the learned mixing of HyperMLP, which Appendix I.3 of the paper predicts.

A kernel is the part A Diag(s) B^T of a mixing matrix R(1) or R(2), for one head of a layer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis.frames import groups_of, rows_of
from madbench.jobs import WEIGHTS, Job
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, DrawnFigure, ItemResult, Request, require_results
from madbench.papers.quantities import MeasuredQuantity, Values
from madbench.papers.table_measure import TableMeasure
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.suites.planning import LEAST_SEEDS
from madbench.suites.scoring import scoring_of

if TYPE_CHECKING:
    from madbench.analysis.inspection import Inspection
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results

STRUCTURE = {
    "selective_copying": ("best_shift", "a shift", "I.3.4"),
    "compression": ("best_window", "an average over a window", "I.3.2"),
    "noisy_in_context_recall": ("best_window", "an average over a window", "I.3.1"),
}
"""The structure of mixing kernels that the paper predicts for each task.

Task to (name of the measured share, description of the structure, appendix of the paper).
"""
KERNELS = MeasuredQuantity("mixing_kernels", {"structures": sorted({name for name, _, _ in STRUCTURE.values()})})
"""The measurement of the learned mixing that is stored with a run.

For each structure in ``STRUCTURE``, it is the share of the learned kernels that have more of the structure than 95% of
random kernels. Its details (``kernels``) have the share of each structure in every kernel.
"""
MOST, BY_CHANCE = 0.5, 0.05
"""Bounds on the share of kernels in a run that have the predicted structure.

The prediction is reproduced if the share is above ``MOST`` for every seed, and contradicted if it is at most
``BY_CHANCE`` for every seed.
"""


class LearnedMixing(TableMeasure):
    """A measure that looks for the predicted structure in the mixing kernels of trained models.

    For every label, task and seed, the run with the learning rate that validation chose is inspected. The kernels of
    the first seed are plotted.
    """

    def quantity(self, request: Request) -> MeasuredQuantity:
        return KERNELS

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        outcome = super().decide(replace(request, item=replace(request.item, columns={}, claims=())), results)
        trained = require_results(results)
        kernels, store = [], Store(trained.store.root)
        first: dict[tuple[str, str], Job] = {}
        for label, job in chosen_runs(trained):
            rows = KERNELS.of_run(store, job, functools.partial(_measure, job=job)).details["kernels"]
            kernels += [{"label": label, "task": job.task, "seed": job.seed} | row for row in rows]
            first.setdefault((label, job.task), job)
        table = kernel_table(pd.DataFrame(kernels), request)
        verdicts, remarks = {}, {}
        for row in table.cells:
            _, what, place = STRUCTURE[row["task"]]
            statement = f"{row['label']}, {row['task']}: R(1) and R(2) learn {what} (Appendix {place})"
            verdicts[statement] = shares_verdict(row["shares"])
            remarks[statement] = "share of kernels above random, by seed: " + ", ".join(
                f"{x:.2f}" for x in row["shares"]
            )
        content = {"kernels": kernels, **outcome.content}
        return ItemResult([*outcome.tables, table], verdicts, content, _figures(first, store), remarks)


def chosen_runs(results: Results) -> Iterator[tuple[str, Job]]:
    """Yield the label and the job of every finished run with the learning rate that validation chose."""
    jobs = {job.id: job for job in results.jobs}
    for suite in results.suites:
        for row in rows_of(scoring_of(suite).chosen_rows(results.job_frame(suite)).sort_index()):
            yield row.label, jobs[row.id]


def inspection_of(weights: Path, job: Job) -> Inspection:
    """The measurements that ``madbench inspect`` makes on a trained model, for the first sequences of its test set."""
    from madbench.analysis.inspection import examples_for, inspect
    from madbench.training.checkpoints import load_model

    trial = suite_of(job).Trial
    count = examples_for(trial.examples(job, 1, {}).shape[1])
    return inspect(load_model(weights)[0], trial.examples(job, count, {}))


def _measure(weights: Path, job: Job) -> Values:
    rows = inspection_of(weights, job).tables.get("kernels", [])
    is_above_random = {name: [row[name] > row[f"{name}_random"] for row in rows] for name, _, _ in STRUCTURE.values()}
    shares = {f"{name}_above_random": sum(values) / len(values) for name, values in is_above_random.items() if values}
    return shares, {"kernels": rows}


def shares_verdict(shares: list[float]) -> str:
    """The verdict on a predicted structure of kernels.

    ``shares`` has one number per seed: the share of kernels that have more of the structure than 95% of random kernels.
    Reproduced if all are above ``MOST``, contradicted if all are at most ``BY_CHANCE``. Otherwise, and with fewer than
    three seeds, not decided.
    """
    if len(shares) < LEAST_SEEDS:
        return OPEN
    return REPRODUCED if min(shares) > MOST else CONTRADICTED if max(shares) <= BY_CHANCE else OPEN


def kernel_table(kernels: pd.DataFrame, request: Request) -> Listing:
    """The table of structures in kernels, one row per label and task.

    It has the mean share of the predicted structure in a kernel, the mean 95% quantile of this share in random kernels,
    and for each seed the share of kernels above their quantile. ``kernels`` has one row per kernel.
    """
    from madbench.analysis.rendering import Listing

    cells, lines = [], []
    for (label, task), rows in groups_of(kernels, ["label", "task"]) if len(kernels) else ():
        name, what, _ = STRUCTURE[task]
        is_above_random = rows[name] > rows[f"{name}_random"]
        shares = is_above_random.groupby(rows.seed).mean().tolist()
        means = rows[[name, f"{name}_random", "size"]].mean()
        cells.append({"label": label, "task": task, "structure": name, "shares": shares, "mean": float(means[name])})
        numbers = (f"{100 * means[name]:.0f}", f"{100 * means[f'{name}_random']:.0f}", f"{means['size']:.2f}")
        lines.append([label, task, what, *numbers, ", ".join(f"{100 * share:.0f}" for share in shares)])
    headings = ["Label", "Task", "Predicted", "Share", "Random", "|K|/|I+p|", "Above, by seed"]
    caption = (
        f"{request.item.place} of {request.paper.title}: Share: percent of the squared mass of K = A Diag(s) B^T with"
        " the predicted structure, mean over layers, heads and both mixings; Random: 95% quantile of random tables;"
        " Above: percent of the kernels above this quantile."
    )
    return Listing(cells, headings, lines, cells, caption, "", f"tab:{request.item.id}")


def _figures(first: Mapping[tuple[str, str], Job], store: Store) -> Iterator[DrawnFigure]:
    """Yield one figure of mixing kernels per label and task, from the run in ``first`` unless it has no weights."""
    for (label, task), job in first.items():
        if not store.has_weights(job.id):
            continue
        inspection = inspection_of(store.kept_file(job.id, WEIGHTS), job)
        if "kernels" not in inspection.tables:
            continue
        models = {f"{label}, {task.replace('_', ' ')}": inspection}
        draw = functools.partial(_draw, models)
        frame = pd.DataFrame(inspection.tables["kernels"])
        yield DrawnFigure(f"hypermlp_mixing_{label.lower()}_{task}", draw, frame)


def _draw(models: Mapping[str, Inspection], layout: Any = None) -> Any:
    from madbench.analysis.figures.inspection import inspection_figures
    from madbench.analysis.figures.panels import Layout

    return dict(inspection_figures(models, layout or Layout(), ["kernels"]))["kernels"]
