"""Accuracy against what makes a task harder: length, vocabulary, examples, noise. A row a task, a panel a variable."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from madbench.analysis.figures.curves import joined
from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import Panels, interval_notes, seeds_note
from madbench.analysis.figures.style import CEILING, OTHERS, PERCENTS, Highlights, in_order, label_styles, style, title
from madbench.analysis.scores import setting_scores
from madbench.analysis.statistics import mean_interval

COLUMNS = dict.fromkeys(("protocol", "task", "variable"), str) | {"value": float, "label": str}
COLUMNS |= dict.fromkeys(("accuracy", "low", "high", "ceiling"), float) | {"n": int}
"""A task, variable, value and label a row: the mean accuracy over ``n`` seeds, the ends of its 95% interval and the
ceiling, all in percent."""

_NAMES = {
    "vocab_size": "vocabulary",
    "seq_len": "length, tokens",
    "num_train_examples": "training examples",
    "frac_noise": "share of noise",
    "num_tokens_to_copy": "tokens to copy",
}


def difficulty_frame(collected: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What :func:`difficulty_figure` draws; empty where nothing varies. ``protocol`` is about what the runs share.

    A setting counts where it differs from the task's first one in one variable. A setting of a label whose runs of a
    seed all diverged is left out, and so is a seed with jobs to do.
    ``collected`` is :func:`madbench.analysis.scores.collect` of one protocol, the baseline setting of a task first.
    """
    scores = setting_scores(collected)
    whole = scores[scores.done == scores.expected]
    places = {label: i for i, label in enumerate(collected.label.unique())}
    settings = {text: json.loads(text) for text in scores.setting.unique()}
    baselines = collected.groupby("column").setting.first().map(settings)
    rows: list[dict[str, Any]] = []
    for (task, label, text), seeds in whole.groupby(["column", "label", "setting"], sort=False):
        setting, baseline = settings[text], baselines[task]
        changes = [name for name, value in setting.items() if value != baseline[name]]
        if len(changes) > 1 or seeds.value.isna().any():
            continue
        mean, low, high = mean_interval(seeds.value.to_numpy())
        place = {"task": task, "label": label, "ceiling": seeds.ceiling.mean(), "n": len(seeds)}
        place |= {"accuracy": mean, "low": low, "high": high}
        for variable in changes or setting:
            if isinstance(setting[variable], (int, float)):
                rows.append(place | {"variable": variable, "value": setting[variable]})
    frame = frame_of(rows, COLUMNS, protocol)
    order = {task: i for i, task in enumerate(in_order(frame.task))}
    keys = {"task": order, "label": places}
    frame = frame.sort_values(
        ["task", "variable", "label", "value"], key=lambda of: of.map(keys[of.name]) if of.name in keys else of
    )
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)


@style()
def difficulty_figure(frame: pd.DataFrame) -> Figure:
    """A line a label. Of more than eight labels the best are in colour. ``frame`` is not empty."""
    panel_frames = dict([*frame.groupby(["task", "variable"], sort=False)])
    order = {name: i for i, name in enumerate(_NAMES)}
    keys = sorted(panel_frames, key=lambda key: (order.get(key[1], len(order)), key[1]))
    keys = [key for task in in_order(frame.task) for key in keys if key[0] == task]
    tables = {key: panel_frames[key].pivot(index="value", columns="label", values="accuracy") for key in keys}
    means = pd.DataFrame({key: table.mean(skipna=False) for key, table in tables.items()})
    shown = Highlights.of({label: means.loc[label].tolist() for label in frame.label.unique()}, label_styles(frame))
    tasks = [task for task, _ in keys]
    lines = [tasks.count(task) for task in dict.fromkeys(tasks)]
    panels = Panels("difficulty", "MAD: accuracy against difficulty", lines, (1.76, 1.25), sharey="row")
    for axes, (key, table) in zip(panels.axes, tables.items()):
        _draw(axes, panel_frames[key], table, shown)
        axes.set_xlabel(_NAMES.get(key[1], key[1]))
    for line, task in zip(panels.rows, dict.fromkeys(tasks)):
        line[0].set_ylabel(f"{title(task)}\naccuracy, %")
    coloured = frame[frame.label.isin(list(shown.styles))]
    notes = [
        *frame.protocol.unique(),
        "One variable changed at a time, the others as in the profile.",
        seeds_note(frame.n),
        shown.note("difficulty", "accuracy, mean over panels"),
        *interval_notes(coloured.n, coloured.low),
    ]
    if (frame.ceiling < 99.95).any():
        notes.append("Dashed grey: the ceiling, the share of the targets that can be known.")
    return panels.finish(notes, shown.entries())


def _draw(axes: Axes, panel: pd.DataFrame, table: pd.DataFrame, shown: Highlights) -> None:
    """One variable of one task; ``table`` holds the accuracies of ``panel`` by value and label."""
    values = table.index.to_numpy()
    ceilings = panel.groupby("value").ceiling.mean()
    if ceilings.min() < 99.95:
        axes.plot(ceilings.index, ceilings, **CEILING)
    others = [np.column_stack([values, table[label]]) for label in table if label not in shown.styles]
    axes.plot(*joined(others).T, **OTHERS, zorder=1.5)
    for label in (label for label in shown.styles if label in table):
        look = shown.styles[label]
        rows = panel[panel.label == label]
        axes.vlines(rows.value, rows.low, rows.high, look.color, linewidth=1, alpha=0.6)
        axes.plot(values, table[label], **{**look.line, "linewidth": 1.4})
        for is_single, of_kind in rows.groupby(rows.n == 1):
            marks = {**look.mark(bool(is_single)), "markersize": 4.5, "linestyle": ""}
            axes.plot(of_kind.value, of_kind.accuracy, **marks, clip_on=False, zorder=3)
    if values[0] >= 1 and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [_short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(ylim=(-3, 103), yticks=PERCENTS)


def _short(value: float) -> str:
    """A number as short as a tick label is.

    >>> _short(12800.0), _short(0.2)
    ('12.8k', '0.2')
    """
    return f"{value / 1000:g}k" if value >= 1000 and not math.fmod(value, 100) else f"{value:g}"
