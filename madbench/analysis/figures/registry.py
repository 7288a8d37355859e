"""The figures by name: what draws them, and the columns and name of their CSV files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from madbench.analysis import loss_curves
from madbench.analysis.figures import budget, difficulty, effects, learning, loss, mad
from madbench.analysis.frames import read_frame


@dataclass(frozen=True)
class Drawing:
    """A figure: ``draw(read(path))`` is the very one that was drawn from the frame in the CSV file."""

    draw: Callable[..., Figure]
    """``draw(frame)``, and choices of its own."""
    columns: Mapping[str, type]
    """Of its frame, but for ``style``: the number of each label's style, without which that is its place."""
    file: str
    """Name of its files, without ending."""
    suites: tuple[str, ...]
    """Names of the suites it is about."""

    def read(self, path: Path) -> pd.DataFrame:
        """The frame in a CSV file. Raises ``ConfigError`` where the file holds none of this figure."""
        return read_frame(path, self.columns, self.file.replace("_", " "), {"style": int})


FIGURES = {
    "mad": Drawing(mad.mad_figure, mad.COLUMNS, "mad", ("mad",)),
    "learning": Drawing(learning.learning_figure, learning.COLUMNS, "learning", ("mad",)),
    "loss": Drawing(loss.loss_figure, loss_curves.COLUMNS, "loss_curves", ("language",)),
    "effects": Drawing(effects.effects_figure, effects.COLUMNS, "effects", ("mad", "language")),
    "budget": Drawing(budget.budget_figure, budget.COLUMNS, "budget", ("mad", "language")),
    "difficulty": Drawing(difficulty.difficulty_figure, difficulty.COLUMNS, "difficulty", ("mad",)),
}
"""By name, in the order in which they are drawn."""
