"""What a profile's columns are worth: ``madbench audit``."""

from __future__ import annotations

from madbench.cli.options import StoredOptions, StoredWordsArgument
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import print_text_table


def audit(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Show what a profile's columns can tell apart and predict.

    For every column: how far seeds agree about the labels (ICC), how many labels
    stay at the level of a heuristic or are solved by every seed, and how well its
    order of labels agrees with the other columns, the published column and the
    published language-model loss; which columns to keep, and with how many
    seeds. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench audit @table1
      madbench audit @judging --profile evening
      madbench audit -t compression,memorization,language_model --format csv
    """
    from madbench.analysis.audit import audit_table

    selection = stored.selection(words)
    print_text_table(audit_table(selection.select()), printed)
