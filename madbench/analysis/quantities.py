"""The columns of result tables by name, their headings, and differences as text.

A quantity is the name of a column, such as ``in_context_recall`` or ``loss_l5``. This module does not import pandas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from madbench.analysis.marked_text import with_minus
from madbench.config import short_repr
from madbench.errors import suggestion
from madbench.suites import TASKS_LISTED, Column, Suite, suites

if TYPE_CHECKING:
    from madbench.analysis.inference import Difference, Sample

TASK_MEAN = "task_mean"
"""The name of a column for grids: the mean over all tasks. It is used if the suite has no average over these tasks."""
BUDGET_RATIO = Column("budget_ratio", "Budget", digits=3)
NUM_SEEDS = Column("n", "n", digits=0)


def column(name: str) -> Column:
    """The column of results with the name ``name``, such as that of a task or an average, from any suite.

    If no suite has the column, a new column is returned, in which higher is better.
    """
    if name == TASK_MEAN:
        return Column.percent(TASK_MEAN, "Mean", title="mean over the tasks")
    columns = (suite.column(name) for suite in suites().values())
    return next(filter(None, columns), None) or Column(name, name, digits=1, better="higher", title=name)


def is_average(name: str) -> bool:
    """True if the column ``name`` is the mean of other columns."""
    return bool(parts_of(name)) or name == TASK_MEAN


def parts_of(name: str) -> tuple[str, ...]:
    """The tasks over which the average ``name`` of a suite is taken.

    Empty for columns that are no averages, and for :data:`TASK_MEAN`, which is not an average of a suite.
    """
    averages = (suite.averages.get(name) for suite in suites().values())
    return next((average.tasks for average in averages if average), ())


def averages_of(name: str) -> list[str]:
    """The names of the averages that include the task ``name``. Empty if there are none."""
    return [key for suite in suites().values() for key, average in suite.averages.items() if name in average.tasks]


def with_averages(names: Iterable[str]) -> set[str]:
    """The columns ``names``, and the averages of suites whose tasks are all among them."""
    found = set(names)
    averages = itertools.chain.from_iterable(suite.averages.items() for suite in suites().values())
    return found | {name for name, average in averages if found.issuperset(average.tasks)}


def suite_of_column(name: str) -> Suite | None:
    """The suite that has the column ``name``. None if no suite has it."""
    return next((suite for suite in suites().values() if suite.column(name)), None)


def unknown_column(name: str) -> str:
    """The error message for a column ``name`` that no suite has. It names a similar column, or how to find one."""
    columns = [column for suite in suites().values() for column in suite.order()]
    hint = suggestion(name, columns) or f"; expected a task ({TASKS_LISTED}) or an average, such as mad_average"
    return f"no column {short_repr(name)}{hint}"


def suite_of_known(name: str) -> Suite:
    """The suite that has the column ``name``. Raises ``AssertionError`` if no suite has it."""
    suite = suite_of_column(name)
    assert suite is not None, name
    return suite


def heading(name: str) -> str:
    """The heading of the column ``name`` in a table.

    A column of steps to a loss has its title as heading, because its usual, shorter heading does not say that steps are
    counted.
    """
    quantity = column(name)
    return quantity.title if quantity.is_steps else quantity.heading


def title(name: str) -> str:
    """The name of a column in words, such as ``in-context recall`` for ``in_context_recall``."""
    return column(name).words


def in_order(names: Iterable[str]) -> list[str]:
    """The names of columns in the order of tables, without duplicates: suite by suite, each average after its tasks.

    Steps to a loss come before the other columns of their suite. Unknown columns come after those of the first suite.
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
    """The units of differences in the columns ``names``, such as ``percentage points of accuracy``, joined by commas.

    Each unit is named once.
    """
    return ", ".join(dict.fromkeys(column(name).difference for name in in_order(names)))


def direction_text(names: Iterable[str]) -> str:
    """A sentence, with a space at its end, that names those of the columns ``names`` in which lower is better.

    Empty if there are none.
    """
    lower = [heading(name) for name in in_order(names) if column(name).better == "lower"]
    return f"Lower is better: {', '.join(lower)}. " if lower else ""


def unit(name: str) -> str:
    """The unit of a difference in the column ``name`` as a word for programs, such as ``points``."""
    return column(name).unit


def mean_text(sample: Sample, name: str) -> str:
    """Mean, standard deviation and number of seeds as text, such as ``84.8±0.9(5)``.

    Numbers have the digits of the column ``name``. A single seed has no standard deviation.
    """
    digits = column(name).digits
    deviation = "" if math.isnan(sample.deviation) else f"±{sample.deviation:.{digits}f}"
    return with_minus(f"{sample.mean:.{digits}f}") + f"{deviation}({sample.n})"


def signed_text(value: float, name: str, digits: int | None = None) -> str:
    """A difference in the column ``name`` as text with its sign, such as ``+12.3``.

    ``digits`` is the number of decimal digits, by default that of the column.
    """
    digits = column(name).digits if digits is None else digits
    return with_minus(f"{round(value, digits) + 0.0:+.{digits}f}")


def difference_text(difference: Difference, name: str) -> str:
    """A difference in the column ``name`` as text, with its 95% interval.

    For example ``+12.3 ±4.1``, ``+89.4 [+0, +97]`` for an asymmetric interval, or ``(+12.3)`` without an interval.
    """
    number, digits = signed_text(difference.estimate, name), column(name).digits
    if math.isnan(difference.low):
        return f"({number})"
    above, below = difference.high - difference.estimate, difference.estimate - difference.low
    if math.isclose(above, below, abs_tol=0.1**digits / 2):
        return f"{number} ±{above:,.{digits}f}"
    digits = max(0, digits - 1)
    return f"{number} [{signed_text(difference.low, name, digits)}, {signed_text(difference.high, name, digits)}]"


def interval_text(difference: Difference, name: str) -> str:
    """The 95% interval of a difference in the column ``name`` as text, such as ``[+3.0,+21.4]``.

    Empty if the difference has no interval.
    """
    return (
        ""
        if math.isnan(difference.low)
        else f"[{signed_text(difference.low, name)},{signed_text(difference.high, name)}]"
    )


def p_text(p: float) -> str:
    """A p-value as text, such as ``0.031`` or ``<0.001``. Empty for NaN."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"
