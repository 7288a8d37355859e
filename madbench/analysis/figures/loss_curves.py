"""Loss curves as a figure, from the long form of :func:`madbench.analysis.loss_curves.loss_curves` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from madbench.analysis.figures.marks import add_bands, add_lines, add_marks
from madbench.analysis.figures.style import (
    LabelStyle,
    add_texts,
    label_styles,
    new_figure,
    settle,
    style,
)
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
    its own that ends in a cross. With a linear ``x`` the steep start leaves at the top.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    numbers = curves.replace([math.inf, -math.inf], math.nan)
    evaluated = numbers.dropna(subset=["evaluation", "train_loss", "validation_loss"])
    if evaluated.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    ids = curves.drop_duplicates("id").groupby("label", sort=False).id.agg(list)
    of_run = dict(list(evaluated.groupby("id")))
    runs = {label: [of_run.get(run_id, evaluated.iloc[:0]) for run_id in of_label] for label, of_label in ids.items()}
    losses = {label: _mean_l5(of_label) for label, of_label in runs.items()}
    styles = styles or label_styles(runs)
    by_loss = sorted(runs, key=losses.__getitem__)
    with style():
        figure = new_figure("loss", 10, max(4.6, 1.8 + 0.2 * len(runs)))
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        drawn = {label: runs[label] for label in reversed(by_loss)}
        _draw(left, drawn, x, "train_loss", LAST_EVALUATIONS, styles)
        _draw(right, drawn, x, "validation_loss", 1, styles)
        if log_x:
            left.set_xscale("log")
        else:
            left.set_ylim(*_y_limits(evaluated))
        left.set_title(f"training batches (thick: mean of {LAST_EVALUATIONS} evaluations)")
        left.set_ylabel("loss, nats per token")
        right.set(title="validation")
        for axes in (left, right):
            axes.set_xlabel(_X_NAMES[x])
            if x == "tokens":
                axes.xaxis.set_major_formatter(EngFormatter())
        handles = [
            Line2D([], [], **styles[label].line, label=_legend_text(label, losses[label], len(runs[label])))
            for label in by_loss
        ]
        figure.legend(handles=handles, loc="outside right upper", title="L5", handlelength=3.4)
        notes = [f"{protocol[:1].upper()}{protocol[1:]}." for protocol in curves.protocol.unique()]
        if any(len(of_label) > 1 for of_label in runs.values()):
            notes.append("Bands: lowest to highest seed.")
        if (curves.status == "diverged").any():
            notes.append("Cross: diverged.")
        add_texts(figure, "Language model: loss", notes)
        return settle(figure)


def _draw(
    axes: Axes,
    runs: Mapping[str, list[pd.DataFrame]],
    x: XAxis,
    loss: str,
    window: int,
    styles: Mapping[str, LabelStyle],
) -> None:
    """A label as it is thin, the mean of ``window`` evaluations thick, the range of its seeds as a band."""
    lines, looks, bands, banded, crosses, crossed = [], [], [], [], [], []
    for label, of_label in runs.items():
        color = styles[label].color
        thin = {"color": color, "linewidth": 0.7, "alpha": 0.5}
        for run in of_label:
            if not _is_finished(run) and len(run):
                lines.append(run[[x, loss]].to_numpy(float))
                looks.append(thin)
                crosses.append(lines[-1][-1])
                crossed.append({"color": color, "marker": "x", "markersize": 6})
        finished = [run for run in of_label if _is_finished(run)]
        if not finished:
            continue
        table = pd.concat(finished).pivot(index="evaluation", columns="id", values=[x, loss])
        times, raw = table[x].mean(axis=1).to_numpy(), table[loss]
        width = window if len(raw) > window else 1
        smooth = raw.rolling(width, center=True).mean() if width > 1 else raw
        if width > 1:
            lines.append(np.column_stack([times, raw.mean(axis=1)]))
            looks.append(thin)
        lines.append(np.column_stack([times, smooth.mean(axis=1)]))
        looks.append(styles[label].line)
        if len(finished) > 1:
            bands.append(np.column_stack([times, smooth.min(axis=1), smooth.max(axis=1)]))
            banded.append(color)
    add_bands(axes, bands, banded)
    add_lines(axes, lines, looks)
    add_marks(axes, crosses, crossed)
    axes.autoscale_view()


def _is_finished(run: pd.DataFrame) -> bool:
    return len(run) > 0 and run.status.iloc[0] == "finished"


def _y_limits(evaluated: pd.DataFrame) -> tuple[float, float]:
    """From the lowest loss to the highest one after the steep start, of the runs that finished if any did."""
    finished = evaluated[evaluated.status == "finished"]
    shown = evaluated if finished.empty else finished
    late = shown[shown.step >= _STEEP * shown.step.max()][["train_loss", "validation_loss"]]
    low, high = float(late.min().min()), float(late.max().max())
    margin = 0.04 * (high - low) or 0.1
    return low - margin, high + margin


def _mean_l5(runs: list[pd.DataFrame]) -> float:
    """Inf where a run diverged."""
    if not all(map(_is_finished, runs)):
        return math.inf
    return sum(loss_l5(run.train_loss.tolist()) for run in runs) / len(runs)


def _legend_text(label: str, loss: float, seeds: int) -> str:
    text = f"{label}  {'diverged' if math.isinf(loss) else f'{loss:.3f}'}"
    return f"{text} (n = {seeds})" if seeds > 1 else text
