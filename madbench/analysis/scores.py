"""From runs to scores.

Score of a task: for every setting the accuracy of the best (learning rate, weight decay), chosen by
``selection_accuracy``, then the mean over settings. That is validation accuracy, so the number that is reported has no
say in the choice; only in the published fidelity it is the reported number itself. MAD average: the mean of the six
tasks. Seeds are never mixed into a choice: each seed has scores of its own.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterable, Sequence

import pandas as pd

from madbench.analysis.quantities import MAD_AVERAGE
from madbench.config import PUBLISHED
from madbench.jobs import Job, Record
from madbench.store.runs import Store
from madbench.tasks import TASK_NAMES

_METRICS = ("accuracy", "selection_accuracy", "ceiling")
_SETTING = ("label", "task", "setting", "seed")
_DETAILS = ("budget_ratio", "device", "path", "seconds")


def collect(jobs: Iterable[Job], store: Store) -> pd.DataFrame:
    """One row a job, in the order of ``jobs``: what decided it, its ``status`` (or ``missing``) and what it gave.

    Columns: id, label, task, setting (JSON), learning_rate, weight_decay, seed, precision, status, accuracy,
    selection_accuracy, ceiling, budget_ratio, device, path, seconds.
    """
    jobs = list(jobs)
    records = store.records(job.id for job in jobs)
    records = {job_id: record for job_id, record in records.items() if record.status != "failed"}
    settings: dict[int, str] = {}  # a setting is shared by many jobs
    for job in jobs:
        if id(job.setting) not in settings:
            settings[id(job.setting)] = json.dumps(job.setting, sort_keys=True)
    nothing = Record("failed")
    found = [records.get(job.id, nothing) for job in jobs]
    columns = {
        "id": [job.id for job in jobs],
        "label": [job.label for job in jobs],
        "task": [job.task for job in jobs],
        "setting": [settings[id(job.setting)] for job in jobs],
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
    """One row a label, task, setting and seed: the run whose learning rate and weight decay were chosen.

    Columns: ``accuracy`` in percent, NaN where no run has finished; ``ceiling`` in percent; ``done`` and ``expected``
    jobs; ``diverged`` jobs; ``budget_ratio``.
    """
    keys = list(_SETTING)
    jobs = collected.astype(dict.fromkeys((*_METRICS, "budget_ratio"), float))
    jobs["diverged"] = jobs.status == "diverged"
    jobs["done"] = jobs.diverged | (jobs.status == "finished")
    jobs["budget_ratio"] = jobs.budget_ratio.where(jobs.done)
    best = chosen_runs(jobs)
    best = best[keys].assign(accuracy=100 * best.accuracy, ceiling=100 * best.ceiling)
    counts = jobs.groupby(keys, sort=False, as_index=False).agg(
        done=("done", "sum"),
        expected=("done", "size"),
        diverged=("diverged", "sum"),
        budget_ratio=("budget_ratio", "mean"),
    )
    return counts.merge(best, on=keys, how="left")


def chosen_runs(collected: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs whose learning rate and weight decay were chosen, one a label, task, setting and seed."""
    finished = collected[collected.status == "finished"].astype({"selection_accuracy": float})
    return finished.sort_values("selection_accuracy", ascending=False, kind="stable").drop_duplicates(list(_SETTING))


def scores(collected: pd.DataFrame) -> pd.DataFrame:
    """One row a label, task and seed.

    Columns: ``accuracy`` in percent, NaN where nothing is there or every run of a setting diverged; ``ceiling`` in
    percent; ``done`` and ``expected`` jobs; ``diverged`` jobs; ``budget_ratio``, the mean over settings.
    """
    settings = setting_scores(collected)
    settings["is_hopeless"] = (settings.done > 0) & settings.accuracy.isna()
    cells = settings.groupby(["label", "task", "seed"], sort=False, as_index=False).agg(
        accuracy=("accuracy", "mean"),
        ceiling=("ceiling", "mean"),
        done=("done", "sum"),
        expected=("expected", "sum"),
        diverged=("diverged", "sum"),
        budget_ratio=("budget_ratio", "mean"),
        is_hopeless=("is_hopeless", "any"),
    )
    cells["accuracy"] = cells.accuracy.mask(cells.is_hopeless)
    return cells.drop(columns="is_hopeless")


def with_average(cells: pd.DataFrame, tasks: Sequence[str] = TASK_NAMES) -> pd.DataFrame:
    """``cells`` and, for every label and seed with all jobs of all ``tasks`` done, a row of task ``mad_average``."""
    of_tasks = cells[cells.task.isin(tasks)]
    seeds = of_tasks.assign(is_whole=of_tasks.done == of_tasks.expected).groupby(["label", "seed"], sort=False)
    averages = seeds[["accuracy", "ceiling", "budget_ratio"]].mean(skipna=False)
    averages[["done", "expected", "diverged"]] = seeds[["done", "expected", "diverged"]].sum()
    averages = averages[seeds.is_whole.all() & (seeds.task.nunique() == len(set(tasks)))].reset_index()
    return pd.concat([cells, averages.assign(task=MAD_AVERAGE)], ignore_index=True) if len(averages) else cells


@functools.cache
def published_scores() -> dict[str, dict[str, float]]:
    """Table 1 of the HyperMLP paper: accuracy in percent by label and task, ``mad_average`` included."""
    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {name: float(row[name]) for name in (*TASK_NAMES, MAD_AVERAGE)}
            for row in csv.DictReader(file)
        }
