from __future__ import annotations

from typing import Annotated

import typer

from madbench.cli import options
from madbench.cli.options import RESULTS, Budget, Fidelity
from madbench.cli.selection import selection_of
from madbench.cli.tables import Format, FormatOption, print_format, print_text_table


def attribute(
    words: options.StoredWordsArgument = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Show every pair of labels below its factor.")] = False,
    profile: options.ProfileOption = "quick",
    tasks: options.StoredTasksOption = None,
    fidelity: options.FidelityOption = Fidelity.corrected,
    budget: options.BudgetOption = Budget.strict,
    protocol: options.LanguageProtocolOption = None,
    results: options.ResultsOption = RESULTS,
    format: FormatOption = Format.terminal,
    as_json: options.JsonOption = False,
) -> None:
    """Estimate what each factor of the labels is worth: convolution, gates, RoPE, rank, mixing, layout, base, budget.

    A factor's effect is its mean over all pairs of stored labels that differ in
    it alone, with a 95% interval. Below are the significant interactions of two
    factors. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    from madbench.analysis.attribution_table import attribution_table
    from madbench.errors import StoreError

    format = print_format(format, as_json)
    selection = selection_of(words, profile, tasks, fidelity, budget, protocol, results)
    found = selection.select("no two labels share a language-model protocol", lambda labels: len(labels) > 1)
    table = attribution_table(found.scores, found.sentences(), pairs)
    if not table.effects:
        raise StoreError(
            f"{results}: no two labels with a finished task and seed in common differ in exactly one factor; "
            "madbench run '~G-cg-q-12o' trains such"
        )
    print_text_table(table, format)
