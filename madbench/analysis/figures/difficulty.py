"""Accuracy against what makes a task harder: length, vocabulary, examples, noise. A row a task, a panel a variable."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.layout import ENTRY, Legend, Panels, new_figure, set_x_label, set_y_label, widest
from madbench.analysis.figures.marks import add_grey_lines, add_line_marks, add_lines, add_ticks, joined
from madbench.analysis.figures.style import (
    GREY,
    PERCENTS,
    TITLES,
    LabelStyle,
    interval_texts,
    seeds_text,
    style,
)
from madbench.analysis.scores import setting_scores
from madbench.analysis.statistics import half_width
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
    of_task: dict[str, list[Any]] = {}
    for mean in means[means.n == means.known].itertuples():
        of_task.setdefault(mean.task, []).append(mean)
    baselines = collected.groupby("task").setting.first()
    rows: list[tuple[Any, ...]] = []
    for task in (name for name in TASK_NAMES if name in of_task):
        baseline = settings[baselines[task]]
        texts = whole.setting[whole.task == task].unique()
        changes = {text: _change(settings[text], baseline) for text in texts}
        for variable in dict.fromkeys(name for change in changes.values() if len(change) == 1 for name in change):
            values = {text: settings[text][variable] for text, change in changes.items() if set(change) <= {variable}}
            found = [mean for mean in of_task[task] if mean.setting in values]
            for mean in sorted(found, key=lambda mean: (places[mean.label], values[mean.setting])):
                half = half_width(mean.spread, mean.n, mean.n - 1)
                numbers = mean.accuracy, mean.accuracy - half, mean.accuracy + half, mean.ceiling, mean.n
                rows.append((protocol, task, variable, values[mean.setting], mean.label, *numbers))
    frame = pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)
    varied = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[varied].reset_index(drop=True)


def difficulty_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of a :func:`difficulty_frame` that is not empty. Of more than eight labels the best are in colour."""
    panels: dict[tuple[str, str], _Panel] = {}
    for row in frame.itertuples():
        panels.setdefault((row.task, row.variable), {}).setdefault(row.label, {})[row.value] = row
    whole = {key: len({value for of_label in panel.values() for value in of_label}) for key, panel in panels.items()}
    means = {
        label: [_mean(panel.get(label, {}), whole[key]) for key, panel in panels.items()]
        for label in frame.label.unique()
    }
    shown = Highlights.of(means, styles)
    entries = shown.entries()
    tasks = [task for task in TITLES if task in {task for task, _ in panels}]
    variables = {task: _in_order([variable for name, variable in panels if name == task]) for task in tasks}
    lines = [len(of_task) for of_task in variables.values()]
    notes = _notes(frame, shown)
    height = max(1.25, ENTRY * -(-len(entries) // 2) / len(lines) - 0.5)  # for a legend in two columns
    percents = [*map(str, PERCENTS)]
    with style():
        layout = Panels(lines, 1.76, height, widest(percents), y_lines=2, has_titles=False)
        title = "MAD: accuracy against difficulty"
        figure, drawn = new_figure("difficulty", title, notes, layout, Legend(entries))
        places = iter(drawn)
        for task, of_task in variables.items():
            for variable, axes in zip(of_task, places):
                _draw(axes, panels[task, variable], shown)
                set_x_label(axes, _NAMES.get(variable, variable))
                is_first = variable == of_task[0]
                add_ticks(axes, "y", PERCENTS, percents if is_first else ())
                if is_first:
                    set_y_label(axes, f"{TITLES[task]}\naccuracy, %", percents)
    return figure


_Panel = dict[str, dict[float, Any]]
"""The rows of a variable of a task, by label and value."""


def _mean(rows: Mapping[float, Any], count: int) -> float:
    """The mean accuracy of a label in a panel; NaN where it lacks one of ``count``."""
    return sum(row.accuracy for row in rows.values()) / count if len(rows) == count else math.nan


def _draw(axes: Axes, panel: _Panel, shown: Highlights) -> None:
    """One variable of one task."""
    values = sorted({value for of_label in panel.values() for value in of_label})
    known = [[of_label[value].ceiling for of_label in panel.values() if value in of_label] for value in values]
    ceilings = [sum(of_value) / len(of_value) for of_value in known]
    if min(ceilings) < 99.95:
        axes.plot(values, ceilings, color=GREY, linewidth=1, linestyle=(0, (6, 2)))
    coloured = {label: of_label for label, of_label in panel.items() if label in shown.styles}
    rows = [row for of_label in coloured.values() for row in of_label.values()]
    bars = [
        joined([[(row.value, row.low), (row.value, row.high)] for row in of_label.values()])
        for of_label in coloured.values()
    ]
    add_lines(axes, bars, [{"color": shown.color(label), "linewidth": 1, "alpha": 0.6} for label in coloured])
    lines = {
        label: [(value, of_label[value].accuracy if value in of_label else math.nan) for value in values]
        for label, of_label in panel.items()
    }
    add_grey_lines(axes, [line for label, line in lines.items() if label not in coloured], clip_on=False)
    looks = [shown.styles[label].line | {"linewidth": 1.4} for label in coloured]
    add_lines(axes, [lines[label] for label in coloured], looks, clip_on=False)
    axes.autoscale_view()
    axes.set_ylim(-3, 103)
    if all(value >= 1 for value in values) and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
    add_ticks(axes, "x", values, [*map(_short, values)])
    points: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for row in rows:
        points.setdefault((row.label, row.n == 1), []).append((row.value, row.accuracy))
    looks = [shown.styles[label].mark(is_single) | {"markersize": 4.5} for label, is_single in points]
    add_line_marks(axes, [*points.values()], looks)


def _notes(frame: pd.DataFrame, shown: Highlights) -> list[str]:
    coloured = frame[frame.label.isin(shown.styles)]
    notes = [
        *frame.protocol.unique(),
        "One variable changed at a time, the others as in the profile.",
        seeds_text(frame.n),
        *shown.notes("difficulty", "accuracy, mean over panels"),
        *interval_texts(coloured.n, coloured.low),
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
