from __future__ import annotations

from madbench.cli.options import StoredWordsArgument, option, with_groups
from madbench.cli.selection import StoredOptions
from madbench.cli.tables import PrintOptions, print_text_table
from madbench.errors import StoreError


@with_groups
def attribute(
    words: StoredWordsArgument = None,
    pairs: option(bool, "Show every pair of labels below its factor.", "--pairs") = False,
    *,
    stored: StoredOptions,
    printed: PrintOptions,
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

    selection = stored.selection(words)
    found = selection.select("no two labels share a language-model protocol", lambda labels: len(labels) > 1)
    table = attribution_table(found.scores, found.sentences(), pairs)
    if not table.effects:
        raise StoreError(
            f"{stored.results}: no two labels with a finished task and seed in common differ in exactly one factor; "
            "madbench run '~G-cg-q-12o' trains such"
        )
    print_text_table(table, printed.asked)
