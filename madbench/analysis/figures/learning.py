"""Learning curves of MAD runs: accuracy or loss against the optimiser step, a panel a task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

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
from madbench.analysis.figures.marks import add_bands, add_lines, add_marks, add_ticks, simplify_ticks
from madbench.analysis.figures.style import (
    PERCENTS,
    TITLES,
    LabelStyle,
    label_entries,
    label_styles,
    seeds_text,
    style,
)
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.scores import chosen_runs
from madbench.runs import Run

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
    rows: list[tuple[Any, ...]] = []
    for (label, task, seed), run_id in chosen.combine_first(diverged).reindex(in_order).dropna().items():
        run = read(run_id)
        base = protocol, task, label, seed, run_id, run.record.status
        for row in run.record.curve:
            for split, (loss, accuracy) in _EVALUATIONS.items():
                if loss in row:
                    numbers = 100 * row[accuracy], row[loss], row["train_loss"]
                    rows.append((*base, split, row["epoch"], row["step"], *numbers))
                    break
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


def learning_figure(
    frame: pd.DataFrame, y: Quantity = "accuracy", styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """The figure of a :func:`learning_frame`: means over seeds, bands from the lowest to the highest one.

    A run that stopped early keeps its last value. A diverged run is a thin line of its own that ends in a cross.
    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    frame = frame[np.isfinite(frame[y])]
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    labels = list(frame.label.unique())
    styles = styles or label_styles(labels)
    of_task = dict(list(frame.groupby("task")))
    tasks = [task for task in TITLES if task in of_task]
    notes = _notes(frame, y, len(labels))
    columns = min(3, len(tasks))
    lines = in_lines(len(tasks), columns)
    is_accuracy = y == "accuracy"
    percents = [*map(str, PERCENTS)]
    names = widest(percents) if is_accuracy else NUMBERS
    x_lines = [*[0] * (len(lines) - 1), 1]
    height = max(1.75, ENTRY * -(-len(labels) // 2) / len(lines))  # for a legend in two columns
    with style():
        panels = Panels(lines, 2.47, height, names, y_lines=1, x_lines=x_lines, is_y_shared=is_accuracy)
        legend = Legend(label_entries(styles, labels))
        title = f"MAD: {frame.split.iloc[0]} {y} in training"
        figure, drawn = new_figure("learning", title, notes, panels, legend)
        for i, (axes, task) in enumerate(zip(drawn, tasks)):
            _draw(axes, of_task[task], y, styles, len(labels) <= _MOST_BANDS)
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


def _draw(axes: Axes, frame: pd.DataFrame, y: Quantity, styles: Mapping[str, LabelStyle], has_bands: bool) -> None:
    """One task."""
    finished: dict[str, dict[int, dict[int, float]]] = {}  # by label, seed and step
    diverged: dict[tuple[str, int], list[tuple[int, float]]] = {}
    columns = (frame[name].tolist() for name in ("label", "seed", "status", "step", y))
    for label, seed, status, step, value in zip(*columns):
        if status == "finished":
            finished.setdefault(label, {}).setdefault(seed, {})[step] = value
        else:
            diverged.setdefault((label, seed), []).append((step, value))
    colors = [styles[label].color for label, _ in diverged]
    add_lines(axes, [*diverged.values()], [{"color": color, "linewidth": 0.8} for color in colors])
    crosses = [{"color": color, "marker": "x", "markersize": 6} for color in colors]
    add_marks(axes, [curve[-1] for curve in diverged.values()], crosses)

    lines, ends, bands, banded = [], [], [], []
    for label, seeds in finished.items():
        steps = sorted({step for values in seeds.values() for step in values})
        values = np.array([_kept(seeds[seed], steps) for seed in sorted(seeds)])
        lines.append(np.column_stack([steps, np.nanmean(values, axis=0)]))
        ends.append(styles[label].mark(len(seeds) == 1))
        if len(seeds) > 1 and has_bands:
            bands.append(np.column_stack([steps, np.nanmin(values, axis=0), np.nanmax(values, axis=0)]))
            banded.append(styles[label].color)
    add_bands(axes, bands, banded)
    add_lines(axes, lines, [styles[label].line for label in finished], clip_on=False)
    add_marks(axes, [line[-1] for line in lines], ends)
    axes.autoscale_view()


def _kept(values: Mapping[int, float], steps: Sequence[int]) -> list[float]:
    """At each of ``steps`` the last of ``values`` until then, NaN before the first."""
    return [*itertools.accumulate(steps, lambda last, step: values.get(step, last), initial=math.nan)][1:]


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
