"""``madbench attribute``: what each factor of the stored labels is worth."""

from __future__ import annotations

from madbench.cli.options import StoredOptions, StoredWordsArgument
from madbench.cli.parameters import option
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import print_text_table


def attribute(
    words: StoredWordsArgument = None,
    pairs: option(bool, "Show every pair of labels below its factor.", "--pairs") = False,
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Estimate what each factor of the labels is worth.

    Factors are convolution, gates, RoPE, rank, mixing, layout, base and budget.
    A factor's effect is its mean over all pairs of stored labels that differ in
    it alone, with a 95% interval. Below are the significant interactions of two
    factors. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    print_text_table(stored.selection(words).attribute(pairs), printed)
