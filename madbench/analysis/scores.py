"""From runs to scores: one long frame for every suite.

Score of a task: for every setting the accuracy of the best (learning rate, weight decay), chosen by
``selection_accuracy``, then the mean over settings. That is validation accuracy, so the number that is reported has no
say in the choice; only in the published fidelity it is the reported number itself. MAD average: the mean of the six
tasks. Seeds are never mixed into a choice: each seed has scores of its own. Scores of a language model are read off its
curve (:mod:`madbench.analysis.loss_curves`).

A frame of scores has a row a label, seed and column:

- ``suite``, ``label`` (or the name of a grid's row), ``seed``, ``column``: a task, ``mad_average``, ``loss_l5``, ...;
- ``value``: accuracy in percent, loss in nats per token, ...; NaN where there is none or every run of a setting diverged;
- ``done`` and ``expected`` jobs, and how many of them ``diverged``;
- ``budget_ratio``: mean over the jobs; ``ceiling`` in percent, NaN where none is known.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from madbench.analysis.loss_curves import run_losses
from madbench.analysis.quantities import LOSS, LOSSES, MAD_AVERAGE
from madbench.config import PUBLISHED
from madbench.jobs import Job, Record, mapping_text
from madbench.suites import LANGUAGE
from madbench.tasks import MAD_TASKS, settings_class

if TYPE_CHECKING:
    from madbench.store.runs import Run, Store

COLUMNS = ("suite", "label", "seed", "column", "value", "done", "expected", "diverged", "budget_ratio", "ceiling")
_METRICS = ("accuracy", "selection_accuracy", "ceiling")
_SETTING = ["suite", "label", "column", "setting", "seed"]
_DETAILS = ("budget_ratio", "mixer_parameters", "device", "path", "seconds")
_COUNTS = ("done", "expected", "diverged")
SUMS = {name: (name, "sum") for name in _COUNTS}
"""Of jobs, where rows are aggregated."""


def collect(jobs: Iterable[Job], store: Store, names: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a MAD job, in their order: what decided it, its ``status`` (or ``missing``) and what it gave.

    Columns: id, suite, label (one of ``names``, where they are given for every job), column (its task), setting (JSON),
    learning_rate, weight_decay, seed, precision, status, accuracy, selection_accuracy, ceiling, budget_ratio,
    mixer_parameters, device, path, seconds.
    """
    jobs = list(jobs)
    records = store.records({job.id for job in jobs})
    records = {job_id: record for job_id, record in records.items() if record.status != "failed"}
    nothing = Record("failed")
    found = [records.get(job.id, nothing) for job in jobs]
    columns = {
        "id": [job.id for job in jobs],
        "suite": [job.suite for job in jobs],
        "label": [job.label for job in jobs] if names is None else list(names),
        "column": [job.task for job in jobs],
        "setting": [mapping_text(job.setting) for job in jobs],
        "learning_rate": [job.training.learning_rate for job in jobs],
        "weight_decay": [job.training.weight_decay for job in jobs],
        "seed": [job.seed for job in jobs],
        "precision": [job.training.precision for job in jobs],
        "status": [records[job.id].status if job.id in records else "missing" for job in jobs],
    }
    columns |= {name: [record.metrics.get(name) for record in found] for name in _METRICS}
    columns |= {name: [record.details.get(name) for record in found] for name in _DETAILS}
    return pd.DataFrame(columns)


def setting_scores(collected: pd.DataFrame) -> pd.DataFrame:
    """A frame of scores with a row a setting: those of the runs whose learning rate and weight decay were chosen.

    It has the column ``setting`` too.
    """
    jobs = collected.astype(dict.fromkeys((*_METRICS, "budget_ratio"), float))
    jobs["diverged"] = jobs.status == "diverged"
    jobs["done"] = jobs.diverged | (jobs.status == "finished")
    jobs["budget_ratio"] = jobs.budget_ratio.where(jobs.done)
    best = chosen_runs(jobs)
    best = best[_SETTING].assign(value=100 * best.accuracy, ceiling=100 * best.ceiling)
    by_setting = jobs.assign(expected=1).groupby(_SETTING, sort=False, as_index=False)
    counts = by_setting.agg(**SUMS, budget_ratio=("budget_ratio", "mean"))
    return counts.merge(best, on=_SETTING, how="left")


