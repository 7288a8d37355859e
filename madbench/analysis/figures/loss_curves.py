"""Loss curves as a figure, from the long form of :func:`madbench.analysis.loss_curves.loss_curves` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

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
    runs = {
        label: [evaluated[evaluated.id == run_id] for run_id in of_label.id.unique()]
        for label, of_label in curves.groupby("label", sort=False)
    }
    losses = {label: _mean_l5(of_label) for label, of_label in runs.items()}
    styles = styles or label_styles(runs)
    by_loss = sorted(runs, key=losses.__getitem__)
    with style():
        figure = new_figure("loss", 10, max(4.6, 1.8 + 0.2 * len(runs)))
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        for label in reversed(by_loss):
            _draw(left, runs[label], x, "train_loss", LAST_EVALUATIONS, styles[label].line)
            _draw(right, runs[label], x, "validation_loss", 1, styles[label].line)
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


def _draw(axes: Axes, runs: list[pd.DataFrame], x: XAxis, loss: str, window: int, line: dict[str, Any]) -> None:
    """One label: as it is thin, the mean of ``window`` evaluations thick, the range of its seeds as a band."""
    thin = {"color": line["color"], "linewidth": 0.7, "alpha": 0.5}
    finished = []
    for run in runs:
        if _is_finished(run):
            finished.append(run.set_index("evaluation"))
        else:
            axes.plot(run[x], run[loss], **thin)
            axes.plot(run[x].iloc[-1:], run[loss].iloc[-1:], "x", color=line["color"])
    if not finished:
        return
    times = pd.concat([run[x] for run in finished], axis=1).mean(axis=1)
    raw = pd.concat([run[loss] for run in finished], axis=1)
    if len(raw) <= window:
        window = 1
    smooth = raw.rolling(window, center=True).mean()
    if window > 1:
        axes.plot(times, raw.mean(axis=1), **thin)
    if len(finished) > 1:
        axes.fill_between(times, smooth.min(axis=1), smooth.max(axis=1), color=line["color"], alpha=0.15, linewidth=0)
    axes.plot(times, smooth.mean(axis=1), **line)


def _is_finished(run: pd.DataFrame) -> bool:
    return (run.status == "finished").any()


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
