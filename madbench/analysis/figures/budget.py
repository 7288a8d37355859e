"""Accuracy, and the language model's loss, against what a mixer costs in parameters, with the Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import Bbox

from madbench.analysis.cells import Cell, cells_of
from madbench.analysis.figures.files import NothingToDrawError, frame_of
from madbench.analysis.figures.panels import INTERVAL_NOTE, Layout, Panels, draw_intervals, seeds_note
from madbench.analysis.figures.style import GREY, SMALLEST, label_style, style
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, column, in_order, title
from madbench.labels.names import shown_in
from madbench.suites import LANGUAGE, MAD

COLUMNS = dict.fromkeys(("protocol", "quantity", "label"), str)
COLUMNS |= dict.fromkeys(("budget_ratio", "mixer_parameters", "mean", "low", "high"), float) | {"n": int}
"""A quantity and label a row: both costs, and the mean over ``n`` seeds with the ends of its 95% interval; the mean is
NaN where a seed has no value."""

COSTS = {"budget_ratio": "mixer parameters, softmax attention = 1", "mixer_parameters": "mixer parameters"}
_FEW = 12  # labels whose names fit in a small panel
_FRONT = {"color": GREY, "linewidth": 1, "linestyle": (0, (4, 2))}
_RADIUS = 4  # of a marker, in points
_STARTS = ((8, 0), (14, 0), (20, 0), (28, 0), (-20, 0))  # from a point to where its name begins to move, in points


def budget_frame(scores: pd.DataFrame, costs: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What :func:`budget_figure` draws; ``protocol`` are sentences about what the runs share.

    Of MAD the average where any label has it, otherwise each task that has begun. Intervals are those of the tables.

    Args:
        scores: of one protocol a suite (:mod:`madbench.analysis.scores`); a seed counts once all its jobs are done.
        costs: label, column, budget_ratio and mixer_parameters of every run; NaN where they are not known.
    """
    scores = scores[(scores.suite == MAD.name) | (scores.column == LOSS)]
    costs = costs.astype(dict.fromkeys(COSTS, float)).groupby(["label", "column"])[[*COSTS]].mean()
    of_tasks = costs.drop(LOSS, level="column", errors="ignore").groupby("label").mean()
    quantities = set(scores.column[scores.done > 0])
    quantities &= {MAD_AVERAGE, LOSS} if MAD_AVERAGE in quantities else quantities
    columns = [column(name) for name in quantities]
    cells = cells_of(scores[scores.done == scores.expected], columns)
    rows = []
    for quantity in in_order(quantities):
        suite = LANGUAGE.name if quantity == LOSS else MAD.name
        for label in scores.label[scores.suite == suite].unique():
            cell = cells.get(label, {}).get(quantity, Cell.of(math.nan))
            cost = of_tasks.loc[label] if quantity == MAD_AVERAGE else costs.loc[label, quantity]
            n = cell.n if math.isfinite(cell.mean) else 0
            low, high = cell.interval
            mean = {"mean": cell.mean, "low": low, "high": high, "n": n}
            rows.append({"quantity": quantity, "label": label, **cost, **mean})
    return frame_of(rows, COLUMNS, protocol)


@style()
def budget_figure(
    frame: pd.DataFrame, x: Literal["budget_ratio", "mixer_parameters"] = "budget_ratio", layout: Layout = Layout()
) -> Figure:
    """Labels by name, against the cost ``x``, and the front of those that none beats at its cost.

    Raises ``NothingToDrawError`` where no label has both a mean and a cost.
    """
    notes = _notes(frame, x)
    frame = frame.dropna(subset=[x, "mean"]).assign(cost=lambda rows: rows[x])
    if frame.empty:
        raise NothingToDrawError("no label has both a finished result and a known cost: there is nothing to draw")
    of_quantity = {quantity: frame[frame.quantity == quantity] for quantity in in_order(frame.quantity)}
    size = (5.6, 5.8) if frame.label.nunique() > _FEW else (3.6, 3.0)
    size = max(size[0], 0.15 * frame.label.str.len().max() + 1), size[1]  # a name fits on either side of the middle
    heading = "Accuracy and loss against the budget" if LOSS in of_quantity else "Accuracy against the budget"
    panels = Panels(layout, "budget", heading, layout.lines([len(of_quantity)], 3, 2.4, 0.5), size)
    for axes, (quantity, rows) in zip(panels.axes, of_quantity.items()):
        _draw(axes, rows)
        y_label = "L5, nats per token (less is better)" if quantity == LOSS else "accuracy, %"
        axes.set(xlabel=COSTS[x], ylabel=y_label, title=title(quantity))
        if x == "mixer_parameters":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    figure = panels.finish(notes, {"Pareto front": _FRONT}, is_below=True)
    for axes, rows in zip(panels.axes, of_quantity.values()):
        for other in panels.axes:
            other.set_visible(other is axes)  # adjustText draws what is visible
        ends = [*itertools.pairwise(_stairs(axes, rows))]
        ends += [((one.cost, one.low), (one.cost, one.high)) for one in rows[rows.low.notna()].itertuples()]
        _name_points(axes, rows.label.tolist(), rows[["cost", "mean"]].to_numpy(), ends)
    for axes in panels.axes:
        axes.set_visible(True)
    return figure


