"""Loss curves of language models: on training batches and on validation text."""

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
from madbench.analysis.figures.files import NothingToDrawError
from madbench.analysis.figures.panels import Panels
from madbench.analysis.figures.style import OTHERS, Highlights, Look, label_styles, style
from madbench.suites.language import LAST_EVALUATIONS, loss_l5

X_LABELS = {"step": "optimiser steps", "tokens": "training tokens", "seconds": "training time, seconds"}
_LOSSES = ["train_loss", "validation_loss"]
_STEEP = 0.1  # share of the training that the y axis need not show on a linear x axis


@style()
def loss_figure(
    frame: pd.DataFrame,
    x: Literal["step", "tokens", "seconds"] = "tokens",
    log_x: bool = False,
) -> Figure:
    """Training and validation loss of every label against ``x``, in nats per token, means over seeds.

    Left, evaluations on training batches: thin as they are, thick the mean of five around each, whose end is L5. Right,
    evaluations on validation text. Bands reach from the lowest to the highest seed. A diverged run is a thin line that
    ends in a cross. With a linear ``x`` the steep start leaves at the top. Of more than eight labels those of lowest L5
    are in colour.

    Args:
        frame: :func:`madbench.analysis.loss_curves.loss_curves`.
        x: what the losses are drawn against.
        log_x: whether that has a logarithmic axis.

    Raises ``NothingToDrawError`` where no run was evaluated.
    """
    evaluated = frame[np.isfinite(frame[["evaluation", *_LOSSES]]).all(axis=1)]
    if evaluated.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    seeds = frame.groupby("label", sort=False).id.nunique()
    is_whole = (frame.status == "finished").groupby(frame.label).all()
    l5 = (
        evaluated.groupby(["label", "id"])
        .train_loss.agg(lambda losses: loss_l5(losses.tolist()))
        .groupby("label")
        .mean()
    )
    losses = {label: l5[label] if is_whole[label] else math.inf for label in seeds.index}
    shown = Highlights.of({label: [loss] for label, loss in losses.items()}, label_styles(frame), is_lower_better=True)
    by_label = dict([*evaluated.groupby("label")])
    best_first = [label for label in sorted(losses, key=losses.__getitem__) if label in by_label]
    panels = Panels("loss", "Language model: loss", [2], (3.35, 3.25), sharey="row")
    for axes, quantity, window in zip(panels.axes, _LOSSES, (LAST_EVALUATIONS, 1)):
        curves = {label: _curves(by_label[label], x, quantity, window) for label in best_first}
        draw_curves(axes, curves, shown)
        axes.set(xlabel=X_LABELS[x], xscale="log" if log_x else "linear")
    left, right = panels.axes
    left.set(ylabel="loss, nats per token", title=f"training batches (thick: mean of {LAST_EVALUATIONS} evaluations)")
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
    notes += [shown.note("loss", "L5"), *curve_notes(curves.values())]
    return panels.finish(notes, _entries(shown, losses, seeds), legend_title="L5")


def _curves(frame: pd.DataFrame, x: str, quantity: str, window: int) -> Curves:
    """The curves of a label, smoothed over ``window`` evaluations where there are more."""
    diverged = frame[frame.status != "finished"].groupby("id", sort=False)
    curves = Curves(diverged=[of_run[[x, quantity]].to_numpy(float) for _, of_run in diverged])
    finished = frame[frame.status == "finished"].set_index(["evaluation", "id"])
    if len(finished):
        curves.x = finished[x].groupby("evaluation").mean().to_numpy()
        curves.y = finished[quantity].unstack().to_numpy(float).T
    if 1 < window < len(curves.x):
        curves.thin = curves.range[:2].T
        curves.x = curves.x[window // 2 : -(window // 2)]
        curves.y = sliding_window_view(curves.y, window, axis=1).mean(axis=2)
    return curves


def _y_limits(evaluated: pd.DataFrame) -> tuple[float, float]:
    """From the lowest loss to the highest one after the steep start, of the runs that finished if any did."""
    finished = evaluated[evaluated.status == "finished"]
    shown = evaluated if finished.empty else finished
    late = shown[shown.step >= _STEEP * shown.step.max()][_LOSSES].to_numpy()
    margin = 0.04 * np.ptp(late) or 0.1
    return late.min() - margin, late.max() + margin


def _entries(shown: Highlights, losses: Mapping[str, float], seeds: Mapping[str, int]) -> dict[str, Look]:
    """The legend: labels in colour with their L5, best first, and ``25 others  2.737 to 3.026``."""
    entries = {}
    for label in sorted(shown.styles, key=losses.__getitem__):
        text = f"{label}  {losses[label]:.3f}" if math.isfinite(losses[label]) else f"{label}  diverged"
        repeated = f" (n = {seeds[label]})" if seeds[label] > 1 else ""
        entries[text + repeated] = {**shown.styles[label].mark(), **shown.styles[label].line}
    known = sorted(losses[label] for label in shown.others if math.isfinite(losses[label]))
    diverged = len(shown.others) - len(known)
    parts = [" to ".join(dict.fromkeys(f"{loss:.3f}" for loss in (known[0], known[-1])))] if known else []
    parts += [f"{diverged} diverged"] if diverged else []
    text = f"{len(shown.others)} other{'s' if len(shown.others) > 1 else ''}  {', '.join(parts)}"
    return entries | ({text: OTHERS} if shown.others else {})
