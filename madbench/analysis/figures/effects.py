"""The effect of each factor as a forest plot: one panel per task, one row per factor, interactions below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from madbench.analysis.attribution import Effect
from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import LINE, Layout, Page, Panels, draw_intervals
from madbench.analysis.figures.style import GRAY, ArtistOptions, style
from madbench.analysis.inference import LEVEL, Difference
from madbench.analysis.quantities import column, in_order, is_average

COLUMNS: dict[str, type] = dict.fromkeys(("protocol", "kind", "row", "quantity", "given", "without"), str)
COLUMNS |= {"pairs": int, "seeds": int} | dict.fromkeys(("difference", "low", "high", "p_holm"), float)
"""The columns of the data of :func:`effects_figure`, with one row per mark of the figure.

The column ``kind`` is ``effect``, ``pair`` (of the labels ``given`` and ``without``) or ``interaction`` (only if
significant). ``difference`` and the ends ``low`` and ``high`` of its 95% interval are in percentage points, or for L5
in nats per token."""

_FEW = 12  # the largest number of rows with which the panels fit into two lines
_BAR: ArtistOptions = {"linestyle": "-", "linewidth": 1.6}
_PAIR: ArtistOptions = {"color": "#E69F00", "marker": "o", "markersize": 3, "markeredgewidth": 0, "alpha": 0.8}
_ESTIMATES: dict[str, ArtistOptions] = {
    "differs from 0": {"marker": "s", "color": "#0072B2"},
    "not significant": {"marker": "s", "color": GRAY, "markerfacecolor": "white"},
    "no interval": {"marker": "x", "color": GRAY, "markersize": 5},
}


def effects_frame(effects: Sequence[Effect], protocol: str) -> pd.DataFrame:
    """The data frame for :func:`effects_figure`: all effects with their pairs, and significant interactions.

    ``protocol`` has sentences about the runs.
    """
    rows: list[dict[str, Any]] = []
    for effect in effects:
        shared = {"row": effect.name.removesuffix(" vs. none"), "quantity": effect.quantity}
        kind = "interaction" if effect.is_interaction else "effect"
        if kind == "effect" or effect.is_significant:
            numbers = _numbers(effect.estimate, effect.p_holm)
            rows.append({"kind": kind, **shared, "pairs": len(effect.cases), **numbers})
        for (label, other_label), estimate in effect.pairs.items() if kind == "effect" else ():
            pair = {"given": label, "without": other_label, "pairs": 1}
            rows.append({"kind": "pair", **shared, **pair, **_numbers(estimate)})
    return frame_of(rows, COLUMNS, protocol)


def _numbers(difference: Difference, p_holm: float = math.nan) -> dict[str, Any]:
    return {
        "difference": difference.estimate,
        "low": difference.low,
        "high": difference.high,
        "seeds": difference.n,
        "p_holm": p_holm,
    }


@style()
def effects_figure(frame: pd.DataFrame, layout: Layout = Layout()) -> Page:
    """Draw a frame that :func:`effects_frame` returned: one panel per quantity, with one row per factor.

    Significant interactions have rows below those of the factors. Each panel has an x axis of its own.
    """
    factors, interactions = (frame.row[frame.kind == kind].unique() for kind in ("effect", "interaction"))
    names, quantities = [*factors, *interactions], in_order(frame.quantity)
    significance = np.where(frame.p_holm <= LEVEL, "differs from 0", "not significant")
    estimate = pd.Series(significance, frame.index).where(frame.low.notna(), "no interval")
    frame = frame.assign(estimate=estimate.where(frame.kind != "pair", ""))
    entries = _entries(frame)
    parts = layout.parts(names, len(entries))
    places = [
        {name: i + 0.5 * (name in interactions and part[0] in factors) for i, name in enumerate(part)} for part in parts
    ]
    columns, name_width = (
        4 if len(names) <= _FEW else len(quantities),
        0.065 * max(map(len, layout.names(names).values())),
    )
    of_part = layout.lines([len(quantities)], columns, 0.7 if layout.is_small else 0.95, name_width)
    lines, height = of_part * len(parts), LINE if layout.is_small else 0.24
    size, least = (1.54, height * (max(map(max, map(dict.values, places))) + 1.2)), LINE * len(parts[0])
    panels = Panels(layout, "effects", "Effect of each factor", lines, size, least, len(entries))
    for i, axes in enumerate(panels.axes):
        of_rows, quantity = places[i // len(quantities)], quantities[i % len(quantities)]
        of_quantity = frame[frame.quantity == quantity]
        rows = of_quantity[of_quantity.row.isin(list(of_rows))]
        limit = _reach(of_quantity)
        drawn_column = column(quantity)
        is_loss = drawn_column.better == "lower"
        axes.set_title(layout.name(quantity), fontweight="bold" if is_average(quantity) or is_loss else "normal")
        axes.set_xlim(-limit, limit)
        _draw(axes, rows.assign(place=rows.row.map(of_rows)))
        axes.locator_params(axis="x", nbins=2 if layout.is_small else 4)
        what = drawn_column.unit if layout.is_small and not is_loss else drawn_column.difference.partition(" of ")[0]
        if is_loss or axes in panels.bottom:
            axes.set_xlabel(f"{what}\n(less is better)" if is_loss else what)
        if (line := sum(name in factors for name in of_rows)) < len(of_rows) and line:
            axes.axhline(line - 0.25, color=GRAY, linewidth=0.8)
    panels.name_rows(*(of_part for of_part in places for _ in range(len(lines) // len(places))))
    return panels.finish(_notes(frame), entries, is_below=True)


def _entries(frame: pd.DataFrame) -> dict[str, ArtistOptions]:
    used_looks = {text: look for text, look in _ESTIMATES.items() if text in set(frame.estimate)}
    entries = {text: look if text == "no interval" else look | _BAR for text, look in used_looks.items()}
    return entries | {"a pair of labels": _PAIR}


def _draw(axes: Axes, frame: pd.DataFrame) -> None:
    axes.axvline(0, color="black", linewidth=0.8)
    pairs = frame[frame.kind == "pair"]
    axes.plot(pairs.difference, pairs.place + 0.3, linestyle="", **_PAIR)
    for text, look in _ESTIMATES.items():
        rows = frame[frame.estimate == text]
        draw_intervals(axes, rows.place, rows.low, rows.high, look["color"], linewidth=1.6)
        axes.plot(rows.difference, rows.place, linestyle="", **look)


def _reach(frame: pd.DataFrame) -> float:
    """The half-width of the x axis of one quantity, which is centered at 0. ``frame`` has the rows of the quantity.

    The axis covers all differences, with a margin. If intervals of factors and interactions extend beyond it, the axis
    is widened to cover them, but at most to twice its width. If all differences are 0, the axis covers the intervals,
    and its half-width is 1 if there are none.
    """
    largest = float(frame.difference.abs().max())
    ends = float(np.nanmax(frame.loc[frame.kind != "pair", ["low", "high"]].abs().to_numpy(), initial=0))
    widest = min(2 * largest, ends) if largest else ends
    return 1.1 * max(largest, widest) or 1.0


def _notes(frame: pd.DataFrame) -> list[str]:
    effects = frame[frame.kind == "effect"]
    counts = [
        " to ".join(map(str, sorted({numbers.min(), numbers.max()}))) for numbers in (effects.pairs, effects.seeds)
    ]
    interactions = "a x b, below the line: how much larger the effect of a is with b; significant interactions only."
    return [
        *frame.protocol.unique(),
        "Effect: mean difference between the two labels of each pair, which differ only in this factor.",
        f"Bars: 95% intervals over seeds. Filled: p at most {LEVEL}, Holm-corrected over the figure.",
        interactions if "interaction" in set(frame.kind) else "",
        f"Pairs per factor: {counts[0]}; seeds: {counts[1]}.",
    ]
