"""The options of ``madbench paper``: which runs an item is made from, and what is done with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from madbench.cli.shared import options
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.parameters import output_option
from madbench.config.options import EVERY_VERB, option
from madbench.execute.base import ForceOption, Policy
from madbench.execute.options import RunOptions, ThreadsOption
from madbench.experiment.options import TrainingCorpus
from madbench.jobs import Budget
from madbench.papers import QUICK
from madbench.suites.options import BudgetName, budget_option, tasks_option


@dataclass(frozen=True)
class PaperOptions:
    """The options of ``madbench paper``, except the layout of figures and the format of tables."""

    profile: Annotated[
        str,
        option(
            "Size: quick (for a laptop) or full (that of the paper); or a profile, or a YAML file.",
            "--profile",
            "-p",
            completes="SIZE",
        ),
    ] = QUICK
    seeds: Annotated[str | None, option("Seeds such as 0-2.", show_default="those of the item")] = None
    tasks: Annotated[list[str] | None, tasks_option("its own", "--task")] = None
    budget: Annotated[Budget | None, budget_option(reads=BudgetName | None, show_default="that of the item")] = None
    device: options.DeviceOption = "auto"
    results: options.ResultsOption = options.RESULTS
    slots: Annotated[int | None, option("Jobs at a time; by default one per CPU core, one on a GPU.", min=1)] = None
    threads: ThreadsOption = None
    force: ForceOption = False
    corpus: Annotated[
        Path | None, option("Corpus for an item of language models, at a size without its own corpus.", rare=EVERY_VERB)
    ] = None
    dry_run: Annotated[bool, option("Show jobs, FLOPs and a time estimate; train nothing.", "--dry-run")] = False
    yes: Annotated[
        bool, option("Train without asking, also if it takes long or if shipped runs would answer.", "--yes", "-y")
    ] = False
    figures: Annotated[bool, option("Draw the item's figures.")] = True
    output: Annotated[
        Path | None, output_option("Folder of the figures.", show_default="RESULTS/plots", rare=EVERY_VERB)
    ] = None

    def training(self, keeps_weights: bool) -> TrainingOptions:
        """The training options for the jobs of an item.

        ``keeps_weights`` is True if the weights are stored with the runs.
        """
        return TrainingOptions(
            TrainingCorpus(self.corpus),
            device=self.device,
            results=self.results,
            execution=RunOptions(self.slots, self.threads, keep_weights=keeps_weights),
            policy=Policy(redo=self.force),
            dry_run=self.dry_run,
        )

    @property
    def flags(self) -> dict[str, Any]:
        """The values of the options that have no effect on some items, by flag, such as ``--seeds``.

        A value is false, such as None, if the user did not give the option.
        """
        return {
            "--profile": self.profile != QUICK,
            "--seeds": self.seeds,
            "--tasks": self.tasks,
            "--slots": self.slots,
            "--yes": self.yes,
            "--threads": self.threads,
            "--force": self.force,
            "--corpus": self.corpus,
            "--dry-run": self.dry_run,
            "--output": self.output,
            "--budget": self.budget,
        }


FLAGS_OF_JOBS = ("--slots", "--threads", "--yes")
"""The options of jobs. An item such as a theorem may have no job, and ignores them."""
