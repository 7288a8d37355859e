"""What result tables measure, by name: headings, columns, and differences as text. Imports no pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from madbench.analysis.marked_text import with_minus
from madbench.suites import Column, Suite, suites

if TYPE_CHECKING:
    from madbench.analysis.inference import Difference, Sample

TASK_MEAN = "task_mean"
"""The mean over all tasks of a grid, where these have no average of their own."""
BUDGET_RATIO = Column("budget_ratio", "Budget", digits=3)
NUM_SEEDS = Column("n", "n", digits=0)


def column(name: str) -> Column:
    """The column of a task, an average or another quantity of any suite; of a task that is gone, one of its name."""
    if name == TASK_MEAN:
        return Column.percent(TASK_MEAN, "Mean", title="mean over the tasks")
    columns = (suite.column(name) for suite in suites().values())
    return next(filter(None, columns), None) or Column(name, name, digits=1, better="higher", title=name)


def is_average(name: str) -> bool:
    """Whether a column is the mean of others."""
    return bool(parts_of(name)) or name == TASK_MEAN


def parts_of(name: str) -> tuple[str, ...]:
    """The tasks whose mean a column is; empty for any other, and for the mean over whatever tasks a grid has."""
    averages = (suite.averages.get(name) for suite in suites().values())
    return next((average.tasks for average in averages if average), ())


def averages_of(name: str) -> list[str]:
    """The averages of which a column is a part."""
    return [key for suite in suites().values() for key, average in suite.averages.items() if name in average.tasks]


def suite_of_column(name: str) -> Suite | None:
    """The suite that has the column; None for none."""
    return next((suite for suite in suites().values() if suite.column(name)), None)


def heading(name: str) -> str:
    """Heading of a column where nothing says of which suite it is."""
    quantity = column(name)
    return quantity.title if quantity.is_steps else quantity.heading


def title(name: str) -> str:
    """Name of a column in words."""
    return column(name).words


def in_order(names: Iterable[str]) -> list[str]:
    """Names of columns, each once: suite by suite, tasks with their average after them; unknown ones after the first.

    Steps to an event stand before the other columns of their suite.
    """
    places: dict[str, tuple[int, int]] = {}
    for i, suite in enumerate(suites().values()):
        places |= {name: (i, j) for j, name in enumerate(suite.order())}

    def place(name: str) -> tuple[int, float, str]:
        if name in places:
            return *places[name], name
        suite = suite_of_column(name)
        is_steps = suite is not None and column(name).is_steps
        return ([*suites().values()].index(suite), -1, name) if is_steps else (0, math.inf, name)

    return sorted(set(names), key=place)


def differences_text(names: Iterable[str]) -> str:
    """What differences in some columns are: ``percentage points of accuracy, nats per token of a loss``."""
    return ", ".join(dict.fromkeys(column(name).difference for name in in_order(names)))


def direction_text(names: Iterable[str]) -> str:
    """Which of the columns are better where they are lower, as a sentence of a note; empty where none is."""
    lower = [heading(name) for name in in_order(names) if column(name).better == "lower"]
    return f"Of {', '.join(lower)} lower is better. " if lower else ""


def unit(name: str) -> str:
    """Unit of a difference in a column, for programs."""
    return column(name).unit


def mean_text(sample: Sample, name: str) -> str:
    """``84.8±0.9(5)``: mean, standard deviation and number of seeds, with the column's digits; a word of a cell."""
    digits = column(name).digits
    deviation = "" if math.isnan(sample.deviation) else f"±{sample.deviation:.{digits}f}"
    return with_minus(f"{sample.mean:.{digits}f}") + f"{deviation}({sample.n})"


def signed(value: float, name: str, digits: int | None = None) -> str:
    """A difference in a column: ``+12.3`` with the column's digits, and never minus zero."""
    digits = column(name).digits if digits is None else digits
    return with_minus(f"{round(value, digits) + 0.0:+.{digits}f}")


def difference_text(difference: Difference, name: str) -> str:
    """``+12.3 ±4.1``; ``+89.4 [+0, +97]`` where the interval is not symmetric; in brackets where there is none."""
    number, digits = signed(difference.estimate, name), column(name).digits
    if math.isnan(difference.low):
        return f"({number})"
    above, below = difference.high - difference.estimate, difference.estimate - difference.low
    if math.isclose(above, below, abs_tol=0.1**digits / 2):
        return f"{number} ±{above:,.{digits}f}"
    digits = max(0, digits - 1)
    return f"{number} [{signed(difference.low, name, digits)}, {signed(difference.high, name, digits)}]"


def interval_text(difference: Difference, name: str) -> str:
    """``[+3.0,+21.4]``; empty where there is none."""
    return "" if math.isnan(difference.low) else f"[{signed(difference.low, name)},{signed(difference.high, name)}]"


def p_text(p: float) -> str:
    """``<0.001``, ``0.031``; empty without a test."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"
