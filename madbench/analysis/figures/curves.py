"""Curves of many labels in one panel: means over seeds with bands, the best labels in colour, the others in grey."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from madbench.analysis.figures.style import OTHERS, Highlights


@dataclass
class Curves:
    """The curves of a label in a panel. Lines are (n, 2): x and y."""

    x: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(P,): where the finished seeds were evaluated."""
    y: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """(N, P): values of the N finished seeds, NaN where a seed has none."""
    thin: np.ndarray | None = None
    """Line drawn thin behind the mean: the values before they were smoothed."""
    diverged: list[np.ndarray] = field(default_factory=list)
    """Lines of the other seeds."""

    @property
    def range(self) -> np.ndarray:
        """(4, P): x, and the mean, lowest and highest seed there, where any seed has a value."""
        known = np.isfinite(self.y).any(axis=0)
        of_seeds = [summary(self.y[:, known], axis=0) for summary in (np.nanmean, np.nanmin, np.nanmax)]
        return np.array([self.x[known], *of_seeds])


def draw_curves(axes: Axes, curves: Mapping[str, Curves], shown: Highlights) -> None:
    """Draws the labels in order, the first in front.

    Of a label in colour: the mean with a marker at its end, hollow for a single seed, and a band from the lowest to the
    highest seed. Of the others the mean alone. A diverged run is a thin line that ends in a cross.
    """
    others = [of_label for label, of_label in curves.items() if label not in shown.styles]
    grey = [of_label.range[:2].T for of_label in others if len(of_label.y)]
    axes.plot(*joined([*grey, *(line for of_label in others for line in of_label.diverged)]).T, **OTHERS, zorder=1.5)
    for label, of_label in reversed(curves.items()):
        color = shown.color(label)
        crosses = [line[-1] for line in of_label.diverged]
        axes.plot(*zip(*crosses), color=color, marker="x", linestyle="")
        if label not in shown.styles:
            continue
        thin = [*of_label.diverged, *([] if of_label.thin is None else [of_label.thin])]
        axes.plot(*joined(thin).T, color=color, linewidth=0.7, alpha=0.6)
        if len(of_label.y):
            x, mean, low, high = of_label.range
            look = {**shown.styles[label].line, **shown.styles[label].mark(len(of_label.y) == 1)}
            axes.plot(x, mean, **look, markevery=[-1])
            if len(of_label.y) > 1:
                axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0, zorder=1)


def joined(lines: Sequence[np.ndarray]) -> np.ndarray:
    """The lines as one with gaps, which is far faster to draw."""
    gap = np.full((1, 2), np.nan)
    return np.concatenate([gap, *(part for line in lines for part in (line, gap))])


def curve_notes(curves: Iterable[Curves]) -> list[str]:
    """The meaning of bands, hollow ends and crosses, where there are any."""
    found = [(len(of_label.y), bool(of_label.diverged)) for of_label in curves]
    texts = {
        "Lines: means over seeds. Bands: lowest to highest seed.": any(seeds > 1 for seeds, _ in found),
        "Hollow end: a single seed.": any(seeds == 1 for seeds, _ in found),
        "Cross: diverged.": any(has_diverged for _, has_diverged in found),
    }
    return [text for text, is_so in texts.items() if is_so]


def set_log_ticks(axes: Axes) -> None:
    """Ticks of a logarithmic x axis at 1, 2 and 5 times powers of ten, at the powers alone over three decades or more."""
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
