from __future__ import annotations

from typing import Annotated

import typer

from madbench.cli.options import (
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
    StoredWordsArgument,
)
from madbench.cli.selection import Selection
from madbench.cli.tables import Format, FormatOption, print_format, print_text_table


def attribute(
    words: StoredWordsArgument = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Show every pair of labels below its factor.")] = False,
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    results: ResultsOption = RESULTS,
    format: FormatOption = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Say what each factor of the labels is worth: convolution, gates, RoPE, rank, mixing, layout, base, budget.

    A factor's effect is its mean over all pairs of stored labels that differ in
    it alone, with a 95% interval. Below are the interactions of two factors that
    are larger than the noise. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    from madbench.analysis.attribution_table import attribution_table
    from madbench.analysis.loss_curves import run_losses
    from madbench.analysis.scores import scores
    from madbench.errors import StoreError

    format = print_format(format, as_json)
    selection = Selection.of(words, profile, tasks, fidelity, budget, protocol, results)
    cells = losses = None
    sentences = []
    if selection.has_mad:
        collected, sentences = selection.mad_runs()
        cells = scores(collected)
    if selection.has_language:
        nothing = "no two labels share a language-model protocol"
        runs, described = selection.language(nothing, lambda found: len(found) > 1)
        losses = run_losses(runs, ()) if runs else None
        sentences += described
    table = attribution_table(cells, losses, sentences, pairs)
    if not table.effects:
        raise StoreError(
            f"{results}: no two labels with a finished task and seed in common differ in exactly one factor; "
            "madbench run '~G-cg-q-12o' trains such"
        )
    print_text_table(table, format)


def add_to(app: typer.Typer) -> None:
    app.command()(attribute)
