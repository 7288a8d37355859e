"""What each factor is worth, as a forest plot: a panel a task, a row a factor, interactions below."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.attribution_table import AttributionTable
from madbench.analysis.figures.layout import Legend, Panels, in_lines, new_figure, set_x_label, widest
from madbench.analysis.figures.marks import add_lines, add_marks, add_rows, simplify_ticks
from madbench.analysis.figures.style import (
    COLORS,
    GREY,
    TITLES,
    style,
)
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.statistics import LEVEL

TYPES = dict.fromkeys(("protocol", "kind", "row", "quantity", "given", "without"), str)
TYPES |= {"pairs": int, "seeds": int} | dict.fromkeys(("difference", "low", "high", "p_holm"), float)
"""Columns of :func:`effects_frame`."""

_FEW = 12  # rows of which the panels fit in two lines
_CLAIMED = COLORS[0]
_PAIR = {"color": COLORS[6], "marker": "o", "markersize": 3, "edge": 0, "alpha": 0.8}


def effects_frame(table: AttributionTable, protocol: str) -> pd.DataFrame:
    """What :func:`effects_figure` draws, a mark a row.

    Columns: protocol, kind (``effect``; ``pair`` of labels, given and without; ``interaction`` larger than the noise),
    row (its name), quantity, given, without, pairs, seeds, difference in percentage points (of L5 in nats per token),
    low, high (ends of the 95% interval), p_holm. What does not exist is NaN.
    """
    names = {one.contrast.name: _row_name(one.contrast.name) for one in table.effects}
    frame = pd.DataFrame(table.records())
    larger = frame.p_holm.astype(float) <= LEVEL
    frame = frame[(frame.kind != "interaction") | larger]
    short = {one.first.name: one.first.short_name for one in table.interactions}
    short |= {one.second.name: one.second.short_name for one in table.interactions}
    rows = [
        f"{short[contrast]} x {short[second]}" if kind == "interaction" else names[contrast]
        for kind, contrast, second in zip(frame.kind, frame.contrast, frame.second)
    ]
    frame = frame.assign(protocol=protocol, row=rows)[list(TYPES)]
    return frame.fillna({"given": "", "without": ""}).astype(TYPES)


def effects_figure(frame: pd.DataFrame) -> Figure:
    """The figure of an :func:`effects_frame`."""
    factors = _in_order(frame, "effect")
    interactions = _in_order(frame, "interaction")
    places = {name: i for i, name in enumerate(factors)}
    places |= {name: len(factors) + 0.5 + i for i, name in enumerate(interactions)}
    quantities = [name for name in TITLES if name in set(frame.quantity)]
    notes = _notes(frame)
    columns = min(len(quantities), 4) if len(places) <= _FEW else len(quantities)
    lines = in_lines(len(quantities), columns)
    x_lines = [*[0] * (len(lines) - 1), 2 if LOSS in quantities else 1]
    with style():
        panels = Panels(lines, 1.54, 0.24 * (max(places.values()) + 1.2), widest(places), x_lines=x_lines)
        legend = Legend(_entries(frame), is_below=True)
        figure, drawn = new_figure("effects", "What each factor is worth", notes, panels, legend, least_width=6.0)
        rows: dict[str, list[Any]] = {}
        for row in frame.itertuples():
            rows.setdefault(row.quantity, []).append(row)
        reach = _reach([row for quantity, of_it in rows.items() if quantity != LOSS for row in of_it])
        for axes, quantity in zip(drawn, quantities):
            of_it = rows[quantity]
            limit = _reach(of_it) if quantity == LOSS else reach
            _draw(axes, of_it, places, limit)
            axes.set_title(TITLES[quantity], fontweight="bold" if quantity in (MAD_AVERAGE, LOSS) else "normal")
            if quantity == LOSS:
                set_x_label(axes, "nats per token\n(less is better)")
            elif axes in drawn[-lines[-1] :]:
                set_x_label(axes, "percentage points")
            axes.set_xlim(-limit, limit)
            simplify_ticks(axes, "x")
            if interactions:
                axes.axhline(len(factors) - 0.25, color=GREY, linewidth=0.8)
        add_rows(drawn, columns, places)
    return figure


def _draw(axes: Axes, rows: list[Any], places: dict[str, float], limit: float) -> None:
    """One quantity; an interval that goes beyond ``limit`` ends in an arrow there."""
    axes.axvline(0, color="black", linewidth=0.8)
    points = [(one.difference, places[one.row] + 0.3) for one in rows if one.kind == "pair"]
    add_marks(axes, points, [_PAIR] * len(points))
    estimates = [one for one in rows if one.kind != "pair"]
    lines, line_looks, arrows, arrow_looks = [], [], [], []
    for one in estimates:
        if math.isnan(one.low):
            continue
        place, color = places[one.row], _CLAIMED if one.p_holm <= LEVEL else GREY
        lines.append([(max(one.low, -limit), place), (min(one.high, limit), place)])
        line_looks.append({"color": color, "linewidth": 1.6})
        for end, marker in ((one.low, "<"), (one.high, ">")):
            if abs(end) > limit:
                arrows.append((math.copysign(limit, end), place))
                arrow_looks.append({"color": color, "marker": marker, "markersize": 5})
    add_lines(axes, lines, line_looks)
    add_marks(axes, arrows, arrow_looks)
    looks = [_look(one.p_holm <= LEVEL, not math.isnan(one.low)) for one in estimates]
    add_marks(axes, [(one.difference, places[one.row]) for one in estimates], looks)


def _look(is_claimed: bool, has_interval: bool) -> dict[str, Any]:
    """The marker of an estimate: filled where an effect may be claimed, a cross where it has no interval."""
    if not has_interval:
        return {"marker": "x", "color": GREY, "markersize": 5}
    color = _CLAIMED if is_claimed else GREY
    return {"marker": "s", "color": color, "markersize": 6, "markerfacecolor": color if is_claimed else "white"}


def _reach(rows: list[Any]) -> float:
    """Half of the width of an axis: all differences, and the intervals unless they are far longer."""
    if not rows:
        return 1.0
    differences = max(abs(one.difference) for one in rows) or 1.0
    ends = [abs(end) for one in rows if one.kind != "pair" for end in (one.low, one.high) if not math.isnan(end)]
    return 1.1 * max(differences, min(2 * differences, max(ends, default=0.0)))


def _entries(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    estimates = frame[frame.kind != "pair"]
    is_claimed = estimates.p_holm <= LEVEL
    entries = {}
    for text, is_there, look in (
        ("differs from 0", is_claimed.any(), (True, True)),
        ("not claimed", (~is_claimed & estimates.low.notna()).any(), (False, True)),
        ("no interval", estimates.low.isna().any(), (False, False)),
    ):
        if is_there:
            entries[text] = _look(*look) | ({"linewidth": 1.6} if look[1] else {})
    return entries | {"a pair of labels": _PAIR}


def _notes(frame: pd.DataFrame) -> list[str]:
    notes = [
        *frame.protocol.unique(),
        "Effect: mean difference, paired by seed, of the pairs of labels that differ in this factor alone.",
    ]
    estimates = frame[frame.kind != "pair"]
    if (estimates.low.notna() & estimates.p_holm.notna()).any():
        notes.append("Bars: 95% intervals, Student's t over pairs.")
    if (estimates.low.notna() & estimates.p_holm.isna()).any():
        notes.append(
            "Where no factor has two pairs, bars are over the seeds of one pair and claim nothing of the factor."
        )
    if (estimates.p_holm <= LEVEL).any():
        notes.append("Filled: p of at most 0.05 after Holm over the panel.")
    if (estimates.kind == "interaction").any():
        notes.append(
            "a x b, below the line: by how much more a is worth where b is given; only those beyond the noise."
        )
    effects = frame[frame.kind == "effect"]
    notes.append(f"Pairs a factor: {_range(effects.pairs)}; seeds: {_range(effects.seeds)}.")
    return notes


def _range(counts: pd.Series) -> str:
    return " to ".join(map(str, sorted({counts.min(), counts.max()})))


def _in_order(frame: pd.DataFrame, kind: str) -> list[str]:
    return list(dict.fromkeys(frame[frame.kind == kind].row))


def _row_name(contrast: str) -> str:
    """``conv: c against none`` -> ``conv: c``."""
    return contrast.removesuffix(" against none")
