"""Two figures of the scores of one suite: scores by label, and accuracy against the difficulty of a task.

The first has one panel per column. The second has one panel per task and variable of its settings, such as the length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from madbench.analysis.baselines import BASELINES, CHANCE, HEURISTIC
from madbench.analysis.figures.curves import join_lines
from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import INTERVAL_NOTE, LINE, Layout, Page, Panels, draw_intervals, seeds_note
from madbench.analysis.figures.style import (
    CEILING,
    CHANCE_LINE,
    GRAY,
    HEURISTIC_LINE,
    OTHERS,
    PERCENTS,
    ArtistOptions,
    Highlights,
    LabelStyle,
    label_styles,
    smallest,
    style,
)
from madbench.analysis.frames import groups_of, rows_of
from madbench.analysis.quantities import column, in_order, is_average
from madbench.analysis.samples import sample_of, samples_of, whole_seeds
from madbench.suites.scoring import Scoring

SCORE_COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "task", "label", "mark"), str)
SCORE_COLUMNS |= dict.fromkeys(("seed", "accuracy", "low", "high"), float) | {"n": int, "state": str, "solved": str}
"""The columns of the data of :func:`score_figure`, with one row per mark in the figure.

The column ``mark`` is ``mean``, ``seed`` or ``published`` in rows of a label. In rows without a label, ``mark`` is
``ceiling`` (if below 100), ``chance`` or ``heuristic``. A mean over ``n`` seeds has the ends ``low`` and ``high`` of
its 95% interval, and in ``solved`` the share of seeds that solve the task, such as ``2/3``. A mean without an accuracy
has the reason in ``state``. Accuracy is in percent."""
DIFFICULTY_COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "task", "variable"), str) | {
    "value": float,
    "label": str,
}
DIFFICULTY_COLUMNS |= dict.fromkeys(("accuracy", "low", "high", "ceiling"), float) | {"n": int}
"""The columns of the data of :func:`difficulty_figure`, with one row per task, variable, its value, and label.

