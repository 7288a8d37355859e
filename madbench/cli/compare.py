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
)
from madbench.cli.selection import Selection
from madbench.cli.tables import Format, FormatOption, print_format, print_text_table


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
    format: FormatOption = Format.terminal,
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
    from madbench.analysis.scores import setting_scores
    from madbench.errors import StoreError

    format = print_format(format, as_json)
    selection = Selection.of(words, profile, tasks, fidelity, budget, protocol, results)
    baseline, *others = _at_least_two(selection.labels)

    settings = losses = None
    sentences = []
    if selection.has_mad:
        collected, sentences = selection.mad_runs()
        settings = setting_scores(collected)
    if selection.has_language:
        nothing = f"{baseline} shares no language-model protocol with {' or '.join(others)}"
        runs, described = selection.language(nothing, lambda found: found > {baseline})
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
