"""What each figure draws, as a frame, from the stored runs of one protocol a suite."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from madbench.analysis.attribution import Effect, attribute, measured_values
from madbench.analysis.captions import accuracy_meaning
from madbench.analysis.cells import Cell, seed_means, with_noise
from madbench.analysis.figures import budget, difficulty, effects, learning, mad
from madbench.analysis.figures.style import COLORS, best_first, in_order
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.loss_curves import loss_curves
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, column
from madbench.analysis.results import Results
from madbench.analysis.scores import chosen_runs, collect, published_scores, setting_scores
from madbench.analysis.statistics import mean_interval
from madbench.jobs import Job, Record
from madbench.suites import LANGUAGE, MAD
from madbench.tasks import MAD_TASKS, make_setting

_EVALUATIONS = {  # by split, the names of loss and accuracy in a curve
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}
_COSTS = ["budget_ratio", "mixer_parameters"]


@dataclass(frozen=True)
class FigureData:
    """Stored runs of which figures are drawn (:func:`figure_frame`)."""

    results: Results
    missing: str = "there are no runs of MAD tasks"
    """Why there are none of the MAD suite, where that is so."""

    @functools.cached_property
    def styles(self) -> dict[str, int]:
        """The number of each label's style, the same in every figure; the best labels' styles differ most."""
        ranking = []
        if len(self.results.labels) > len(COLORS):
            scores = self.results.scores
            first = scores[scores.suite == MAD.name] if self.results.has(MAD) else scores[scores.column == LOSS]
            ranking = best_first(first.groupby("label").value.agg(list).to_dict(), not self.results.has(MAD))
        return {label: i for i, label in enumerate(dict.fromkeys([*ranking, *self.results.labels]))}

    def _mad(self) -> pd.DataFrame:
        results, protocol = self._with_mad(), self.results.rows(MAD)[0].protocol
        settings = results.collected[["column", "setting"]].drop_duplicates()
        guesses = [100 / make_setting(task, json.loads(text), task).num_answers for task, text in settings.to_numpy()]
        chances = settings.assign(chance=guesses).groupby("column").chance.mean().to_dict()
        is_comparable = protocol.profile.comparable_with_paper
        sentences = self._sentences
        if is_comparable and (protocol.fidelity, protocol.budget) != ("published", "paper"):
            sentences += " The published numbers are of the published fidelity and the paper budget."
        return mad_frame(results.scores, sentences, chances, is_comparable)

    def _learning(self) -> pd.DataFrame:
        collected = self._with_mad().collected
        sentences = self.results.sentences(MAD)
        if collected.groupby("column").setting.nunique().max() > 1:
            sentences.append("The baseline setting of every task.")
        if collected.duplicated(["label", "column", "setting", "seed"]).any():
            sentences.append("Runs with the learning rate and weight decay that were chosen.")
        frame = learning_frame(collected, lambda run_id: self.results.store.read(run_id).record, " ".join(sentences))
        if frame.empty:
            raise NothingToDrawError("no run of a baseline setting is finished")
        return frame

    def _loss(self) -> pd.DataFrame:
        if not self.results.has(LANGUAGE):
            raise NothingToDrawError("there are no language-model runs of one protocol")
        return loss_curves(self.results.language_runs)

    def _effects(self) -> pd.DataFrame:
        found = attribute(measured_values(self.results.scores)[0])
        if not found:
            raise NothingToDrawError(
                "no two labels with a finished task and seed in common differ in exactly one factor"
            )
        return effects_frame(found, " ".join(self.results.sentences()))

    def _budget(self) -> pd.DataFrame:
        details = [run.record.details for run in self.results.language_runs]
        names = [name for name, runs in self.results.runs.items() for _ in runs]
        of_runs = {cost: [one.get(cost, math.nan) for one in details] for cost in _COSTS}
        costs = pd.DataFrame({"label": names, "column": LOSS, **of_runs})
        if self.results.has(MAD):
            costs = pd.concat([self.results.collected[["label", "column", *_COSTS]], costs])
        frame = budget_frame(self.results.scores, costs, " ".join(self.results.sentences()))
        if frame["mean"].isna().all():
            raise NothingToDrawError("no label has all of its runs finished")
        return frame

    def _difficulty(self) -> pd.DataFrame:
        collected = self._with_mad().collected
        if self.results.rows(MAD)[0].protocol.profile.difficulty != "all":
            collected = collect(_with_other_settings(self.results), self.results.store)
        frame = difficulty_frame(collected, self._sentences)
        if frame.empty:
            raise NothingToDrawError(
                "every task is stored at one setting alone; --profile full varies them, or a run with e.g. "
                "tasks.in_context_recall.setting.seq_len=32"
            )
        return frame

    def _with_mad(self) -> Results:
        if not self.results.has(MAD):
            raise NothingToDrawError(self.missing)
        return self.results

    @property
    def _sentences(self) -> str:
        """What the MAD runs share, and what their accuracy is."""
        meaning = accuracy_meaning(self.results.rows(MAD)[0].protocol.fidelity)
        return " ".join([f"{meaning[:1].upper()}{meaning[1:]}.", *self.results.sentences(MAD)])


def figure_frame(name: str, data: FigureData) -> pd.DataFrame:
    """What the figure of this name (of the registry) draws; raises ``NothingToDrawError`` where there is nothing."""
    frame = getattr(data, f"_{name}")()
    return frame.assign(style=frame.label.map(data.styles | {"": 0})) if "label" in frame else frame


def _with_other_settings(results: Results) -> list[Job]:
    """The MAD jobs, and those that are like them but for the setting and seed, of which a run is stored."""
    jobs = {job.id: job for row in results.rows(MAD) for job in row.jobs}
    planned = {_all_but_setting_and_seed(job) for job in jobs.values()}
    stored = [job for job in results.store.jobs().values() if job.suite == MAD.name and job.id not in jobs]
    return [*jobs.values(), *(job for job in stored if _all_but_setting_and_seed(job) in planned)]


def _all_but_setting_and_seed(job: Job) -> tuple[Any, ...]:
    return job.label, job.task, job.model, str(job.mixer), str(job.family), job.training, job.fidelity, job.budget


def mad_frame(
    scores: pd.DataFrame, protocol: str, chances: Mapping[str, float] = {}, shows_published: bool = False
) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.mad.mad_figure`.

    Args:
        scores: of one protocol (:mod:`madbench.analysis.scores`); a seed counts once all its jobs are done.
        protocol: sentences about what the runs share.
        chances: percent that guessing gives, by task.
        shows_published: whether the published numbers are drawn as well.
    """
    if set(MAD_TASKS) <= set(chances):
        chances = {**chances, MAD_AVERAGE: sum(chances[task] for task in MAD_TASKS) / len(MAD_TASKS)}
    scores = scores[scores.suite == MAD.name]
    begun, whole = scores[scores.done > 0], scores[scores.done == scores.expected]
    begun_cells = {*zip(begun.column, begun.label), *((MAD_AVERAGE, label) for label in begun.label)}
    by_cell = dict([*whole.groupby(["column", "label"])])
    ceilings = whole[whole.column != MAD_AVERAGE].groupby("column").ceiling.mean()
    rows: list[dict[str, Any]] = []
    for task in in_order(begun.column):
        for mark, values in (("ceiling", ceilings), ("chance", chances)):
            if values.get(task, math.nan) < 99.95:
                rows.append({"task": task, "label": "", "mark": mark, "accuracy": values[task]})
        for label in scores.label.unique():
            seeds = by_cell.get((task, label), whole[:0])
            finished = seeds.dropna(subset="value")
            state = _state(len(seeds), len(seeds) - len(finished), (task, label) in begun_cells)
            mean, low, high = (math.nan,) * 3 if state else mean_interval(finished.value.to_numpy())
            base = {"task": task, "label": label}
            interval = {"accuracy": mean, "low": low, "high": high, "n": len(finished)}
            rows.append(base | {"mark": "mean", "state": state} | interval)
            for seed, value in zip(finished.seed, finished.value):
                rows.append(base | {"mark": "seed", "seed": seed, "accuracy": value})
            published = published_scores().get(label, {}) if shows_published else {}
            if task in published:
                rows.append(base | {"mark": "published", "accuracy": published[task]})
    frame = pd.DataFrame(rows, columns=list(mad.COLUMNS)).assign(protocol=protocol)
    return frame.fillna({"n": 0, "state": ""}).astype(mad.COLUMNS)


