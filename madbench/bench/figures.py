"""Figures of the benchmark's parts: lines against length, or bars by task or model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from madbench.analysis.figures.colors import distinct_colors
from madbench.analysis.figures.panels import Layout, Panels
from madbench.analysis.figures.style import GRAY, MARKERS, PALETTE, ArtistOptions, style
from madbench.bench.parts import PEER, BenchPart, BenchRow, Curve


@style()
def draw(part: BenchPart, rows: Sequence[BenchRow], where: str) -> Figure | None:
    """Draw the curve of a part of the benchmark. None if no row has a number for it.

    The curve is a line over the numbers of its column ``x``, or bars if this column has names. A black line on a bar
    spans from the shortest to the longest time. ``where`` is the note below the figure.
    """
    curve = part.curve
    drawn_rows = [row for row in rows if row.get(curve.y) is not None]
    if not drawn_rows:
        return None
    series = list(dict.fromkeys(_series(curve, row) for row in drawn_rows))
    colors = distinct_colors(PALETTE, len(series))
    looks: dict[str, ArtistOptions] = {
        name: {
            "color": GRAY if name == PEER else colors[i],
            "marker": MARKERS[i % len(MARKERS)],
            "markersize": 4,
        }
        for i, name in enumerate(series)
    }
    panels_of = list(dict.fromkeys(row.get(curve.panel) for row in drawn_rows))
    is_line = not isinstance(drawn_rows[0][curve.x], str)
    places = list(dict.fromkeys(row[curve.x] for row in drawn_rows))
    width = 4.4 if is_line else max(3.2, 0.12 * len(places) * (len(series) + 1) + 1)
    panels = Panels(Layout(), part.name, f"{part.name}: {part.what}", [len(panels_of)], (width, 2.8))
    for axes, panel in zip(panels.axes, panels_of):
        panel_rows = [row for row in drawn_rows if row.get(curve.panel) == panel]
        axes.set_title(panel or "")
        if is_line:
            for name, look in looks.items():
                mine = [row for row in panel_rows if _series(curve, row) == name]
                axes.plot([row[curve.x] for row in mine], [row[curve.y] for row in mine], linewidth=1.2, **look)
            axes.set(xscale="log", yscale="log", xlabel=curve.x_label, ylabel=curve.y_label)
            axes.set_xticks(places, [f"{place:,}" for place in places])
            axes.minorticks_off()
        else:
            _draw_bars(axes, curve, panel_rows, places, looks)
    entries = looks if is_line else {name: look | {"marker": "s"} for name, look in looks.items()}
    return panels.finish([where], entries if curve.series else {})


def _draw_bars(
    axes: Axes, curve: Curve, rows: Sequence[BenchRow], places: list[str], looks: Mapping[str, ArtistOptions]
) -> None:
    series, (quantity, unit) = list(looks), curve.y.split("_", 1)
    width = 0.8 / len(series)
    for row in rows:
        name = _series(curve, row)
        x, y = places.index(row[curve.x]) + (series.index(name) - (len(series) - 1) / 2) * width, row[curve.y]
        axes.bar(x, y, width, color=looks[name]["color"])
        if (low := row.get(f"{quantity}_low_{unit}")) is not None:
            axes.plot([x, x], [low, row[f"{quantity}_high_{unit}"]], color="black", linewidth=1)
    axes.set(xlim=(-0.6, len(places) - 0.4), ylabel=curve.y_label, ylim=(0, None))
    axes.set_xticks(range(len(places)), places, rotation=30, ha="right")


def _series(curve: Curve, row: BenchRow) -> str:
    return str(row[curve.series]) if curve.series else ""
