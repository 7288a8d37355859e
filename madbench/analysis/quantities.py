"""What result tables measure, by name: headings, columns, and differences as text. Imports no pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from madbench.suites import LANGUAGE, Column, Suite
from madbench.tasks import MAD_TASKS, loaded_tasks, settings_class, task_names

if TYPE_CHECKING:
    from madbench.analysis.inference import Difference

MAD_AVERAGE = "mad_average"
"""The mean over the six tasks of MAD, whatever other tasks are installed."""
TASK_MEAN = "task_mean"
"""The mean over all tasks of a grid, where these are not the six of MAD."""
AVERAGES = (MAD_AVERAGE, TASK_MEAN)
LOSS = "loss_l5"
"""L5 of the language model."""
LOSSES = (LOSS, "validation_loss", "validation_bits_per_byte", "equal_time_validation_loss")
"""The numbers that a diverged language model does not have."""
STEPS = "steps_to_"
"""What the columns of steps to a loss begin with."""
STEPS_CLAIMED = "steps_to_3.1"
"""The steps that a claim of the paper is about."""
BUDGET_RATIO = Column("budget_ratio", "Budget", 3)
SEEDS = Column("n", "n", 0)
SPEED = Column("tokens_per_second", "Tokens/s", 0, resolution=1.0)

PERPLEXITIES = ("perplexity", "perplexity_l5")
"""Exponentials of the last validation loss, and of the mean of the last five."""

_HEADINGS = {MAD_AVERAGE: "MAD avg", TASK_MEAN: "Mean", LOSS: "L5 loss", "validation_loss": "Val loss"}
_HEADINGS |= {"validation_bits_per_byte": "Bits/byte", "equal_time_validation_loss": "Val, equal time"}
_HEADINGS |= dict(zip(PERPLEXITIES, ("PPL", "PPL of 5")))
_TITLES = {MAD_AVERAGE: "MAD average", TASK_MEAN: "mean over the tasks"}
_TITLES |= {LOSS: "language model, L5", "language_model": "language model"}


def heading(name: str) -> str:
    """Heading of a column: a task, the average, a loss or steps to one."""
    if name.startswith(STEPS):
        return f"Steps {name.removeprefix(STEPS)}"
    return _HEADINGS.get(name) or settings_class(name).heading


def title(name: str) -> str:
    """Name of a column in words; of a task that is not installed or cannot be loaded, its name."""
    return _TITLES.get(name) or (settings_class(name).title if name in loaded_tasks() else name)


def suite_title(suite: Suite) -> str:
    """Name of a suite in words."""
    return "Language model" if suite is LANGUAGE else "MAD tasks"


def mad_columns(tasks: Iterable[str]) -> list[Column]:
    """The columns of the tasks, in percent; with all six of MAD their average, after them."""
    names = list(tasks)
    if set(MAD_TASKS) <= set(names):
        names.insert(1 + max(map(names.index, MAD_TASKS)), MAD_AVERAGE)
    return [column(name) for name in names]


def in_order(names: Iterable[str]) -> list[str]:
    """Names of columns, each once: tasks with the MAD average after its six, those that are not installed, losses."""
    tasks = [*dict.fromkeys((*MAD_TASKS, MAD_AVERAGE, *task_names()))]
    places = {name: i for i, name in enumerate((*tasks, None, *LOSSES))}
    return sorted(set(names), key=lambda name: (places.get(name, len(tasks)), name))


def column(name: str) -> Column:
    """The column of a task, an average, a loss or steps to one."""
    if name in LOSSES:
        return Column(name, heading(name), 3, "lower", limits=(0.0, math.inf), resolution=0.001)
    if name in PERPLEXITIES:
        return Column(name, heading(name), 2, "lower", limits=(1.0, math.inf), resolution=0.01)
    if name.startswith(STEPS):
        heading_to = f"to {name.removeprefix(STEPS)}"
        return Column(name, heading_to, 0, "lower", limits=(0.0, math.inf), resolution=1.0)
    if name == SPEED.name:
        return SPEED
    return Column(name, heading(name), 1, "higher", limits=(0.0, 100.0), missing="-", resolution=0.1)


def unit(name: str) -> str:
    """Unit of a difference in a column, for programs."""
    return "nats_per_token" if name in LOSSES else "steps" if name.startswith(STEPS) else "points"


def signed(value: float, name: str) -> str:
    """A difference in a column: ``+12.3``, and never ``-0.0``."""
    digits = column(name).digits
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def difference_text(found: Difference, name: str) -> str:
    """``+12.3 ±4.1``; ``+89.4 [+0, +97]`` where the interval is not symmetric; in brackets where there is none."""
    number, digits = signed(found.estimate, name), column(name).digits
    if math.isnan(found.low):
        return f"({number})"
    if math.isclose(found.high - found.estimate, found.estimate - found.low, abs_tol=0.1**digits / 2):
        return f"{number} ±{found.high - found.estimate:,.{digits}f}"
    digits = max(0, digits - 1)
    return f"{number} [{found.low + 0.0:+.{digits}f}, {found.high + 0.0:+.{digits}f}]"


def interval_text(found: Difference, name: str) -> str:
    """``[+3.0,+21.4]``; empty where there is none."""
    return "" if math.isnan(found.low) else f"[{signed(found.low, name)},{signed(found.high, name)}]"


def p_text(p: float) -> str:
    """``<0.001``, ``0.031``; empty without a test."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def steps_name(threshold: float) -> str:
    """Column of the steps to the first evaluation with a training loss below ``threshold``: ``steps_to_3.0``."""
    return f"{STEPS}{float(threshold)}"