A variable is a key of the settings of the task, such as ``seq_len``. A row has the mean accuracy over ``n`` seeds, the
ends ``low`` and ``high`` of its 95% interval, and the ceiling, all in percent."""

_FEW = 12  # the largest number of labels with which the panels fit into two rows
_REFERENCES: dict[str, ArtistOptions] = {"ceiling": CEILING, CHANCE.name: CHANCE_LINE, HEURISTIC.name: HEURISTIC_LINE}
_SEED: ArtistOptions = {"marker": "o", "markersize": 3, "markeredgewidth": 0, "alpha": 0.6}
_PUBLISHED: ArtistOptions = {"marker": "+", "markersize": 5, "color": GRAY}
_STATE: ArtistOptions = {"color": GRAY, "style": "italic", "va": "center"}
_BEHIND: ArtistOptions = {"facecolor": "white", "linewidth": 0, "alpha": 0.8, "pad": 0.5}
_NAMES = {
    "vocab_size": "vocabulary",
    "seq_len": "length, tokens",
    "num_train_examples": "training examples",
    "frac_noise": "share of noise",
    "num_tokens_to_copy": "tokens to copy",
}


def score_frame(
    scores: pd.DataFrame,
    protocol: str,
    references: Mapping[str, Mapping[str, float]] = {},
    published: Mapping[str, Mapping[str, float]] = {},
) -> pd.DataFrame:
    """The data frame for :func:`score_figure`, from the scores of one protocol. A seed counts if all its jobs are done.

    Args:
        scores: a frame of scores (:mod:`madbench.analysis.scores`).
        protocol: sentences about the runs, for the notes of the figure.
        references: scores that need no learning, by the name of the baseline, such as ``chance``, and then by column
            (:mod:`madbench.analysis.baselines`).
        published: published numbers by label and column.
    """
    started_scores, complete_seeds, samples = scores[scores.done > 0], whole_seeds(scores), samples_of(scores)
    by_cell = dict([*complete_seeds.groupby(["column", "label"])])
    ceilings = complete_seeds[~complete_seeds.column.map(is_average).astype(bool)].groupby("column").ceiling.mean()
    rows: list[dict[str, Any]] = []
    for task in in_order(started_scores.column):
        for mark, values in {"ceiling": dict(ceilings), **references}.items():
            if values.get(task, math.nan) < 99.95:
                rows.append({"task": task, "label": "", "mark": mark, "accuracy": values[task]})
        started_labels = set(started_scores.label[(started_scores.column == task) | is_average(task)])
        for label in scores.label.unique():
            base, sample = {"task": task, "label": label}, samples.get(task, {}).get(label)
            mean: dict[str, Any]
            if sample is None:
                mean = {"state": "unfinished" if label in started_labels else "not run"}
            elif sample.diverged_count == sample.n:
                mean = {"state": "diverged"}
            else:
                low, high = sample.interval
                solved_text = f"{sample.solved}/{sample.n}" if sample.has_threshold and sample.n > 1 else ""
                mean = {"accuracy": sample.mean, "low": low, "high": high, "n": sample.n, "solved": solved_text}
            rows.append(base | {"mark": "mean"} | mean)
            seeds = by_cell.get((task, label), complete_seeds[:0])
            for seed, value in zip(seeds.seed, seeds.value):
                rows.append(base | {"mark": "seed", "seed": seed, "accuracy": value})
            if task in (numbers := published.get(label, {})):
                rows.append(base | {"mark": "published", "accuracy": numbers[task]})
    return frame_of(rows, SCORE_COLUMNS, protocol)


@style()
def score_figure(frame: pd.DataFrame, layout: Layout = Layout()) -> Page:
    """Draw a frame that :func:`score_frame` returned: one panel per column of results, with one row per label."""
    labels = [*filter(None, frame.label.unique())]
    styles, entries, tasks = label_styles(labels), _score_entries(frame), in_order(frame.task)
    is_few = len(labels) <= _FEW
    parts = layout.parts(labels, len(entries))
    longest = max(map(len, layout.names(labels).values()))
    of_part = layout.lines([len(tasks)], 4 if is_few else len(tasks), 0.95 if layout.is_small else 1.15, 0.07 * longest)
    height = LINE if layout.is_small else 0.26 if is_few else 0.15 if layout.width else 0.21
    size, least = (1.63, height * (len(parts[0]) + 0.2)), LINE * len(parts[0])
    lines = of_part * len(parts)
    panels = Panels(layout, "scores", "Results by task and label", lines, size, least, len(entries))
    places = [{label: i for i, label in enumerate(part)} for part in parts]
    for i, axes in enumerate(panels.axes):
        of_labels, task = places[i // len(tasks)], tasks[i % len(tasks)]
        axes.set_title(layout.name(task), fontweight="bold" if is_average(task) else "normal")
        span = _span(frame[frame.task == task])
        axes.set_xlim(span.start - 0.05 * span.width, span.stop + 0.05 * span.width)
        if span == PERCENT:
            axes.set_xticks(PERCENTS[:: 2 if layout.width else 1])
        else:
            axes.locator_params(axis="x", nbins=3)
        rows = frame[(frame.task == task) & ((frame.label == "") | frame.label.isin(list(of_labels)))]
        _draw_task(axes, rows.assign(place=rows.label.map(of_labels)), styles, span, 13 if layout.is_small else 8)
    names = dict.fromkeys(column(task).axis or column(task).words for task in tasks)
    panels.name_axes(" / ".join(names))
    panels.name_rows(*(of_part for of_part in places for _ in range(len(lines) // len(places))))
    return panels.finish(_score_notes(frame), entries, is_below=True)


class Span(NamedTuple):
    """The range of the x axis of a panel, in the units of its column."""

    start: float
    stop: float

    @property
    def width(self) -> float:
        return self.stop - self.start

    def value_at(self, percent: float) -> float:
        """The value at a place of the axis in percent: ``start`` at 0, ``stop`` at 100."""
        return self.start + self.width * percent / 100


PERCENT = Span(0.0, 100.0)


def _span(frame: pd.DataFrame) -> Span:
    """The range of the x axis of the panel of one column of results. ``frame`` has the rows of this column.

    The range is given by the limits of the column if both are finite, otherwise by the numbers in ``frame``.
    """
    limits = column(frame.task.iloc[0]).limits
    if all(map(math.isfinite, limits)):
        return Span(*limits)
    values = frame[["accuracy", "low", "high"]].to_numpy(float)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return Span(low, high if high > low else low + (abs(low) or 1.0))


def _draw_task(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, LabelStyle], span: Span, character: float) -> None:
    """Draw the marks of one column of results into its panel.

    Args:
        axes: the panel.
        frame: the rows of the column, with the y coordinate of each label in ``place``.
        styles: the style of each label.
        span: the range of the x axis.
        character: the width of a character of text, in percent of the axis.
    """
    for row in rows_of(frame[frame.mark.isin(list(_REFERENCES))]):
        axes.axvline(row.accuracy, **_REFERENCES[row.mark])
    means, seeds, published = (frame[frame.mark == mark] for mark in ("mean", "seed", "published"))
    seeds = seeds[seeds.label.isin(means.label[(means.n > 1) | (means.state != "")])]
    colors = [styles[label].color for label in seeds.label]
    axes.scatter(seeds.accuracy, seeds.place + 0.32, s=9, c=colors, alpha=0.6, linewidths=0, clip_on=False)
    bars = means[means.low.notna()]
    colors = [styles[label].color for label in bars.label]
    draw_intervals(axes, bars.place, bars.low, bars.high, colors, linewidth=1.6)
    complete = means[means.state == ""]
    for mean in rows_of(complete):
        axes.plot(mean.accuracy, mean.place, **styles[mean.label].mark(mean.n == 1), clip_on=False, zorder=3)
    if width := character * max(map(len, complete.solved), default=0):
        axes.set_xlim(right=span.value_at(113 + width))
    for mean in rows_of(complete[complete.solved != ""]):
        axes.text(
            span.value_at(112 + width), mean.place, mean.solved, size=smallest(), color=GRAY, ha="right", va="center"
        )
    axes.plot(published.accuracy, published.place - 0.26, linestyle="", clip_on=False, **_PUBLISHED)
    published_at = dict(zip(published.label, published.accuracy))
    for mean in rows_of(means[means.state != ""]):
        is_left = published_at.get(mean.label, span.stop) > span.value_at(50)
        x, side = (span.start, "left") if is_left else (span.stop, "right")
        axes.text(x, mean.place, mean.state, ha=side, size=smallest(), **_STATE, bbox=_BEHIND)


def _score_entries(frame: pd.DataFrame) -> dict[str, ArtistOptions]:
    means = frame[(frame.mark == "mean") & (frame.state == "")]
    bar = {"linestyle": "-", "linewidth": 1.6}
    mean = {"color": "black", "marker": "o"}
    entries: dict[str, ArtistOptions] = {}
    if (means.n > 1).any():
        entries |= {"mean, 95% interval": mean | bar} if means.low.notna().any() else {"mean": mean}
        entries["one seed each"] = {"color": "black", **_SEED}
    if (means.n == 1).any():
        entries["single seed"] = mean | {"markerfacecolor": "white"}
    others = {"published numbers": _PUBLISHED, **_REFERENCES}
    return entries | {name: look for name, look in others.items() if name.split()[0] in set(frame.mark)}


def _score_notes(frame: pd.DataFrame) -> list[str]:
    notes = [*frame.protocol.unique(), seeds_note(frame.n), INTERVAL_NOTE]
    if (frame.solved != "").any():
        notes.append("k/n: seeds that solve the task.")
    references = {
        "ceiling": "Ceiling: share of the targets that can be known.",
        **{baseline.name: baseline.sentence for baseline in BASELINES},
    }
    return [*notes, *(text for mark, text in references.items() if mark in set(frame.mark))]


def difficulty_frame(scoring: Scoring, job_frame: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The data frame for :func:`difficulty_figure`. Empty if no task is stored with several settings.

    The first setting of each task is its baseline setting. A setting is used if it differs from the baseline setting in
    at most one variable, such as the length. A seed with unfinished jobs is left out. A seed whose runs all diverged
    counts at chance.

    Args:
        scoring: the scoring of the suite.
        job_frame: the runs of one protocol (:meth:`madbench.suites.scoring.Scoring.collect`).
        protocol: a sentence about the runs.
    """
    scores = scoring.setting_scores(job_frame)
    places = {label: i for i, label in enumerate(job_frame.label.unique())}
    settings = {text: json.loads(text) for text in scores.setting.unique()}
    baselines = job_frame.groupby("column").setting.first().map(settings)
    sort_columns = ["column", "label", "setting"]
    rows: list[dict[str, Any]] = []
    complete_scores = scores[scores.done == scores.expected]
    for (task, label, text), seeds in groups_of(complete_scores, sort_columns):
        setting, baseline = settings[text], baselines[task]
        changes = [name for name, value in setting.items() if value != baseline[name]]
        if len(changes) > 1 or seeds.value.isna().any():
            continue
        sample = sample_of(task, {str(name): seeds[name].to_numpy() for name in seeds})
        low, high = sample.interval
        place = {"task": task, "label": label, "ceiling": sample.scale.ceiling, "n": len(seeds)}
        place |= {"accuracy": sample.mean, "low": low, "high": high}
        for variable in changes or setting:
            if isinstance(setting[variable], (int, float)):
                rows.append(place | {"variable": variable, "value": setting[variable]})
    frame = frame_of(rows, DIFFICULTY_COLUMNS, protocol)
    keys = {"task": {task: i for i, task in enumerate(in_order(frame.task))}, "label": places}
    sort_columns = ["task", "variable", "label", "value"]
    frame = frame.sort_values(
        sort_columns, key=lambda values: values.map(keys[values.name]) if values.name in keys else values
    )
    has_several = frame.groupby(["task", "variable"]).value.transform("nunique") > 1
    return frame[has_several].reset_index(drop=True)


