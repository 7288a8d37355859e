"""Figures of measurements inside the mixers of trained models (:mod:`madbench.analysis.inspection`).

They show scores and weights as maps and by lag, learned lag kernels, gates, and interaction matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from madbench.analysis.figures.panels import Layout, Panels
from madbench.analysis.figures.style import COLORS, GRAY, ArtistOptions, smallest, style
from madbench.analysis.inspection import Inspection, means_by_lag
from madbench.analysis.lag_kernels import mixing_matrices

Models = Mapping[str, Inspection]
"""The measurements of one or two models, by the name of the model."""
MOST_LAYERS = 3  # the largest number of layers in a figure: the first, the middle and the last
MOST_LAGS = 32  # the largest number of lags of a kernel that are drawn
MOST_HEADS = 4
_NAMES = {"active": "share of rows active", "weights": "share of |weight|"}
_COLORS = (COLORS["S"][0], COLORS["R"][2], COLORS["G"][0], COLORS["S"][6])
_DASHES = ("-", (0, (4, 2)), (0, (1, 1)), (0, (4, 1, 1, 1)))


def inspection_figures(
    models: Models, layout: Layout = Layout(), names: Collection[str] | None = None
) -> Iterator[tuple[str, Figure]]:
    """Yield (name, figure) for the figures in ``names``, by default for all. A figure without data is left out.

    The names are ``lags`` (active slots and weights by lag), ``maps`` (scores and weights of one example), ``kernels``
    (learned lag kernels), ``gates`` (histograms of gates) and ``matrices`` (learned interaction matrices).
    """
    for name, draw in _FIGURES.items():
        with style():
            if (names is None or name in names) and (figure := draw(models, layout)) is not None:
                yield name, figure


def _layers(model: Inspection) -> list[int]:
    """The indices of the probes to draw: all if there are at most three, otherwise the first, middle and last."""
    last = len(model.probes) - 1
    return sorted({0, last // 2, last}) if last >= MOST_LAYERS else list(range(last + 1))


def _title_prefix(models: Models, name: str) -> str:
    """The beginning of the title of a panel: the name of the model. Empty if there is a single model."""
    return f"{name}, " if len(models) > 1 else ""


def _lags(models: Models, layout: Layout) -> Figure | None:
    """The figure of two quantities against the lag: the share of rows with an active slot, and the share of |weight|.

    The figure has one line of panels per model and quantity, one panel per layer, and one curve per head. A quantity
    that the probes of a model lack has no panels. None if no probe has active slots or weights.
    """
    lines_by_model = {
        name: [means_by_lag(model.probes[layer]) for layer in _layers(model)] for name, model in models.items()
    }
    lines = [
        (name, quantity)
        for name, of_layers in lines_by_model.items()
        for quantity in _NAMES
        if any(quantity in of_layer for of_layer in of_layers)
    ]
    if not lines:
        return None
    counts = [len(lines_by_model[name]) for name, _ in lines]
    heading, size, heads = f"By lag: {' and '.join(models)}", (2.6, 1.7), _heads(lines_by_model, lines)
    panels = Panels(layout, "lags", heading, layout.lines(counts, MOST_LAYERS, 0.8, 0.4), size, 0.5, heads)
    for (name, quantity), axes_of_line in zip(lines, panels.groups(counts)):
        for layer, of_layer, axes in zip(_layers(models[name]), lines_by_model[name], axes_of_line):
            if quantity not in of_layer:  # the layers of a hybrid show different quantities
                axes.set_axis_off()
                continue
            for head, values in enumerate(of_layer[quantity][:MOST_HEADS]):
                axes.plot(np.arange(len(values)), values, **_line(head) | {"linewidth": 0.9})
            axes.set(title=f"{_title_prefix(models, name)}layer {models[name].layers[layer]}", xlabel="lag")
            axes.set_xscale("symlog", base=2, linthresh=1)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            if quantity == "active":
                axes.set_ylim(0, 1)
                axes.axhline(0.5, color=GRAY, linewidth=0.8, linestyle=(0, (1, 2)))
            else:
                positive = of_layer[quantity][of_layer[quantity] > 0]
                axes.set_yscale("log")
                if len(positive):
                    low, high = (math.log10(value) for value in (max(1e-4, float(positive.min())), positive.max()))
                    axes.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
                axes.yaxis.set_minor_formatter(NullFormatter())
        axes_of_line[0].set_ylabel(_NAMES[quantity])
    notes = ["Means over examples and over the rows that see the lag; both axes of weights are logarithmic."]
    if any(quantity == "active" for _, quantity in lines):
        notes.append("Dotted: one half, the share for scores that are symmetric about zero.")
    return panels.finish(notes, {f"head {head + 1}": _line(head) for head in range(heads)})


def _heads(lines_by_model: Mapping[str, Sequence[Mapping[str, Any]]], lines: Sequence[tuple[str, str]]) -> int:
    """The largest number of heads in any panel of :func:`_lags`, at most :data:`MOST_HEADS`.

    ``lines_by_model`` has the means of each layer, by model. ``lines`` has the model and the quantity of each line of
    panels.
    """
    return min(
        MOST_HEADS,
        max(len(of_layer.get(quantity, ())) for name, quantity in lines for of_layer in lines_by_model[name]),
    )


def _maps(models: Models, layout: Layout) -> Figure | None:
    """The figure of scores and weights of the first example as maps, one line of panels per layer and head.

    None if no probe has scores or weights.
    """
    lines: list[list[tuple[str, np.ndarray]]] = []
    for layers in zip(*map(_layers, models.values())):
        heads = [_maps_of(_title_prefix(models, name), models[name], layer) for name, layer in zip(models, layers)]
        lines += [sum(of_head, []) for of_head in zip(*heads)]
    if not lines:
        return None
    counts = [len(line) for line in lines]
    heading, size = f"Rows by lag: {' and '.join(models)}", (2.2, 1.9)
    panels = Panels(layout, "maps", heading, layout.lines(counts, max(counts), 1.2, 0.3), size, 0.9)
    for line, axes_of_line in zip(lines, panels.groups(counts)):
        for (title, values), axes in zip(line, axes_of_line):
            visible = np.tril(np.ones(values.shape, dtype=bool))
            _image(axes, np.where(visible, values, np.nan), title)
            axes.set_ylabel("row" if axes is axes_of_line[0] else "")
    panels.name_axes("lag")
    notes = [
        "First example; row t (downward) and the slot or token l steps before it (rightward).",
        "Green above zero, brown below; full color at the number in a title, the 99th percentile of absolute values.",
    ]
    return panels.finish(notes, {}, is_below=True)


def _maps_of(name: str, model: Inspection, layer: int) -> list[list[tuple[str, np.ndarray]]]:
    """The maps of one layer of a model: for each head, the pairs (title, array) of its scores and its weights.

    ``layer`` is the index of the probe. A title begins with ``name``. A map that the probe lacks is left out.
    """
    maps = {what: getattr(model.probes[layer], what) for what in ("scores", "weights")}
    maps = {what: _array(values[0]) for what, values in maps.items() if values is not None}
    return [
        [(f"{name}layer {model.layers[layer]} head {head}, {what}", values) for what, values in zip(maps, of_head)]
        for head, of_head in enumerate(zip(*maps.values()), start=1)
        if head <= MOST_HEADS
    ]


def _kernels(models: Models, layout: Layout) -> Figure | None:
    """The figure of learned lag kernels, one line of panels per layer and mixing. None if no mixer has kernels.

    A line has one map of the mixing matrix K per head, and one panel of curves for each of the tables p, A and B of the
    kernel (:mod:`madbench.analysis.lag_kernels`).
    """
    lines = _probe_values(models, "kernels")
    if not lines:
        return None
    counts = [min(MOST_HEADS, len(kernel.p)) + 3 for _, kernel in lines]
    heading, size = f"Learned lag kernels: {' and '.join(models)}", (1.7, 1.5)
    panels = Panels(layout, "kernels", heading, layout.lines(counts, max(counts), 1.0, 0.3), size, 0.5, MOST_HEADS)
    for (title, kernel), axes_of_line in zip(lines, panels.groups(counts)):
        heads = len(axes_of_line) - 3
        lags = min(MOST_LAGS, kernel.p.shape[1])
        for head, (matrix, axes) in enumerate(zip(_array(mixing_matrices(kernel, lags)), axes_of_line)):
            _image(axes, matrix, f"{title} head {head + 1}")
            axes.set(xlabel="slot", ylabel="token" if head == 0 else "")
        for what, axes in zip("pAB", axes_of_line[heads:]):
            values = _array(getattr(kernel, what))[:, :lags]
            for head in range(heads):
                axes.plot(np.arange(values.shape[1]), values[head], **_line(head) | {"linewidth": 0.8})
            axes.axhline(0, color=GRAY, linewidth=0.6)
            axes.set(title=what, xlabel="lag" if kernel.layout == "lag" else "position")
    notes = [
        (
            "Maps: K = A Diag(s) B^T at the mean strengths s, how slots (columns) are made of tokens (rows), "
            f"{_order({kernel.layout for _, kernel in lines})}."
        ),
        (
            "A shift is a line beside the diagonal, an average a column of one color. Green above zero, brown below; "
            "full color at the number in a title. Curves: the tables p, A, B, one curve per head and rank."
        ),
    ]
    heads = max(count - 3 for count in counts)
    entries = {f"head {head + 1}": _line(head) for head in range(heads)}
    return panels.finish(notes, entries, is_below=True)


def _order(layouts: Collection[str]) -> str:
    """The order of slots in mixing matrices of these layouts, such as ``newest first``."""
    orders = {"lag": "newest first", "position": "oldest first"}
    if len(layouts) == 1:
        return orders[next(iter(layouts))]
    return " or ".join(f"{orders[layout]} ({layout})" for layout in sorted(layouts))


def _probe_values(models: Models, field: str) -> list[tuple[str, Any]]:
    """Pairs (title, value) for all values in the field ``field`` of the probes that are drawn.

    The field must be a mapping, such as ``kernels``. A title has the name of the model if there are several, the key in
    the mapping, and the layer.
    """
    return [
        (f"{_title_prefix(models, name)}{what} layer {model.layers[layer]}", value)
        for name, model in models.items()
        for layer in _layers(model)
        for what, value in getattr(model.probes[layer], field).items()
    ]


def _gates(models: Models, layout: Layout) -> Figure | None:
    """The figure of histograms of gate values. None if no mixer has gates.

    There is one line of panels per layer of the first model, one panel per gate, and one curve per model.
    """
    names = list(dict.fromkeys(name for model in models.values() for probe in model.probes for name in probe.gates))
    if not names:
        return None
    first = next(iter(models.values()))
    layers = _layers(first)
    counts, heading = [len(names)] * len(layers), f"Gates: {' and '.join(models)}"
    lines = layout.lines(counts, len(names), 0.8, 0.1)
    panels = Panels(layout, "gates", heading, lines, (2.2, 1.4), 0.4, len(models))
    for layer, axes_of_line in zip(layers, panels.groups(counts)):
        for gate, axes in zip(names, axes_of_line):
            for head, model in enumerate(models.values()):
                probe = dict(zip(model.layers, model.probes)).get(first.layers[layer])
                values = None if probe is None else probe.gates.get(gate)
                if values is not None:
                    shares, edges = np.histogram(_array(values), bins=40, range=(0, 1))
                    axes.stairs(shares / shares.sum(), edges, **_line(head))
            axes.set(title=f"{gate}, layer {first.layers[layer]}", xlim=(0, 1), yticks=[])
    entries = {name: _line(head) for head, name in enumerate(models)}
    notes = ["Share of the values of all examples, rows and channels."]
    return panels.finish(notes, entries if len(models) > 1 else {}, is_below=True)


def _matrices(models: Models, layout: Layout) -> Figure | None:
    """The figure of learned interaction matrices: one line of panels per layer and matrix, one panel per head.

    Only the first ``MOST_HEADS`` heads are drawn. None if no mixer has such matrices.
    """
    lines = [(title, _array(matrix)[:MOST_HEADS]) for title, matrix in _probe_values(models, "matrices")]
    if not lines:
        return None
    counts = [len(matrices) for _, matrices in lines]
    heading, size = f"Learned interactions: {' and '.join(models)}", (2.0, 2.0)
    panels = Panels(layout, "matrices", heading, layout.lines(counts, max(counts), 0.9, 0.3), size, 0.7)
    for (title, matrices), axes_of_line in zip(lines, panels.groups(counts)):
        for head, (matrix, axes) in enumerate(zip(matrices, axes_of_line)):
            _image(axes, matrix, f"{title} head {head + 1}")
    notes = ["Row i, column j: how j acts on i. Green above zero, brown below; full color at the number in a title."]
    return panels.finish(notes, {}, is_below=True)


_FIGURES: dict[str, Callable[[Models, Layout], Figure | None]] = {
    "lags": _lags,
    "maps": _maps,
    "kernels": _kernels,
    "gates": _gates,
    "matrices": _matrices,
}


def _image(axes: Axes, values: np.ndarray, title: str) -> None:
    """Draw a matrix as a map of colors. Zero is white, and cells with NaN are empty.

    Colors are full where the absolute value reaches the 99th percentile of all absolute values. This number is added to
    the title.
    """
    sizes = np.abs(values[np.isfinite(values)])
    largest = float(np.quantile(sizes, 0.99)) if sizes.size else 0.0
    limit = largest or 1.0
    axes.imshow(values, cmap="BrBG", vmin=-limit, vmax=limit, interpolation="nearest", aspect="auto")
    axes.set_title(f"{title}\n±{largest:.2g}", fontsize=smallest())
    axes.grid(False)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().float().cpu().numpy()


def _line(head: int) -> ArtistOptions:
    return {"color": _COLORS[head % MOST_HEADS], "linestyle": _DASHES[head % MOST_HEADS], "linewidth": 1.3}
