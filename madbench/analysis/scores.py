"""Scores, one long frame for every suite, and results: the scores of what is stored of an experiment.

Score of a task: for every setting the accuracy of the best (learning rate, weight decay), chosen by
``selection_accuracy``, then the mean over settings. That is validation accuracy, so the number that is reported has no
say in the choice; only in the published fidelity it is the reported number itself. MAD average: the mean of the six
tasks. Seeds are never mixed into a choice: each seed has scores of its own. Scores of a language model are read off its
curve (:mod:`madbench.analysis.loss_curves`).

A frame of scores has a row a label, seed and column:

- ``suite``, ``label`` (or the name of a grid's row), ``seed``, ``column``: a task, ``mad_average``, ``loss_l5``, ...;
- ``value``: accuracy in percent, loss in nats per token, steps, ...; NaN where there is none;
- ``done`` and ``expected`` jobs, and how many of them ``diverged``;
- ``budget_ratio``: mean over the jobs;
- ``chance``, ``ceiling``, and the value from which on a task is ``solved``; NaN where there is no such value;
- ``is_diverged``: whether every run of a setting diverged. Such a setting has the value of chance: one over the number
  of answers, of a loss the uniform distribution's. Of steps to a loss: whether the run did not get there; the value is
  its last step.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from madbench.analysis.captions import outcome, setting_sentences
from madbench.analysis.loss_curves import PAPER_THRESHOLDS, run_losses
from madbench.analysis.protocols import language_protocol
from madbench.analysis.quantities import LOSS, LOSSES, MAD_AVERAGE, PERPLEXITIES, STEPS, mad_columns, steps_name
from madbench.config import PUBLISHED
from madbench.experiment import Experiment, PlannedRow
from madbench.jobs import Job, Record, mapping_text
from madbench.store.runs import Run, Store
from madbench.suites import LANGUAGE, MAD, Suite
from madbench.tasks import MAD_TASKS, make_setting, settings_class

COLUMNS = {"suite": str, "label": str, "seed": int, "column": str, "value": float}
COLUMNS |= {"done": int, "expected": int, "diverged": int, "budget_ratio": float}
COLUMNS |= {"ceiling": float, "chance": float, "solved": float, "is_diverged": bool}
"""Of a frame of scores."""
EVALUATION_STEPS = 500
"""Steps between two evaluations of the paper, which counts evaluations."""
_SCALE = ("ceiling", "chance", "solved")
_METRICS = ("accuracy", "selection_accuracy", "ceiling")
_SETTING = ["suite", "label", "column", "setting", "seed"]
_DETAILS = ("budget_ratio", "mixer_parameters", "device")
_COUNTS = ("done", "expected", "diverged")
_SUMS = {name: (name, "sum") for name in _COUNTS}
"""Of jobs, where rows are aggregated."""


def collect(jobs: Iterable[Job], store: Store, names: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a MAD job, in their order: what decided it, its ``status`` (or ``missing``) and what it gave.

    Columns: id, suite, label (one of ``names``, where they are given for every job), column (its task), setting (JSON),
    chance, seed, status, accuracy, selection_accuracy, ceiling, budget_ratio, mixer_parameters, device.
    """
    jobs = list(jobs)
    records = store.records({job.id for job in jobs})
    records = {job_id: record for job_id, record in records.items() if record.status != "failed"}
    columns = {
        "id": [job.id for job in jobs],
        "suite": [job.suite for job in jobs],
        "label": [job.label for job in jobs] if names is None else list(names),
        "column": [job.task for job in jobs],
        "setting": (settings := [mapping_text(job.setting) for job in jobs]),
        "chance": [chance_of(job.task, text) for job, text in zip(jobs, settings)],
        "seed": [job.seed for job in jobs],
        "status": [records[job.id].status if job.id in records else "missing" for job in jobs],
    }
    found = [records.get(job.id, Record("failed")) for job in jobs]
    columns |= {name: [record.metrics.get(name) for record in found] for name in _METRICS}
    columns |= {name: [record.details.get(name) for record in found] for name in _DETAILS}
    return pd.DataFrame(columns)


