"""The options that choose what is trained, declared once for the command line and the Python functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from madbench.config.options import option
from madbench.store.results_folder import RESULTS, ResultsOption
from madbench.suites.options import BudgetOption, FidelityOption, ProfileOption, tasks_option
from madbench.text.options import CorpusOptions

DeviceOption = Annotated[str, option("auto, cpu, cuda or cuda:N.", completes="DEVICE")]
SeedsOption = Annotated[
    str,
    option("Seeds such as 0,1,2 or 0-4; each has its own initialization, data and order. Use five if a table matters."),
]


@dataclass(frozen=True)
class TrainingCorpus(CorpusOptions):
    """The options that choose the corpus on which a language model trains."""

    corpus: Annotated[
        Path | None,
        option(
            "Folder of tokens for the language model: from madbench lm prepare, or train.bin and val.bin of nanoGPT.",
            show_default="Python's standard library as bytes",
            rare="run sweep",
        ),
    ] = None


@dataclass(frozen=True)
class GridOptions:
    """The options of ``madbench run`` and ``madbench sweep`` that choose profile, tasks and fidelity."""

    profile: ProfileOption = None
    tasks: Annotated[list[str] | None, tasks_option("the six of MAD and language_model")] = None
    fidelity: FidelityOption = "corrected"


@dataclass(frozen=True)
class SharedOptions:
    """The options that choose corpus, seeds, budget, device and results folder, for every verb that trains."""

    data: TrainingCorpus = TrainingCorpus()
    seeds: SeedsOption = "0"
    budget: BudgetOption = "strict"
    device: DeviceOption = "auto"
    results: ResultsOption = RESULTS
