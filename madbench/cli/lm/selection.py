"""Which stored language-model runs a verb shows, by the words and options that table and plot share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import LABELS_HELP, Budget, labels_and_overrides, parse_budget
from madbench.cli.selection import selected

if TYPE_CHECKING:
    from madbench.analysis.stored import Selection

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LABEL|KEY=VALUE",
        help=LABELS_HELP + " All labels in the store by default. KEY=VALUE changes the preset, as for madbench lm.",
    ),
]
ProtocolOption = Annotated[
    str | None, typer.Option("--protocol", help="Id of a protocol, as shown where runs of several are found.")
]
CorpusNameOption = Annotated[
    str | None, typer.Option("--corpus", help="Only runs on the corpus of this name, folder or digest.")
]
PresetFilterOption = Annotated[
    str | None, typer.Option("--preset", "-p", help="Only runs of this preset; tiny when a KEY=VALUE is given.")
]
BudgetFilterOption = Annotated[
    Budget | None,
    typer.Option(
        "--budget", parser=parse_budget, metavar="[strict|paper]", help="Only runs with this parameter budget."
    ),
]


def language_selection(
    results: Path,
    words: list[str] | None,
    protocol: str | None,
    corpus: str | None,
    preset: str | None,
    budget: Budget | None,
) -> Selection:
    """What the options mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
    from madbench.errors import ConfigError
    from madbench.grid import LANGUAGE_MODEL
    from madbench.suites.language import TASK

    labels, overrides = labels_and_overrides(words or [])
    if protocol is not None and (corpus or preset or overrides or budget):
        raise ConfigError(f"--protocol {protocol}: other choices have no effect beside it; give one or the other")
    changes = [f"language_model={preset or 'tiny'}", *(LANGUAGE_MODEL + change for change in overrides)]
    asked = {"overrides": changes if preset or overrides else (), "budget": budget and budget.value}
    return selected(labels, results, tasks=[TASK], protocol=protocol, corpus=corpus, **asked)
