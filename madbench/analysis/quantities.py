"""The columns of result tables by name, their headings, and differences as text. This module does not import pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from madbench.analysis.marked_text import with_minus
from madbench.labels import factors_of_text
from madbench.labels.budgets import MOST_MATCHED
from madbench.suites import Column, Suite, suites

if TYPE_CHECKING:
    from madbench.analysis.inference import Difference, Sample

TASK_MEAN = "task_mean"
"""The column of the mean over all tasks of a grid. It is used if the tasks have no average of their own."""
BUDGET_RATIO = Column("budget_ratio", "Budget", digits=3)
NUM_SEEDS = Column("n", "n", digits=0)


def column(name: str) -> Column:
    """The column of a task, an average or another quantity of any suite. Unknown tasks get a column of their name."""
    if name == TASK_MEAN:
        return Column.percent(TASK_MEAN, "Mean", title="mean over the tasks")
    columns = (suite.column(name) for suite in suites().values())
    return next(filter(None, columns), None) or Column(name, name, digits=1, better="higher", title=name)


def is_average(name: str) -> bool:
    """True if a column is the mean of others."""
    return bool(parts_of(name)) or name == TASK_MEAN


def parts_of(name: str) -> tuple[str, ...]:
    """The tasks of an average. Empty for another column, and for the mean over all tasks of a grid."""
    averages = (suite.averages.get(name) for suite in suites().values())
    return next((average.tasks for average in averages if average), ())


def averages_of(name: str) -> list[str]:
    """The averages that contain a column."""
    return [key for suite in suites().values() for key, average in suite.averages.items() if name in average.tasks]


def suite_of_column(name: str) -> Suite | None:
    """The suite of a column. None if no suite has it."""
    return next((suite for suite in suites().values() if suite.column(name)), None)


def suite_of_known(name: str) -> Suite:
    """The suite of a column. The caller knows that a suite has the column."""
    suite = suite_of_column(name)
    assert suite is not None, name
    return suite


def heading(name: str) -> str:
    """The heading of a column in a table that does not name its suite."""
    quantity = column(name)
    return quantity.title if quantity.is_steps else quantity.heading


def title(name: str) -> str:
    """The name of a column in words."""
    return column(name).words


def in_order(names: Iterable[str]) -> list[str]:
    """The names of columns without duplicates, suite by suite, each average after its tasks.

    Unknown columns come after those of the first suite. Steps to a loss come before the other columns of their suite.
    """
    places: dict[str, tuple[int, int]] = {}
    for i, suite in enumerate(suites().values()):
        places |= {name: (i, j) for j, name in enumerate(suite.order())}

    def place(name: str) -> tuple[int, float, str]:
        if name in places:
            return *places[name], name
        suite = suite_of_column(name)
        if suite is None or not column(name).is_steps:
            return 0, math.inf, name
        return [*suites().values()].index(suite), -1, name

    return sorted(set(names), key=place)


def differences_text(names: Iterable[str]) -> str:
    """The units of differences in some columns: ``percentage points of accuracy, nats per token of a loss``."""
    return ", ".join(dict.fromkeys(column(name).difference for name in in_order(names)))


def direction_text(names: Iterable[str]) -> str:
    """A sentence of the notes on columns in which lower is better. Empty if there are none."""
    lower = [heading(name) for name in in_order(names) if column(name).better == "lower"]
    return f"Lower is better: {', '.join(lower)}. " if lower else ""


def unit(name: str) -> str:
    """The unit of a difference in a column, for programs."""
    return column(name).unit


def mean_text(sample: Sample, name: str) -> str:
    """``84.8±0.9(5)``: mean, standard deviation and number of seeds, with the digits of the column."""
    digits = column(name).digits
    deviation = "" if math.isnan(sample.deviation) else f"±{sample.deviation:.{digits}f}"
    return with_minus(f"{sample.mean:.{digits}f}") + f"{deviation}({sample.n})"


def signed(value: float, name: str, digits: int | None = None) -> str:
    """A difference as text: ``+12.3``, with the digits of the column and without minus zero."""
    digits = column(name).digits if digits is None else digits
    return with_minus(f"{round(value, digits) + 0.0:+.{digits}f}")


def difference_text(difference: Difference, name: str) -> str:
    """``+12.3 ±4.1``; ``+89.4 [+0, +97]`` for an asymmetric interval; ``(+12.3)`` without an interval."""
    number, digits = signed(difference.estimate, name), column(name).digits
    if math.isnan(difference.low):
        return f"({number})"
    above, below = difference.high - difference.estimate, difference.estimate - difference.low
    if math.isclose(above, below, abs_tol=0.1**digits / 2):
        return f"{number} ±{above:,.{digits}f}"
    digits = max(0, digits - 1)
    return f"{number} [{signed(difference.low, name, digits)}, {signed(difference.high, name, digits)}]"


def interval_text(difference: Difference, name: str) -> str:
    """``[+3.0,+21.4]``; empty without an interval."""
    return "" if math.isnan(difference.low) else f"[{signed(difference.low, name)},{signed(difference.high, name)}]"


def p_text(p: float) -> str:
    """``<0.001``, ``0.031``; empty without a test."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def is_over_budget(label: str, budget_ratio: float) -> bool:
    """True if the label is too far over its budget to compete, by its family\'s declaration or by its count."""
    return budget_ratio > MOST_MATCHED or factors_of_text(label).get("budget") == "over"
