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
from matplotlib.ticker import NullLocator

from madbench.analysis.figures.curves import joined
from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.notes import interval_notes, seeds_note
from madbench.analysis.figures.panels import Panels
from madbench.analysis.figures.style import CEILING, OTHERS, PERCENTS, LabelStyle, in_order, style, title
from madbench.analysis.scores import setting_scores
from madbench.analysis.statistics import half_width

COLUMNS = dict.fromkeys(("protocol", "task", "variable"), str) | {"value": float, "label": str}
COLUMNS |= dict.fromkeys(("accuracy", "low", "high", "ceiling"), float) | {"n": int}
"""Columns of :func:`difficulty_frame` and their types."""

_NAMES = {
    "vocab_size": "vocabulary",
    "seq_len": "length, tokens",
    "num_train_examples": "training examples",
    "frac_noise": "share of noise",
    "num_tokens_to_copy": "tokens to copy",
}


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
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)


def difficulty_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of a :func:`difficulty_frame` that is not empty. Of more than eight labels the best are in colour."""
    panels_of: dict[tuple[str, str], pd.DataFrame] = dict([*frame.groupby(["task", "variable"], sort=False)])
    tables = {key: panel.pivot(index="value", columns="label", values="accuracy") for key, panel in panels_of.items()}
    means = {label: [_mean(table.get(label)) for table in tables.values()] for label in frame.label.unique()}
    shown = Highlights.of(means, styles)
    variables = {
        task: _in_order([variable for of_task, variable in tables if of_task == task]) for task in in_order(frame.task)
    }
    keys = [(task, variable) for task, of_task in variables.items() for variable in of_task]
    with style():
        lines = [len(of_task) for of_task in variables.values()]
        panels = Panels("difficulty", "MAD: accuracy against difficulty", lines, (1.76, 1.25))
        for axes, key in zip(panels.axes, keys):
            _draw(axes, panels_of[key], tables[key], shown)
            axes.set_xlabel(_NAMES.get(key[1], key[1]))
        for line, task in zip(panels.rows, variables):
            line[0].set_ylabel(f"{title(task)}\naccuracy, %")
        return panels.finish(_notes(frame, shown), shown.entries())


def _mean(accuracies: pd.Series | None) -> float:
    """The mean accuracy of a label in a panel; NaN where it lacks a value."""
    return math.nan if accuracies is None else float(accuracies.mean(skipna=False))


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
        axes.plot(values, table[label], **look.line | {"linewidth": 1.4})
        for is_single, of_kind in rows.groupby(rows.n == 1):
            marks = look.mark(bool(is_single)) | {"markersize": 4.5, "linestyle": ""}
            axes.plot(of_kind.value, of_kind.accuracy, **marks, clip_on=False, zorder=3)
    if values[0] >= 1 and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [_short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(ylim=(-3, 103), yticks=PERCENTS)


def _notes(frame: pd.DataFrame, shown: Highlights) -> list[str]:
    coloured = frame[frame.label.isin(shown.styles)]
    notes = [
        *frame.protocol.unique(),
        "One variable changed at a time, the others as in the profile.",
        seeds_note(frame.n),
        *shown.notes("difficulty", "accuracy, mean over panels"),
        *interval_notes(coloured.n, coloured.low),
    ]
    if (frame.ceiling < 99.95).any():
        notes.append("Dashed grey: the ceiling, the share of the targets that can be known.")
    return notes


def _in_order(variables: list[str]) -> list[str]:
    """The usual ones first, any other by name."""
    known = list(_NAMES)
    return sorted(variables, key=lambda name: (known.index(name) if name in known else len(known), name))


def _short(value: float) -> str:
    """A number as short as a tick label is.

    >>> _short(12800.0), _short(0.2)
    ('12.8k', '0.2')
    """
    return f"{value / 1000:g}k" if value >= 1000 and not math.fmod(value, 100) else f"{value:g}"