def chosen_runs(collected: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs whose learning rate and weight decay were chosen, one a label, task, setting and seed."""
    finished = collected[collected.status == "finished"].astype({"selection_accuracy": float})
    return finished.sort_values("selection_accuracy", ascending=False, kind="stable").drop_duplicates(_SETTING)


def mad_scores(collected: pd.DataFrame) -> pd.DataFrame:
    """The scores of jobs that :func:`collect` gave, and the averages of the seeds that have all six tasks."""
    settings = setting_scores(collected)
    settings["is_hopeless"] = (settings.done > 0) & settings.value.isna()
    scores = settings.groupby(["suite", "label", "column", "seed"], sort=False, as_index=False).agg(
        value=("value", "mean"),
        ceiling=("ceiling", "mean"),
        budget_ratio=("budget_ratio", "mean"),
        **SUMS,
        is_hopeless=("is_hopeless", "any"),
    )
    scores["value"] = scores.value.mask(scores.is_hopeless)
    scores = scores[list(COLUMNS)]
    averages = mean_over(scores, MAD_TASKS, MAD_AVERAGE)
    return pd.concat([scores, averages], ignore_index=True) if len(averages) else scores


def mean_over(scores: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Scores of a column ``name``: the mean of ``columns`` for every label and seed with all jobs of all of them."""
    rows = scores[scores.column.isin(columns)]
    seeds = rows.assign(is_whole=rows.done == rows.expected).groupby(["suite", "label", "seed"], sort=False)
    means = seeds[["value", "ceiling", "budget_ratio"]].mean(skipna=False)
    means[list(_COUNTS)] = seeds[list(_COUNTS)].sum()
    means = means[seeds.is_whole.all() & (seeds.column.nunique() == len(set(columns)))]
    return means.reset_index().assign(column=name)[list(COLUMNS)]


def language_scores(
    runs: Sequence[Run], thresholds: Sequence[float] = (), names: Sequence[str] | None = None
) -> pd.DataFrame:
    """The scores of language-model runs with their curves; ``names`` are those of the runs' rows, by default the labels.

    Columns: :data:`madbench.analysis.quantities.LOSSES`, steps_to_x for each of ``thresholds``, tokens_per_second.
    """
    losses = run_losses(runs, thresholds)
    if names is not None:
        losses["label"] = list(names)
    losses["budget_ratio"] = [float(run.record.details.get("budget_ratio", "nan")) for run in runs]
    keys = ["label", "seed", "status", "budget_ratio"]
    columns = [name for name in losses if name not in (*keys, "id")]
    scores = losses.melt(keys, columns, "column", "value")
    scores["diverged"] = ((scores.status == "diverged") & scores.column.isin(LOSSES)).astype(int)
    scores["done"] = ((scores.diverged > 0) | scores.value.notna()).astype(int)
    return scores.assign(suite=LANGUAGE.name, expected=1, ceiling=float("nan"))[list(COLUMNS)]


def no_scores() -> pd.DataFrame:
    """A frame of scores without a row."""
    text = dict.fromkeys(("suite", "label", "column"), str)
    whole = dict.fromkeys(("seed", *_COUNTS), int)
    return pd.DataFrame({name: [] for name in COLUMNS}).astype(dict.fromkeys(COLUMNS, float) | text | whole)


@functools.cache
def published_scores() -> dict[str, dict[str, float]]:
    """Table 1 of the HyperMLP paper by label and column: accuracy in percent, ``mad_average``, L5 and steps to losses."""
    columns = {task: settings_class(task).published_column for task in MAD_TASKS} | {MAD_AVERAGE: MAD_AVERAGE}
    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {name: float(row[column]) for name, column in columns.items()}
            | {LOSS: float(row["nanogpt_loss_l5"])}
            | {name: int(value) for name, value in row.items() if name.startswith("steps_to_") and value}
            for row in csv.DictReader(file)
        }
