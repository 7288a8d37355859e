"""Learning curves of MAD runs: accuracy or loss against the optimiser step, a panel a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.marks import add_bands, add_lines, add_marks, unname_ticks
from madbench.analysis.figures.style import (
    PERCENTS,
    TITLES,
    LabelStyle,
    add_legend,
    add_texts,
    label_handles,
    label_styles,
    new_figure,
    panels,
    seeds_text,
    settle,
    style,
    texts_height,
)
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.scores import chosen_runs
from madbench.runs import Run

Quantity = Literal["accuracy", "loss"]

TYPES = dict.fromkeys(("protocol", "task", "label"), str) | {"seed": int}
TYPES |= dict.fromkeys(("id", "status", "split"), str) | {"epoch": int, "step": int}
TYPES |= dict.fromkeys(("accuracy", "loss", "train_loss"), float)
"""Columns of :func:`learning_frame`."""

_ACCURACIES = {"validation": "token_accuracy", "test": "batch_macro_accuracy"}
_AXES = {"accuracy": "accuracy, %", "loss": "loss, nats per target"}
_MOST_BANDS = 8  # labels, beyond which bands hide each other


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
    rows: list[dict[str, Any]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(in_order).dropna().items():
        run = read(run_id)
        base = {"protocol": protocol, "task": task, "label": label, "seed": seed}
        base |= {"id": run_id, "status": run.record.status}
        for row in run.record.curve:
            split = next((split for split in _ACCURACIES if f"{split}_loss" in row), None)
            if split is None:
                continue
            accuracy = 100 * row[f"{split}_{_ACCURACIES[split]}"]
            numbers = {"accuracy": accuracy, "loss": row[f"{split}_loss"], "train_loss": row["train_loss"]}
            rows.append(base | {"split": split, "epoch": row["epoch"], "step": row["step"]} | numbers)
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


def learning_figure(
    frame: pd.DataFrame, y: Quantity = "accuracy", styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """The figure of a :func:`learning_frame`: means over seeds, bands from the lowest to the highest one.

    A run that stopped early keeps its last value. A diverged run is a thin line of its own that ends in a cross.
    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    frame = frame.replace([math.inf, -math.inf], math.nan).dropna(subset=y)
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    labels = list(frame.label.unique())
    styles = styles or label_styles(labels)
    tasks = [task for task in TITLES if task in set(frame.task.unique())]
    notes = _notes(frame, y, len(labels))
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    width = 1.9 + 2.7 * columns + 1.2 * ((len(labels) - 1) // 24)
    height = max(lines * 2.3, min(24, len(labels)) * 0.185) + 0.1 + texts_height(notes, width)
    with style():
        figure = new_figure("learning", width, height)
        drawn, free = panels(figure, len(tasks), columns, sharey=y == "accuracy")
        for axes, task in zip(drawn, tasks):
            _draw(axes, frame[frame.task == task], y, styles, len(labels) <= _MOST_BANDS)
            axes.set_title(TITLES[task])
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.set_xlim(left=0)
            if y == "loss":
                axes.set_ylim(bottom=0)
        if y == "accuracy":
            drawn[0].set(ylim=(-3, 103), yticks=PERCENTS)
            for axes in (axes for i, axes in enumerate(drawn) if i % columns):
                unname_ticks(axes, PERCENTS)
        for axes in drawn[::columns]:
            axes.set_ylabel(_AXES[y])
        for axes in drawn[(lines - 1) * columns :]:
            axes.set_xlabel("optimiser steps")
        add_texts(figure, f"MAD: {frame.split.iloc[0]} {y} in training", notes)
        add_legend(figure, label_handles(styles, labels), free)
        return settle(figure)


def _draw(axes: Axes, frame: pd.DataFrame, y: Quantity, styles: Mapping[str, LabelStyle], has_bands: bool) -> None:
    """One task."""
    is_finished = frame.status == "finished"
    diverged = [run for _, run in frame[~is_finished].groupby(["label", "seed"], sort=False)]
    colors = [styles[run.label.iloc[0]].color for run in diverged]
    curves = [run[["step", y]].to_numpy(float) for run in diverged]
    add_lines(axes, curves, [{"color": color, "linewidth": 0.8} for color in colors])
    crosses = [{"color": color, "marker": "x", "markersize": 6} for color in colors]
    add_marks(axes, [curve[-1] for curve in curves], crosses)

    finished = frame[is_finished]
    labels = list(finished.label.unique())
    table = finished.pivot(index="step", columns=["label", "seed"], values=y)
    lines, ends, bands, banded = [], [], [], []
    for label in labels:
        values = table[label].dropna(how="all").ffill()
        steps, seeds = values.index.to_numpy(float), values.to_numpy()
        lines.append(np.column_stack([steps, np.nanmean(seeds, axis=1)]))
        ends.append(styles[label].mark(seeds.shape[1] == 1))
        if seeds.shape[1] > 1 and has_bands:
            bands.append(np.column_stack([steps, np.nanmin(seeds, axis=1), np.nanmax(seeds, axis=1)]))
            banded.append(styles[label].color)
    add_bands(axes, bands, banded)
    add_lines(axes, lines, [styles[label].line for label in labels], clip_on=False)
    add_marks(axes, [line[-1] for line in lines], ends, clip_on=False)
    axes.autoscale_view()


def _notes(frame: pd.DataFrame, y: Quantity, labels: int) -> list[str]:
    finished = frame[frame.status == "finished"]
    counts = finished.groupby(["task", "label"]).seed.nunique()
    (split,) = frame.split.unique()
    notes = [*frame.protocol.unique(), f"On the {split} data, after every epoch.", seeds_text(counts)]
    if (counts > 1).any():
        notes.append("Lines: means over seeds." + " Bands: lowest to highest seed." * (labels <= _MOST_BANDS))
    if (counts == 1).any():
        notes.append("Hollow end: a single seed.")
    ends = finished.groupby(["task", "label", "seed"]).step.max()
    if (ends < ends.groupby(["task", "label"]).transform("max")).any():
        notes.append("A run that stopped early keeps its last value.")
    if (frame.status == "diverged").any():
        notes.append("Cross: diverged.")
    return [note for note in notes if note]
