"""Frames of scores with given values, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.scoring import COLUMNS, mean_over

CHANCE = 4.0
"""The accuracy of a random guess, in percent."""
UNIFORM = 5.0
"""The loss of the uniform distribution."""
SCORE: dict[str, Any] = {
    "suite": "mad",
    "column": "compression",
    "seed": 0,
    "value": 50.0,
    "done": 1,
    "expected": 1,
    "diverged": 0,
}
SCORE |= {"budget_ratio": 1.0, "ceiling": 100.0, "chance": CHANCE, "solved_threshold": 90.4, "is_diverged": False}
SCORE |= {"heuristic": math.nan}
OF_LOSS: dict[str, Any] = {
    "suite": "language",
    "column": LOSS,
    "chance": UNIFORM,
    "ceiling": math.nan,
    "solved_threshold": math.nan,
}

Values = Mapping[str, Sequence[float | None]]
"""The values of the seeds 0, 1, ... of each label. NaN for a diverged seed, None for a seed without a run."""


def frame_of_scores(values: Values, tasks: Sequence[str] = ("compression",), **changes: Any) -> pd.DataFrame:
    """A frame of scores with the same values on all ``tasks``. ``changes`` are values for columns of the frame.

    If ``tasks`` include the six tasks of MAD, the frame also has their average.
    """
    score = SCORE | changes
    rows = []
    for label, of_label in values.items():
        for task in tasks:
            for seed, value in enumerate(of_label):
                row = score | {"label": label, "column": changes.get("column", task), "seed": seed, "value": value}
                if value is not None and math.isnan(value):
                    row |= {"value": score["chance"], "is_diverged": True, "diverged": score["expected"]}
                rows += [row] if value is not None else []
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    if not set(MAD_TASKS) <= set(frame.column):
        return frame
    return pd.concat([frame, mean_over(frame, MAD_TASKS, MAD_AVERAGE)], ignore_index=True)


def frame_of_losses(values: Values, **changes: Any) -> pd.DataFrame:
    """A frame of scores with the losses ``values`` of language models. ``changes`` has values for other columns."""
    return frame_of_scores(values, **OF_LOSS | changes)