def _state(seeds: int, diverged: int, is_begun: bool) -> str:
    """Why a mean has no accuracy; empty where it has one."""
    if diverged:
        return "diverged" if seeds == diverged else f"{diverged}/{seeds} diverged"
    if seeds:
        return ""
    return "unfinished" if is_begun else "not run"


def learning_frame(collected: pd.DataFrame, record: Callable[[str], Record], protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.learning.learning_figure`.

    It holds the chosen runs of every task's first setting; of a seed of which no run finished, the first diverged one.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        record: what the run of an id gave, with its curve.
        protocol: sentences about what the runs share.
    """
    baselines = collected.groupby("column", sort=False).setting.first()
    of_baseline = collected[collected.setting == collected.column.map(baselines)]
    keys = ["label", "column", "seed"]
    chosen = chosen_runs(of_baseline).set_index(keys).id
    diverged = of_baseline[of_baseline.status == "diverged"].drop_duplicates(keys).set_index(keys).id
    ordered = pd.MultiIndex.from_frame(of_baseline[keys].drop_duplicates())
    rows: list[tuple[Any, ...]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(ordered).dropna().items():
        found = record(run_id)
        for row, (split, (loss, accuracy)) in itertools.product(found.curve, _EVALUATIONS.items()):
            if loss in row:
                run = (protocol, task, label, seed, run_id, found.status, split, row["epoch"], row["step"])
                rows.append((*run, 100 * row[accuracy], row[loss], row["train_loss"]))
    return pd.DataFrame(rows, columns=list(learning.COLUMNS)).astype(learning.COLUMNS)


def effects_frame(found: Sequence[Effect], protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.effects.effects_figure`, of all effects and the significant interactions."""
    rows: list[dict[str, Any]] = []
    for one in found:
        shared = {"row": one.name.removesuffix(" against none"), "quantity": one.quantity}
        kind = "interaction" if one.is_interaction else "effect"
        if kind == "effect" or one.estimate.is_significant:
            rows.append({"kind": kind, **shared, "pairs": len(one.cases), **vars(one.estimate)})
        for (given, without), estimate in one.cases.items() if kind == "effect" else ():
            rows.append({"kind": "pair", **shared, "given": given, "without": without, "pairs": 1, **vars(estimate)})
    frame = pd.DataFrame(rows, columns=list(effects.COLUMNS)).assign(protocol=protocol)
    return frame.fillna({"given": "", "without": ""}).astype(effects.COLUMNS)


def budget_frame(scores: pd.DataFrame, costs: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.budget.budget_figure`.

    Of MAD the average where any label has it, otherwise each task that has begun. A label that lacks a value of one of
    its seeds, as it diverged, has no mean. Intervals are those of the tables.

    Args:
        scores: of one protocol a suite (:mod:`madbench.analysis.scores`); a seed counts once all its jobs are done.
        costs: label, column, budget_ratio and mixer_parameters of every run; NaN where they are not known.
        protocol: sentences about what the runs share.
    """
    scores = scores[(scores.suite == MAD.name) | (scores.column == LOSS)]
    costs = costs.astype(dict.fromkeys(_COSTS, float)).groupby(["label", "column"])[_COSTS].mean()
    of_tasks = costs.drop(LOSS, level="column", errors="ignore").groupby("label").mean()
    quantities = set(scores.column[scores.done > 0])
    quantities &= {MAD_AVERAGE, LOSS} if MAD_AVERAGE in quantities else quantities
    columns = [column(name) for name in quantities]
    cells = with_noise(columns, seed_means(scores[scores.done == scores.expected], columns), (), has_marks=False)
    rows = []
    for quantity in in_order(quantities):
        suite = LANGUAGE.name if quantity == LOSS else MAD.name
        for label in scores.label[scores.suite == suite].unique():
            cell = cells.get(label, {}).get(quantity, Cell.of(math.nan))
            low, high = cell.mean - cell.half_width, cell.mean + cell.half_width
            cost = of_tasks.loc[label] if quantity == MAD_AVERAGE else costs.loc[label, quantity]
            rows.append((protocol, quantity, label, *cost, cell.mean, low, high, math.isfinite(cell.mean) * cell.n))
    return pd.DataFrame(rows, columns=list(budget.COLUMNS)).astype(budget.COLUMNS)


def difficulty_frame(collected: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.difficulty.difficulty_figure`; empty where nothing varies.

    A setting counts where it differs from the task's first one in one variable. A setting of a label whose runs of a
    seed all diverged is left out, and so is a seed with jobs to do.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        protocol: sentences about what the runs share.
    """
    scores = setting_scores(collected)
    whole = scores[scores.done == scores.expected]
    places = {label: i for i, label in enumerate(collected.label.unique())}
    settings = {text: json.loads(text) for text in scores.setting.unique()}
    baselines = collected.groupby("column").setting.first().map(settings)
    rows: list[tuple[Any, ...]] = []
    for (task, label, text), seeds in whole.groupby(["column", "label", "setting"], sort=False):
        setting, baseline = settings[text], baselines[task]
        changes = [name for name, value in setting.items() if value != baseline[name]]
        if len(changes) > 1 or seeds.value.isna().any():
            continue
        mean, low, high = mean_interval(seeds.value.to_numpy())
        numbers = mean, low, high, seeds.ceiling.mean(), len(seeds)
        for variable in changes or setting:
            if isinstance(setting[variable], (int, float)):
                rows.append((protocol, task, variable, setting[variable], label, *numbers))
    frame = pd.DataFrame(rows, columns=list(difficulty.COLUMNS)).astype(difficulty.COLUMNS)
    order = {task: i for i, task in enumerate(in_order(frame.task))}
    keys = {"task": order, "label": places}
    frame = frame.sort_values(
        ["task", "variable", "label", "value"], key=lambda of: of.map(keys[of.name]) if of.name in keys else of
    )
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)
