"""The figure of accuracy or loss against a cost of the mixers, such as parameters, with the Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator

from madbench.analysis.baselines import HEURISTIC
from madbench.analysis.cells import Cell, cells_of
from madbench.analysis.figures.files import NothingToDrawError, frame_of
from madbench.analysis.figures.names import name_points
from madbench.analysis.figures.panels import INTERVAL_NOTE, Layout, Page, Panels, draw_intervals, seeds_note
from madbench.analysis.figures.style import GRAY, HEURISTIC_LINE, ArtistOptions, LabelStyle, label_styles, style
from madbench.analysis.frames import groups_of, rows_of
from madbench.analysis.quantities import column, in_order, is_average, suite_of_column, title
from madbench.analysis.samples import select_columns

COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "quantity", "label"), str)
COLUMNS |= dict.fromkeys(("budget_ratio", "mixer_parameters", "flops_per_token", "state", "mean", "low", "high"), float)
COLUMNS |= {"n": int}
"""The columns of the data of :func:`budget_figure`, with one row per quantity and label.

A quantity is the name of a column of results. A row has the costs of the label's mixers, the mean over ``n`` seeds, and
the ends ``low`` and ``high`` of its 95% interval. The mean is NaN if a seed has no value. In a row without a label the
mean is the score of the best answer that ignores the context."""

CostName: TypeAlias = Literal["budget_ratio", "mixer_parameters", "flops_per_token", "state"]
COSTS: Mapping[CostName, str] = {
    "budget_ratio": "mixer parameters, softmax attention = 1",
    "mixer_parameters": "mixer parameters",
    "flops_per_token": "FLOPs per token of all mixers, longest input",
    "state": "numbers in the state of all mixers, longest input",
}
"""The title of the x axis by the name of the cost. FLOPs are those of a forward pass. FLOPs and state are those of the
longest training inputs."""
_SUBJECTS = {"flops_per_token": "FLOPs per token", "state": "the size of the state"}
"""The words for a cost in the title of the figure. Other costs have the words ``the budget``."""
_LOGARITHMIC = "state"
"""The cost whose axis is logarithmic. A cache grows with the input and other states do not, so states differ widely."""
_DIGITS = (1, 1.5, 2, 3, 5, 7)
_FEW_DIGITS = (1, 2, 5)  # for an axis over more than a decade
_FEW = 12  # the largest number of labels whose names fit into a small panel
_MOST_NAMES = 33  # the largest number of names that fit beside the panel in a single column of a paper
_FRONT: ArtistOptions = {"color": GRAY, "linewidth": 1, "linestyle": (0, (4, 2))}


def budget_frame(
    scores: pd.DataFrame, costs: pd.DataFrame, protocol: str, heuristics: Mapping[str, float] = {}
) -> pd.DataFrame:
    """The data frame for :func:`budget_figure`: the costs and the mean result of each label, with one row per quantity.

    A quantity is the name of a column of results. The quantities of a suite are its averages, or all its main columns
    if no label has an average. Intervals are the same as in tables.

    Args:
        scores: the scores of one protocol per suite (:mod:`madbench.analysis.scores`). A seed counts if all its jobs
            are done.
        costs: one row per run, with suite, label, column and the costs of :data:`COSTS`. Unknown costs are NaN.
        protocol: sentences about the runs.
        heuristics: the scores of the best answer that ignores the context, by quantity.
    """
    scores = select_columns(scores, lambda score_column: score_column.is_attributed)
    costs = costs.reindex(columns=["suite", "label", "column", *COSTS])
    costs = costs.astype(dict.fromkeys(COSTS, float)).groupby(["suite", "label", "column"])[[*COSTS]].mean()
    of_suites = costs.groupby(["suite", "label"]).mean()
    quantities: set[str] = set()
    for _, of_suite in groups_of(scores[scores.done > 0], "suite"):
        averages = set(filter(is_average, of_suite.column))
        quantities |= averages or set(of_suite.column)
    columns = [column(name) for name in quantities]
    cells = cells_of(scores[scores.done == scores.expected], columns)
    rows = []
    for quantity in in_order(quantities):
        of_suite = suite_of_column(quantity)
        assert of_suite is not None  # every column of scores has a suite
        suite = of_suite.name
        for label in scores.label[scores.suite == suite].unique():
            cell = cells.get(label, {}).get(quantity, Cell.of_number(math.nan))
            key = suite, label, quantity
            cost = costs.loc[key, :] if key in costs.index else of_suites.loc[(suite, label), :]
            n = cell.n if math.isfinite(cell.mean) else 0
            low, high = cell.interval
            mean = {"mean": cell.mean, "low": low, "high": high, "n": n}
            rows.append({"quantity": quantity, "label": label, **cost, **mean})
    lines = [{"quantity": name, "label": "", "mean": heuristics[name]} for name in quantities if name in heuristics]
    return frame_of([*rows, *lines], COLUMNS, protocol)


@style()
def budget_figure(frame: pd.DataFrame, x: CostName = "budget_ratio", layout: Layout = Layout()) -> Page:
    """Draw a frame that :func:`budget_frame` returned: results against the cost ``x``, and the Pareto front.

    There is one panel per quantity, with one named point per label.

    ``frame.attrs["matched"]`` is the quantity that the budget makes equal for all mixers, by default ``parameters``.
    Raises ``NothingToDrawError`` if no label has both a mean and a cost.
    """
    cost = COSTS[x].replace("parameters", frame.attrs.get("matched", "parameters")) if x == "budget_ratio" else COSTS[x]
    references, frame = frame[frame.label == ""], frame[frame.label != ""]
    notes = _notes(frame, x)
    frame = frame.dropna(subset=[x, "mean"])
    frame = frame.assign(cost=np.log10(frame[x].clip(lower=1)) if x == _LOGARITHMIC else frame[x])
    if frame.empty:
        raise NothingToDrawError("no label has both a finished result and a known cost: there is nothing to draw")
    of_quantity = {quantity: frame[frame.quantity == quantity] for quantity in in_order(frame.quantity)}
    most = frame.groupby("quantity").label.nunique().max()
    size = (5.6, max(5.8, 0.08 * most)) if most > _FEW else (3.6, 3.0)
    names = layout.names(dict.fromkeys(frame.label))
    size = max(size[0], 0.15 * max(map(len, names.values())) + 1), size[1]  # a name fits on both sides of the middle
    kinds = dict.fromkeys(column(name).axis.partition(",")[0] for name in of_quantity)
    heading = f"{' and '.join(filter(None, kinds)) or 'results'} against {_SUBJECTS.get(x, 'the budget')}"
    heading = f"{heading[:1].upper()}{heading[1:]}"
    columns = 1 if layout.is_small else 3
    panels = Panels(layout, "budget", heading, layout.lines([len(of_quantity)], columns, 2.4, 0.5), size, 1.5)
    styles, fronts = label_styles(frame.label), []
    for axes, (quantity, rows) in zip(panels.axes, of_quantity.items()):
        fronts.append(_draw(axes, rows, styles))
        axes.set(xlabel=cost, ylabel=column(quantity).axis or title(quantity), title=layout.name(quantity))
        if layout.is_small:
            axes.locator_params(nbins=4)
        if x == _LOGARITHMIC:
            _label_powers(axes.xaxis, _DIGITS if np.ptp(rows.cost) < 1 else _FEW_DIGITS)
        elif x != "budget_ratio":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    notes.append(_unnamed_note(of_quantity, layout))
    entries = {"Pareto front": _FRONT}
    for axes, quantity in zip(panels.axes, of_quantity):
        for value in references["mean"][references.quantity == quantity]:
            if axes.get_ylim()[0] <= value <= axes.get_ylim()[1]:
                axes.axhline(value, **HEURISTIC_LINE, zorder=0.9)
                entries[HEURISTIC.name] = HEURISTIC_LINE
    notes += [HEURISTIC.sentence] if HEURISTIC.name in entries else []
    figure = panels.finish(notes, entries, is_below=True)
    for axes, rows, front in zip(panels.axes, of_quantity.values(), fronts):
        ends = np.array([*itertools.pairwise(np.asarray(front.get_xydata()))])
        bars = [((row.cost, row.low), (row.cost, row.high)) for row in rows_of(rows[rows.low.notna()])]
        named_rows = rows[rows.label.isin(_labels_to_name(rows, layout))]
        points = named_rows[["cost", "mean"]].to_numpy()
        name_points(axes, [names[label] for label in named_rows.label], points, [*ends, *np.array(bars)])
        front.set_data(*zip(*_stairs(axes, rows)))
    return figure


def _label_powers(axis: Axis, digits: Sequence[float]) -> None:
    """Label an axis, whose coordinates are decimal logarithms, by the numbers themselves.

    There are ticks at d * 10^k for each d of ``digits`` and k from 0 to 15.
    """
    as_text = EngFormatter(sep="")
    axis.set_major_locator(FixedLocator([math.log10(digit * 10**power) for power in range(16) for digit in digits]))
    axis.set_major_formatter(lambda exponent, _: as_text(10.0**exponent))


def _labels_to_name(rows: pd.DataFrame, layout: Layout) -> list[str]:
    """The labels whose names are drawn in a panel, best first. ``rows`` has one row per label of the panel.

    A figure for a single column of a paper has at most :data:`_MOST_NAMES` names per panel.
    """
    best = rows.sort_values("mean", ascending=_is_lower_better(rows), kind="stable").label
    return best.tolist()[: _MOST_NAMES if layout.is_small else None]


def _is_lower_better(rows: pd.DataFrame) -> bool:
    """True if lower is better in the column of results of ``rows``. All ``rows`` must have the same column."""
    return column(rows.quantity.iloc[0]).better == "lower"


def _unnamed_note(of_quantity: Mapping[str, pd.DataFrame], layout: Layout) -> str:
    """A sentence that counts the labels without a name in each panel. Empty if all labels have names.

    ``of_quantity`` has the rows of each panel, by quantity.
    """
    counts = {quantity: len(rows) - len(_labels_to_name(rows, layout)) for quantity, rows in of_quantity.items()}
    unnamed_text = ", ".join(f"{count} ({layout.name(quantity)})" for quantity, count in counts.items() if count)
    return (
        f"Only the {_MOST_NAMES} best labels of a panel are named; without a name: {unnamed_text}."
        if unnamed_text
        else ""
    )


def _draw(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, LabelStyle]) -> Line2D:
    """Draw the points and intervals of one quantity, and the Pareto front. Return the line of the front.

    ``frame`` has the rows of the quantity, and ``styles`` the style of each label.
    """
    for row in rows_of(frame):
        axes.plot(row.cost, row.mean, **styles[row.label].mark(row.n == 1), linestyle="", clip_on=False, zorder=3)
    span = max(np.ptp(frame.cost), 0.1 * frame.cost.max())
    axes.set_xlim(frame.cost.min() - 0.25 * span, frame.cost.max() + 0.25 * span)
    low, high = frame["mean"].min(), frame["mean"].max()
    value_range = high - low or 0.05 * abs(high) or 1.0  # intervals are cut where the means would not be apart
    low, high = max(low - value_range, min(low, frame.low.min())), min(high + value_range, max(high, frame.high.max()))
    axes.set_ylim(low - 0.12 * value_range, high + 0.12 * value_range)
    bars = frame[frame.low.notna()]
    colors = [styles[label].color for label in bars.label]
    draw_intervals(axes, bars.cost, bars.low, bars.high, colors, is_vertical=True, linewidth=1, alpha=0.5)
    (front,) = axes.plot(*zip(*_stairs(axes, frame)), **_FRONT, zorder=1)
    return front


def pareto_front(costs: Mapping[str, float], values: Mapping[str, float]) -> list[str]:
    """The labels of the Pareto front, from cheap to expensive.

    ``costs`` and ``values`` are by label; higher values are better. A label is on the front if every other label with
    the same or a lower cost has a lower value. Of several labels with equal cost and value, only the first is included.

    >>> pareto_front({"S": 1.0, "R": 0.9, "G": 1.0, "G!": 1.4}, {"S": 60, "R": 50, "G": 70, "G!": 69})
    ['R', 'G']
    """
    front: list[str] = []
    for label in sorted(costs, key=lambda label: (costs[label], -values[label])):
        if not front or values[label] > values[front[-1]]:
            front.append(label)
    return front


def _stairs(axes: Axes, frame: pd.DataFrame) -> list[tuple[float, float]]:
    """The corners (x, y) of the Pareto front of one quantity, drawn as stairs. ``frame`` has the rows of the quantity.

    The stairs begin at the x coordinate of the cheapest label on the front, at the bottom of the panel or, for losses,
    at the top. They end at the right edge.
    """
    is_loss = _is_lower_better(frame)
    costs, means = dict(zip(frame.label, frame.cost)), dict(zip(frame.label, frame["mean"]))
    front = pareto_front(costs, {label: -mean if is_loss else mean for label, mean in means.items()})
    stairs = [(costs[front[0]], axes.get_ylim()[1 if is_loss else 0])]
    for label in front:
        stairs += [(costs[label], stairs[-1][1]), (costs[label], means[label])]
    return [*stairs, (axes.get_xlim()[1], means[front[-1]])]


def _notes(frame: pd.DataFrame, x: str) -> list[str]:
    front = "Pareto front: no label is better at this cost or less."
    notes = [*frame.protocol.unique(), front, seeds_note(frame.n), INTERVAL_NOTE]
    is_several = frame.quantity.nunique() > 1
    for reason, is_so in (("unfinished", frame["mean"].isna()), ("of unknown cost", frame[x].isna())):
        rows = rows_of(frame[is_so])
        names = [f"{row.label} ({title(row.quantity)})" if is_several else row.label for row in rows]
        notes += [f"Left out, {reason}: {', '.join(names)}."] if names else []
    return notes
