"""Accuracy on the MAD tasks: a panel a task, a row a label, a point a seed, the mean and its interval on top."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.layout import Legend, Panels, in_lines, new_figure, set_x_label, widest
from madbench.analysis.figures.marks import add_lines, add_marks, add_rows, add_ticks
from madbench.analysis.figures.style import (
    GREY,
    PERCENTS,
    SMALLEST,
    TITLES,
    LabelStyle,
    interval_texts,
    label_styles,
    seeds_text,
    style,
)
from madbench.analysis.quantities import MAD_AVERAGE
from madbench.analysis.scores import published_scores, with_average
from madbench.analysis.statistics import mean_interval
from madbench.tasks import TASK_NAMES

TYPES = dict.fromkeys(("protocol", "task", "label", "mark"), str)
TYPES |= dict.fromkeys(("seed", "accuracy", "low", "high"), float) | {"n": int, "state": str}
"""Columns of :func:`mad_frame`."""

_FEW = 12  # labels of which the panels fit in two rows
_REFERENCES = {"ceiling": {"linestyle": (0, (6, 2))}, "chance": {"linestyle": (0, (1, 1.5))}}
_SEED = {"marker": "o", "markersize": 3, "edge": 0, "alpha": 0.6}
_PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "none", "color": GREY}


def mad_frame(
    cells: pd.DataFrame, protocol: str, chances: Mapping[str, float] = {}, shows_published: bool = False
) -> pd.DataFrame:
    """What :func:`mad_figure` draws, a mark a row.

    Args:
        cells: :func:`madbench.analysis.scores.scores` of one protocol; a seed counts once all its jobs are done.
        protocol: sentences about what the runs share.
        chances: percent that guessing gives, by task.
        shows_published: whether the numbers may be set against the published ones.

    Columns: protocol, task (those that have begun, and ``mad_average`` where a label has all six), label, mark, seed, accuracy in percent, low, high
    (ends of the 95% interval over seeds), n, state. Marks: ``mean``; ``seed``; ``published``; ``ceiling`` where it is
    below 100, and ``chance``, without a label. ``state`` says why a mean has no accuracy.
    """
    whole = with_average(cells[cells.done == cells.expected])
    whole = whole[[*cells.columns]] if len(whole) else cells.iloc[:0]
    begun = {*cells[cells.done > 0].task, *whole.task}
    tasks = [task for task in (*TASK_NAMES, MAD_AVERAGE) if task in begun]
    begun_cells = cells[cells.done > 0]
    begun_labels = {*zip(begun_cells.task, begun_cells.label), *((MAD_AVERAGE, label) for label in begun_cells.label)}
    seeds_of: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in whole.itertuples():
        seeds_of.setdefault((one.task, one.label), []).append((float(one.seed), one.accuracy))
    ceilings = whole.groupby("task").ceiling.mean()
    labels = cells.label.unique()
    rows: list[dict[str, Any]] = []
    for task in tasks:
        ceiling = math.nan if task == MAD_AVERAGE else ceilings.get(task, math.nan)
        for name, value in (("ceiling", ceiling), ("chance", _chance(task, chances))):
            if value < 99.95:
                rows.append({"task": task, "label": "", "mark": name, "accuracy": value})
        for label in labels:
            seeds = seeds_of.get((task, label), [])
            finished = [(seed, accuracy) for seed, accuracy in seeds if not math.isnan(accuracy)]
            state = _state(len(seeds), len(seeds) - len(finished), (task, label) in begun_labels)
            mean, low, high = (math.nan,) * 3 if state else mean_interval(np.array([value for _, value in finished]))
            base = {"task": task, "label": label}
            interval = {"accuracy": mean, "low": low, "high": high, "n": len(finished)}
            rows.append(base | {"mark": "mean", "state": state} | interval)
            rows += [base | {"mark": "seed", "seed": seed, "accuracy": accuracy} for seed, accuracy in finished]
            if shows_published and label in published_scores():
                rows.append(base | {"mark": "published", "accuracy": published_scores()[label][task]})
    frame = pd.DataFrame(rows, columns=list(TYPES)).assign(protocol=protocol)
    return frame.fillna({"n": 0, "state": ""}).astype(TYPES)


def mad_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of a :func:`mad_frame`; a label keeps its style of ``styles``."""
    labels = [label for label in frame.label.unique() if label]
    styles = styles or label_styles(labels)
    tasks = [task for task in TITLES if task in set(frame.task)]
    notes = _notes(frame)
    columns = min(len(tasks), 4) if len(labels) <= _FEW else len(tasks)
    lines = in_lines(len(tasks), columns)
    row = 0.26 if len(labels) <= _FEW else 0.21
    with style():
        x_lines = [*[0] * (len(lines) - 1), 1]
        panels = Panels(lines, 1.63, row * (len(labels) + 0.2), widest(labels), x_lines=x_lines)
        legend = Legend(_entries(frame), is_below=True)
        figure, drawn = new_figure("mad", "MAD: accuracy by task and label", notes, panels, legend, least_width=5.5)
        rows: dict[str, dict[str, list[Any]]] = {}  # by task and mark
        for row in frame.itertuples():
            rows.setdefault(row.task, {}).setdefault(row.mark, []).append(row)
        for axes, task in zip(drawn, tasks):
            _draw(axes, rows[task], labels, styles)
            axes.set_title(TITLES[task], fontweight="bold" if task == MAD_AVERAGE else "normal")
            axes.set_xlim(-5, 105)
            add_ticks(axes, "x", PERCENTS, [*map(str, PERCENTS)])
        for axes in drawn[-lines[-1] :]:
            set_x_label(axes, "accuracy, %")
        add_rows(drawn, columns, {label: i for i, label in enumerate(labels)})
    return figure


