"""Accuracy, and the language model's loss, against what a mixer costs in parameters, with the Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.layout import (
    NUMBERS,
    Legend,
    Panels,
    in_lines,
    new_figure,
    set_x_label,
    set_y_label,
    widest,
)
from madbench.analysis.figures.marks import add_lines, add_marks, simplify_ticks
from madbench.analysis.figures.names import name_points
from madbench.analysis.figures.style import (
    GREY,
    TITLES,
    LabelStyle,
    interval_texts,
    label_styles,
    seeds_text,
    style,
)
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.loss_curves import run_losses
from madbench.analysis.noise import Sample, pooled_spread
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.scores import with_average
from madbench.analysis.statistics import half_width, mean_interval
from madbench.store.runs import Run

Cost = Literal["budget_ratio", "mixer_parameters"]

TYPES = dict.fromkeys(("protocol", "quantity", "label"), str)
TYPES |= dict.fromkeys(("budget_ratio", "mixer_parameters", "mean", "low", "high"), float) | {"n": int}
"""Columns of :func:`budget_frame`."""

_COSTS = {"budget_ratio": "budget: mixer parameters over softmax attention's", "mixer_parameters": "mixer parameters"}
_FEW = 12  # labels of which every one has its interval drawn
_FRONT = {"color": GREY, "linewidth": 1, "linestyle": (0, (4, 2))}
_FRONT_TEXT = "Pareto front: none is better at this cost or less"


def mad_values(cells: pd.DataFrame, parameters: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, from :func:`madbench.analysis.scores.scores` of one protocol.

    The MAD average where any label has it, otherwise each task that has begun. ``parameters`` of a mixer are by label and
    task: they depend on its length.
    """
    costs = cells.assign(mixer_parameters=[parameters.get(key, math.nan) for key in zip(cells.label, cells.task)])
    costs = costs.groupby(["label", "task"], sort=False)[["budget_ratio", "mixer_parameters"]].mean()
    whole = with_average(cells[cells.done == cells.expected])
    is_average = (whole.task == MAD_AVERAGE).any()
    values = whole[(whole.task == MAD_AVERAGE) == is_average][["label", "task", "seed", "accuracy"]]
    begun = cells[cells.task.isin(cells[cells.done > 0].task)][["label", "task"]]
    begun = (begun.assign(task=MAD_AVERAGE) if is_average else begun).drop_duplicates().merge(values, how="left")
    values = begun[["label", "task", "seed", "accuracy"]]
    by_label = costs.groupby("label").mean()
    keys = values.label if is_average else pd.MultiIndex.from_frame(values[["label", "task"]])
    values = values.rename(columns={"task": "quantity", "accuracy": "value"})
    return values.assign(
        **{name: (by_label if is_average else costs)[name].reindex(keys).to_numpy() for name in by_label}
    )


def language_values(runs: Sequence[Run]) -> pd.DataFrame:
    """What :func:`budget_frame` takes, L5 from language-model runs of one protocol with their curves."""
    losses = run_losses(runs, ()).rename(columns={LOSS: "value"})
    details = [run.record.details for run in runs]
    costs = {name: [one.get(name, math.nan) for one in details] for name in ("budget_ratio", "mixer_parameters")}
    return losses[["label", "seed", "value"]].assign(quantity=LOSS, **costs)


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
    groups: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for one in values.itertuples():
        numbers = one.value, one.budget_ratio, one.mixer_parameters
        groups.setdefault((one.quantity, one.label), []).append(numbers)
    rows = []
    for (quantity, label), seeds in groups.items():
        of_seeds, *costs = np.array(seeds, float).T
        is_whole = not np.isnan(of_seeds).any()
        mean, low, high = mean_interval(of_seeds) if is_whole else (math.nan,) * 3
        if quantity == LOSS and len(seeds) > 1:
            half = half_width(pooled[0], len(seeds), pooled[1])
            low, high = mean - half, mean + half
        known = [cost[~np.isnan(cost)] for cost in costs]
        budget_ratio, parameters = (cost.mean() if len(cost) else math.nan for cost in known)
        n = len(seeds) if is_whole else 0
        rows.append((protocol, quantity, label, budget_ratio, parameters, mean, low, high, n))
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


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
    frame = frame.dropna(subset=[x, "mean"])
    if frame.empty:
        raise NothingToDrawError("no label has both a finished result and a known cost: there is nothing to draw")
    labels = list(dict.fromkeys(frame.label))
    quantities = [name for name in TITLES if name in set(frame.quantity)]
    columns = min(3, len(quantities))
    is_crowded = len(labels) > _FEW
    size = (5.6, 5.8) if is_crowded else (3.6, 3.0)
    with style():
        width = max(size[0], 2 * widest(labels) + 0.8)  # a name fits on either side of the middle
        panels = Panels(in_lines(len(quantities), columns), width, size[1], NUMBERS, y_lines=1, is_y_shared=False)
        title = "What the parameters buy" + ": MAD average" * (quantities == [MAD_AVERAGE])
        figure, drawn = new_figure("budget", title, notes, panels, Legend({_FRONT_TEXT: _FRONT}, is_below=True))
        for axes, quantity in zip(drawn, quantities):
            of_it = frame[frame.quantity == quantity]
            _draw(axes, of_it, x, styles, is_crowded)
            set_x_label(axes, _COSTS[x])
            y_label = "L5, nats per token (less is better)" if quantity == LOSS else "accuracy, %"
            set_y_label(axes, y_label, simplify_ticks(axes, "y"))
            if len(quantities) > 1 or quantity != MAD_AVERAGE:
                axes.set_title(TITLES[quantity])
            if x == "mixer_parameters":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            simplify_ticks(axes, "x")
            _name(axes, of_it, x, is_crowded)
    return figure


