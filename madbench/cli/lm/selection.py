"""Which stored language-model runs a verb shows, by the words and options that table and plot share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import LABELS_HELP, Counting, labels_and_overrides

if TYPE_CHECKING:
    from madbench.store.runs import Run

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
CountingFilterOption = Annotated[
    Counting | None, typer.Option("--budget", help="Only runs with this counting of the parameter budget.")
]


def select_runs(
    results: Path,
    words: list[str] | None,
    protocol: str | None,
    corpus: str | None,
    preset: str | None,
    budget: Counting | None,
) -> tuple[list[Run], list[str]]:
    """The chosen runs with their curves, and their labels in the order of the rows.

    Raises ``StoreError`` where nothing is chosen; several protocols are left to who shows them.
    """
    from madbench.analysis.language_runs import LanguageProtocol, corpus_of, language_runs, protocol_list
    from madbench.cli.selection import in_grammar_order
    from madbench.cli.stored_runs import opened
    from madbench.errors import ConfigError, StoreError
    from madbench.labels import expand
    from madbench.suites.preset import load_preset

    named, overrides = labels_and_overrides(words or [])
    labels = expand(named)
    if protocol is not None and (corpus or preset or overrides or budget):
        raise ConfigError(f"--protocol {protocol}: the other choices have no effect beside it; give one or the other")
    tests: list[Callable[[Run], bool]] = []
    if labels:
        tests.append(lambda run: run.job.label in labels)
    if protocol is not None:
        tests.append(lambda run: LanguageProtocol.of(run.job).id == protocol)
    if corpus is not None:
        tests.append(lambda run: Path(corpus).name == corpus_of(run)["name"] or run.job.corpus.startswith(corpus))
    if preset is not None or overrides:
        chosen = load_preset(preset or "tiny", overrides)
        tests.append(lambda run: LanguageProtocol.of(run.job).matches(chosen))
    if budget is not None:
        tests.append(lambda run: run.job.counting == budget.value)

    store = opened(results)
    stored = language_runs(store)
    for problem in store.problems:
        print(f"warning: {problem}", file=sys.stderr)
    if not stored:
        raise StoreError(f"{results}: no language-model runs yet; madbench lm G-cg-q-12o makes some")
    runs = [store.read(run.job.id) for run in stored if all(test(run) for test in tests)]
    if not runs:
        raise StoreError(f"{results}: none of its language-model runs is as asked; it has:\n{protocol_list(stored)}")
    found = {run.job.label for run in runs}
    for label in labels:
        if label not in found:
            print(f"warning: no run of {label} is as asked", file=sys.stderr)
    return runs, [label for label in labels if label in found] or in_grammar_order(found)
