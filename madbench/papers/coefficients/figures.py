"""Figures of the principles. Each is drawn from a data frame, which is also written as CSV."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.ticker import NullFormatter

from madbench.analysis.figures.colors import distinct_colors
from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import Layout, Page, Panels, draw_intervals, seeds_note
from madbench.analysis.figures.style import GRAY, MARKERS, PALETTE, PERCENTS, SHADE, ArtistOptions, style
from madbench.analysis.frames import groups_of
from madbench.analysis.quantities import in_order
from madbench.analysis.rendering import TextTable
from madbench.analysis.samples import samples_of
from madbench.papers.coefficients import Decision, Principle, coefficient_label

BAR_COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "task", "group", "remainder", "mark", "state"), str)
BAR_COLUMNS |= dict.fromkeys(("accuracy", "low", "high"), float) | {"n": int}
"""Columns and types of the data of a bar figure. A row is the mean of a bar or the accuracy of one seed, in percent.

``mark`` is ``mean`` or ``seed``. ``state`` is ``diverged`` in the row of a mean if every seed diverged, otherwise
empty. In the row of a mean, ``low`` and ``high`` are the ends of its 95% interval, and ``n`` is the number of seeds.
"""
POINT_COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "panel", "series", "label"), str) | dict.fromkeys(
    ("x", "y"), float
)
"""Columns and types of the data of a point figure: one point (x, y) per row."""


def bar_frame(scores: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The data of :func:`bar_figure`, with the columns :data:`BAR_COLUMNS`: means and single accuracies of labels.

    ``scores`` has one accuracy per label, task and seed. The bars of labels with the same readout form a group. If all
    labels have the same readout, those with the same letters for gate and mirror form a group. A remainder is the rest
    of a label, without the letters that name its group. ``protocol`` is a text that the figure shows.
    """
    labels = {label: coefficient_label(label) for label in dict.fromkeys(scores.label)}
    is_by_readout = len({label.readout for label in labels.values()}) > 1
    rows: list[dict[str, Any]] = []
    for task, of_label in samples_of(scores).items():
        for name, label in labels.items():
            if (sample := of_label.get(name)) is None:
                continue
            head = label.readout if is_by_readout else label.gate + label.mirror
            remainder = str(label).removeprefix("cd:").replace(head, "", 1).replace("--", "-").strip("-")
            place = {"task": task, "group": head, "remainder": remainder or "-"}
            low, high = sample.interval
            state = "diverged" if sample.all_diverged else ""
            numbers = {"accuracy": sample.mean, "low": low, "high": high, "n": sample.n}
            rows.append(place | {"mark": "mean", "state": state} | numbers)
            rows += [place | {"mark": "seed", "accuracy": value} for value in sample.values]
    return frame_of(rows, BAR_COLUMNS, protocol)


@style()
def bar_figure(frame: pd.DataFrame, principle: Principle, layout: Layout = Layout()) -> Page:
    """Draw bars of accuracy in percent, one panel per task. ``frame`` is the result of :func:`bar_frame`.

    A bar is hatched if every seed diverged. Diverged seeds count with the accuracy of chance.
    """
    tasks = in_order(frame.task)
    groups, remainders = list(dict.fromkeys(frame.group)), list(dict.fromkeys(frame.remainder))
    width = 0.8 / len(remainders)
    colors = dict(zip(remainders, distinct_colors(PALETTE, len(remainders))))
    size = (0.75 * len(groups) + 0.16 * len(groups) * len(remainders), 1.9)
    entries: dict[str, ArtistOptions] = {
        remainder: {"marker": "s", "markersize": 7, "color": colors[remainder]} for remainder in remainders
    }
    if (frame.state != "").any():
        entries["every seed diverged"] = {"marker": "s", "markersize": 7, "markerfacecolor": "white", "color": GRAY}
    lines = layout.lines([len(tasks)], 2, 0.4 * len(groups) if layout.is_small else 1.5, 0.5)
    name = f"principle {principle.number}"
    panels = Panels(layout, name, principle.heading, lines, size, 0.7, len(entries), sharey="row")
    for axes, task in zip(panels.axes, tasks):
        of_task = frame[frame.task == task]
        of_task = of_task.assign(x=of_task.group.map(groups.index) + _offsets(of_task, remainders) * width)
        means, seeds = of_task[of_task.mark == "mean"], of_task[of_task.mark == "seed"]
        axes.set(title=layout.name(task), ylim=(0, 105), yticks=PERCENTS, xlim=(-0.6, len(groups) - 0.4))
        bars = axes.bar(means.x, means.accuracy, 0.9 * width, color=[*map(colors.get, means.remainder)], zorder=2)
        for bar, state in zip(bars, means.state):
            if state:
                bar.set(facecolor="white", edgecolor=GRAY, hatch="////")
        ranges = means[means.low.notna() & (means.state == "")]
        draw_intervals(axes, ranges.x, ranges.low, ranges.high, "black", is_vertical=True, linewidth=1, zorder=3)
        several = seeds[seeds.groupby("x").accuracy.transform("count") > 1]
        axes.scatter(several.x, several.accuracy, s=7, c="black", alpha=0.55, linewidths=0, zorder=4)
        axes.set_xticks(range(len(groups)), groups)
        axes.grid(False, axis="x")
    panels.name_axes("", "accuracy, %")
    looks = "Dots: seeds. Black lines: 95% intervals of the mean, where there is one."
    return panels.finish([*frame.protocol.unique(), seeds_note(frame.n), looks], entries)