def _draw(axes: Axes, frame: pd.DataFrame) -> None:
    for one in frame.itertuples():
        axes.plot(one.cost, one.mean, **label_style(one.label).mark(one.n == 1), linestyle="", clip_on=False, zorder=3)
    span = max(np.ptp(frame.cost), 0.1 * frame.cost.max())
    axes.set_xlim(frame.cost.min() - 0.25 * span, frame.cost.max() + 0.25 * span)
    low, high = frame["mean"].min(), frame["mean"].max()
    spread = high - low or 0.05 * abs(high) or 1.0  # intervals are seen as far as they leave the means apart
    low, high = max(low - spread, min(low, frame.low.min())), min(high + spread, max(high, frame.high.max()))
    axes.set_ylim(low - 0.12 * spread, high + 0.12 * spread)
    bars = frame[frame.low.notna()]
    colors = [label_style(label).color for label in bars.label]
    draw_intervals(axes, bars.cost, bars.low, bars.high, colors, is_vertical=True, linewidth=1, alpha=0.5)
    axes.plot(*zip(*_stairs(axes, frame)), **_FRONT, zorder=1)


def pareto_front(costs: Mapping[str, float], values: Mapping[str, float]) -> list[str]:
    """The labels than which no other costs at most as much and has a higher value, from cheap to dear.

    >>> pareto_front({"S": 1.0, "R": 0.9, "G": 1.0, "G!": 1.4}, {"S": 60, "R": 50, "G": 70, "G!": 69})
    ['R', 'G']
    """
    front: list[str] = []
    for label in sorted(costs, key=lambda label: (costs[label], -values[label])):
        if not front or values[label] > values[front[-1]]:
            front.append(label)
    return front


def _stairs(axes: Axes, frame: pd.DataFrame) -> list[tuple[float, float]]:
    """The corners of the front, from below its cheapest label to the right edge."""
    is_loss = (frame.quantity == LOSS).all()
    costs, means = dict(zip(frame.label, frame.cost)), dict(zip(frame.label, frame["mean"]))
    front = pareto_front(costs, {label: -mean if is_loss else mean for label, mean in means.items()})
    stairs = [(costs[front[0]], axes.get_ylim()[1 if is_loss else 0])]
    for label in front:
        stairs += [(costs[label], stairs[-1][1]), (costs[label], means[label])]
    return [*stairs, (axes.get_xlim()[1], means[front[-1]])]


def _name_points(axes: Axes, names: Sequence[str], points: np.ndarray, lines: Sequence) -> None:
    """Writes the names of ``points`` (n, 2), so that none covers another, a point or one of ``lines`` (pairs of ends).

    They are right of their points, or where adjustText moves them from there; where it does not find such places it
    starts from others, and the best attempt is drawn. Leaders lead to distant ones. The layout of the figure is fixed
    and the limits of the axes are final.
    """
    to_pixels, scale = axes.transData, axes.get_figure().dpi / 72
    to_data = to_pixels.inverted()
    middles = to_pixels.transform(points)
    taken = [Bbox([middle - _RADIUS * scale, middle + _RADIUS * scale]) for middle in middles]
    ends = [to_pixels.transform(line) for line in lines]
    taken += [Bbox([line.min(axis=0) - scale, line.max(axis=0) + scale]) for line in ends]
    forces = {"avoid_self": False, "force_pull": (0, 0), "force_static": (0.2, 0.4), "prevent_crossings": False}
    around = {"objects": [box.transformed(to_data) for box in taken], "ax": axes, "iter_lim": 100}
    look = {"va": "center", "fontsize": SMALLEST, "bbox": {"fc": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.2}}
    least, best, boxes = np.inf, [], []
    for start in _STARTS:
        places = to_data.transform(middles + np.multiply(start, scale))
        texts = [axes.text(*place, shown_in(name), **look) for name, place in zip(names, places)]
        found = [text.get_window_extent() for text in texts]
        if _covered(axes, found, taken):
            from adjustText import adjust_text  # half a second, as it takes pyplot

            adjust_text(texts, target_x=points[:, 0], target_y=points[:, 1], **forces, **around)
            found = [text.get_window_extent() for text in texts]
        covered = _covered(axes, found, taken)
        worse = best if covered < least else texts
        if covered < least:
            least, best, boxes = covered, texts, found
        for text in worse:
            text.remove()
        if not least:
            break
    leaders = [(middle, middle.clip(box.min, box.max)) for middle, box in zip(middles, boxes)]
    leaders = [to_data.transform(ends) for ends in leaders if np.hypot(*(ends[1] - ends[0])) > 2 * _RADIUS * scale]
    axes.add_collection(LineCollection(leaders, colors=GREY, linewidths=0.5, zorder=2.5), autolim=False)


def _covered(axes: Axes, names: Sequence[Bbox], taken: Sequence[Bbox]) -> float:
    """How often a name leaves the axes or covers what is taken or, ten times as bad where it hides it, another name."""
    covered = sum(_hidden(one, other) for one, other in itertools.combinations(names, 2))
    covered += sum(box.overlaps(other) for box in names for other in taken)
    return covered + sum((box.min < axes.bbox.min).any() or (box.max > axes.bbox.max).any() for box in names)


def _hidden(one: Bbox, other: Bbox) -> float:
    """0 for boxes that do not overlap, else from 1 to 10 with the share of the smaller one that the other hides."""
    if not one.overlaps(other):
        return 0.0
    both = Bbox.intersection(one, other)
    return 1 + 9 * both.width * both.height / min(one.width * one.height, other.width * other.height)


def _notes(frame: pd.DataFrame, x: str) -> list[str]:
    front = "Pareto front: no label is better at this cost or less."
    notes = [*frame.protocol.unique(), front, seeds_note(frame.n), INTERVAL_NOTE]
    is_several = frame.quantity.nunique() > 1
    for why, is_so in (("unfinished", frame["mean"].isna()), ("of unknown cost", frame[x].isna())):
        rows = frame[is_so].itertuples()
        names = [f"{one.label} ({title(one.quantity)})" if is_several else one.label for one in rows]
        notes += [f"Left out, {why}: {', '.join(names)}."] if names else []
    return notes