@style()
def difficulty_figure(frame: pd.DataFrame, layout: Layout = Layout()) -> Page:
    """Draw a frame that :func:`difficulty_frame` returned: one panel per task and variable, with one line per label.

    ``frame`` must not be empty. If there are more than eight labels, only the best are in color.
    """
    panel_frames = dict([*frame.groupby(["task", "variable"], sort=False)])
    order = {name: i for i, name in enumerate(_NAMES)}
    keys = sorted(panel_frames, key=lambda key: (order.get(key[1], len(order)), key[1]))
    keys = [key for task in in_order(frame.task) for key in keys if key[0] == task]
    tables = {key: panel_frames[key].pivot(index="value", columns="label", values="accuracy") for key in keys}
    means = pd.DataFrame({key: table.mean(skipna=False) for key, table in tables.items()})
    highlights = Highlights.from_results({label: means.loc[label].tolist() for label in frame.label.unique()})
    tasks = [task for task, _ in keys]
    counts, entries = [*map(tasks.count, dict.fromkeys(tasks))], highlights.entries()
    lines = layout.lines(counts, len(_NAMES), *((0.65, 0.4) if layout.is_small else (1.2, 0.7)))
    heading, size = "Accuracy against difficulty", (1.76, 1.25)
    panels = Panels(layout, "difficulty", heading, lines, size, 0.6, len(entries), sharey="row")
    for axes, (key, table) in zip(panels.axes, tables.items()):
        _draw_variable(axes, panel_frames[key], table, highlights)
        if layout.width and len(table) > (1 if layout.is_small else 3):
            ticks = table.index[[0, -1]] if layout.is_small else table.index[::2]
            axes.set_xticks(ticks, map(_short, ticks))
            if layout.is_small:  # neighbors share the space between two panels
                axes.get_xticklabels()[0].set_horizontalalignment("left")
                axes.get_xticklabels()[-1].set_horizontalalignment("right")
        axes.set_xlabel(_NAMES.get(key[1], key[1]))
    of_axes = dict(zip(panels.axes, tasks))
    for line in panels.rows:
        line[0].set_ylabel(f"{layout.name(of_axes[line[0]])}\naccuracy, %")
    notes = [
        *frame.protocol.unique(),
        "One variable changed at a time, the others as in the profile.",
        seeds_note(frame.n),
        highlights.note("difficulty", "accuracy, mean over panels"),
        INTERVAL_NOTE,
    ]
    if (frame.ceiling < 99.95).any():
        notes.append("Dashed gray: the ceiling, the share of the targets that can be known.")
    return panels.finish(notes, entries)