def _draw(axes: Axes, frame: pd.DataFrame, x: Cost, styles: Mapping[str, LabelStyle], is_crowded: bool) -> None:
    """Points, intervals and front of one quantity."""
    repeated = [one for one in frame.itertuples() if not math.isnan(one.low)]
    bars = [[(getattr(one, x), one.low), (getattr(one, x), one.high)] for one in repeated]
    faint = {"linewidth": 1, "alpha": 0.35 if is_crowded else 0.8}
    add_lines(axes, bars, [{"color": styles[one.label].color} | faint for one in repeated])
    looks = [styles[label].mark(n == 1) for label, n in zip(frame.label, frame.n)]
    add_marks(axes, frame[[x, "mean"]].to_numpy(), looks, zorder=3)
    cheapest, dearest = frame[x].min(), frame[x].max()
    span = max(dearest - cheapest, 0.1 * dearest)
    axes.set_xlim(cheapest - 0.25 * span, dearest + 0.25 * span)
    low, high = frame["mean"].min(), frame["mean"].max()
    spread = high - low or 0.05 * abs(high) or 1.0
    if not is_crowded:  # intervals as far as they leave the means apart
        low, high = max(low - spread, min(low, frame.low.min())), min(high + spread, max(high, frame.high.max()))
    axes.set_ylim(low - 0.12 * spread, high + 0.12 * spread)
    steps = list(itertools.pairwise(_stairs(axes, frame, x)))
    add_lines(axes, steps, [_FRONT] * len(steps), zorder=1)


def _stairs(axes: Axes, frame: pd.DataFrame, x: Cost) -> list[tuple[float, float]]:
    """The corners of the front, from below its cheapest label to the right edge."""
    is_loss = (frame.quantity == LOSS).all()
    costs, means = dict(zip(frame.label, frame[x])), dict(zip(frame.label, frame["mean"]))
    front = pareto_front(costs, {label: -mean if is_loss else mean for label, mean in means.items()})
    stairs = [(costs[front[0]], axes.get_ylim()[1 if is_loss else 0])]
    for label in front:
        stairs += [(costs[label], stairs[-1][1]), (costs[label], means[label])]
    return [*stairs, (axes.get_xlim()[1], means[front[-1]])]


def _name(axes: Axes, frame: pd.DataFrame, x: Cost, is_crowded: bool) -> None:
    lines = list(itertools.pairwise(_stairs(axes, frame, x)))
    if not is_crowded:
        costs = frame[x]
        bars = zip(zip(costs, frame.low), zip(costs, frame.high))
        lines += [bar for bar in bars if not math.isnan(bar[0][1])]
    name_points(axes, dict(zip(frame.label, frame[[x, "mean"]].to_numpy())), lines)


def _notes(frame: pd.DataFrame, x: Cost) -> list[str]:
    pooled = "; of L5 with the spread pooled over the labels" if LOSS in set(frame[frame.low.notna()].quantity) else ""
    notes = [*frame.protocol.unique(), seeds_text(frame.n), *interval_texts(frame.n, frame.low, pooled)]
    is_several = frame.quantity.nunique() > 1
    for what, is_so in (("diverged or unfinished", frame["mean"].isna()), ("of unknown cost", frame[x].isna())):
        names = [
            f"{one.label} ({TITLES[one.quantity]})" if is_several else one.label for one in frame[is_so].itertuples()
        ]
        if names:
            notes.append(f"Left out, {what}: {', '.join(names)}.")
    return [note for note in notes if note]
