"""Learning curves of MAD runs: accuracy or loss against the optimiser step, a panel a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.curves import Curves, curve_notes, draw_curves
from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.notes import seeds_note
from madbench.analysis.figures.panels import Panels, in_lines
from madbench.analysis.figures.style import PERCENTS, LabelStyle, in_order, style, title
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.scores import chosen_runs
from madbench.jobs import Record

Quantity = Literal["accuracy", "loss"]

COLUMNS = dict.fromkeys(("protocol", "task", "label"), str) | {"seed": int}
COLUMNS |= dict.fromkeys(("id", "status", "split"), str) | {"epoch": int, "step": int}
COLUMNS |= dict.fromkeys(("accuracy", "loss", "train_loss"), float)
"""Columns of :func:`learning_frame` and their types."""

_EVALUATIONS = {  # by split, the names of loss and accuracy in a curve
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}
_Y_LABELS = {"accuracy": "accuracy, %", "loss": "loss, nats per target"}


def learning_frame(collected: pd.DataFrame, record: Callable[[str], Record], protocol: str) -> pd.DataFrame:
    """The curves of the chosen runs of every task's first setting, one row an evaluation.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        record: what the run of an id gave, with its curve.
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
    rows: list[tuple[Any, ...]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(in_order).dropna().items():
        found = record(run_id)
        run = (protocol, task, label, seed, run_id, found.status)
        for row in found.curve:
            for split, (loss, accuracy) in _EVALUATIONS.items():
                if loss in row:
                    numbers = 100 * row[accuracy], row[loss], row["train_loss"]
                    rows.append((*run, split, row["epoch"], row["step"], *numbers))
                    break
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def learning_figure(
    frame: pd.DataFrame, y: Quantity = "accuracy", styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """The figure of a :func:`learning_frame`: means over seeds, bands from the lowest to the highest one.

    A run that stopped early keeps its last value. A diverged run is a thin line that ends in a cross. Of more than eight
    labels the best at the end are in colour.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    frame = frame[np.isfinite(frame[y])]
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    tasks = in_order(frame.task)
    labels = list(frame.label.unique())
    curves = {task: _curves(frame[frame.task == task], y) for task in tasks}
    ends = {label: [_end(curves[task].get(label)) for task in tasks] for label in labels}
    shown = Highlights.of(ends, styles, is_lower_better=y == "loss")
    drawn = [of_label for of_task in curves.values() for of_label in of_task.values()]
    (split,) = frame.split.unique()
    notes = [
        *frame.protocol.unique(),
        f"On the {split} data, after every epoch.",
        seeds_note(of_label.seeds for of_label in drawn),
        *shown.notes("learning", f"{y} at the end, mean over tasks"),
        *curve_notes(drawn),
    ]
    lengths = frame[frame.status == "finished"].groupby(["task", "label", "seed"]).step.max()
    if (lengths < lengths.groupby(["task", "label"]).transform("max")).any():
        notes.append("A run that stopped early keeps its last value.")
    lines = in_lines(len(tasks), min(3, len(tasks)))
    with style():
        panels = Panels("learning", f"MAD: {split} {y} in training", lines, (2.47, 1.75), is_y_shared=y == "accuracy")
        for axes, task in zip(panels.axes, tasks):
            draw_curves(axes, {label: curves[task][label] for label in ends if label in curves[task]}, shown)
            axes.set_title(title(task))
            axes.set_xlim(left=0)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.set(ylim=(-3, 103), yticks=PERCENTS) if y == "accuracy" else axes.set_ylim(bottom=0)
        for line in panels.rows:
            line[0].set_ylabel(_Y_LABELS[y])
        for axes in panels.bottom:
            axes.set_xlabel("optimiser steps")
        return panels.finish(notes, shown.entries())


def _curves(frame: pd.DataFrame, y: Quantity) -> dict[str, Curves]:
    """The curves of a task by label; a finished run keeps its last value until the longest one's end."""
    points = frame[["step", y]].to_numpy(float)
    lines: dict[str, dict[bool, list[np.ndarray]]] = {}
    for (label, _, status), rows in frame.groupby(["label", "seed", "status"]).indices.items():
        lines.setdefault(label, {True: [], False: []})[status == "finished"].append(points[rows])
    curves = {}
    for label, of_label in lines.items():
        curves[label] = Curves(diverged=of_label[False])
        if finished := of_label[True]:
            curves[label].x = np.unique(np.concatenate([line[:, 0] for line in finished]))
            curves[label].y = np.array([_held(line, curves[label].x) for line in finished])
    return curves


def _held(line: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """At each of ``steps`` the last value of ``line`` until then, NaN before the first."""
    place = np.searchsorted(line[:, 0], steps, side="right") - 1
    return np.where(place < 0, math.nan, line[place, 1])


def _end(curves: Curves | None) -> float:
    """The mean of the last values; NaN where no run finished."""
    return float(curves.y[:, -1].mean()) if curves and curves.seeds else math.nan
