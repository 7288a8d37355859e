from __future__ import annotations

import sys
from typing import Annotated

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    LanguageProtocolOption,
    ProfileOption,
    ResultsOption,
    StoredTasksOption,
    labels_and_overrides,
    split_list,
)
from madbench.cli.selection import mad_tasks_of, runs_of_one_protocol, stored_experiment
from madbench.cli.tables import Format, print_format, print_text_table


def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL|KEY=VALUE",
            help=LABELS_HELP + " The first label is compared with each of the others. KEY=VALUE is one of the profile.",
        ),
    ],
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    results: ResultsOption = RESULTS,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Compare labels on the runs they share: mean difference, interval, p-value, and what may be claimed.

    Runs are paired by task, setting and seed, under one protocol as in madbench
    table; language models by seed. Every row has a bootstrap interval and a
    sign-flip p, adjusted by Holm's method for all rows. One pair claims nothing,
    and fewer than six cannot tell any difference apart.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' --profile full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o -t language_model
    """
    from madbench.analysis.comparison import comparison_table
    from madbench.analysis.loss_curves import run_losses
    from madbench.analysis.scores import collect, setting_scores
    from madbench.errors import StoreError
    from madbench.experiment import accuracy_meaning, protocol_sentences
    from madbench.labels import expand
    from madbench.language_jobs import TASK
    from madbench.runs import Store

    format = print_format(format, as_json)
    named, overrides = labels_and_overrides(words)
    baseline, *others = _at_least_two(expand(named))
    asked = split_list(tasks)
    mad_tasks = mad_tasks_of(asked, overrides, profile, fidelity, protocol)

    settings = losses = None
    sentences = []
    if mad_tasks != []:
        made = stored_experiment([baseline, *others], overrides, profile, mad_tasks, fidelity, budget, results)
        collected = collect(made.jobs, Store.open(results, create=False))
        settings = setting_scores(collected)
        sentences += [f"MAD: {accuracy_meaning(fidelity.value)}.", *protocol_sentences(made, collected)]
    if asked is None or TASK in asked:
        is_asked = asked is not None or protocol is not None
        names = {baseline, *others}
        nothing = f"{baseline} shares no language-model protocol with {' or '.join(others)}"
        runs, described = runs_of_one_protocol(
            results, sorted(names), budget, protocol, is_asked, lambda found: found > {baseline}, nothing
        )
        losses = run_losses(runs, ()) if runs else None
        sentences += described
    table = comparison_table(baseline, others, settings, losses, sentences)
    compared = {row.label for row in table.rows}
    missing = [label for label in others if label not in compared]
    if not compared:
        raise StoreError(f"{results}: {baseline} shares no task and seed with {' or '.join(others)}")
    for label in missing:
        print(f"warning: {label} is left out: it shares no task and seed with {baseline}", file=sys.stderr)
    print_text_table(table, format)


def _at_least_two(labels: list[str]) -> list[str]:
    from madbench.errors import ConfigError

    if len(labels) < 2:
        raise ConfigError(f"{labels[0] if labels else 'no label'}: nothing to compare with; give two labels or more")
    return labels


def add_to(app: typer.Typer) -> None:
    app.command()(compare)
