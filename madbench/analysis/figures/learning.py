"""Learning curves of MAD runs: accuracy or loss against the optimiser step, a panel a task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.curves import Curves, curve_notes, draw_curves
from madbench.analysis.figures.files import NothingToDrawError, frame_of
from madbench.analysis.figures.panels import Panels, in_lines, seeds_note
from madbench.analysis.figures.style import PERCENTS, Highlights, in_order, label_styles, style, title
from madbench.analysis.scores import chosen_runs
from madbench.jobs import Record

COLUMNS = dict.fromkeys(("protocol", "task", "label"), str) | {"seed": int}
COLUMNS |= dict.fromkeys(("id", "status", "split"), str) | {"epoch": int, "step": int}
COLUMNS |= dict.fromkeys(("accuracy", "loss", "train_loss"), float)
"""An evaluation a row, on ``split``; accuracy in percent, losses in nats per target."""

_EVALUATIONS = {  # by split, the names of loss and accuracy in a curve
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}
_Y_LABELS = {"accuracy": "accuracy, %", "loss": "loss, nats per target"}


def learning_frame(collected: pd.DataFrame, record: Callable[[str], Record], protocol: str) -> pd.DataFrame:
    """What :func:`learning_figure` draws; ``protocol`` are sentences about what the runs share.

    These are the chosen runs of every task's first setting; of a seed of which no run finished, the first diverged one.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
        record: what the run of an id gave, with its curve.
    """
    baselines = collected.groupby("column", sort=False).setting.first()
    of_baseline = collected[collected.setting == collected.column.map(baselines)]
    keys = ["label", "column", "seed"]
    chosen = chosen_runs(of_baseline).set_index(keys).id
    diverged = of_baseline[of_baseline.status == "diverged"].drop_duplicates(keys).set_index(keys).id
    ordered = pd.MultiIndex.from_frame(of_baseline[keys].drop_duplicates())
    rows: list[dict[str, Any]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(ordered).dropna().items():
        found = record(run_id)
        for row, (split, (loss, accuracy)) in itertools.product(found.curve, _EVALUATIONS.items()):
            if loss in row:
                run = {"task": task, "label": label, "seed": seed, "id": run_id, "status": found.status, "split": split}
                run |= {name: row[name] for name in ("epoch", "step", "train_loss")}
                rows.append(run | {"accuracy": 100 * row[accuracy], "loss": row[loss]})
    return frame_of(rows, COLUMNS, protocol)


@style()
def learning_figure(frame: pd.DataFrame, y: Literal["accuracy", "loss"] = "accuracy") -> Figure:
    """Means over seeds, and bands from the lowest to the highest one.

    A run that stopped early keeps its last value. A diverged run is a thin line that ends in a cross. Of more than eight
    labels the best at the end are in colour.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    frame = frame[np.isfinite(frame[y])]
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    curves = {task: _curves(frame[frame.task == task], y) for task in in_order(frame.task)}
    labels = frame.label.unique()
    ends = {label: [_end(of_task.get(label)) for of_task in curves.values()] for label in labels}
    shown = Highlights.of(ends, label_styles(frame), is_lower_better=y == "loss")
    lines = in_lines(len(curves), 3)
    (split,) = frame.split.unique()
    shared = {"sharey": "row"} if y == "accuracy" else {}
    panels = Panels("learning", f"MAD: {split} {y} in training", lines, (2.47, 1.75), **shared)
    for axes, (task, of_task) in zip(panels.axes, curves.items()):
        draw_curves(axes, {label: of_task[label] for label in labels if label in of_task}, shown)
        axes.set(title=title(task), xlim=(0, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set(ylim=(-3, 103), yticks=PERCENTS) if y == "accuracy" else axes.set(ylim=(0, None))
    for line in panels.rows:
        line[0].set_ylabel(_Y_LABELS[y])
    for axes in panels.bottom:
        axes.set_xlabel("optimiser steps")
    return panels.finish(
        _notes(frame, curves, shown.note("learning", f"{y} at the end, mean over tasks")), shown.entries()
    )


def _curves(frame: pd.DataFrame, y: str) -> dict[str, Curves]:
    """The curves of a task by label; a finished run keeps its last value until the longest one's end."""
    points = frame[["step", y]].to_numpy(float)
    curves: dict[str, Curves] = {}
    finished: dict[str, list[np.ndarray]] = {}
    for (label, _, status), rows in frame.groupby(["label", "seed", "status"]).indices.items():
        of_label = curves.setdefault(label, Curves())
        (finished.setdefault(label, []) if status == "finished" else of_label.diverged).append(points[rows])
    for label, lines in finished.items():
        curves[label].x = steps = np.unique(np.concatenate([line[:, 0] for line in lines]))
        places = [np.searchsorted(line[:, 0], steps, side="right") - 1 for line in lines]
        curves[label].y = np.array([np.where(at < 0, math.nan, line[at, 1]) for at, line in zip(places, lines)])
    return curves


def _end(curves: Curves | None) -> float:
    """The mean of the last values; NaN where no run finished."""
    return float(curves.y[:, -1].mean()) if curves and len(curves.y) else math.nan


def _notes(frame: pd.DataFrame, curves: Mapping[str, Mapping[str, Curves]], in_colour: str) -> list[str]:
    drawn = [of_label for of_task in curves.values() for of_label in of_task.values()]
    lengths = frame[frame.status == "finished"].groupby(["task", "label", "seed"]).step.max()
    is_shorter = lengths < lengths.groupby(["task", "label"]).transform("max")
    return [
        *frame.protocol.unique(),
        f"On the {frame.split.iloc[0]} data, after every epoch.",
        seeds_note(len(of_label.y) for of_label in drawn),
        in_colour,
        *curve_notes(drawn),
        "A run that stopped early keeps its last value." if is_shorter.any() else "",
    ]
