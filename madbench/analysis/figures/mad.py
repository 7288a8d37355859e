"""Accuracy on the MAD tasks: a panel a task, a row a label, a point a seed, the mean and its interval on top."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.panels import Panels, in_lines, interval_notes, seeds_note
from madbench.analysis.figures.style import (
    CEILING,
    GREY,
    PERCENTS,
    SMALLEST,
    Look,
    in_order,
    label_styles,
    style,
    title,
)
from madbench.analysis.quantities import MAD_AVERAGE

COLUMNS = dict.fromkeys(("protocol", "task", "label", "mark"), str)
COLUMNS |= dict.fromkeys(("seed", "accuracy", "low", "high"), float) | {"n": int, "state": str}
"""A mark a row: ``mean``, with the ends of its 95% interval over ``n`` seeds, or ``state``, why it has no accuracy;
``seed``; ``published``; ``ceiling`` where it is below 100, and ``chance``, without a label. Accuracy in percent."""

_FEW = 12  # labels of which the panels fit in two rows
_REFERENCES = {"ceiling": CEILING, "chance": {**CEILING, "linestyle": (0, (1, 1.5))}}
_SEED = {"marker": "o", "markersize": 3, "markeredgewidth": 0, "alpha": 0.6}
_PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "none", "color": GREY}
_STATE = {"size": SMALLEST, "color": GREY, "style": "italic", "ha": "center", "va": "center"}
_BEHIND = {"facecolor": "white", "linewidth": 0, "alpha": 0.8, "pad": 0.5}


def mad_figure(frame: pd.DataFrame) -> Figure:
    """Rows of labels, in their colours, in panels of the tasks of ``frame`` and the MAD average."""
    styles = label_styles(frame)
    labels = [*styles]
    frame = frame.assign(
        place=frame.label.map({label: i for i, label in enumerate(labels)}),
        color=frame.label.map({label: styles[label].color for label in labels}),
    )
    tasks = in_order(frame.task)
    is_few = len(labels) <= _FEW
    lines = in_lines(len(tasks), min(len(tasks), 4) if is_few else len(tasks))
    with style():
        size = (1.63, (0.26 if is_few else 0.21) * (len(labels) + 0.2))
        panels = Panels("mad", "MAD: accuracy by task and label", lines, size)
        for axes, task in zip(panels.axes, tasks):
            _draw(axes, frame[frame.task == task])
            axes.set_title(title(task), fontweight="bold" if task == MAD_AVERAGE else "normal")
            axes.set(xlim=(-5, 105), xticks=PERCENTS)
        for axes in panels.bottom:
            axes.set_xlabel("accuracy, %")
        panels.name_rows({label: i for i, label in enumerate(labels)})
        return panels.finish(_notes(frame), _entries(frame), is_below=True)


def _draw(axes: Axes, frame: pd.DataFrame) -> None:
    """One task."""
    for row in frame[frame.mark.isin(list(_REFERENCES))].itertuples():
        axes.axvline(row.accuracy, **_REFERENCES[row.mark])
    means, seeds, published = (frame[frame.mark == mark] for mark in ("mean", "seed", "published"))
    seeds = seeds[seeds.label.isin(means.label[(means.n > 1) | (means.state != "")])]
    axes.scatter(seeds.accuracy, seeds.place + 0.32, s=9, c=seeds.color, alpha=0.6, linewidths=0, clip_on=False)
    bars = means[means.low.notna()]
    axes.hlines(bars.place, bars.low.clip(lower=-5), bars.high.clip(upper=105), bars.color, linewidth=1.6)
    known = means[means.state == ""]
    faces = known.color.where(known.n > 1, "white")
    axes.scatter(known.accuracy, known.place, s=36, c=faces, edgecolors=known.color, clip_on=False, zorder=3)
    axes.plot(published.accuracy, published.place - 0.26, linestyle="", clip_on=False, **_PUBLISHED)
    published_at = dict(zip(published.label, published.accuracy))
    for mean in means[means.state != ""].itertuples():
        x = 22 if published_at.get(mean.label, 100) > 50 else 78
        axes.text(x, mean.place, mean.state, **_STATE, bbox=_BEHIND)


def _entries(frame: pd.DataFrame) -> dict[str, Look]:
    """The meaning of the marks that are there."""
    means = frame[(frame.mark == "mean") & (frame.state == "")]
    bar = {"linestyle": "-", "linewidth": 1.6}
    mean = {"color": "black", "marker": "o"}
    entries: dict[str, Look] = {}
    if (means.n > 1).any():
        entries |= {"mean, 95% interval": mean | bar} if means.low.notna().any() else {"mean": mean}
        entries["one seed each"] = {"color": "black", **_SEED}
    if (means.n == 1).any():
        entries["single seed"] = mean | {"markerfacecolor": "white"}
    others = {"published numbers": _PUBLISHED, **_REFERENCES}
    return entries | {name: look for name, look in others.items() if name.split()[0] in set(frame.mark)}


def _notes(frame: pd.DataFrame) -> list[str]:
    means = frame[(frame.mark == "mean") & (frame.state == "")]
    notes = [*frame.protocol.unique(), seeds_note(means.n), *interval_notes(means.n, means.low)]
    references = {
        "ceiling": "Ceiling: share of the targets that can be known.",
        "chance": "Chance: a guess among the tokens that are ever asked for.",
    }
    return [*notes, *(text for mark, text in references.items() if mark in set(frame.mark))]
