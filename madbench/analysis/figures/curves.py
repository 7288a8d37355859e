"""Two figures of curves: accuracy or loss of MAD runs during training, and losses of language models.

The curves are means over seeds, with bands from the lowest to the highest seed. The best labels are in color, the
others in gray.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from numpy.lib.stride_tricks import sliding_window_view

from madbench.analysis.baselines import HEURISTIC
from madbench.analysis.figures.files import NothingToDrawError, frame_of
from madbench.analysis.figures.panels import Layout, Page, Panels, Share, seeds_note
from madbench.analysis.figures.style import HEURISTIC_LINE, OTHERS, PERCENTS, ArtistOptions, Highlights, style
from madbench.analysis.frames import groups_of
from madbench.analysis.quantities import in_order
from madbench.jobs import Record
from madbench.suites.columns import LAST_EVALUATIONS, loss_l5
from madbench.suites.scoring import Scoring

LEARNING_COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "task", "label"), str) | {"seed": int}
LEARNING_COLUMNS |= dict.fromkeys(("id", "status", "split"), str) | {"epoch": int, "step": int}
LEARNING_COLUMNS |= dict.fromkeys(("accuracy", "loss", "train_loss"), float)
"""The columns of the data of :func:`learning_figure`, with one row per run and evaluation.

``split`` is ``validation`` or ``test``. Accuracy is in percent, losses are in nats per target. A row without a label
has the accuracy of the best answer that ignores the context."""
X_LABELS = {"step": "optimizer steps", "tokens": "training tokens", "seconds": "training time, seconds"}

_EVALUATIONS = {  # the keys of loss and accuracy in a curve, by split
    "validation": ("validation_loss", "validation_token_accuracy"),
    "test": ("test_loss", "test_batch_macro_accuracy"),
}
_Y_LABELS = {"accuracy": "accuracy, %", "loss": "loss, nats per target"}
_LOSSES = ["train_loss", "validation_loss"]
_CURVE_NOTE = "Lines: means over seeds. Bands: lowest to highest seed. Hollow end: a single seed. Cross: diverged."
_STOP_NOTE = "A run that stopped early keeps its last value; mark: where the last one stopped."
_STEEP = 0.1  # share of the training that the y axis may cut off on a linear x axis


@dataclass
class Curves:
    """The curves of one label in one panel.

    The lines in ``thin`` and ``diverged`` are arrays (points, 2) of x and y.
    """

    x: np.ndarray = field(default_factory=lambda: np.empty(0))
    """The x coordinates of the P evaluations of finished seeds, as an array (P,)."""
    y: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """The values of the N finished seeds at each ``x``, as an array (N, P). NaN if a seed has no value."""
    stop: float = math.inf
    """The x at which the last seed stopped training. All values are constant from there on. Infinite in curves of
    losses."""
    thin: list[np.ndarray] = field(default_factory=list)
    """The means over seeds before smoothing, as lines that are drawn thin behind the smoothed mean. Empty without
    smoothing."""
    diverged: list[np.ndarray] = field(default_factory=list)
    """One line per diverged seed."""

    @property
    def range(self) -> np.ndarray:
        """An array (4, points) with the rows x, mean, lowest value and highest value over the finished seeds.

        A point is an x at which at least one seed has a value.
        """
        is_known = np.isfinite(self.y).any(axis=0)
        of_seeds = [summary(self.y[:, is_known], axis=0) for summary in (np.nanmean, np.nanmin, np.nanmax)]
        return np.array([self.x[is_known], *of_seeds])

    @property
    def end(self) -> float:
        """The mean of the last values of the finished seeds. NaN if no seed finished."""
        return float(self.y[:, -1].mean()) if len(self.y) else math.nan


def draw_curves(axes: Axes, curves: Mapping[str, Curves], highlights: Highlights) -> None:
    """Draw the curves of each label. The first label is in front.

    A label of ``highlights`` is in color. It has a line for the mean over seeds and a band from the lowest to the
    highest seed. A marker, hollow for a single seed, shows where the last of the seeds stopped. Other labels are in
    gray and have only the mean. A diverged run is a thin line that ends in a cross.
    """
    others = [of_label for label, of_label in curves.items() if label not in highlights.styles]
    gray = [of_label.range[:2].T for of_label in others if len(of_label.y)]
    axes.plot(
        *join_lines([*gray, *(line for of_label in others for line in of_label.diverged)]).T, **OTHERS, zorder=1.5
    )
    for label, of_label in reversed([*curves.items()]):
        color = highlights.styles[label].color if label in highlights.styles else OTHERS["color"]
        crosses = [line[-1] for line in of_label.diverged]
        axes.plot(*zip(*crosses), color=color, marker="x", linestyle="")
        if label not in highlights.styles:
            continue
        axes.plot(*join_lines([*of_label.diverged, *of_label.thin]).T, color=color, linewidth=0.7, alpha=0.6)
        if len(of_label.y):
            x, mean, low, high = of_label.range
            axes.plot(x, mean, **highlights.styles[label].line)
            end = slice((x <= of_label.stop).sum() - 1, (x <= of_label.stop).sum())
            mark = highlights.styles[label].mark(len(of_label.y) == 1)
            axes.plot(x[end], mean[end], **mark, linestyle="", zorder=2.1)
            if len(of_label.y) > 1:
                axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0, zorder=1)


def _show_whole_marks(axes: Axes) -> None:
    """Draw markers at the edge of a panel in full instead of cutting them off. The limits of the axes must be final."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for line in axes.lines:
        x, y = np.asarray(line.get_xydata()).T
        if line.get_linestyle() == "None" and np.all((left <= x) & (x <= right) & (bottom <= y) & (y <= top)):
            line.set_clip_on(False)


