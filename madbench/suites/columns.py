"""The quantities that a suite's tables show: columns, averages of columns, and the loss L5 of a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ACCURACY = {"axis": "accuracy, %", "difference": "percentage points of accuracy"}
"""The fields that columns of accuracy share."""
LAST_EVALUATIONS = 5
"""Of a curve, whose mean is L5."""


def loss_l5(train_losses: Sequence[float]) -> float:
    """L5: the mean of the last five training-batch evaluations, of all where there are fewer; NaN for none."""
    last = train_losses[-LAST_EVALUATIONS:]
    return sum(last) / len(last) if last else math.nan


@dataclass(frozen=True)
class Column:
    """One quantity of every label, a column of its suite's table."""

    name: str
    heading: str
    digits: int  # decimal places that are printed; they decide nothing
    better: Literal["higher", "lower", ""] = ""  # empty for what is no result, and so has no interval and no best
    limits: tuple[float, float] = (-math.inf, math.inf)  # beyond which no value can be
    missing: str = ""  # what a cell without a number says
    resolution: float = 1e-6  # step in which values are counted: what is within it is equal, and has no variance
    title: str = ""  # in words; the heading where it is empty
    axis: str = ""  # what an axis of a figure says; the title where it is empty
    unit: str = "points"  # of a difference, for programs
    difference: str = "points"  # what a difference is, in words: ``nats per token of a loss``
    is_steps: bool = False  # whether values are steps of training to an event that a run may not reach
    is_compared: bool = True  # whether labels are compared in it
    is_attributed: bool = True  # whether it is a result of its own, for effects of factors and figures against cost
    legend: str = ""  # what a caption says of the column
    counts: str = ""  # what a caption says of ``[k/n]``, where a cell says how many seeds succeed
    has_thresholds: bool = False  # whether a user chooses what it counts to

    @property
    def words(self) -> str:
        return self.title or self.heading


@dataclass(frozen=True)
class Average:
    """A column that is the mean over tasks, of the seeds that have all of them."""

    heading: str
    title: str
    tasks: tuple[str, ...]
