"""Loss curves as a figure, from the long form of :func:`madbench.analysis.loss_curves.loss_curves` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from numpy.lib.stride_tricks import sliding_window_view

from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.layout import NUMBERS, Legend, Panels, new_figure, set_x_label, set_y_label
from madbench.analysis.figures.marks import add_bands, add_grey_lines, add_lines, add_marks, simplify_ticks
from madbench.analysis.figures.style import OTHERS, LabelStyle, style
from madbench.analysis.frames import NothingToDrawError
from madbench.language_jobs import LAST_EVALUATIONS, loss_l5

XAxis = Literal["step", "tokens", "seconds"]

_X_NAMES = {"step": "optimiser steps", "tokens": "training tokens", "seconds": "training time, seconds"}
_STEEP = 0.1  # share of the training that the y axis need not show on a linear x axis


def loss_curve_figure(
    curves: pd.DataFrame, x: XAxis = "step", log_x: bool = False, styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """Training and validation loss of every label against ``x``, in nats per token, means over seeds.

    Left, evaluations on training batches: thin as they are, thick the mean of five around each, whose end is L5. Right,
    evaluations on validation text. Bands reach from the lowest to the highest seed. A diverged run is a thin line of
    its own that ends in a cross. With a linear ``x`` the steep start leaves at the top. Of more than eight labels those of
    lowest L5 are in colour.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    is_evaluated = np.isfinite(curves[["evaluation", "train_loss", "validation_loss"]]).all(axis=1)
    evaluated = curves[is_evaluated]
    if evaluated.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    of_run: dict[str, _Curve] = {}
    names = ("id", "status", "evaluation", x, "train_loss", "validation_loss")
    for run_id, status, *numbers in zip(*(evaluated[name].tolist() for name in names)):
        of_run.setdefault(run_id, _Curve(status == "finished", [])).rows.append(numbers)
    ids = curves.drop_duplicates("id").groupby("label", sort=False).id.agg(list)
    runs = {label: [of_run.get(run_id, _Curve(False, [])) for run_id in of_label] for label, of_label in ids.items()}
    losses = {label: _mean_l5(of_label) for label, of_label in runs.items()}
    shown = Highlights.of({label: [loss] for label, loss in losses.items()}, styles, is_lower_better=True)
    by_loss = sorted(runs, key=losses.__getitem__)
    notes = [f"{protocol[:1].upper()}{protocol[1:]}." for protocol in curves.protocol.unique()]
    notes += shown.notes("loss", "L5")
    if any(len(of_label) > 1 for of_label in runs.values()):
        notes.append("Bands: lowest to highest seed.")
    if (curves.status == "diverged").any():
        notes.append("Cross: diverged.")
    with style():
        coloured = [label for label in by_loss if label in shown.styles]
        entries = {_legend_text(label, losses[label], len(runs[label])): shown.styles[label].line for label in coloured}
        if shown.others:
            entries[_others_text([losses[label] for label in shown.others])] = OTHERS
        panels = Panels([2], 3.35, 3.25, NUMBERS, y_lines=1)
        figure, (left, right) = new_figure("loss", "Language model: loss", notes, panels, Legend(entries, "L5"))
        drawn = {label: runs[label] for label in reversed(by_loss)}
        _draw(left, drawn, 2, LAST_EVALUATIONS, shown)
        _draw(right, drawn, 3, 1, shown)
        if log_x:
            left.set_xscale("log")
            right.set_xscale("log")
        x_limits = _union(left.get_xlim(), right.get_xlim())
        y_limits = _union(left.get_ylim(), right.get_ylim()) if log_x else _y_limits(evaluated)
        for axes in (left, right):
            axes.set(xlim=x_limits, ylim=y_limits)
            set_x_label(axes, _X_NAMES[x])
            if log_x:
                is_short = x_limits[1] < 1000 * x_limits[0]
                axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_short else (1,)))
                axes.xaxis.set_minor_formatter(NullFormatter())
            if log_x or x == "tokens":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            simplify_ticks(axes, "x")
        set_y_label(left, "loss, nats per token", simplify_ticks(left, "y"))
        simplify_ticks(right, "y", is_named=False)
        right.tick_params(labelleft=False)
        left.set_title(f"training batches (thick: mean of {LAST_EVALUATIONS} evaluations)")
        right.set_title("validation")
    return figure