def join_lines(lines: Sequence[np.ndarray]) -> np.ndarray:
    """Join lines, arrays (points, 2), into one array with a row of NaN before, between and after them.

    Matplotlib draws one long line much faster than many lines.
    """
    gap = np.full((1, 2), np.nan)
    return np.concatenate([gap, *(part for line in lines for part in (line, gap))])


def learning_frame(
    scoring: Scoring,
    job_frame: pd.DataFrame,
    record: Callable[[str], Record],
    protocol: str,
    heuristics: Mapping[str, float] = {},
) -> pd.DataFrame:
    """The data frame for :func:`learning_figure`: the evaluations of one run per label, task and seed.

    A task with several settings has the runs of its first setting only. If a seed has several runs, the run with the
    chosen learning rate is used. If no run of a seed finished, its first diverged run is used.

    Args:
        scoring: the scoring of the suite.
        job_frame: the runs of one protocol (:meth:`madbench.suites.scoring.Scoring.collect`).
        record: returns the record of a run, with its curve, from the id of the run.
        protocol: sentences about the runs.
        heuristics: the score of the best answer that ignores the context, by task.
    """
    baselines = job_frame.groupby("column", sort=False).setting.first()
    of_baseline = job_frame[job_frame.setting == job_frame.column.map(baselines)]
    keys = ["label", "column", "seed"]
    chosen_ids = scoring.chosen_rows(of_baseline).set_index(keys).id
    diverged = of_baseline[of_baseline.status == "diverged"].drop_duplicates(keys).set_index(keys).id
    setting_order = pd.MultiIndex.from_frame(of_baseline[keys].drop_duplicates())
    rows: list[dict[str, Any]] = []
    shown_ids = chosen_ids.combine_first(diverged).reindex(setting_order).dropna()
    for (label, task, seed), run_id in zip(shown_ids.index, shown_ids):
        of_run = record(run_id)
        for row, (split, (loss, accuracy)) in itertools.product(of_run.curve, _EVALUATIONS.items()):
            if row.keys() >= {"epoch", "step", "train_loss", loss, accuracy}:
                run = {"task": task, "label": label, "seed": seed, "id": run_id, "split": split}
                run["status"] = of_run.status
                run |= {name: row[name] for name in ("epoch", "step", "train_loss")}
                rows.append(run | {"accuracy": 100 * row[accuracy], "loss": row[loss]})
    for split, task in dict.fromkeys((row["split"], row["task"]) for row in rows):
        if task in heuristics:
            rows.append({"task": task, "label": "", "split": split, "accuracy": heuristics[task]})
    return frame_of(rows, LEARNING_COLUMNS, protocol)