def _draw(axes: Axes, rows: Mapping[str, list[Any]], labels: Sequence[str], styles: Mapping[str, LabelStyle]) -> None:
    """One task, whose rows are by their mark."""
    for mark, line in sorted(_REFERENCES.items()):
        for row in rows.get(mark, ()):
            axes.axvline(row.accuracy, color=GREY, linewidth=1, **line)
    places = {label: i for i, label in enumerate(labels)}
    means = rows["mean"]
    shows_seeds = {mean.label for mean in means if mean.n > 1 or mean.state}
    seeds = [seed for seed in rows.get("seed", ()) if seed.label in shows_seeds]
    seed_looks = [_SEED | {"color": styles[seed.label].color} for seed in seeds]
    add_marks(axes, [(seed.accuracy, places[seed.label] + 0.32) for seed in seeds], seed_looks)
    with_interval = [mean for mean in means if not math.isnan(mean.low)]
    bars = [[(max(one.low, -5), places[one.label]), (min(one.high, 105), places[one.label])] for one in with_interval]
    add_lines(axes, bars, [{"color": styles[mean.label].color, "linewidth": 1.6} for mean in with_interval])
    known = [mean for mean in means if not mean.state]
    mean_looks = [styles[mean.label].mark(mean.n == 1) for mean in known]
    add_marks(axes, [(mean.accuracy, places[mean.label]) for mean in known], mean_looks)
    published_at = {row.label: row.accuracy for row in rows.get("published", ())}
    points = [(x, places[label] - 0.26) for label, x in published_at.items()]
    add_marks(axes, points, [_PUBLISHED] * len(points))
    for mean in means:
        if not mean.state:
            continue
        x = published_at.get(mean.label)
        place = max((22, 50, 78), key=lambda place: place < 30 if x is None else abs(place - x))
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
        look = {"size": SMALLEST, "color": GREY, "style": "italic", "bbox": behind}
        axes.text(place, places[mean.label], mean.state, ha="center", va="center", **look)


def _entries(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """What the marks mean, those that are there."""
    means = frame[(frame.mark == "mean") & (frame.state == "")]
    marks = set(frame.mark)
    black = {"color": "black"}
    mean = black | {"marker": "o", "markersize": 6}
    entries = {}
    if (means.n > 1).any():
        has_bars = means.low.notna().any()
        entries |= {"mean, 95% interval": mean | {"linewidth": 1.6}} if has_bars else {"mean": mean}
        entries["one seed each"] = black | _SEED
    if (means.n == 1).any():
        entries["single seed"] = mean | {"markerfacecolor": "white"}
    if "published" in marks:
        entries["published"] = _PUBLISHED
    lines = {name: line | {"color": GREY, "linewidth": 1} for name, line in _REFERENCES.items()}
    return entries | {name: line for name, line in lines.items() if name in marks}


def _notes(frame: pd.DataFrame) -> list[str]:
    means = frame[frame.mark == "mean"]
    drawn = means[means.state == ""]
    notes = [*frame.protocol.unique(), seeds_text(means.n), *interval_texts(drawn.n, drawn.low)]
    if "ceiling" in set(frame.mark):
        notes.append("Ceiling: share of the targets that can be known.")
    if "chance" in set(frame.mark):
        notes.append("Chance: a guess among the tokens that are ever asked for.")
    return [note for note in notes if note]


def _state(seeds: int, diverged: int, is_begun: bool) -> str:
    if diverged:
        return "diverged" if seeds == diverged else f"{diverged}/{seeds} diverged"
    if seeds:
        return ""
    return "unfinished" if is_begun else "not run"


def _chance(task: str, chances: Mapping[str, float]) -> float:
    if task == MAD_AVERAGE:
        return float(np.mean(list(chances.values()))) if set(TASK_NAMES) <= set(chances) else math.nan
    return chances.get(task, math.nan)
