"""Figures of the interactions suite: learned matrices against the theory's, and error against length."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from torch import nn

from madbench.analysis.figures.colors import distinct
from madbench.analysis.figures.style import GREY, HEADING, MARKERS, PALETTE, SMALLEST, style
from madbench.analysis.interactions import PAPER_ERROR, Row
from madbench.mixers.interactions.worlds import WORLDS, Colliding

LEAST = 1e-16
"""Errors below are drawn here: they are rounding."""


@dataclass(frozen=True)
class Matrices:
    """Learned and theoretical matrices of equal shape by heading, the learned one first."""

    title: str
    note: str
    panels: dict[str, np.ndarray]

    def draw(self) -> Figure:
        """All on one colour scale, white at zero; it ends where the theory's would be two and a half times as large."""
        panels, (height, width) = self.panels, next(iter(self.panels.values())).shape
        largest = {name: abs(matrix).max() for name, matrix in panels.items()}
        most = 2.5 * max(size for name, size in largest.items() if not name.startswith("learned"))
        norm, count = CenteredNorm(halfrange=min(most, max(largest.values())) or 1.0), len(panels)
        with style():
            figure = Figure(
                (3.1 * count + 1, 3.1 * max(0.4, min(1.0, 1.6 * height / width)) + 1.1), layout="constrained"
            )
            for ax, (heading, matrix) in zip(figure.subplots(1, count), panels.items()):
                image = ax.imshow(matrix, cmap="RdBu_r", norm=norm, interpolation="nearest", aspect="auto")
                ax.set_title(heading)
                ax.grid(False)
            is_clipped = max(largest.values()) > norm.halfrange
            figure.colorbar(image, ax=figure.axes, shrink=0.95, pad=0.015, extend="both" if is_clipped else "neither")
            figure.suptitle(self.title, x=0.005, ha="left", fontsize=HEADING, weight="bold")
            figure.supxlabel(self.note, x=0.005, ha="left", fontsize=SMALLEST, color=GREY)
        return figure

    @property
    def frame(self) -> pd.DataFrame:
        """An entry a line: its row and column, and its value in every panel."""
        row, column = np.indices(next(iter(self.panels.values())).shape)
        values = {name: matrix.ravel() for name, matrix in self.panels.items()}
        return pd.DataFrame({"row": row.ravel(), "column": column.ravel()} | values)


def learned_matrices(row: Row, model: nn.Module) -> dict[str, Matrices]:
    """What the model of a row's first seed has learned, by the end of the file's name; nothing for other mixers.

    Of linear attention on colliding agents C in the domain base and T, and its own coordinates where these are
    sinusoids; of any other couplings T alone.
    """
    effects, world, title = model.effects(), row.world, f"{row.world.title}, {row.name}"
    if effects is None or effects.ndim != world.effects.ndim:
        return {}
    shape, learned = (len(world.effects), -1), effects.double().numpy(force=True)
    panels = {"learned T": learned.reshape(shape), "theoretical T": world.effects.reshape(shape)}
    note = f"Seed {row.seeds[0]}. T is the effect of the column's symbol on the row's."
    if world.effects.ndim == 3:
        note = f"Seed {row.seeds[0]}. T is the effect of two symbols, b and c at column S b + c, on the row's."
    note += f" Mean squared difference {row.metric('effects_error')[0]:.1e}."
    if not isinstance(world, Colliding) or row.label != "hfa:C1" or row.jobs[0].model.n_head > 1:
        return {"": Matrices(title, note, panels)}
    c, devised, vectors = model.mixer.c.double().numpy(force=True)[0, 0], world.solution[0], world.vectors
    own = {"learned E C Eᵀ": vectors @ c @ vectors.T, "devised E C Eᵀ": vectors @ devised @ vectors.T}
    figures = {"": Matrices(title, note, own | panels)}
    if world.embedding == "sinusoidal":
        note = f"Seed {row.seeds[0]}. Factors differ from the devised ones; their product T does not."
        figures["_coordinates"] = Matrices(f"{title}: C itself", note, {"learned C": c, "devised C": devised})
    return figures


