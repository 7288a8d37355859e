"""Accuracy on the MAD tasks: a panel a task, a row a label, a point a seed, the mean and its interval on top."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.notes import interval_notes, seeds_note
from madbench.analysis.figures.panels import Panels, in_lines, name_rows
from madbench.analysis.figures.style import (
    CEILING,
    GREY,
    PERCENTS,
    SMALLEST,
    LabelStyle,
    in_order,
    label_styles,
    style,
    title,
)
from madbench.analysis.quantities import MAD_AVERAGE
from madbench.analysis.scores import published_scores, with_average
from madbench.analysis.statistics import mean_interval
from madbench.tasks import TASK_NAMES

COLUMNS = dict.fromkeys(("protocol", "task", "label", "mark"), str)
COLUMNS |= dict.fromkeys(("seed", "accuracy", "low", "high"), float) | {"n": int, "state": str}
"""Columns of :func:`mad_frame` and their types."""

_FEW = 12  # labels of which the panels fit in two rows
_REFERENCES = {"ceiling": CEILING, "chance": CEILING | {"linestyle": (0, (1, 1.5))}}
_SEED = {"marker": "o", "markersize": 3, "markeredgewidth": 0, "alpha": 0.6}
_PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "none", "color": GREY}


def mad_frame(
    cells: pd.DataFrame, protocol: str, chances: Mapping[str, float] = {}, shows_published: bool = False
) -> pd.DataFrame:
    """What :func:`mad_figure` draws, a mark a row.

    Args:
        cells: :func:`madbench.analysis.scores.scores` of one protocol; a seed counts once all its jobs are done.
        protocol: sentences about what the runs share.
        chances: percent that guessing gives, by task.
        shows_published: whether the published numbers are drawn as well.

    Columns: protocol, task (those that have begun, and ``mad_average`` where a label has all six), label, mark, seed,
    accuracy in percent, low, high (ends of the 95% interval over seeds), n, state. Marks: ``mean``; ``seed``;
    ``published``; ``ceiling`` where it is below 100, and ``chance``, without a label. ``state`` says why a mean has no
    accuracy.
    """
    begun = cells[cells.done > 0]
    whole = with_average(cells[cells.done == cells.expected])
    begun_cells = {*zip(begun.task, begun.label), *((MAD_AVERAGE, label) for label in begun.label)}
    seeds_of: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in whole.itertuples():
        seeds_of.setdefault((one.task, one.label), []).append((float(one.seed), one.accuracy))
    ceilings = whole[whole.task != MAD_AVERAGE].groupby("task").ceiling.mean()
    rows: list[dict[str, Any]] = []
    for task in in_order([*begun.task, *whole.task]):
        for name, value in (("ceiling", ceilings.get(task, math.nan)), ("chance", _chance(task, chances))):
            if value < 99.95:
                rows.append({"task": task, "label": "", "mark": name, "accuracy": value})
        for label in cells.label.unique():
            seeds = seeds_of.get((task, label), [])
            finished = [(seed, accuracy) for seed, accuracy in seeds if not math.isnan(accuracy)]
            state = _state(len(seeds), len(seeds) - len(finished), (task, label) in begun_cells)
            mean, low, high = (math.nan,) * 3 if state else mean_interval(np.array([value for _, value in finished]))
            base = {"task": task, "label": label}
            interval = {"accuracy": mean, "low": low, "high": high, "n": len(finished)}
            rows.append(base | {"mark": "mean", "state": state} | interval)
            rows += [base | {"mark": "seed", "seed": seed, "accuracy": accuracy} for seed, accuracy in finished]
            published = published_scores().get(label, {}) if shows_published else {}
            if task in published:
                rows.append(base | {"mark": "published", "accuracy": published[task]})
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).assign(protocol=protocol)
    return frame.fillna({"n": 0, "state": ""}).astype(COLUMNS)


def _state(seeds: int, diverged: int, is_begun: bool) -> str:
    if diverged:
        return "diverged" if seeds == diverged else f"{diverged}/{seeds} diverged"
    if seeds:
        return ""
    return "unfinished" if is_begun else "not run"


def _chance(task: str, chances: Mapping[str, float]) -> float:
    if task == MAD_AVERAGE and set(TASK_NAMES) <= set(chances):
        return float(np.mean([chances[name] for name in TASK_NAMES]))
    return chances.get(task, math.nan)


def mad_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of a :func:`mad_frame`; a label keeps its colour of ``styles``."""
    labels = [label for label in frame.label.unique() if label]
    styles = styles or label_styles(labels)
    tasks = in_order(frame.task)
    is_few = len(labels) <= _FEW
    lines = in_lines(len(tasks), min(len(tasks), 4) if is_few else len(tasks))
    with style():
        size = (1.63, (0.26 if is_few else 0.21) * (len(labels) + 0.2))
        panels = Panels("mad", "MAD: accuracy by task and label", lines, size, is_y_shared=False)
        for axes, task in zip(panels.axes, tasks):
            _draw(axes, frame[frame.task == task], labels, styles)
            axes.set_title(title(task), fontweight="bold" if task == MAD_AVERAGE else "normal")
            axes.set(xlim=(-5, 105), xticks=PERCENTS)
        for axes in panels.bottom:
            axes.set_xlabel("accuracy, %")
        name_rows(panels, {label: i for i, label in enumerate(labels)})
        return panels.finish(_notes(frame), _entries(frame), is_below=True)


