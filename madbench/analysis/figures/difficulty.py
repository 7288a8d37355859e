"""Accuracy against what makes a task harder: length, vocabulary, examples, noise. A row a task, a panel a variable."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.layout import ENTRY, Legend, Panels, new_figure, set_x_label, set_y_label, widest
from madbench.analysis.figures.marks import add_line_marks, add_lines, add_ticks
from madbench.analysis.figures.style import (
    GREY,
    PERCENTS,
    TITLES,
    LabelStyle,
    interval_texts,
    label_entries,
    label_styles,
    seeds_text,
    style,
)
from madbench.analysis.scores import setting_scores
from madbench.analysis.statistics import mean_interval
from madbench.tasks import TASK_NAMES

TYPES = dict.fromkeys(("protocol", "task", "variable"), str) | {"value": float, "label": str}
TYPES |= dict.fromkeys(("accuracy", "low", "high", "ceiling"), float) | {"n": int}
"""Columns of :func:`difficulty_frame`."""

_NAMES = {
    "vocab_size": "vocabulary",
    "seq_len": "length, tokens",
    "num_train_examples": "training examples",
    "frac_noise": "share of noise",
    "num_tokens_to_copy": "tokens to copy",
}
_FEW = 8  # labels, beyond which their intervals hide each other


def difficulty_frame(collected: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What :func:`difficulty_figure` draws, one row a task, variable, value and label; empty where nothing varies.

    Args:
        collected: :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first; a
            setting counts where it differs from that in one variable.
        protocol: sentences about what the runs share.

    Columns: protocol, task, variable, value, label, accuracy in percent, low, high (ends of the 95% interval over
    seeds), ceiling in percent, n. A setting of a label whose runs of a seed all diverged is left out, and so is a seed
    with jobs to do.
    """
    chosen = setting_scores(collected)
    whole = chosen[chosen.done == chosen.expected]
    places = {label: i for i, label in enumerate(collected.label.unique())}
    settings = {text: json.loads(text) for text in chosen.setting.unique()}
    rows: list[dict[str, Any]] = []
    accuracies_of: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for one in whole.itertuples():
        of_task = accuracies_of.setdefault(one.task, {})
        of_task.setdefault((one.label, one.setting), []).append((one.accuracy, one.ceiling))
    baselines = collected.groupby("task").setting.first()
    for task in (name for name in TASK_NAMES if name in accuracies_of):
        of_task = accuracies_of[task]
        baseline = settings[baselines[task]]
        changes = {text: _change(settings[text], baseline) for text in dict.fromkeys(text for _, text in of_task)}
        for variable in dict.fromkeys(name for change in changes.values() if len(change) == 1 for name in change):
            values = {text: settings[text][variable] for text, change in changes.items() if set(change) <= {variable}}
            found = {key: of_setting for key, of_setting in of_task.items() if key[1] in values}
            for label, text in sorted(found, key=lambda key: (places[key[0]], values[key[1]])):
                accuracies, ceilings = np.transpose(found[label, text])
                if not np.isnan(accuracies).any():
                    numbers = dict(zip(("accuracy", "low", "high"), mean_interval(accuracies)))
                    numbers |= {"ceiling": ceilings.mean(), "n": len(accuracies)}
                    base = {"protocol": protocol, "task": task, "variable": variable, "value": values[text]}
                    rows.append(base | {"label": label} | numbers)
    frame = pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)


def difficulty_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of a :func:`difficulty_frame` that is not empty."""
    labels = list(frame.label.unique())
    styles = styles or label_styles(labels)
    of_panel = dict(list(frame.groupby(["task", "variable"])))
    tasks = [task for task in TITLES if task in {task for task, _ in of_panel}]
    variables = {task: _in_order([variable for name, variable in of_panel if name == task]) for task in tasks}
    lines = [len(of_task) for of_task in variables.values()]
    notes = _notes(frame, len(labels))
    height = max(1.25, ENTRY * -(-len(labels) // 2) / len(lines) - 0.5)  # for a legend in two columns
    percents = [*map(str, PERCENTS)]
    with style():
        panels = Panels(lines, 1.76, height, widest(percents), y_lines=2, has_titles=False)
        legend = Legend(label_entries(styles, labels))
        figure, drawn = new_figure("difficulty", "MAD: accuracy against difficulty", notes, panels, legend)
        places = iter(drawn)
        for task, of_task in variables.items():
            for variable, axes in zip(of_task, places):
                _draw(axes, of_panel[task, variable], styles, len(labels) <= _FEW)
                set_x_label(axes, _NAMES.get(variable, variable))
                is_first = variable == of_task[0]
                add_ticks(axes, "y", PERCENTS, percents if is_first else ())
                if is_first:
                    set_y_label(axes, f"{TITLES[task]}\naccuracy, %", percents)
    return figure


def _draw(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, LabelStyle], has_intervals: bool) -> None:
    """One variable of one task."""
    rows = list(frame.itertuples())
    values = sorted({one.value for one in rows})
    ceilings = [np.mean([one.ceiling for one in rows if one.value == value]) for value in values]
    if min(ceilings) < 99.95:
        axes.plot(values, ceilings, color=GREY, linewidth=1, linestyle=(0, (6, 2)))
    if has_intervals:
        bars = [[(one.value, one.low), (one.value, one.high)] for one in rows]
        add_lines(axes, bars, [{"color": styles[one.label].color, "linewidth": 1, "alpha": 0.6} for one in rows])
    accuracies: dict[str, dict[float, float]] = {}
    for one in rows:
        accuracies.setdefault(one.label, {})[one.value] = one.accuracy
    lines = [[(value, of_label.get(value, math.nan)) for value in values] for of_label in accuracies.values()]
    add_lines(axes, lines, [styles[label].line | {"linewidth": 1.4} for label in accuracies], clip_on=False)
    axes.autoscale_view()
    axes.set_ylim(-3, 103)
    if all(value >= 1 for value in values) and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
    add_ticks(axes, "x", values, [*map(_short, values)])
    points: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for one in rows:
        points.setdefault((one.label, one.n == 1), []).append((one.value, one.accuracy))
    looks = [styles[label].mark(is_single) | {"markersize": 4.5} for label, is_single in points]
    add_line_marks(axes, [*points.values()], looks)


def _notes(frame: pd.DataFrame, labels: int) -> list[str]:
    told = frame if labels <= _FEW else frame[frame.n == 1]
    notes = [
        *frame.protocol.unique(),
        "One variable changed at a time, the others as in the profile.",
        seeds_text(frame.n),
        *interval_texts(told.n, told.low),
    ]
    if (frame.ceiling < 99.95).any():
        notes.append("Dashed grey: the ceiling, the share of the targets that can be known.")
    return [note for note in notes if note]


def _change(setting: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """The variables in which they differ."""
    return [name for name, value in setting.items() if value != baseline[name]]


def _in_order(variables: list[str]) -> list[str]:
    """In the order of the usual ones, any other last."""
    known = list(_NAMES)
    return sorted(variables, key=lambda name: (known.index(name) if name in known else len(known), name))


def _short(value: float) -> str:
    """``12.8k``, ``0.2``."""
    return f"{value / 1000:g}k" if value >= 1000 and not math.fmod(value, 100) else f"{value:g}"