@functools.cache
def chance_of(task: str, setting: str) -> float:
    """Accuracy of a guess on a task, given the setting as JSON."""
    return 1 / make_setting(task, json.loads(setting), task).num_answers


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
    by_setting = jobs.assign(expected=1, chance=100 * jobs.chance).groupby(_SETTING, sort=False, as_index=False)
    counts = by_setting.agg(**_SUMS, **{name: (name, "mean") for name in ("budget_ratio", "chance")})
    scores = counts.merge(best, on=_SETTING, how="left")
    scores["is_diverged"] = (scores.done == scores.expected) & scores.value.isna()
    scores["value"] = scores.value.where(~scores.is_diverged, scores.chance)
    known = scores.groupby(["column", "setting"]).ceiling.transform("mean").fillna(100.0)
    scores["ceiling"] = scores.ceiling.fillna(known)
    share = scores.column.map({task: settings_class(task).solved_share for task in scores.column.unique()})
    scores["solved"] = scores.chance + share.astype(float) * (scores.ceiling - scores.chance)
    return scores


def chosen_runs(collected: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs whose learning rate and weight decay were chosen, one a label, task, setting and seed."""
    finished = collected[collected.status == "finished"].astype({"selection_accuracy": float})
    return finished.sort_values("selection_accuracy", ascending=False, kind="stable").drop_duplicates(_SETTING)


def mad_scores(collected: pd.DataFrame) -> pd.DataFrame:
    """The scores of jobs that :func:`collect` gave, and the averages of the seeds that have all six tasks."""
    settings = setting_scores(collected)
    settings["lacks"] = (settings.done > 0) & settings.value.isna()
    scores = settings.groupby(["suite", "label", "column", "seed"], sort=False, as_index=False).agg(
        **{name: (name, "mean") for name in ("value", "budget_ratio", *_SCALE)},
        **_SUMS,
        **{name: (name, "any") for name in ("is_diverged", "lacks")},
    )
    scores["value"] = scores.value.mask(scores.lacks)
    scores = scores[list(COLUMNS)]
    averages = mean_over(scores, MAD_TASKS, MAD_AVERAGE)
    return pd.concat([scores, averages], ignore_index=True) if len(averages) else scores


def mean_over(scores: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Scores of a column ``name``: the mean of ``columns`` for every label and seed with all jobs of all of them."""
    rows = scores[scores.column.isin(columns)]
    seeds = rows.assign(is_whole=rows.done == rows.expected).groupby(["suite", "label", "seed"], sort=False)
    means = seeds[["value", "budget_ratio", *_SCALE]].mean(skipna=False)
    means[list(_COUNTS)] = seeds[list(_COUNTS)].sum()
    means["is_diverged"] = seeds.is_diverged.any()
    means = means[seeds.is_whole.all() & (seeds.column.nunique() == len(set(columns)))]
    return means.reset_index().assign(column=name)[list(COLUMNS)]


def language_scores(
    runs: Sequence[Run],
    thresholds: Sequence[float] = (),
    names: Sequence[str] | None = None,
    has_perplexities: bool = False,
) -> pd.DataFrame:
    """The scores of language-model runs with their curves; ``names`` are those of the runs' rows, by default labels.

    Columns: :data:`madbench.analysis.quantities.LOSSES`, steps_to_x for each of ``thresholds``, tokens_per_second, and
    on demand :data:`madbench.analysis.quantities.PERPLEXITIES`.
    """
    losses = run_losses(runs, thresholds)
    bits_a_nat = pd.Series([one["validation_bits_per_byte"] / one["validation_loss"] for one in losses]).mean()
    left_out = () if has_perplexities else PERPLEXITIES
    columns = [name for name in (losses[0] if losses else ()) if name not in left_out]
    names = [run.job.label for run in runs] if names is None else names
    rows = []
    for column, (run, name, numbers) in itertools.product(columns, list(zip(runs, names, losses))):
        value, is_loss, is_steps = numbers[column], column in (*LOSSES, *PERPLEXITIES), column.startswith(STEPS)
        uniform = math.log(run.job.setting["vocab_size"])
        if column in PERPLEXITIES:
            uniform = math.exp(uniform)
        elif column == "validation_bits_per_byte":
            uniform *= bits_a_nat
        last_step = run.record.curve[-1]["step"] if run.record.curve else math.nan
        chance = uniform if is_loss else last_step if is_steps else math.nan
        diverged = is_loss and run.record.status == "diverged"
        is_diverged = diverged or (is_steps and math.isnan(value))
        value = chance if is_diverged else value
        about = LANGUAGE.name, name, run.job.seed, column, value, not math.isnan(value), 1, diverged
        ratio = run.record.details.get("budget_ratio", math.nan)
        rows.append((*about, ratio, math.nan, chance, math.nan, is_diverged))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


@functools.cache
def published_scores() -> dict[str, dict[str, float]]:
    """Table 1 of the HyperMLP paper by label and column: accuracy in percent, ``mad_average``, L5 and steps to losses.

    The paper counts evaluations, one every :data:`EVALUATION_STEPS` steps.
    """
    columns = {task: settings_class(task).published_column for task in MAD_TASKS} | {MAD_AVERAGE: MAD_AVERAGE}
    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {name: float(row[column]) for name, column in columns.items()}
            | {LOSS: float(row["nanogpt_loss_l5"])}
            | {name: EVALUATION_STEPS * int(value) for name, value in row.items() if name.startswith(STEPS) and value}
            for row in csv.DictReader(file)
        }


