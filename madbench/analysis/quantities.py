"""What result tables measure, by name: headings and columns. Imports no pandas."""

from __future__ import annotations

from collections.abc import Iterable

from madbench.suites.base import Column
from madbench.tasks import MAD_TASKS
from madbench.tasks import heading as task_heading
from madbench.tasks import title as task_title

MAD_AVERAGE = "mad_average"
"""The mean over the six tasks of MAD, whatever other tasks are installed."""
LOSS = "loss_l5"
"""L5 of the language model."""
LOSSES = (LOSS, "validation_loss", "validation_bits_per_byte", "equal_time_validation_loss")
"""The numbers that a diverged language model does not have."""
BUDGET_RATIO = Column("budget_ratio", "Budget", 3)
SEEDS = Column("n", "n", 0)

_HEADINGS = {MAD_AVERAGE: "MAD avg", LOSS: "L5 loss", "validation_loss": "Val loss"}
_TITLES = {MAD_AVERAGE: "MAD average", LOSS: "L5 loss of the language model", "language_model": "language model"}


def heading(name: str) -> str:
    """Heading of a column: a task, the average or a loss."""
    return _HEADINGS.get(name) or task_heading(name)


def title(name: str) -> str:
    """Name of a column in words."""
    return _TITLES.get(name) or task_title(name)


def mad_columns(tasks: Iterable[str]) -> list[Column]:
    """The columns of the tasks, in percent; with all six of MAD their average, after them."""
    names = list(tasks)
    if set(MAD_TASKS) <= set(names):
        names.insert(1 + max(map(names.index, MAD_TASKS)), MAD_AVERAGE)
    return [Column(name, heading(name), 1, "higher", limits=(0.0, 100.0), missing="-") for name in names]


def loss_column(name: str, heading: str) -> Column:
    """A column of losses, whose noise is that of all labels."""
    return Column(name, heading, 3, "lower", is_pooled=True)


def steps_name(threshold: float) -> str:
    """Column of the steps to ``threshold``, as in the published table: ``steps_to_3.0``."""
    return f"steps_to_{float(threshold)}"


def steps_column(threshold: float, digits: int) -> Column:
    """The evaluations until the training loss is below ``threshold``."""
    return Column(steps_name(threshold), f"to {float(threshold)}", digits, "lower", is_pooled=True, resolution=1.0)
