"""``madbench attribute``: the effect of each factor of the stored labels."""

from __future__ import annotations

from typing import Annotated

from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.config.options import option


def attribute(
    words: StoredWordsArgument = None,
    pairs: Annotated[bool, option("Show every pair of labels below its factor.", "--pairs")] = False,
    *,
    stored_options: StoredOptions,
    print_options: PrintOptions,
) -> None:
    """Estimate the effect of each factor of the labels.

    Factors are convolution, gates, RoPE, rank, mixing, layout, base and budget.
    The effect of a factor is the mean difference over all pairs of stored labels
    that differ only in this factor, with a 95% interval. Significant interactions
    of two factors follow. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    print_text_table(stored_options.selection(words).attribute(pairs), print_options)
