"""The MAD suite: six synthetic tasks (Poli et al. 2024). Training on a task setting ends early once it is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from madbench.config import TASKS
from madbench.suites.columns import Average
from madbench.suites.tokens import TokenProfile, TokenSuite

NAME = "mad"
AVERAGE = "mad_average"
"""The name of the column with the mean over the six tasks of MAD. Other tasks of the suite do not enter it."""
MAD_TASKS = (
    "compression",
    "fuzzy_in_context_recall",
    "in_context_recall",
    "memorization",
    "noisy_in_context_recall",
    "selective_copying",
)
"""The six tasks of MAD, in the order of their columns in tables."""


@dataclass(frozen=True, kw_only=True)
class MadProfile(TokenProfile):
    """A profile of the MAD suite. The shipped profiles are in ``tasks/mad``."""

    folder = TASKS / NAME
    suite_name = NAME
    noun = "profile"


class MadSuite(TokenSuite):
    """The suite with the six tasks of MAD, and with tasks of installed packages that name no other suite."""

    name = NAME
    title = "MAD tasks"
    Profile = MadProfile
    default = "evening"
    sort_order = 0
    file_key = "learning_rates"
    reference = "madbench.suites.mad.peer"
    averages = {AVERAGE: Average("MAD avg", "MAD average", MAD_TASKS)}
    fidelities = ("corrected", "published")

    def usual_tasks(self) -> Sequence[str]:
        return MAD_TASKS

    def order(self) -> list[str]:
        return [*MAD_TASKS, AVERAGE, *(task for task in self.tasks() if task not in MAD_TASKS)]


SUITE = MAD = MadSuite()
