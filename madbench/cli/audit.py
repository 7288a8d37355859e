"""What a profile's columns are worth: ``madbench audit``."""

from __future__ import annotations

import dataclasses

from madbench.cli.options import StoredOptions, StoredWordsArgument
from madbench.cli.parameters import option
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import print_text_table


def audit(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    against: option(
        str | None,
        "Another profile, by name or as a YAML file: show which orders and differences hold there too.",
        metavar="PROFILE",
        completes="PROFILE",
    ) = None,
    printed: PrintOptions,
) -> None:
    """Show what a profile's columns can tell apart and predict.

    For every column: how far seeds agree about the labels (ICC), how many labels
    stay at the level of a heuristic or are solved by every seed, and how well its
    order of labels agrees with the other columns, the published column and the
    published language-model loss; which columns to keep, and with how many
    seeds. Protocols are never mixed, as in madbench table.

    With --against, whether a cheap profile stands for an expensive one: for every
    column of both, the rank correlation of the labels, and how many of the pairs
    that differ significantly here differ in the same direction there.

    [bold]Examples[/bold]

      madbench audit @table1
      madbench audit @judging --profile evening
      madbench audit -t compression,memorization,language_model --format csv
      madbench audit @quick -p quick --against evening
    """
    others = None
    if against is not None:
        others = dataclasses.replace(stored, profile=against, protocol=None).selection(words)
    print_text_table(stored.selection(words).audit(others), printed)
