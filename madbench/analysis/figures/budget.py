"""Accuracy, and the language model's loss, against what a mixer costs in parameters, with the Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.names import name_points
from madbench.analysis.figures.notes import interval_notes, seeds_note
from madbench.analysis.figures.panels import Panels, in_lines
from madbench.analysis.figures.style import GREY, LabelStyle, in_order, label_styles, style, title
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.noise import Sample, pooled_spread
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.scores import with_average
from madbench.analysis.statistics import half_width, mean_interval

Cost = Literal["budget_ratio", "mixer_parameters"]

COLUMNS = dict.fromkeys(("protocol", "quantity", "label"), str)
COLUMNS |= dict.fromkeys(("budget_ratio", "mixer_parameters", "mean", "low", "high"), float) | {"n": int}
"""Columns of :func:`budget_frame` and their types."""

_COSTS = {"budget_ratio": "budget: mixer parameters over softmax attention's", "mixer_parameters": "mixer parameters"}
_FEW = 12  # labels of which every one has its interval drawn in full
_FRONT = {"color": GREY, "linewidth": 1, "linestyle": (0, (4, 2))}


def mad_values(cells: pd.DataFrame, parameters: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, from :func:`madbench.analysis.scores.scores` of one protocol.

    The MAD average where any label has it, otherwise each task that has begun. ``parameters`` of a mixer are by label
    and task: they depend on its length.
    """
    costs = cells.assign(mixer_parameters=[parameters.get(key, math.nan) for key in zip(cells.label, cells.task)])
    costs = costs.groupby(["label", "task"], sort=False)[["budget_ratio", "mixer_parameters"]].mean()
    whole = with_average(cells[cells.done == cells.expected])
    begun = cells[cells.task.isin(cells[cells.done > 0].task)][["label", "task"]]
    if (whole.task == MAD_AVERAGE).any():
        begun = begun.assign(task=MAD_AVERAGE)
        costs = costs.groupby("label").mean().assign(task=MAD_AVERAGE).set_index("task", append=True)
    values = begun.drop_duplicates().merge(whole[["label", "task", "seed", "accuracy"]], how="left")
    values = values.merge(costs.reset_index(), how="left", on=["label", "task"])
    return values.rename(columns={"task": "quantity", "accuracy": "value"})


