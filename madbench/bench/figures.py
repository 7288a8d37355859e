"""Figures of the parts: lines against length, bars by task or model."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from madbench.analysis.figures.panels import Layout, Panels
from madbench.analysis.figures.style import COLORS, MARKERS, style
from madbench.bench.parts import Part, Row

PALETTE = [
    COLORS[base][i] for i, base in ((0, "S"), (2, "R"), (0, "G"), (4, "R"), (2, "S"), (4, "G"), (6, "R"), (4, "S"))
]


@style()
def draw(part: Part, rows: Sequence[Row], where: str, layout: Layout = Layout()) -> Figure | None:
    """The part's curve; None where no row has its number. The least and the longest are black lines where they are known."""
    curve = part.curve
    shown = [row for row in rows if row.get(curve.y) is not None]
    if not shown:
        return None
    series = list(dict.fromkeys(_series(part, row) for row in shown))
    colors = {one: PALETTE[i % len(PALETTE)] for i, one in enumerate(series)}
    is_line = not isinstance(shown[0][curve.x], str)
    size = (4.4, 2.8) if is_line else (max(3.6, 0.45 * len(shown) + 1), 2.8)
    panels = Panels(layout, part.name, f"{part.name}: {part.what}", [1], size)
    axes = panels.axes[0]
    places = list(dict.fromkeys(row[curve.x] for row in shown))
    if is_line:
        for i, one in enumerate(series):
            of_one = [row for row in shown if _series(part, row) == one]
            look = {"marker": MARKERS[i % len(MARKERS)], "markersize": 4, "linewidth": 1.2}
            axes.plot([row[curve.x] for row in of_one], [row[curve.y] for row in of_one], color=colors[one], **look)
        axes.set(xscale="log", yscale="log", xlabel=curve.x_label, ylabel=curve.y_label)
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.minorticks_off()
        entries = {
            one: {"color": colors[one], "marker": MARKERS[i % len(MARKERS)], "markersize": 4}
            for i, one in enumerate(series)
        }
    else:
        width = 0.8 / len(series) if curve.series else 0.8
        for row in shown:
            one = _series(part, row)
            shift = (series.index(one) - (len(series) - 1) / 2) * width if curve.series else 0
            x, y = places.index(row[curve.x]) + shift, row[curve.y]
            axes.bar(x, y, width, color=colors[one])
            unit = curve.y.split("_", 1)[1] if "_" in curve.y else ""
            low, high = (row.get(f"{curve.y.split('_')[0]}_{end}_{unit}") for end in ("low", "high"))
            if low is not None:
                axes.plot([x, x], [low, high], color="black", linewidth=1)
        axes.set(xlim=(-0.6, len(places) - 0.4), ylabel=curve.y_label, yscale="log" if curve.series else "linear")
        axes.set_xticks(range(len(places)), [str(place).replace("_", " ") for place in places], rotation=30, ha="right")
        entries = (
            {one: {"color": colors[one], "marker": "s", "markersize": 6} for one in series} if curve.series else {}
        )
    return panels.finish([where], entries)


def _series(part: Part, row: Row) -> str:
    """The label, and its path where rows of a label differ in it."""
    if not part.curve.series:
        return ""
    name = str(row[part.curve.series])
    return f"{name} {row['path']}" if part.name == "mixers" else name
