"""Curves of many labels in one panel: means over seeds with bands, the best labels in colour, the others in grey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from madbench.analysis.figures.highlights import Highlights
from madbench.analysis.figures.style import OTHERS

Line = np.ndarray
"""(n, 2): x and y."""


@dataclass
class Curves:
    """The curves of a label in a panel."""

    x: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(P,): where the finished seeds were evaluated."""
    y: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """(N, P): values of the N finished seeds, NaN where a seed has none."""
    thin: Line | None = None
    """Drawn thin behind the mean: the values before they were smoothed."""
    diverged: list[Line] = field(default_factory=list)

    @property
    def seeds(self) -> int:
        return len(self.y)

    @property
    def mean(self) -> Line:
        """Over the seeds, where any has a value."""
        known = np.isfinite(self.y).any(axis=0)
        return np.column_stack([self.x[known], np.nanmean(self.y[:, known], axis=0)])


def draw_curves(axes: Axes, curves: Mapping[str, Curves], shown: Highlights) -> None:
    """Draws the labels in order, the first in front.

    Of a label in colour: the mean with a marker at its end, hollow for a single seed, and a band from the lowest to the
    highest seed. Of the others the mean alone. A diverged run is a thin line that ends in a cross.
    """
    grey = [of_label.mean for label, of_label in curves.items() if label not in shown.styles and of_label.seeds]
    grey += [line for label, of_label in curves.items() if label not in shown.styles for line in of_label.diverged]
    axes.plot(*joined(grey).T, **OTHERS, zorder=1.5)
    for label, of_label in reversed(curves.items()):
        thin = {"color": shown.color(label), "linewidth": 0.7, "alpha": 0.6}
        for line in of_label.diverged:
            if label in shown.styles:
                axes.plot(*line.T, **thin)
            axes.plot(*line[-1], color=shown.color(label), marker="x")
        if label not in shown.styles or not of_label.seeds:
            continue
        if of_label.thin is not None:
            axes.plot(*of_label.thin.T, **thin)
        if of_label.seeds > 1:
            known = np.isfinite(of_label.y).any(axis=0)
            low, high = np.nanmin(of_label.y[:, known], axis=0), np.nanmax(of_label.y[:, known], axis=0)
            axes.fill_between(of_label.x[known], low, high, color=shown.color(label), alpha=0.15, linewidth=0, zorder=1)
        style = shown.styles[label]
        axes.plot(*of_label.mean.T, **style.line | style.mark(of_label.seeds == 1), markevery=[-1])


def joined(lines: Sequence[Line]) -> Line:
    """The lines as one with gaps, which is far faster to draw."""
    gap = np.full((1, 2), np.nan)
    return np.concatenate([gap, *(part for line in lines for part in (line, gap))])


def curve_notes(curves: Sequence[Curves]) -> list[str]:
    """The meaning of bands, hollow ends and crosses, where there are any."""
    notes = []
    if any(of_label.seeds > 1 for of_label in curves):
        notes.append("Lines: means over seeds. Bands: lowest to highest seed.")
    if any(of_label.seeds == 1 for of_label in curves):
        notes.append("Hollow end: a single seed.")
    if any(of_label.diverged for of_label in curves):
        notes.append("Cross: diverged.")
    return notes


def set_log_ticks(axes: Axes) -> None:
    """Ticks of a logarithmic x axis at 1, 2 and 5 times powers of ten, at the powers alone over three decades or more."""
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
