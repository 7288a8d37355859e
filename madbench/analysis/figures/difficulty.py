"""Accuracy against what makes a task harder: length, vocabulary, examples, noise. A row a task, a panel a variable."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from madbench.analysis.figures.marks import add_lines, add_marks, unname_ticks
from madbench.analysis.figures.style import (
    GREY,
    PERCENTS,
    TITLES,
    LabelStyle,
    add_legend,
    add_texts,
    interval_texts,
    label_handles,
    label_styles,
    new_figure,
    seeds_text,
    settle,
    style,
    texts_height,
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
_HIGH = 1.75  # inches, of a panel
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
    for task in (name for name in TASK_NAMES if name in set(chosen.task)):
        of_task = whole[whole.task == task]
        baseline = settings[collected[collected.task == task].setting.iloc[0]]
        changes = {text: _change(settings[text], baseline) for text in of_task.setting.unique()}
        for variable in dict.fromkeys(name for change in changes.values() if len(change) == 1 for name in change):
            values = {text: settings[text][variable] for text, change in changes.items() if set(change) <= {variable}}
            found: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for one in of_task[of_task.setting.isin(values)].itertuples():
                found.setdefault((one.label, one.setting), []).append((one.accuracy, one.ceiling))
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
    tasks = [task for task in TITLES if task in set(frame.task.unique())]
    variables = {task: _in_order(frame[frame.task == task].variable.unique()) for task in tasks}
    columns = max(map(len, variables.values()))
    notes = _notes(frame, len(labels))
    fits_inside = 0.185 * len(labels) < _HIGH * len(_first_lines(variables, columns))
    width = 0.8 + 1.9 * columns + (0 if fits_inside else 1.6)
    height = max(_HIGH * len(variables), 0 if fits_inside else min(30, len(labels)) * 0.185) + texts_height(
        notes, width
    )
    with style():
        figure = new_figure("difficulty", width, height)
        grid = figure.subplots(len(variables), columns, squeeze=False, sharey=True)
        for line, (task, of_task) in zip(grid, variables.items()):
            line[0].set_ylabel(f"{TITLES[task]}\naccuracy, %")
            for axes, variable in zip(line, of_task):
                drawn = frame[(frame.task == task) & (frame.variable == variable)]
                _draw(axes, drawn, styles, len(labels) <= _FEW)
                axes.set_xlabel(_NAMES.get(variable, variable))
            for axes in line[1 : len(of_task)]:
                unname_ticks(axes, PERCENTS)
            for axes in line[len(of_task) :]:
                axes.set_axis_off()
        grid[0, 0].set(ylim=(-3, 103), yticks=PERCENTS)
        add_texts(figure, "MAD: accuracy against difficulty", notes)
        handles = label_handles(styles, labels)
        if fits_inside:
            legend = grid[0, -1].legend(handles=handles, loc="upper left", handlelength=3.4, borderaxespad=0)
            legend.set_in_layout(False)
        else:
            add_legend(figure, handles)
        return settle(figure)


def _first_lines(variables: Mapping[str, list[str]], columns: int) -> list[list[str]]:
    """The variables of the first tasks, as long as the last column stays empty."""
    return list(itertools.takewhile(lambda of_task: len(of_task) < columns, variables.values()))


def _draw(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, LabelStyle], has_intervals: bool) -> None:
    """One variable of one task."""
    limits = frame.groupby("value").ceiling.mean()
    if (limits < 99.95).any():
        axes.plot(limits.index, limits, color=GREY, linewidth=1, linestyle=(0, (6, 2)))
    values = sorted(frame.value.unique())
    labels = list(frame.label.unique())
    colors = [styles[label].color for label in frame.label]
    if has_intervals:
        bars = [[(one.value, one.low), (one.value, one.high)] for one in frame.itertuples()]
        add_lines(axes, bars, [{"color": color, "linewidth": 1, "alpha": 0.6} for color in colors])
    table = frame.pivot(index="value", columns="label", values="accuracy")[labels]  # NaN where there is no result
    lines = [np.column_stack([values, of_label]) for of_label in table.to_numpy().T]
    add_lines(axes, lines, [styles[label].line | {"linewidth": 1.4} for label in labels], clip_on=False)
    looks = [styles[label].mark(n == 1) | {"markersize": 4.5} for label, n in zip(frame.label, frame.n)]
    add_marks(axes, frame[["value", "accuracy"]].to_numpy(), looks, clip_on=False)
    axes.autoscale_view()
    if all(value >= 1 for value in values) and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, [_short(value) for value in values])


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
