"""``madbench audit``: how well a profile ranks labels."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.config.options import option


def audit(
    words: StoredWordsArgument = None,
    *,
    stored_options: StoredOptions,
    against: Annotated[
        str | None,
        option(
            "Another profile, by name or as a YAML file: show which orders and differences also hold there.",
            metavar="PROFILE",
            completes="PROFILE",
        ),
    ] = None,
    print_options: PrintOptions,
) -> None:
    """Check whether a cheap profile ranks labels like the paper.

    For each column it shows how far seeds agree about the labels (ICC), how many
    labels stay at the heuristic, how many solve the task in every seed, and the
    rank correlations with the other columns, with the published column, and with
    the published language-model loss. It says which columns to keep, and how many
    seeds they need. Protocols are never mixed, as in madbench table.

    --against compares two profiles. For each column it shows the rank correlation
    of the labels, and how many of the pairs that differ significantly under the
    first profile differ in the same direction under the other.

    [bold]Examples[/bold]

      madbench audit @table1
      madbench audit @judging --profile evening
      madbench audit -t compression,memorization,language_model --format csv
      madbench audit @quick -p quick --against evening
    """
    others = None
    if against is not None:
        others = dataclasses.replace(stored_options, profile=against, protocol=None).selection(words)
    print_text_table(stored_options.selection(words).audit(others), print_options)