def _draw(axes: Axes, frame: pd.DataFrame, labels: Sequence[str], styles: Mapping[str, LabelStyle]) -> None:
    """One task."""
    for row in frame[frame.mark.isin(list(_REFERENCES))].itertuples():
        axes.axvline(row.accuracy, **_REFERENCES[row.mark])
    frame = frame[frame.label != ""]
    frame = frame.assign(
        place=frame.label.map({label: i for i, label in enumerate(labels)}),
        color=frame.label.map({label: styles[label].color for label in labels}),
    )
    means = frame[frame.mark == "mean"]
    repeated = means.label[(means.n > 1) | (means.state != "")]
    seeds = frame[(frame.mark == "seed") & frame.label.isin(repeated)]
    axes.scatter(seeds.accuracy, seeds.place + 0.32, s=9, c=seeds.color, alpha=0.6, linewidths=0, clip_on=False)
    bars = means[means.low.notna()]
    axes.hlines(bars.place, bars.low.clip(lower=-5), bars.high.clip(upper=105), bars.color, linewidth=1.6)
    known = means[means.state == ""]
    faces = known.color.where(known.n > 1, "white")
    axes.scatter(known.accuracy, known.place, s=36, c=faces, edgecolors=known.color, clip_on=False, zorder=3)
    published = frame[frame.mark == "published"]
    axes.plot(published.accuracy, published.place - 0.26, linestyle="", clip_on=False, **_PUBLISHED)
    published_at = dict(zip(published.label, published.accuracy))
    for mean in means[means.state != ""].itertuples():
        x = published_at.get(mean.label, 100)
        away = max((22, 50, 78), key=lambda place: abs(place - x))
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
        look = {"size": SMALLEST, "color": GREY, "style": "italic", "bbox": behind}
        axes.text(away, mean.place, mean.state, ha="center", va="center", **look)


def _entries(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The meaning of the marks that are there."""
    means = frame[(frame.mark == "mean") & (frame.state == "")]
    mean = {"color": "black", "marker": "o"}
    entries = {}
    if (means.n > 1).any():
        has_bars = means.low.notna().any()
        entries |= {"mean, 95% interval": mean | {"linestyle": "-", "linewidth": 1.6}} if has_bars else {"mean": mean}
        entries["one seed each"] = {"color": "black"} | _SEED
    if (means.n == 1).any():
        entries["single seed"] = mean | {"markerfacecolor": "white"}
    others = {"published numbers": _PUBLISHED, **_REFERENCES}
    return entries | {name: look for name, look in others.items() if name.split()[0] in set(frame.mark)}


def _notes(frame: pd.DataFrame) -> list[str]:
    means = frame[frame.mark == "mean"]
    drawn = means[means.state == ""]
    notes = [*frame.protocol.unique(), seeds_note(means.n), *interval_notes(drawn.n, drawn.low)]
    if "ceiling" in set(frame.mark):
        notes.append("Ceiling: share of the targets that can be known.")
    if "chance" in set(frame.mark):
        notes.append("Chance: a guess among the tokens that are ever asked for.")
    return notes
