"""Learning curves of MAD runs: accuracy or loss against the optimiser step, a panel a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.layout import (
    ENTRY,
    NUMBERS,
    Legend,
    Panels,
    in_lines,
    new_figure,
    set_x_label,
    set_y_label,
    widest,
)
from madbench.analysis.figures.marks import add_bands, add_grey_lines, add_lines, add_marks, add_ticks, simplify_ticks
from madbench.analysis.figures.style import (
    PERCENTS,
    TITLES,
    LabelStyle,
    seeds_text,
    style,
)
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.scores import chosen_runs
from madbench.store.runs import Run

Quantity = Literal["accuracy", "loss"]

TYPES = dict.fromkeys(("protocol", "task", "label"), str) | {"seed": int}
TYPES |= dict.fromkeys(("id", "status", "split"), str) | {"epoch": int, "step": int}
TYPES |= dict.fromkeys(("accuracy", "loss", "train_loss"), float)
"""Columns of :func:`learning_frame`."""

_EVALUATIONS = {  # by split, the names of loss and accuracy in a curve
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}
_AXES = {"accuracy": "accuracy, %", "loss": "loss, nats per target"}


def learning_frame(collected: pd.DataFrame, read: Callable[[str], Run], protocol: str) -> pd.DataFrame:
    """The curves of the chosen runs of every task's first setting, one row an evaluation.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        read: the run of an id, with its curve.
        protocol: sentences about what the runs share.

    Columns: protocol, task, label, seed, id, status, split (that evaluations are on), epoch, step, accuracy in percent,
    loss and train_loss in nats per target. Of a seed of which no run finished, it is its first diverged run.
    """
    baselines = collected.groupby("task", sort=False).setting.first()
    of_baseline = collected[collected.setting == collected.task.map(baselines)]
    keys = ["label", "task", "seed"]
    chosen = chosen_runs(of_baseline).set_index(keys).id
    diverged = of_baseline[of_baseline.status == "diverged"].drop_duplicates(keys).set_index(keys).id
    in_order = pd.MultiIndex.from_frame(of_baseline[keys].drop_duplicates())
    runs: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    evaluations: list[int] = []  # of each run
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(in_order).dropna().items():
        run = read(run_id)
        before = len(rows)
        for row in run.record.curve:
            for split, (loss, accuracy) in _EVALUATIONS.items():
                if loss in row:
                    rows.append((split, row["epoch"], row["step"], 100 * row[accuracy], row[loss], row["train_loss"]))
                    break
        runs.append((protocol, task, label, seed, run_id, run.record.status))
        evaluations.append(len(rows) - before)
    names = [*TYPES]
    of_run = pd.DataFrame(runs, columns=names[:6]).iloc[np.repeat(np.arange(len(runs)), evaluations)]
    of_row = pd.DataFrame(rows, columns=names[6:], index=of_run.index)
    return pd.concat([of_run, of_row], axis=1).reset_index(drop=True).astype(TYPES)


def learning_figure(
    frame: pd.DataFrame, y: Quantity = "accuracy", styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """The figure of a :func:`learning_frame`: means over seeds, bands from the lowest to the highest one.

    A run that stopped early keeps its last value. A diverged run is a thin line of its own that ends in a cross. Of more
    than eight labels the best at the end are in colour.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    frame = frame[np.isfinite(frame[y])]
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    labels = list(frame.label.unique())
    curves = {task: _Curves.of(of_task, y) for task, of_task in frame.groupby("task")}
    tasks = [task for task in TITLES if task in curves]
    ends = {label: [curves[task].end(label) for task in tasks] for label in labels}
    shown = Highlights.of(ends, styles, is_lower_better=y == "loss")
    entries = shown.entries()
    notes = _notes(frame, shown.notes("learning", f"{y} at the end, mean over tasks"))
    columns = min(3, len(tasks))
    lines = in_lines(len(tasks), columns)
    is_accuracy = y == "accuracy"
    percents = [*map(str, PERCENTS)]
    names = widest(percents) if is_accuracy else NUMBERS
    x_lines = [*[0] * (len(lines) - 1), 1]
    height = max(1.75, ENTRY * -(-len(entries) // 2) / len(lines))  # for a legend in two columns
    with style():
        panels = Panels(lines, 2.47, height, names, y_lines=1, x_lines=x_lines, is_y_shared=is_accuracy)
        title = f"MAD: {frame.split.iloc[0]} {y} in training"
        figure, drawn = new_figure("learning", title, notes, panels, Legend(entries))
        for i, (axes, task) in enumerate(zip(drawn, tasks)):
            _draw(axes, curves[task], shown)
            axes.set_title(TITLES[task])
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.set_xlim(left=0)
            simplify_ticks(axes, "x")
            is_first = i % columns == 0
            texts = percents
            if is_accuracy:
                axes.set_ylim(-3, 103)
                add_ticks(axes, "y", PERCENTS, texts if is_first else ())
            else:
                axes.set_ylim(bottom=0)
                texts = simplify_ticks(axes, "y")
            if is_first:
                set_y_label(axes, _AXES[y], texts)
        for axes in drawn[-lines[-1] :]:
            set_x_label(axes, "optimiser steps")
    return figure


class _Curves(NamedTuple):
    """Of a task, by label and seed: steps and values (n, 2)."""

    finished: dict[str, dict[int, np.ndarray]]
    diverged: dict[str, dict[int, np.ndarray]]

    @classmethod
    def of(cls, frame: pd.DataFrame, y: Quantity) -> _Curves:
        found: tuple[dict, dict] = {}, {}
        points = frame[["step", y]].to_numpy(float)
        runs = frame.groupby(["status", "label", "seed"]).indices
        for (status, label, seed), rows in sorted(runs.items(), key=lambda run: run[1][0]):
            found[status != "finished"].setdefault(label, {})[seed] = points[rows]
        return cls(*found)

    def end(self, label: str) -> float:
        """The mean of the last values; NaN where no run finished."""
        ends = [curve[-1, 1] for curve in self.finished.get(label, {}).values()]
        return float(np.mean(ends)) if ends else math.nan


def _draw(axes: Axes, curves: _Curves, shown: Highlights) -> None:
    """One task."""
    diverged = [(label, curve) for label, seeds in curves.diverged.items() for curve in seeds.values()]
    grey = [curve for label, curve in diverged if label not in shown.styles]
    coloured = [(label, curve) for label, curve in diverged if label in shown.styles]
    thin = [{"color": shown.color(label), "linewidth": 0.8} for label, _ in coloured]
    add_lines(axes, [curve for _, curve in coloured], thin)
    crosses = [{"color": shown.color(label), "marker": "x", "markersize": 6} for label, _ in diverged]
    add_marks(axes, [curve[-1] for _, curve in diverged], crosses)

    lines, ends, bands = {}, [], {}
    for label, seeds in curves.finished.items():
        steps = np.unique(np.concatenate([curve[:, 0] for curve in seeds.values()]))
        values = np.array([_kept(curve, steps) for curve in seeds.values()])
        line = np.column_stack([steps, np.nanmean(values, axis=0)])
        if label not in shown.styles:
            grey.append(line)
            continue
        lines[label] = line
        ends.append(shown.styles[label].mark(len(seeds) == 1))
        if len(seeds) > 1:
            bands[label] = np.column_stack([steps, np.nanmin(values, axis=0), np.nanmax(values, axis=0)])
    add_grey_lines(axes, grey, clip_on=False)
    add_bands(axes, [*bands.values()], [*map(shown.color, bands)])
    add_lines(axes, [*lines.values()], [shown.styles[label].line for label in lines], clip_on=False)
    add_marks(axes, [line[-1] for line in lines.values()], ends)
    axes.autoscale_view()


def _kept(curve: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """At each of ``steps`` the last value of ``curve`` until then, NaN before the first."""
    place = np.searchsorted(curve[:, 0], steps, side="right") - 1
    return np.where(place < 0, math.nan, curve[place, 1])


def _notes(frame: pd.DataFrame, highlights: list[str]) -> list[str]:
    finished = frame[frame.status == "finished"]
    counts = finished.groupby(["task", "label"]).seed.nunique()
    (split,) = frame.split.unique()
    notes = [*frame.protocol.unique(), f"On the {split} data, after every epoch.", seeds_text(counts), *highlights]
    if (counts > 1).any():
        notes.append("Lines: means over seeds. Bands: lowest to highest seed.")
    if (counts == 1).any():
        notes.append("Hollow end: a single seed.")
    ends = finished.groupby(["task", "label", "seed"]).step.max()
    if (ends < ends.groupby(["task", "label"]).transform("max")).any():
        notes.append("A run that stopped early keeps its last value.")
    if (frame.status == "diverged").any():
        notes.append("Cross: diverged.")
    return [note for note in notes if note]
