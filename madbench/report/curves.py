"""Learning curves as the page holds them: a few points that a small plot needs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path

MOST_POINTS = 24
"""Points of a curve that the page shows."""

_LOSS = "train_loss"
_EVALUATIONS = ("validation_token_accuracy", "test_batch_macro_accuracy", "validation_loss")
"""Columns beside the loss, of which the page draws the first that a curve has."""


def thin_curve(file: Path) -> dict[str, list[float | None]]:
    """``step``, training loss and evaluation of a ``curve.csv``: evenly spread rows, the first and the last among them.

    Values that are not finite are None. Empty where the file has no such rows.
    """
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            heading, *rows = csv.reader(lines)
        evaluation = next((name for name in _EVALUATIONS if name in heading), _LOSS)
        names = list(dict.fromkeys(("step", _LOSS, evaluation)))
        pick = itemgetter(*map(heading.index, names))
        whole = [row for row in (pick(row) for row in rows if len(row) == len(heading)) if all(row)]
        columns = dict(zip(names, zip(*([float(text) for text in whole[i]] for i in _spread(len(whole))))))
    except (OSError, ValueError):  # absent while the run is replaced, or edited by hand since it was stored
        return {}
    return {
        name: [int(value) if name == "step" else _short(value) for value in values] for name, values in columns.items()
    }


def _spread(count: int) -> Iterable[int]:
    """Places of at most :data:`MOST_POINTS` of ``count`` things, evenly spread, the first and the last among them."""
    most = min(MOST_POINTS, count)
    return (round(i * (count - 1) / max(1, most - 1)) for i in range(most))


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
