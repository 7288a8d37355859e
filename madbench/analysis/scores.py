"""Scores, one long frame for every suite, and results: the scores of what is stored of an experiment.

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
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from madbench.analysis.captions import protocol_sentences
from madbench.analysis.loss_curves import run_losses
from madbench.analysis.quantities import LOSS, LOSSES, MAD_AVERAGE
from madbench.analysis.statistics import students_t
from madbench.config import PUBLISHED
from madbench.experiment import Experiment, PlannedRow
from madbench.jobs import Job, Record, mapping_text
from madbench.store.runs import Run, Store
from madbench.suites import LANGUAGE, MAD, Suite
from madbench.tasks import MAD_TASKS, settings_class

COLUMNS = ("suite", "label", "seed", "column", "value", "done", "expected", "diverged", "budget_ratio", "ceiling")
_METRICS = ("accuracy", "selection_accuracy", "ceiling")
_SETTING = ["suite", "label", "column", "setting", "seed"]
_DETAILS = ("budget_ratio", "mixer_parameters", "device")
_COUNTS = ("done", "expected", "diverged")
SUMS = {name: (name, "sum") for name in _COUNTS}
"""Of jobs, where rows are aggregated."""


def collect(jobs: Iterable[Job], store: Store, names: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a MAD job, in their order: what decided it, its ``status`` (or ``missing``) and what it gave.

    Columns: id, suite, label (one of ``names``, where they are given for every job), column (its task), setting (JSON),
    seed, status, accuracy, selection_accuracy, ceiling, budget_ratio, mixer_parameters, device.
    """
    jobs = list(jobs)
    records = store.records({job.id for job in jobs})
    records = {job_id: record for job_id, record in records.items() if record.status != "failed"}
    columns = {
        "id": [job.id for job in jobs],
        "suite": [job.suite for job in jobs],
        "label": [job.label for job in jobs] if names is None else list(names),
        "column": [job.task for job in jobs],
        "setting": [mapping_text(job.setting) for job in jobs],
        "seed": [job.seed for job in jobs],
        "status": [records[job.id].status if job.id in records else "missing" for job in jobs],
    }
    found = [records.get(job.id, Record("failed")) for job in jobs]
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
    means = {name: (name, "mean") for name in ("value", "ceiling", "budget_ratio")}
    by_task = settings.groupby(["suite", "label", "column", "seed"], sort=False, as_index=False)
    scores = by_task.agg(**means, **SUMS, is_hopeless=("is_hopeless", "any"))
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


class Difference(NamedTuple):
    """A row's mean minus that of the baseline, paired by seed."""

    mean: float = math.nan
    low: float = math.nan
    """Lower end of the 95% interval of Student's t; NaN for a single pair."""
    high: float = math.nan
    n: int = 0
    """Pairs."""

    def text(self, digits: int) -> str:
        """``+1.3 [-0.2,+2.8]``."""
        interval = "" if math.isnan(self.low) else f" [{self.low:+.{digits}f},{self.high:+.{digits}f}]"
        return f"{self.mean:+.{digits}f}{interval}"


def paired_differences(scores: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """Differences of scores from those of the label ``baseline`` by (label, column), over the seeds that both have.

    A seed counts once all its jobs are done. None where a seed of either side has no number, because it diverged.
    """
    whole = scores.loc[scores.done == scores.expected, ["label", "column", "seed", "value"]]
    pairs = whole[whole.label != baseline].merge(whole[whole.label == baseline], on=["column", "seed"])
    differences = (pairs.value_x - pairs.value_y).groupby([pairs.label_x, pairs.column], sort=False)
    found = {}
    for key, values in differences:
        if not values.isna().any():
            n, mean = len(values), math.fsum(values) / len(values)
            half = students_t(n - 1) * values.std() / math.sqrt(n) if n > 1 else math.nan
            found[key] = Difference(mean, mean - half, mean + half, n)
    return found


@dataclass(frozen=True)
class Results:
    """What the jobs of an experiment gave, as far as ``store`` has it; read once, however much of it is asked for.

    Of the MAD suite a row shows all its jobs, whether they are stored or not; of the language suite those with a result.
    """

    experiment: Experiment
    store: Store

    @functools.cached_property
    def collected(self) -> pd.DataFrame:
        """The MAD jobs (:func:`madbench.analysis.scores.collect`), once for each row that has them, under its name."""
        pairs = [(job, row.name) for row in self.rows(MAD) for job in row.jobs]
        return collect([job for job, _ in pairs], self.store, [name for _, name in pairs])

    @functools.cached_property
    def runs(self) -> dict[str, list[Run]]:
        """The finished and diverged language models with their curves, by the name of the row; no row without one."""
        rows = self.rows(LANGUAGE)
        records = self.store.records({job.id for row in rows for job in row.jobs})
        done = {job_id for job_id, record in records.items() if record.status != "failed"}
        found = {row.name: [self.store.read(job.id) for job in row.jobs if job.id in done] for row in rows}
        return {name: runs for name, runs in found.items() if runs}

    @property
    def language_runs(self) -> list[Run]:
        """Those of all rows, in their order."""
        return [run for runs in self.runs.values() for run in runs]

    @functools.cached_property
    def setting_scores(self) -> pd.DataFrame:
        """Scores of every setting of the MAD tasks, and those of language models; ``setting`` is empty there."""
        language = self.scores[self.scores.suite == LANGUAGE.name].assign(setting="")
        parts = [setting_scores(self.collected) if self.rows(MAD) else language[:0], language]
        return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)

    @functools.cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of all rows, suite by suite (:mod:`madbench.analysis.scores`); ``label`` is the row's name."""
        frames = [mad_scores(self.collected)] if self.rows(MAD) else []
        if self.runs:
            names = [name for name, runs in self.runs.items() for _ in runs]
            frames.append(language_scores(self.language_runs, names=names))
        return pd.concat(frames, ignore_index=True) if frames else no_scores()

    def rows(self, suite: Suite) -> list[PlannedRow]:
        """The rows of one suite."""
        return self.experiment.of(suite).rows

    def of(self, suite: Suite) -> Results:
        """The part of one suite."""
        return Results(self.experiment.of(suite), self.store)

    def has(self, suite: Suite) -> bool:
        """Whether there is a row of the suite; of the language suite, one with a result."""
        return bool(self.runs if suite is LANGUAGE else self.rows(suite))

    @property
    def labels(self) -> list[str]:
        """The labels of all rows, each once, in their order."""
        return self.experiment.labels

    def sentences(self, suite: Suite | None = None) -> list[str]:
        """What the runs of one suite share, or those of each."""
        suites = (MAD, LANGUAGE) if suite is None else (suite,)
        return [sentence for one in suites if self.has(one) for sentence in protocol_sentences(self, one)]