def _union(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(*one, *other), max(*one, *other)


class _Curve(NamedTuple):
    """Of a run."""

    is_finished: bool
    rows: list[list[float]]
    """Evaluation, place on the x axis, training and validation loss; none of a run that was never evaluated."""


def _draw(axes: Axes, runs: Mapping[str, list[_Curve]], loss: int, window: int, shown: Highlights) -> None:
    """A label as it is thin, the mean of ``window`` evaluations thick, the range of its seeds as a band.

    Of labels that are not in colour only that mean. ``loss`` is its place in a row of a curve.
    """
    lines, looks, bands, banded, crosses, crossed, grey = [], [], [], [], [], [], []
    for label, of_label in runs.items():
        color = shown.color(label)
        thin = {"color": color, "linewidth": 0.7, "alpha": 0.5}
        for run in of_label:
            if not run.is_finished and run.rows:
                curve = np.array([(row[1], row[loss]) for row in run.rows])
                if label in shown.styles:
                    lines.append(curve)
                    looks.append(thin)
                else:
                    grey.append(curve)
                crosses.append(curve[-1])
                crossed.append({"color": color, "marker": "x", "markersize": 6})
        finished = [run for run in of_label if run.is_finished]
        if not finished:
            continue
        evaluations = sorted({row[0] for run in finished for row in run.rows})
        places = {evaluation: i for i, evaluation in enumerate(evaluations)}
        table = np.full((2, len(places), len(finished)), math.nan)  # of place and loss
        for i, run in enumerate(finished):
            for row in run.rows:
                table[:, places[row[0]], i] = row[1], row[loss]
        times, raw = np.nanmean(table[0], axis=1), table[1]
        as_it_is = np.column_stack([times, np.nanmean(raw, axis=1)])
        width = window if len(raw) > window else 1
        if width > 1:
            times = times[width // 2 : -(width // 2)]
            raw = sliding_window_view(raw, width, axis=0).mean(axis=2)
            is_known = np.isfinite(raw).any(axis=1)
            times, raw = times[is_known], raw[is_known]
        mean = np.column_stack([times, np.nanmean(raw, axis=1)])
        if label not in shown.styles:
            grey.append(mean)
            continue
        if width > 1:
            lines.append(as_it_is)
            looks.append(thin)
        lines.append(mean)
        looks.append(shown.styles[label].line)
        if len(finished) > 1:
            bands.append(np.column_stack([times, np.nanmin(raw, axis=1), np.nanmax(raw, axis=1)]))
            banded.append(color)
    add_grey_lines(axes, grey)
    add_bands(axes, bands, banded)
    add_lines(axes, lines, looks)
    add_marks(axes, crosses, crossed, clip_on=True)
    axes.autoscale_view()


def _y_limits(evaluated: pd.DataFrame) -> tuple[float, float]:
    """From the lowest loss to the highest one after the steep start, of the runs that finished if any did."""
    finished = evaluated[evaluated.status == "finished"]
    shown = evaluated if finished.empty else finished
    late = shown[shown.step >= _STEEP * shown.step.max()][["train_loss", "validation_loss"]]
    low, high = float(late.min().min()), float(late.max().max())
    margin = 0.04 * (high - low) or 0.1
    return low - margin, high + margin


def _mean_l5(runs: list[_Curve]) -> float:
    """Inf where a run diverged."""
    if not all(run.is_finished for run in runs):
        return math.inf
    return sum(loss_l5([row[2] for row in run.rows]) for run in runs) / len(runs)


def _others_text(losses: list[float]) -> str:
    """``25 others  2.737 to 3.026``"""
    known = sorted(loss for loss in losses if math.isfinite(loss))
    diverged = len(losses) - len(known)
    parts = [" to ".join(dict.fromkeys(f"{loss:.3f}" for loss in (known[0], known[-1])))] if known else []
    parts += [f"{diverged} diverged"] if diverged else []
    return f"{len(losses)} other{'s' * (len(losses) > 1)}  {', '.join(parts)}"


def _legend_text(label: str, loss: float, seeds: int) -> str:
    text = f"{label}  {'diverged' if math.isinf(loss) else f'{loss:.3f}'}"
    return f"{text} (n = {seeds})" if seeds > 1 else text
