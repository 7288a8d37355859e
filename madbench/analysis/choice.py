"""The choice of stored runs by a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from madbench.config import Override
from madbench.config.options import EVERY_VERB, option
from madbench.jobs import Budget
from madbench.store.results_folder import RESULTS, ResultsOption
from madbench.suites.options import FidelityOption, ProfileOption, budget_option, tasks_option


@dataclass(frozen=True)
class Choice:
    """The options with which a user chooses stored runs.

    Commands that show stored runs have these fields as options, except ``labels`` and ``overrides``, which are
    positional words of the command line. Python functions that show stored runs have all fields as arguments. This
    class defines the defaults and help texts of both.
    """

    labels: Sequence[str] = ()
    """The labels in canonical form. If empty, all labels in the store."""
    overrides: Sequence[Override] = ()
    """Changes to the profile. A change that does not begin with the name of a suite belongs to the leading suite. This
    is the suite of the first requested task (without tasks, see :attr:`madbench.analysis.query.Query.leading`)."""
    profile: ProfileOption = None
    """The profile of the leading suite. If None, its default profile, or the only other profile with stored runs if the
    default one has none."""
    tasks: Annotated[Sequence[str] | None, tasks_option("the six of MAD, and language_model where stored")] = None
    fidelity: FidelityOption = "corrected"
    budget: Annotated[Budget | None, budget_option()] = "strict"
    """The budget that runs were trained under. None stands for any budget in suites that train on a corpus, and for
    ``strict`` in other suites."""
    protocol: Annotated[
        str | None,
        option("Id of one protocol, as listed if runs of several protocols are stored.", "--protocol", rare=EVERY_VERB),
    ] = None
    corpus: Annotated[str | None, option("Only runs on the corpus of this name, folder or digest.")] = None
    results: ResultsOption = RESULTS
