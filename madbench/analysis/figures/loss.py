"""Loss curves of language models, from the long form of :func:`madbench.analysis.loss_curves.loss_curves` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.lib.stride_tricks import sliding_window_view

from madbench.analysis.figures.curves import Curves, curve_notes, draw_curves, set_log_ticks
from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.panels import Panels
from madbench.analysis.figures.style import OTHERS, LabelStyle, style
from madbench.analysis.frames import NothingToDrawError
from madbench.language_jobs import LAST_EVALUATIONS, loss_l5

XAxis = Literal["step", "tokens", "seconds"]

X_LABELS = {"step": "optimiser steps", "tokens": "training tokens", "seconds": "training time, seconds"}
_STEEP = 0.1  # share of the training that the y axis need not show on a linear x axis


def loss_figure(
    frame: pd.DataFrame, x: XAxis = "tokens", log_x: bool = False, styles: Mapping[str, LabelStyle] | None = None
) -> Figure:
    """Training and validation loss of every label against ``x``, in nats per token, means over seeds.

    Left, evaluations on training batches: thin as they are, thick the mean of five around each, whose end is L5. Right,
    evaluations on validation text. Bands reach from the lowest to the highest seed. A diverged run is a thin line that
    ends in a cross. With a linear ``x`` the steep start leaves at the top. Of more than eight labels those of lowest L5
    are in colour.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    evaluated = frame[np.isfinite(frame[["evaluation", "train_loss", "validation_loss"]]).all(axis=1)]
    if evaluated.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    seeds = frame.groupby("label", sort=False).id.nunique()
    losses = {label: _l5(of_label) for label, of_label in frame.groupby("label", sort=False)}
    shown = Highlights.of({label: [loss] for label, loss in losses.items()}, styles, is_lower_better=True)
    best_first = sorted(losses, key=losses.__getitem__)
    coloured = [label for label in best_first if label in shown.styles]
    entries = {
        _legend_text(label, losses[label], seeds[label]): shown.styles[label].mark() | shown.styles[label].line
        for label in coloured
    }
    if shown.others:
        entries[_others_text([losses[label] for label in shown.others])] = OTHERS
    by_label = dict([*evaluated.groupby("label")])
    with style():
        panels = Panels("loss", "Language model: loss", [2], (3.35, 3.25))
        left, right = panels.axes
        for axes, quantity, window in ((left, "train_loss", LAST_EVALUATIONS), (right, "validation_loss", 1)):
            curves = {label: _curves(by_label[label], x, quantity, window) for label in best_first if label in by_label}
            draw_curves(axes, curves, shown)
            axes.set(xlabel=X_LABELS[x], xscale="log" if log_x else "linear")
        left.set_ylabel("loss, nats per token")
        left.set_title(f"training batches (thick: mean of {LAST_EVALUATIONS} evaluations)")
        right.set_title("validation")
        limits = [limit for axes in panels.axes for limit in axes.get_xlim()]
        for axes in panels.axes:
            axes.set_xlim(min(limits), max(limits))
            if log_x:
                set_log_ticks(axes)
            elif x == "tokens":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if not log_x:
            left.set_ylim(_y_limits(evaluated))
        notes = [f"{protocol[:1].upper()}{protocol[1:]}." for protocol in frame.protocol.unique()]
        notes += [*shown.notes("loss", "L5"), *curve_notes([*curves.values()])]
        return panels.finish(notes, entries, legend_title="L5")


def _l5(frame: pd.DataFrame) -> float:
    """Mean L5 of the runs of a label; infinite where one did not finish."""
    if (frame.status != "finished").any():
        return math.inf
    evaluated = frame[np.isfinite(frame[["evaluation", "train_loss", "validation_loss"]]).all(axis=1)]
    return sum(loss_l5(of_run.tolist()) for _, of_run in evaluated.groupby("id").train_loss) / frame.id.nunique()


def _curves(frame: pd.DataFrame, x: XAxis, quantity: str, window: int) -> Curves:
    """The curves of a label, smoothed over ``window`` evaluations where there are more."""
    curves = Curves()
    diverged = frame[frame.status != "finished"].groupby("id", sort=False)
    curves.diverged = [of_run[[x, quantity]].to_numpy(float) for _, of_run in diverged]
    finished = frame[frame.status == "finished"].pivot(index="evaluation", columns="id", values=[x, quantity])
    if finished.empty:
        return curves
    curves.x = finished[x].mean(axis=1).to_numpy(float)
    curves.y = finished[quantity].to_numpy(float).T
    if 1 < window < len(curves.x):
        curves.thin = curves.mean
        curves.x = curves.x[window // 2 : -(window // 2)]
        curves.y = sliding_window_view(curves.y, window, axis=1).mean(axis=2)
    return curves


def _y_limits(evaluated: pd.DataFrame) -> tuple[float, float]:
    """From the lowest loss to the highest one after the steep start, of the runs that finished if any did."""
    finished = evaluated[evaluated.status == "finished"]
    shown = evaluated if finished.empty else finished
    late = shown[shown.step >= _STEEP * shown.step.max()][["train_loss", "validation_loss"]]
    low, high = float(late.min().min()), float(late.max().max())
    margin = 0.04 * (high - low) or 0.1
    return low - margin, high + margin


def _others_text(losses: list[float]) -> str:
    """``25 others  2.737 to 3.026``"""
    known = sorted(loss for loss in losses if math.isfinite(loss))
    diverged = len(losses) - len(known)
    parts = [" to ".join(dict.fromkeys(f"{loss:.3f}" for loss in (known[0], known[-1])))] if known else []
    parts += [f"{diverged} diverged"] if diverged else []
    return f"{len(losses)} other{'s' if len(losses) > 1 else ''}  {', '.join(parts)}"


def _legend_text(label: str, loss: float, seeds: int) -> str:
    text = f"{label}  {'diverged' if math.isinf(loss) else f'{loss:.3f}'}"
    return f"{text} (n = {seeds})" if seeds > 1 else text