@functools.cache
def published_perplexities(preset: str, overrides: tuple[str, ...] = ()) -> dict[str, float]:
    """Perplexities of the paper's models that a preset with these changes trains, by label."""
    found: dict[str, float] = {}
    for path in PUBLISHED.glob("*.csv"):
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row.get("preset") == preset and tuple(row["overrides"].split()) == overrides:
                    found[row["label"]] = float(row["perplexity"])
    return found


def columns_of(experiment: Experiment) -> list[str]:
    """The columns that the scores of an experiment have once all of it is stored, speed and perplexities apart."""
    names = [column.name for row in experiment.of(MAD).rows[:1] for column in mad_columns(row.protocol.tasks)]
    if LANGUAGE in experiment.suites:
        names += [*LOSSES, *map(steps_name, _thresholds(experiment.of(LANGUAGE).rows))]
    return names


def _thresholds(rows: Sequence[PlannedRow]) -> tuple[float, ...]:
    """Losses of which the steps to them are scores: the paper's, of language models of its size."""
    return PAPER_THRESHOLDS if all(row.protocol.profile.comparable_with_paper for row in rows) else ()


@dataclass(frozen=True)
class Results:
    """What the jobs of an experiment gave, as far as ``store`` has it; read once, however much of it is asked for.

    Of the MAD suite a row shows all its jobs, whether they are stored or not; of the language suite those with a
    result.
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
    def scores(self) -> pd.DataFrame:
        """The scores of all rows, suite by suite (:mod:`madbench.analysis.scores`); ``label`` is the row's name."""
        frames = [mad_scores(self.collected)] if self.rows(MAD) else []
        if self.runs or not frames:
            names = [name for name, runs in self.runs.items() for _ in runs]
            frames.append(language_scores(self.language_runs, _thresholds(self.rows(LANGUAGE)), names))
        return pd.concat(frames, ignore_index=True)

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
        """What the runs of one suite share, where they ran and how many diverged; without a suite, of each."""
        found = []
        if suite is not LANGUAGE and self.has(MAD):
            found += [*setting_sentences(self.rows(MAD)[0].protocol), *outcome(self.collected)]
        if suite is not MAD and self.has(LANGUAGE):
            found += [*setting_sentences(language_protocol(*self.language_runs)), *outcome(self.language_runs)]
        return found