def _offsets(rows: pd.DataFrame, remainders: Sequence[str]) -> pd.Series:
    """The distance of each row's bar from the middle of its group of bars, in widths of a bar.

    ``rows`` are rows of one task from :func:`bar_frame`. A remainder is the rest of a label without the part that names
    its group, and ``remainders`` has their order. The bars of a group are centered. Remainders without a bar in the
    group take no space.
    """
    rank = rows.remainder.map(remainders.index).groupby(rows.group).rank("dense")
    return rank - (rank.groupby(rows.group).transform("max") + 1) / 2


def point_decision(
    principle: Principle,
    verdicts: Mapping[str, str],
    table: TextTable,
    points: Iterable[Mapping[str, Any]],
    protocol: str,
    axes_of: Mapping[str, Mapping[str, Any]],
    remarks: Mapping[str, str] | None = None,
    **look: Any,
) -> Decision:
    """A decision whose figure is a :func:`point_figure`.

    ``points`` are the points of the figure, with the columns of :data:`POINT_COLUMNS` other than ``protocol``.
    ``axes_of`` and ``look`` are arguments of :func:`point_figure`, and the others are fields of the decision.
    """
    frame = frame_of(points, POINT_COLUMNS, protocol)
    draw = functools.partial(point_figure, frame, principle, axes_of, **look)
    return Decision(table, verdicts, frame, draw, remarks=remarks or {})


@style()
def point_figure(
    frame: pd.DataFrame,
    principle: Principle,
    axes_of: Mapping[str, Mapping[str, Any]],
    layout: Layout = Layout(),
    notes: Sequence[str] = (),
    is_line: bool = False,
    bands: Mapping[str, float] = MappingProxyType({}),
) -> Page:
    """Draw the points or lines of each series in panels.

    ``frame`` has the columns :data:`POINT_COLUMNS`. ``axes_of`` maps each panel that is drawn to Matplotlib's settings
    of its axes. ``notes`` are sentences below the figure. If ``is_line`` is true, every panel has lines instead of
    points. ``bands`` maps some panels to a distance. Such a panel has lines, and a shaded band of y from -distance to
    +distance. Its y axis is linear in the band and logarithmic beyond.
    """
    names = [panel for panel in axes_of if panel in set(frame.panel)]
    series = list(dict.fromkeys(frame.series))
    colors, markers = dict(zip(series, distinct_colors(PALETTE, len(series)))), dict(zip(series, MARKERS * len(series)))
    look: ArtistOptions = {"linestyle": "-", "linewidth": 1.4} if is_line else {}
    entries = {name: {"color": colors[name], "marker": "" if is_line else markers[name], **look} for name in series}
    lines = layout.lines([len(names)], 3, 1.3 if layout.is_small else 1.8, 0.7)
    title = f"principle {principle.number}"
    panels = Panels(layout, title, principle.heading, lines, (2.3, 1.9), 0.6, len(entries))
    for axes, panel in zip(panels.axes, names):
        for name, rows in groups_of(frame[frame.panel == panel], "series"):
            has_line = is_line or panel in bands
            look = {"linewidth": 1.4} if has_line else {"linestyle": "", "marker": markers[name], "markersize": 4}
            axes.plot(rows.x, rows.y, color=colors[name], **look)
        if panel in bands:
            axes.set_yscale("symlog", linthresh=bands[panel])
            axes.axhspan(-bands[panel], bands[panel], facecolor=SHADE, zorder=0)
        axes.set(title=panel, **axes_of[panel])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())
    return panels.finish([*frame.protocol.unique(), *notes], entries)