def errors(rows: Sequence[Row]) -> Figure:
    """Error against length, a panel a task: the worst seed as a line, every seed as a mark, predictions as crosses."""
    frame = errors_frame(rows).assign(reference=lambda lines: lines.predicted.fillna(lines.floor))
    tasks = [task for task in WORLDS if task in set(frame.task)]
    with style():
        figure = Figure((4.2 * len(tasks), 5.2), layout="constrained")
        for part, task in zip(figure.subfigures(1, len(tasks), squeeze=False).flat, tasks):
            ax, first, own = part.subplots(), next(row for row in rows if row.task == task), frame[frame.task == task]
            looks = zip(distinct(PALETTE, own.row.nunique()), itertools.cycle(MARKERS))
            for (name, of_row), (color, marker) in zip(own.groupby("row", sort=False), looks):
                look = {"color": color, "marker": marker, "ms": 4.5, "mfc": "white"}
                worst = of_row.groupby("length")[["mse", "reference"]].max().clip(lower=LEAST)
                diverged = of_row.groupby("seed").mse.agg(lambda errors: np.isinf(errors).all())
                note = f", {diverged.sum()}/{len(diverged)} diverged" if diverged.any() else ""
                ax.plot(worst.mse, lw=1.6, label=f"{name}{note}", **look)
                ax.plot(of_row.length, of_row.mse.clip(lower=LEAST), ls="", **look)
                ax.plot(worst.reference[worst.reference > LEAST], "x", color=color, ms=8, mew=1.4)
            lengths = list(first.world.lengths)
            if own.reference.gt(0).any():
                ax.plot([], [], "x", color=GREY, ms=8, mew=1.4, label="predicted" if task == "colliding" else "floor")
            ax.plot(lengths, [first.variance(n) for n in lengths], color=GREY, lw=1, ls=":", label="a constant")
            if task == "colliding":
                ax.axhline(PAPER_ERROR, color=GREY, lw=1, ls="--", label="the paper, N 360")
            ax.axvline(first.world.length, color=GREY, lw=0.8, alpha=0.6)
            ax.set(xscale="log", xlabel="agents; the line: trained", title=first.world.title)
            if np.isfinite(own[["mse", "variance"]]).any(axis=None):
                ax.set_yscale("log")
            else:
                ax.set_yticks([])  # every seed diverged
            ax.set_ylabel("mean squared error of a test agent" if task == tasks[0] else "")
            ax.set_xticks(lengths, lengths)
            ax.minorticks_off()
            part.legend(loc="outside lower center", ncols=1, fontsize=SMALLEST)
    return figure


def errors_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """A line a row, length and seed."""
    return pd.DataFrame(
        {"task": row.task, "row": row.name, "length": n, "trained_length": row.world.length, "seed": seed, "mse": error}
        | {"predicted": predicted, "floor": row.floor(n), "variance": row.variance(n)}
        for row in rows
        for n in row.world.lengths
        for seed, error, predicted in itertools.zip_longest(row.seeds, row.errors(n), row.predicted(n))
    ).astype({"predicted": float, "floor": float})


def devised(world: Colliding) -> tuple[Figure, pd.DataFrame]:
    """The diagonal of the devised C in sinusoidal coordinates, by index (eq. 17)."""
    diagonal = np.diag(world.solution[0])
    with style():
        figure = Figure((6, 3.4), layout="constrained")
        ax = figure.subplots()
        ax.plot(diagonal, color=PALETTE[0], lw=1.2)
        ax.set(xlabel="index", ylabel="entry of the diagonal of C")
        ax.set_title(f"Devised C of sinusoidal positions, N {world.positions}, R {world.radius}", loc="left")
    return figure, pd.DataFrame({"index": range(len(diagonal)), "entry": diagonal})