def _draw_variable(axes: Axes, panel: pd.DataFrame, table: pd.DataFrame, highlights: Highlights) -> None:
    """Draw the accuracies of one task against one variable of its settings.

    Args:
        axes: the panel.
        panel: the rows of the frame for this task and variable.
        table: the accuracies, with one row per value of the variable and one column per label.
        highlights: the labels in color and the other labels.
    """
    axes.set(ylim=(-3, 103), yticks=PERCENTS)
    values = table.index.to_numpy()
    ceilings = panel.groupby("value").ceiling.mean()
    if ceilings.min() < 99.95:
        axes.plot(ceilings.index, ceilings, **CEILING)
    others = [np.column_stack([values, table[label]]) for label in table if label not in highlights.styles]
    axes.plot(*join_lines(others).T, **OTHERS, zorder=1.5)
    for label in (label for label in highlights.styles if label in table):
        look = highlights.styles[label]
        rows = panel[panel.label == label]
        draw_intervals(axes, rows.value, rows.low, rows.high, look.color, is_vertical=True, linewidth=1, alpha=0.6)
        axes.plot(values, table[label], **{**look.line, "linewidth": 1.4})
        for is_single, of_kind in rows.groupby(rows.n == 1):
            marks = {**look.mark(bool(is_single)), "markersize": 4.5, "linestyle": ""}
            axes.plot(of_kind.value, of_kind.accuracy, **marks, clip_on=False, zorder=3)
    if values[0] >= 1 and values[-1] >= 4 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [_short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """A number as the text of a tick, with ``k`` for thousands.

    >>> _short(12800.0), _short(0.2)
    ('12.8k', '0.2')
    """
    return f"{value / 1000:g}k" if value >= 1000 and not math.fmod(value, 100) else f"{value:g}"