@style()
def learning_figure(
    frame: pd.DataFrame, y: Literal["accuracy", "loss"] = "accuracy", layout: Layout = Layout()
) -> Page:
    """Draw learning curves: means over seeds, with bands from the lowest to the highest seed, one panel per task.

    ``frame`` is a result of :func:`learning_frame`, restricted to the evaluations on one split. A run that stopped
    early keeps its last value to the end of the panel. A diverged run is a thin line that ends in a cross. If there are
    more than eight labels, those with the best last values are in color.

    Raises ``NothingToDrawError`` if no run was evaluated.
    """
    frame = frame[np.isfinite(frame[y])]
    references, frame = frame[frame.label == ""], frame[frame.label != ""]
    if frame.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    curves = {task: _learning_curves(frame[frame.task == task], y) for task in in_order(frame.task)}
    labels = frame.label.unique()
    ends = {
        label: [of_task[label].end if label in of_task else math.nan for of_task in curves.values()] for label in labels
    }
    highlights = Highlights.from_results(ends, is_lower_better=y == "loss")
    (split,) = frame.split.unique()
    sharey: Share = "row" if y == "accuracy" else "none"
    lines, entries = layout.lines([len(curves)], 3, 0.9 if layout.is_small else 1.3, 0.5), highlights.entries()
    entries |= {HEURISTIC.name: HEURISTIC_LINE} if len(references) else {}
    heading, size = f"{split.capitalize()} {y} in training", (2.47, 1.75)
    panels = Panels(layout, "learning", heading, lines, size, 0.45, len(entries), sharey=sharey)
    percents = PERCENTS[:: 2 if layout.is_small else 1]
    for axes, (task, of_task) in zip(panels.axes, curves.items()):
        draw_curves(axes, {label: of_task[label] for label in labels if label in of_task}, highlights)
        axes.set(title=layout.name(task), xlim=(0, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set(ylim=(-3, 103), yticks=percents) if y == "accuracy" else axes.set(ylim=(0, None))
        if layout.is_small:
            axes.locator_params(axis="x", nbins=2)
        _show_whole_marks(axes)
        for value in references.accuracy[references.task == task]:
            axes.axhline(value, **HEURISTIC_LINE, zorder=1.2)
    panels.name_axes("optimizer steps", _Y_LABELS[y])
    notes = [
        *frame.protocol.unique(),
        f"On the {split} data, after every epoch.",
        seeds_note(len(of_label.y) for of_task in curves.values() for of_label in of_task.values()),
        highlights.note("learning", f"{y} at the end, mean over tasks"),
        _CURVE_NOTE,
        _STOP_NOTE,
        HEURISTIC.sentence if len(references) else "",
    ]
    return panels.finish(notes, entries)


def _learning_curves(frame: pd.DataFrame, y: str) -> dict[str, Curves]:
    """The curves of one task by label. ``frame`` has the rows of the task.

    ``y`` is the column of ``frame`` to draw: ``accuracy`` or ``loss``. A finished run keeps its last value until the
    end of the longest run.
    """
    curves: dict[str, Curves] = {}
    finished: dict[str, list[np.ndarray]] = {}
    runs = sorted(groups_of(frame, ["label", "seed", "status"]), key=operator.itemgetter(0))
    for (label, _, status), rows in runs:
        of_label = curves.setdefault(label, Curves())
        lines = finished.setdefault(label, []) if status == "finished" else of_label.diverged
        lines.append(rows[["step", y]].to_numpy(float))
    longest = max((line[-1, 0] for lines in finished.values() for line in lines), default=0.0)
    for label, lines in finished.items():
        curves[label].stop = max(float(line[-1, 0]) for line in lines)
        steps = np.unique(np.concatenate([[longest], *(line[:, 0] for line in lines)]))
        curves[label].x = steps
        places = [np.searchsorted(line[:, 0], steps, side="right") - 1 for line in lines]
        curves[label].y = np.array(
            [np.where(indices < 0, math.nan, line[indices, 1]) for indices, line in zip(places, lines)]
        )
    return curves


@style()
def loss_figure(
    frame: pd.DataFrame,
    x: Literal["step", "tokens", "seconds"] = "tokens",
    log_x: bool = False,
    layout: Layout = Layout(),
) -> Page:
    """Draw training and validation loss of every label against ``x``, in nats per token, as means over seeds.

    The left panel has the loss on training batches: every evaluation as a thin line, and the moving mean over five
    evaluations as a thick line. The thick line ends at L5, the mean of the last five. The right panel has the loss on
    validation text. Bands range from the lowest to the highest seed. A diverged run is a thin line that ends in a
    cross. If the x axis is linear, the steep start is cut off at the top. If there are more than eight labels, those
    with the lowest L5 are in color. ``frame`` is the result of :meth:`madbench.suites.scoring.Scoring.curves`.

    Raises ``NothingToDrawError`` if no run was evaluated.
    """
    evaluated_rows = frame[np.isfinite(frame[["evaluation", *_LOSSES]].to_numpy(float)).all(axis=1)]
    if evaluated_rows.empty:
        raise NothingToDrawError("no run was evaluated even once: there is no curve to draw")
    seeds = frame.groupby("label", sort=False).id.nunique()
    is_whole = (frame.status == "finished").groupby(frame.label).all()
    of_runs = evaluated_rows.groupby(["label", "id"]).train_loss.agg(lambda losses: loss_l5(losses.tolist()))
    l5 = of_runs.groupby("label").mean()
    losses = {label: l5[label] if is_whole[label] else math.inf for label in seeds.index}
    highlights = Highlights.from_results({label: [loss] for label, loss in losses.items()}, is_lower_better=True)
    by_label = dict([*evaluated_rows.groupby("label")])
    best_first = [label for label in sorted(losses, key=losses.__getitem__) if label in by_label]
    lines = layout.lines([2], 2, 1.2 if layout.is_small else 2.4, 0.5)
    panels = Panels(layout, "loss", "Language model: loss", lines, (3.35, 3.25), sharex="all", sharey="all")
    for axes, quantity, window in zip(panels.axes, _LOSSES, (LAST_EVALUATIONS, 1)):
        curves = {label: _loss_curves(by_label[label], x, quantity, window) for label in best_first}
        draw_curves(axes, curves, highlights)
        axes.set_xscale("log" if log_x else "linear")
    panels.name_axes(X_LABELS[x], "loss, nats per token")
    left, right = panels.axes
    left.set_title("training batches")
    right.set_title("validation")
    low, high = left.get_xlim()
    if log_x:  # over three decades or more, only powers of ten have ticks
        left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        left.xaxis.set_minor_formatter(NullFormatter())
    if log_x or x == "tokens":
        left.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not log_x:
        left.set_ylim(_y_limits(evaluated_rows))
    if layout.is_small and not log_x:
        left.locator_params(axis="x", nbins=3)
    for axes in panels.axes:
        _show_whole_marks(axes)
    notes = [f"{protocol[:1].upper()}{protocol[1:]}." for protocol in frame.protocol.unique()]
    thick = f"On training batches thick: mean of {LAST_EVALUATIONS} evaluations."
    notes += [thick, highlights.note("loss", "L5"), _CURVE_NOTE]
    n = f", n = {seeds.iloc[0]}" if layout.is_small and seeds.nunique() == 1 else ""
    entries = _entries(highlights, losses, dict(seeds if not n else seeds.clip(upper=1)), layout)
    return panels.finish(notes, entries, legend_title=f"L5{n}")


def _loss_curves(frame: pd.DataFrame, x: str, quantity: str, window: int) -> Curves:
    """The curves of one label: the column ``quantity`` of ``frame`` against the column ``x``.

    With a ``window`` above 1, and if there are more than ``window`` evaluations, the values of finished seeds are
    moving means over ``window`` evaluations. The means over seeds before this smoothing are then in ``thin``.
    """
    diverged = frame[frame.status != "finished"].groupby("id", sort=False)
    curves = Curves(diverged=[of_run[[x, quantity]].to_numpy(float) for _, of_run in diverged])
    finished = frame[frame.status == "finished"].set_index(["evaluation", "id"])
    if len(finished):
        curves.x = finished[x].groupby("evaluation").mean().to_numpy()
        curves.y = finished[quantity].unstack().to_numpy(float).T
    if 1 < window < len(curves.x):
        curves.thin = [curves.range[:2].T]
        curves.x = curves.x[window // 2 : -(window // 2)]
        curves.y = sliding_window_view(curves.y, window, axis=1).mean(axis=2)
    return curves


def _y_limits(evaluated_rows: pd.DataFrame) -> tuple[float, float]:
    """The limits of the loss axis, which covers all losses after the first tenth of the training, with a margin.

    Diverged runs are used only if no run finished.
    """
    finished = evaluated_rows[evaluated_rows.status == "finished"]
    in_view = evaluated_rows if finished.empty else finished
    late = in_view[in_view.step >= _STEEP * in_view.step.max()][_LOSSES].to_numpy()
    margin = 0.04 * np.ptp(late) or 0.1
    return late.min() - margin, late.max() + margin


def _entries(
    highlights: Highlights, losses: Mapping[str, float], seeds: Mapping[str, int], layout: Layout
) -> dict[str, ArtistOptions]:
    """The look of each entry of the legend, by the entry's text.

    There is one entry per label in color, with its loss, the best label first. One last entry stands for all other
    labels, for example ``25 others  2.737 to 3.026``. ``losses`` has L5 of each label, the mean training loss of the
    last five evaluations, and ``seeds`` the number of seeds.
    """
    entries, names = {}, layout.names(highlights.styles)
    for label in sorted(highlights.styles, key=losses.__getitem__):
        name, loss = names[label], losses[label]
        text = f"{name}  {loss:.3f}" if math.isfinite(loss) else f"{name}  diverged"
        seed_text = f" (n = {seeds[label]})" if seeds[label] > 1 else ""
        entries[text + seed_text] = {**highlights.styles[label].mark(), **highlights.styles[label].line}
    finite = sorted(losses[label] for label in highlights.others if math.isfinite(losses[label]))
    diverged = len(highlights.others) - len(finite)
    parts = [" to ".join(dict.fromkeys(f"{loss:.3f}" for loss in (finite[0], finite[-1])))] if finite else []
    parts += [f"{diverged} diverged"] if diverged else []
    text = f"{len(highlights.others)} other{'s' if len(highlights.others) > 1 else ''}"
    text += "" if layout.is_small else f"  {', '.join(parts)}"
    return entries | ({text: OTHERS} if highlights.others else {})
