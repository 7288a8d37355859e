"""What each figure draws, as a frame, from scores, curves and effects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.attribution_table import AttributionTable
from madbench.analysis.figures import budget, difficulty, effects, learning, mad
from madbench.analysis.figures.style import in_order
from madbench.analysis.noise import Sample, pooled_spread
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.scores import chosen_runs, published_scores, setting_scores, with_average
from madbench.analysis.statistics import LEVEL, half_width, mean_interval
from madbench.jobs import Record
from madbench.tasks import MAD_TASKS

_EVALUATIONS = {  # by split, the names of loss and accuracy in a curve
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}


def mad_frame(
    cells: pd.DataFrame, protocol: str, chances: Mapping[str, float] = {}, shows_published: bool = False
) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.mad.mad_figure`.

    Args:
        cells: :func:`madbench.analysis.scores.scores` of one protocol; a seed counts once all its jobs are done.
        protocol: sentences about what the runs share.
        chances: percent that guessing gives, by task.
        shows_published: whether the published numbers are drawn as well.
    """
    if set(MAD_TASKS) <= set(chances):
        chances = {**chances, MAD_AVERAGE: float(np.mean([chances[task] for task in MAD_TASKS]))}
    begun = cells[cells.done > 0]
    whole = with_average(cells[cells.done == cells.expected])
    begun_cells = {*zip(begun.task, begun.label), *((MAD_AVERAGE, label) for label in begun.label)}
    seeds_of: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in whole.itertuples():
        seeds_of.setdefault((one.task, one.label), []).append((float(one.seed), one.accuracy))
    ceilings = whole[whole.task != MAD_AVERAGE].groupby("task").ceiling.mean()
    rows: list[dict[str, Any]] = []
    for task in in_order([*begun.task, *whole.task]):
        for mark, values in (("ceiling", ceilings), ("chance", chances)):
            if values.get(task, math.nan) < 99.95:
                rows.append({"task": task, "label": "", "mark": mark, "accuracy": values[task]})
        for label in cells.label.unique():
            seeds = seeds_of.get((task, label), [])
            finished = [(seed, accuracy) for seed, accuracy in seeds if not math.isnan(accuracy)]
            state = _state(len(seeds), len(seeds) - len(finished), (task, label) in begun_cells)
            mean, low, high = (math.nan,) * 3 if state else mean_interval([accuracy for _, accuracy in finished])
            base = {"task": task, "label": label}
            interval = {"accuracy": mean, "low": low, "high": high, "n": len(finished)}
            rows.append(base | {"mark": "mean", "state": state} | interval)
            rows += [base | {"mark": "seed", "seed": seed, "accuracy": accuracy} for seed, accuracy in finished]
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
    baselines = collected.groupby("task", sort=False).setting.first()
    of_baseline = collected[collected.setting == collected.task.map(baselines)]
    keys = ["label", "task", "seed"]
    chosen = chosen_runs(of_baseline).set_index(keys).id
    diverged = of_baseline[of_baseline.status == "diverged"].drop_duplicates(keys).set_index(keys).id
    ordered = pd.MultiIndex.from_frame(of_baseline[keys].drop_duplicates())
    rows: list[tuple[Any, ...]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(ordered).dropna().items():
        found = record(run_id)
        run = (protocol, task, label, seed, run_id, found.status)
        for row in found.curve:
            for split, (loss, accuracy) in _EVALUATIONS.items():
                if loss in row:
                    numbers = 100 * row[accuracy], row[loss], row["train_loss"]
                    rows.append((*run, split, row["epoch"], row["step"], *numbers))
                    break
    return pd.DataFrame(rows, columns=list(learning.COLUMNS)).astype(learning.COLUMNS)


def effects_frame(table: AttributionTable, protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.effects.effects_figure`."""
    contrasts = [contrast for one in table.interactions for contrast in (one.first, one.second)]
    short = {contrast.name: contrast.short_name for contrast in contrasts}
    frame = pd.DataFrame(table.records())
    frame = frame[(frame.kind != "interaction") | (frame.p_holm.astype(float) <= LEVEL)]
    rows = [
        f"{short[name]} x {short[second]}" if kind == "interaction" else name.removesuffix(" against none")
        for kind, name, second in zip(frame.kind, frame.contrast, frame.second)
    ]
    frame = frame.assign(protocol=protocol, row=rows)[list(effects.COLUMNS)]
    return frame.fillna({"given": "", "without": ""}).astype(effects.COLUMNS).reset_index(drop=True)


def mad_values(cells: pd.DataFrame, parameters: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, from :func:`madbench.analysis.scores.scores` of one protocol.

    The MAD average where any label has it, otherwise each task that has begun. ``parameters`` of a mixer are by label
    and task: they depend on its length.
    """
    costs = cells.assign(mixer_parameters=[parameters.get(key, math.nan) for key in zip(cells.label, cells.task)])
    costs = costs.groupby(["label", "task"], sort=False)[["budget_ratio", "mixer_parameters"]].mean()
    whole = with_average(cells[cells.done == cells.expected])
    begun = cells[cells.task.isin(cells[cells.done > 0].task)][["label", "task"]]
    if (whole.task == MAD_AVERAGE).any():
        begun = begun.assign(task=MAD_AVERAGE)
        costs = costs.groupby("label").mean().assign(task=MAD_AVERAGE)
    values = begun.drop_duplicates().merge(whole[["label", "task", "seed", "accuracy"]], how="left")
    values = values.merge(costs.reset_index(), how="left", on=["label", "task"])
    return values.rename(columns={"task": "quantity", "accuracy": "value"})


def language_values(losses: pd.DataFrame, details: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, L5 of the language models of one protocol.

    Args:
        losses: :func:`madbench.analysis.loss_curves.run_losses`, a row a run.
        details: of the record of each run.
    """
    costs = {name: [one.get(name, math.nan) for one in details] for name in ("budget_ratio", "mixer_parameters")}
    values = losses[["label", "seed", LOSS]].rename(columns={LOSS: "value"})
    return values.assign(quantity=LOSS, **costs)


def budget_frame(values: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.budget.budget_figure`.

    Intervals are over seeds, of losses with the spread pooled over the labels as in :mod:`madbench.analysis.cells`.

    Args:
        values: one row a quantity, label and seed: quantity (``mad_average``, a task, ``loss_l5``), label, seed, value,
            budget_ratio, mixer_parameters. A label that lacks a value of one of its seeds, as it diverged, has no mean.
        protocol: sentences about what the runs share.
    """
    losses = values[values.quantity == LOSS].groupby("label").value
    repeated = [seeds for _, seeds in losses if len(seeds) > 1 and seeds.notna().all()]
    spread, freedom = pooled_spread([Sample(seeds.mean(), seeds.std(), len(seeds)) for seeds in repeated])
    rows = []
    for (quantity, label), seeds in values.groupby(["quantity", "label"], sort=False):
        n = len(seeds) if seeds.value.notna().all() else 0
        mean, low, high = mean_interval(seeds.value.to_numpy()) if n else (math.nan,) * 3
        if quantity == LOSS and n > 1:
            half = half_width(spread, n, freedom)
            low, high = mean - half, mean + half
        costs = seeds.budget_ratio.mean(), seeds.mixer_parameters.mean()
        rows.append((protocol, quantity, label, *costs, mean, low, high, n))
    return pd.DataFrame(rows, columns=list(budget.COLUMNS)).astype(budget.COLUMNS)


def difficulty_frame(collected: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The frame of :func:`madbench.analysis.figures.difficulty.difficulty_figure`; empty where nothing varies.

    A setting counts where it differs from the task's first one in one variable. A setting of a label whose runs of a
    seed all diverged is left out, and so is a seed with jobs to do.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        protocol: sentences about what the runs share.
    """
    chosen = setting_scores(collected)
    whole = chosen[chosen.done == chosen.expected]
    places = {label: i for i, label in enumerate(collected.label.unique())}
    settings = {text: json.loads(text) for text in chosen.setting.unique()}
    means = whole.groupby(["task", "label", "setting"], sort=False, as_index=False).agg(
        accuracy=("accuracy", "mean"),
        spread=("accuracy", "std"),
        ceiling=("ceiling", "mean"),
        n=("accuracy", "size"),
        known=("accuracy", "count"),
    )
    means = means[means.n == means.known]
    baselines = collected.groupby("task").setting.first()
    rows: list[tuple[Any, ...]] = []
    for task in in_order(means.task):
        baseline = settings[baselines[task]]
        texts = whole.setting[whole.task == task].unique()
        changes = {text: [name for name, value in settings[text].items() if value != baseline[name]] for text in texts}
        for variable in dict.fromkeys(change[0] for change in changes.values() if len(change) == 1):
            values = {text: settings[text][variable] for text, change in changes.items() if set(change) <= {variable}}
            found = [*means[(means.task == task) & means.setting.isin(list(values))].itertuples()]
            for mean in sorted(found, key=lambda mean: (places[mean.label], values[mean.setting])):
                half = half_width(mean.spread, mean.n, mean.n - 1)
                numbers = mean.accuracy, mean.accuracy - half, mean.accuracy + half, mean.ceiling, mean.n
                rows.append((protocol, task, variable, values[mean.setting], mean.label, *numbers))
    frame = pd.DataFrame(rows, columns=list(difficulty.COLUMNS)).astype(difficulty.COLUMNS)
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)
