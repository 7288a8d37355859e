"""The effect of each factor, as a forest plot: a panel a task, a row a factor, interactions below."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.attribution_table import AttributionTable
from madbench.analysis.figures.panels import Look, Panels, in_lines, name_rows
from madbench.analysis.figures.style import COLORS, GREY, LabelStyle, in_order, style, title
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.statistics import LEVEL

COLUMNS = dict.fromkeys(("protocol", "kind", "row", "quantity", "given", "without"), str)
COLUMNS |= {"pairs": int, "seeds": int} | dict.fromkeys(("difference", "low", "high", "p_holm"), float)
"""Columns of :func:`effects_frame` and their types."""

_FEW = 12  # rows of which the panels fit in two lines
_PAIR = {"color": COLORS[6], "marker": "o", "markersize": 3, "markeredgewidth": 0, "alpha": 0.8}
_BAR = {"linestyle": "-", "linewidth": 1.6}
_SQUARE = {"marker": "s", "markersize": 6}
_ESTIMATES: dict[str, Look] = {
    "differs from 0": _SQUARE | {"color": COLORS[0]},
    "not significant": _SQUARE | {"color": GREY, "markerfacecolor": "white"},
    "no interval": {"marker": "x", "color": GREY, "markersize": 5},
}


def effects_frame(table: AttributionTable, protocol: str) -> pd.DataFrame:
    """What :func:`effects_figure` draws, a mark a row.

    Columns: protocol, kind (``effect``; ``pair`` of labels, given and without; ``interaction`` larger than the noise),
    row (its name), quantity, given, without, pairs, seeds, difference in percentage points (of L5 in nats per token),
    low, high (ends of the 95% interval), p_holm. What does not exist is NaN.
    """
    contrasts = [contrast for one in table.interactions for contrast in (one.first, one.second)]
    short = {contrast.name: contrast.short_name for contrast in contrasts}
    frame = pd.DataFrame(table.records())
    frame = frame[(frame.kind != "interaction") | (frame.p_holm.astype(float) <= LEVEL)]
    rows = [
        f"{short[name]} x {short[second]}" if kind == "interaction" else name.removesuffix(" against none")
        for kind, name, second in zip(frame.kind, frame.contrast, frame.second)
    ]
    frame = frame.assign(protocol=protocol, row=rows)[list(COLUMNS)]
    return frame.fillna({"given": "", "without": ""}).astype(COLUMNS).reset_index(drop=True)


def effects_figure(frame: pd.DataFrame, styles: Mapping[str, LabelStyle] | None = None) -> Figure:
    """The figure of an :func:`effects_frame`; as rows are factors and not labels, ``styles`` of labels are not needed."""
    factors, interactions = (frame.row[frame.kind == kind].unique() for kind in ("effect", "interaction"))
    places = {name: float(i) for i, name in enumerate(factors)}
    places |= {name: len(factors) + 0.5 + i for i, name in enumerate(interactions)}
    quantities = in_order(frame.quantity)
    lines = in_lines(len(quantities), min(len(quantities), 4) if len(places) <= _FEW else len(quantities))
    frame = frame.assign(place=frame.row.map(places), look=_looks(frame))
    reach = _reach(frame[frame.quantity != LOSS])
    with style():
        size = (1.54, 0.24 * (max(places.values()) + 1.2))
        panels = Panels("effects", "Effect of each factor", lines, size, is_y_shared=False)
        for axes, quantity in zip(panels.axes, quantities):
            of_quantity = frame[frame.quantity == quantity]
            limit = _reach(of_quantity) if quantity == LOSS else reach
            _draw(axes, of_quantity, limit)
            axes.set_title(title(quantity), fontweight="bold" if quantity in (MAD_AVERAGE, LOSS) else "normal")
            axes.set_xlim(-limit, limit)
            axes.locator_params(axis="x", nbins=4)
            if quantity == LOSS:
                axes.set_xlabel("nats per token\n(less is better)")
            elif axes in panels.bottom:
                axes.set_xlabel("percentage points")
            if len(interactions):
                axes.axhline(len(factors) - 0.25, color=GREY, linewidth=0.8)
        name_rows(panels, places)
        entries = {text: look for text, look in _ESTIMATES.items() if text in set(frame.look)}
        entries = {text: look | (_BAR if text != "no interval" else {}) for text, look in entries.items()}
        return panels.finish(_notes(frame), entries | {"a pair of labels": _PAIR}, is_below=True)


def _looks(frame: pd.DataFrame) -> list[str]:
    """The key of ``_ESTIMATES`` of every row, empty for a pair."""
    looks = []
    for one in frame.itertuples():
        significant = "differs from 0" if one.p_holm <= LEVEL else "not significant"
        looks.append("" if one.kind == "pair" else "no interval" if math.isnan(one.low) else significant)
    return looks


def _draw(axes: Axes, frame: pd.DataFrame, limit: float) -> None:
    """One quantity; an interval that reaches beyond ``limit`` ends in an arrow there."""
    axes.axvline(0, color="black", linewidth=0.8)
    pairs = frame[frame.kind == "pair"]
    axes.plot(pairs.difference, pairs.place + 0.3, linestyle="", **_PAIR)
    for text, look in _ESTIMATES.items():
        estimates = frame[frame["look"] == text]
        low, high = estimates.low.clip(lower=-limit), estimates.high.clip(upper=limit)
        axes.hlines(estimates.place, low, high, look["color"], linewidth=_BAR["linewidth"])
        for ends, marker in ((estimates[estimates.low < -limit], "<"), (estimates[estimates.high > limit], ">")):
            at = [-limit if marker == "<" else limit] * len(ends)
            axes.plot(at, ends.place, color=look["color"], linestyle="", marker=marker, markersize=5, clip_on=False)
        axes.plot(estimates.difference, estimates.place, linestyle="", **look)


def _reach(frame: pd.DataFrame) -> float:
    """Half of the width of an axis: all differences, and the intervals unless they are far longer."""
    differences = frame.difference.abs().max() if len(frame) else 1.0
    ends = frame[frame.kind != "pair"][["low", "high"]].abs().max().max()
    return 1.1 * max(differences, min(2 * differences, 0.0 if math.isnan(ends) else ends)) or 1.0


def _notes(frame: pd.DataFrame) -> list[str]:
    estimates = frame[frame.kind != "pair"]
    effects = frame[frame.kind == "effect"]
    notes = [
        *frame.protocol.unique(),
        "Effect: mean difference, paired by seed, of the pairs of labels that differ in this factor alone.",
    ]
    if (estimates.low.notna() & estimates.p_holm.notna()).any():
        notes.append("Bars: 95% intervals, Student's t over pairs.")
    if (estimates.low.notna() & estimates.p_holm.isna()).any():
        notes.append("Where no factor has two pairs, bars are over the seeds of one pair; not tested.")
    if (estimates.p_holm <= LEVEL).any():
        notes.append(f"Filled: p of at most {LEVEL} after Holm over the panel.")
    if (estimates.kind == "interaction").any():
        notes.append("a x b, below the line: how much larger the effect of a is with b; only those beyond the noise.")
    return [*notes, f"Pairs a factor: {_range(effects.pairs)}; seeds: {_range(effects.seeds)}."]


def _range(counts: pd.Series) -> str:
    return " to ".join(map(str, sorted({counts.min(), counts.max()})))