def language_values(losses: pd.DataFrame, details: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, L5 of the language models of one protocol.

    Args:
        losses: :func:`madbench.analysis.loss_curves.run_losses`, a row a run.
        details: of the record of each run.
    """
    costs = {name: [one.get(name, math.nan) for one in details] for name in ("budget_ratio", "mixer_parameters")}
    values = losses[["label", "seed", LOSS]].rename(columns={LOSS: "value"})
    return values.assign(quantity=LOSS, **costs)


def budget_frame(values: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What :func:`budget_figure` draws, one row a quantity and label.

    Args:
        values: one row a quantity, label and seed: quantity (``mad_average``, a task, ``loss_l5``), label, seed, value,
            budget_ratio, mixer_parameters. A label that lacks a value of one of its seeds, as it diverged, is left out.
        protocol: sentences about what the runs share.

    Columns: protocol, quantity, label, budget_ratio, mixer_parameters, mean (NaN where a seed has no value), low, high
    (ends of the 95% interval over seeds, of losses with the spread pooled over the labels as in
    :mod:`madbench.analysis.cells`), n.
    """
    pooled = pooled_spread(_samples(values[values.quantity == LOSS]))
    rows = []
    for (quantity, label), seeds in values.groupby(["quantity", "label"], sort=False):
        n = len(seeds) if seeds.value.notna().all() else 0
        mean, low, high = mean_interval(seeds.value.to_numpy()) if n else (math.nan,) * 3
        if quantity == LOSS and len(seeds) > 1:
            half = half_width(pooled[0], len(seeds), pooled[1])
            low, high = mean - half, mean + half
        rows.append(
            (protocol, quantity, label, seeds.budget_ratio.mean(), seeds.mixer_parameters.mean(), mean, low, high, n)
        )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _samples(values: pd.DataFrame) -> list[Sample]:
    """One a label that has a value of each of its seeds, of which there are two or more."""
    of_labels = values.groupby("label").value.agg(mean="mean", spread="std", seeds="size", known="count")
    whole = of_labels[(of_labels.seeds == of_labels.known) & (of_labels.seeds > 1)]
    return [Sample(one.mean, one.spread, one.seeds) for one in whole.itertuples()]


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


def budget_figure(
    frame: pd.DataFrame, x: Cost = "budget_ratio", styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """The figure of a :func:`budget_frame`: labels by name, the front of those that none beats at its cost.

    Raises ``NothingToDrawError`` where no label has both a mean and a cost.
    """
    styles = styles or label_styles(frame.label)
    notes = _notes(frame, x)
    frame = frame.dropna(subset=[x, "mean"]).assign(cost=lambda rows: rows[x])
    if frame.empty:
        raise NothingToDrawError("no label has both a finished result and a known cost: there is nothing to draw")
    quantities = in_order(frame.quantity)
    is_crowded = frame.label.nunique() > _FEW
    longest = 0.075 * frame.label.str.len().max()  # inches, of a name
    size = (max(5.6, 2 * longest + 1), 5.8) if is_crowded else (max(3.6, 2 * longest + 1), 3.0)
    with style():
        lines = in_lines(len(quantities), min(3, len(quantities)))
        heading = "Accuracy and loss against the budget" if LOSS in quantities else "Accuracy against the budget"
        panels = Panels("budget", heading, lines, size, is_y_shared=False)
        for axes, quantity in zip(panels.axes, quantities):
            _draw(axes, frame[frame.quantity == quantity], styles, is_crowded)
            axes.set(xlabel=_COSTS[x], title=title(quantity))
            axes.set_ylabel("L5, nats per token (less is better)" if quantity == LOSS else "accuracy, %")
            if x == "mixer_parameters":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure = panels.finish(notes, {"Pareto front: none is better at this cost or less": _FRONT}, is_below=True)
        for axes, quantity in zip(panels.axes, quantities):
            shown = frame[frame.quantity == quantity]
            ends = [np.array(pair) for pair in itertools.pairwise(_stairs(axes, shown))]
            if not is_crowded:
                ends += [np.array([(one.cost, one.low), (one.cost, one.high)]) for one in shown.dropna().itertuples()]
            name_points(axes, shown.label.tolist(), shown[["cost", "mean"]].to_numpy(), ends)
    return figure


def _draw(axes: Axes, frame: pd.DataFrame, styles: Mapping[str, LabelStyle], is_crowded: bool) -> None:
    """Points, intervals and front of one quantity."""
    bars = frame[frame.low.notna()]
    colors = [styles[label].color for label in bars.label]
    axes.vlines(bars.cost, bars.low, bars.high, colors, linewidth=1, alpha=0.35 if is_crowded else 0.8)
    for one in frame.itertuples():
        axes.plot(one.cost, one.mean, **styles[one.label].mark(one.n == 1), linestyle="", clip_on=False, zorder=3)
    span = max(np.ptp(frame.cost), 0.1 * frame.cost.max())
    axes.set_xlim(frame.cost.min() - 0.25 * span, frame.cost.max() + 0.25 * span)
    low, high = frame["mean"].min(), frame["mean"].max()
    spread = high - low or 0.05 * abs(high) or 1.0
    if not is_crowded:  # intervals as far as they leave the means apart
        low, high = max(low - spread, min(low, frame.low.min())), min(high + spread, max(high, frame.high.max()))
    axes.set_ylim(low - 0.12 * spread, high + 0.12 * spread)
    axes.plot(*zip(*_stairs(axes, frame)), **_FRONT, zorder=1)


def _stairs(axes: Axes, frame: pd.DataFrame) -> list[tuple[float, float]]:
    """The corners of the front, from below its cheapest label to the right edge."""
    is_loss = (frame.quantity == LOSS).all()
    costs, means = dict(zip(frame.label, frame.cost)), dict(zip(frame.label, frame["mean"]))
    front = pareto_front(costs, {label: -mean if is_loss else mean for label, mean in means.items()})
    stairs = [(costs[front[0]], axes.get_ylim()[1 if is_loss else 0])]
    for label in front:
        stairs += [(costs[label], stairs[-1][1]), (costs[label], means[label])]
    return [*stairs, (axes.get_xlim()[1], means[front[-1]])]


def _notes(frame: pd.DataFrame, x: Cost) -> list[str]:
    pooled = "; of L5 with the spread pooled over the labels" if LOSS in set(frame[frame.low.notna()].quantity) else ""
    notes = [*frame.protocol.unique(), seeds_note(frame.n), *interval_notes(frame.n, frame.low, pooled)]
    is_several = frame.quantity.nunique() > 1
    for why, is_so in (("diverged or unfinished", frame["mean"].isna()), ("of unknown cost", frame[x].isna())):
        left_out = frame[is_so]
        names = [f"{one.label} ({title(one.quantity)})" if is_several else one.label for one in left_out.itertuples()]
        if names:
            notes.append(f"Left out, {why}: {', '.join(names)}.")
    return notes
