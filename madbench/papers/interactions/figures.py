"""The figures of the interactions suite: learned and theoretical matrices, and errors by number of agents."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import CenteredNorm

from madbench.analysis.figures.colors import distinct_colors
from madbench.analysis.figures.panels import HEIGHT, WIDTHS, Layout, Page, Panels
from madbench.analysis.figures.style import (
    GRAY,
    HEADING,
    MARKERS,
    PALETTE,
    SMALL,
    SMALL_HEADING,
    SMALLEST,
    style,
)
from madbench.analysis.frames import groups_of, rows_of
from madbench.papers.interactions.rows import PAPER_ERROR, InteractionRow, shown_row_name
from madbench.papers.interactions.worlds import WORLDS, Colliding

if TYPE_CHECKING:
    from torch import nn

    from madbench.papers.interactions.mixers.coupling import Coupling
    from madbench.papers.interactions.model import InteractionModel

LEAST = 1e-16
"""The smallest error that is drawn. Smaller errors come from rounding and are drawn at this value."""


@dataclass(frozen=True)
class Matrices:
    """A figure that shows learned and theoretical matrices of equal shape side by side.

    ``panels`` maps the headings of panels to matrices, learned matrices first. ``columns`` and ``rows`` are the names
    of the axes.
    """

    title: str
    note: str
    panels: dict[str, np.ndarray]
    columns: str = "symbol"
    rows: str = "symbol of the row"

    def draw(self, layout: Layout = Layout()) -> Page:
        """Draw the matrices with one color scale for all panels, white at zero.

        The scale ends at 2.5 times the largest absolute theoretical entry, or at the largest absolute entry of all
        matrices if that is smaller.
        """
        panels, (height, width) = self.panels, next(iter(self.panels.values())).shape
        largest = {name: abs(matrix).max() for name, matrix in panels.items()}
        most = 2.5 * max(size for name, size in largest.items() if not name.startswith("learned"))
        norm, count = CenteredNorm(halfrange=min(most, max(largest.values())) or 1.0), len(panels)
        size = (3.1 * count + 1, 3.1 * max(0.4, min(1.0, 1.6 * height / width)) + 1.1)
        with style(), _page(layout, size, self.title, self.note) as figure:
            rows = math.ceil(count / 2) if layout.is_small else 1
            grid: np.ndarray = figure.subplots(rows, math.ceil(count / rows), squeeze=False)
            for ax, (heading, matrix) in zip(cast("Iterable[Any]", grid.flat), panels.items()):
                image = ax.imshow(matrix, cmap="RdBu_r", norm=norm, interpolation="nearest", aspect="auto")
                ax.set_title(heading)
                ax.set_xlabel(self.columns)
                ax.grid(False)
            for ax in grid[:, 0]:
                ax.set_ylabel(self.rows)
            is_clipped = max(largest.values()) > norm.halfrange
            figure.colorbar(image, ax=figure.axes, shrink=0.95, pad=0.015, extend="both" if is_clipped else "neither")
        return figure

    @property
    def frame(self) -> pd.DataFrame:
        """The data of the figure, with one row per matrix entry: its row, its column, and its value in every panel."""
        row, column = np.indices(next(iter(self.panels.values())).shape)
        values = {name: matrix.ravel() for name, matrix in self.panels.items()}
        return pd.DataFrame({"row": row.ravel(), "column": column.ravel()} | values)


def learned_matrices(row: InteractionRow, model: nn.Module) -> dict[str, Matrices]:
    """The figures of the matrices that a trained model has learned: suffix of the file name to figure.

    ``model`` is that of the first seed of ``row``. The figure with the empty suffix shows the matrix T of effects, as
    learned and as in theory. An entry of T is the effect of the column's symbol on the row's symbol. In tasks with
    effects of pairs of symbols, the pair (b, c) has the column S b + c, where S is the number of symbols.

    The label ``hfa:C1`` with one head has more matrices on colliding agents. Its figure also shows E C E^T, where E (S,
    d) is the embedding and C (d, d) the coupling matrix. If the embedding is sinusoidal, a second figure with the
    suffix ``_coordinates`` shows C itself.

    Empty if the model has no learned effects, or if their shape is not that of the task's effects (pairs of symbols
    instead of single symbols, or the reverse).
    """
    effects, world, title = (
        cast("InteractionModel", model).effects(),
        row.world,
        f"{row.world.title}, {row.name}",
    )
    if effects is None or effects.ndim != world.effects.ndim:
        return {}
    shape, learned = (len(world.effects), -1), effects.double().numpy(force=True)
    panels = {"learned T": learned.reshape(shape), "theoretical T": world.effects.reshape(shape)}
    note = f"Seed {row.seeds[0]}. T is the effect of the column's symbol on the row's."
    if world.effects.ndim == 3:
        note = f"Seed {row.seeds[0]}. T is the effect of two symbols, b and c at column S b + c, on the row's."
    columns = "symbols" if world.effects.ndim == 3 else "symbol"
    note += f" Mean squared difference {row.metric('effects_error')[0]:.1e}."
    if not isinstance(world, Colliding) or row.label != "hfa:C1" or row.jobs[0].model.n_head > 1:
        return {"": Matrices(title, note, panels, columns)}
    c, devised, vectors = (
        cast("Coupling", model.mixer).c.double().numpy(force=True)[0, 0],
        world.solution[0],
        world.vectors,
    )
    matrices = {"learned E C Eᵀ": vectors @ c @ vectors.T, "devised E C Eᵀ": vectors @ devised @ vectors.T}
    figures = {"": Matrices(title, note, matrices | panels)}
    if world.embedding == "sinusoidal":
        note = f"Seed {row.seeds[0]}. Factors differ from the devised ones; their product T does not."
        figures["_coordinates"] = Matrices(
            f"{title}: C itself", note, {"learned C": c, "devised C": devised}, "coordinate", "coordinate"
        )
    return figures


@style()
def error_figure(rows: Sequence[InteractionRow], layout: Layout = Layout()) -> Page:
    """A figure of the mean squared error against the number of agents, with one panel per task.

    Lines show the worst seed of a row, and marks show every seed. Crosses show what theory says: the predicted error or
    the lowest possible error of the row.
    """
    frame = errors_frame(rows).assign(reference=lambda lines: lines.predicted.fillna(lines.floor))
    tasks, names = [task for task in WORLDS if task in set(frame.task)], list(dict.fromkeys(frame.row))
    colors = zip(distinct_colors(PALETTE, len(names)), itertools.cycle(MARKERS))
    looks: dict[Any, dict[str, Any]] = {
        name: {"color": color, "marker": marker, "mfc": "white"} for name, (color, marker) in zip(names, colors)
    }
    entries: dict[str, dict[str, Any]] = {
        shown_row_name(name): look | {"linestyle": "-"} for name, look in looks.items()
    }
    predicted: dict[str, Any] = {"color": GRAY, "marker": "x", "markersize": 7, "markeredgewidth": 1.4}
    entries |= {"predicted, or floor": predicted} if frame.reference.gt(LEAST).any() else {}
    entries |= {"a constant": {"color": GRAY, "linewidth": 1, "linestyle": ":"}}
    entries |= {"the paper, N 360": {"color": GRAY, "linewidth": 1, "linestyle": "--"}} if "colliding" in tasks else {}
    lines = layout.lines([len(tasks)], 3, 1.6 if layout.is_small else 2.0, 0.5)
    heading, size = "Error against the number of agents", (3.3, 3.3)
    panels = Panels(layout, "errors", heading, lines, size, 0.6, len(entries))
    for axes, task in zip(panels.axes, tasks):
        first, task_rows = next(row for row in rows if row.task == task), frame[frame.task == task]
        for name, of_row in groups_of(task_rows, "row"):
            worst = of_row.groupby("length")[["mse", "reference"]].max().clip(lower=LEAST)
            axes.plot(worst.mse, linewidth=1.6, **looks[name])
            axes.plot(of_row.length, of_row.mse.clip(lower=LEAST), linestyle="", **looks[name])
            axes.plot(worst.reference[worst.reference > LEAST], **predicted | {"color": looks[name]["color"]}, ls="")
        lengths = list(first.world.lengths)
        axes.plot(lengths, [first.variance(n) for n in lengths], **entries["a constant"])
        if task == "colliding":
            axes.axhline(PAPER_ERROR, **entries["the paper, N 360"])
        axes.axvline(first.world.length, color=GRAY, linewidth=0.8, alpha=0.6)
        axes.set(xlim=(0.8 * min(lengths), max(lengths) / 0.8), xscale="log", title=first.world.title)
        if np.isfinite(task_rows[["mse", "variance"]]).any(axis=None):
            axes.set_yscale("log")
        else:
            axes.set_yticks([])  # every seed diverged
        axes.set_xticks(lengths, list(map(str, lengths)))
        axes.minorticks_off()
    panels.name_axes("agents", "mean squared error" if layout.is_small else "mean squared error of a test agent")
    notes = [
        "Lines: the worst seed; marks: every seed. Gray line: the number of agents trained on.",
        _diverged_note(frame),
    ]
    return panels.finish(notes, entries, is_below=True)


def _diverged_note(frame: pd.DataFrame) -> str:
    """A sentence on the rows with diverged seeds, whose errors are infinite and not drawn. Empty without such rows."""
    is_diverged = np.isinf(frame.mse).groupby([frame.task, frame.row, frame.seed], sort=False).all()
    counts = is_diverged.groupby(level=[0, 1], sort=False).agg(["sum", "count"])
    texts = [
        f"{task} {row} {diverged} of {count} seeds" for (task, row), diverged, count in rows_of(counts) if diverged
    ]
    return f"Diverged: {', '.join(texts)}." if texts else ""


def errors_frame(rows: Sequence[InteractionRow]) -> pd.DataFrame:
    """The data of :func:`error_figure`, with one row per table row, length and seed.

    Columns: task, row, length, trained_length, seed, mse, predicted (the error that theory predicts), floor (the lowest
    possible error), variance (the error of the best constant). Unknown numbers are NaN.
    """
    return pd.DataFrame(
        {"task": row.task, "row": row.name, "length": n, "trained_length": row.world.length, "seed": seed, "mse": error}
        | {"predicted": predicted, "floor": row.floor(n), "variance": row.variance(n)}
        for row in rows
        for n in row.world.lengths
        for seed, error, predicted in itertools.zip_longest(row.seeds, row.errors(n), row.predicted(n))
    ).astype({"predicted": float, "floor": float})


def devised_figure(world: Colliding, layout: Layout = Layout()) -> tuple[Page, pd.DataFrame]:
    """A figure of the diagonal of the C that the paper devises (eq. 17), and the data of the figure.

    The devised C is not learned but computed by a formula, in the coordinates of the sinusoidal embedding of ``world``.
    The figure shows the entries of its diagonal against their index.
    """
    diagonal = np.diag(world.solution[0])
    title = f"Devised C of sinusoidal positions, N {world.positions}, R {world.radius}"
    with style(), _page(layout, (6, 3.4), title, "") as figure:
        ax = figure.subplots()
        ax.plot(diagonal, color=PALETTE[0], lw=1.2)
        ax.set(xlabel="index", ylabel="entry of the diagonal of C")
    return figure, pd.DataFrame({"index": range(len(diagonal)), "entry": diagonal})


@contextmanager
def _page(layout: Layout, size: tuple[float, float], title: str, note: str) -> Iterator[Page]:
    """A context with an empty page for a figure that does not use :class:`Panels`.

    The title and the note are added when the context ends. ``size`` is in inches, and is changed if ``layout`` has a
    width.
    """
    title, note = title if layout.has_title else "", note if layout.has_caption else ""
    if width := WIDTHS.get(layout.width or ""):
        size = width, HEIGHT if layout.is_small else min(size[1], width / size[0] * size[1] + 1.0)
    if layout.is_small:
        matplotlib.rcParams.update(SMALL)
    figure = Page(size, layout="constrained")
    yield figure
    if layout.is_small:
        figure.caption = "\n".join(filter(None, (title, note)))
        return
    wide = int((size[0] - 0.1) * 14)
    heading, text = textwrap.fill(title, int(0.7 * wide)), textwrap.fill(note, wide)
    figure.suptitle(heading, x=0.005, ha="left", fontsize=SMALL_HEADING if width else HEADING, weight="bold")
    figure.supxlabel(text, x=0.005, ha="left", fontsize=SMALLEST, color=GRAY)
