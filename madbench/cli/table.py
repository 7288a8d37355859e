from __future__ import annotations

from madbench.cli.options import StoredWordsArgument, option, with_groups
from madbench.cli.selection import StoredOptions
from madbench.cli.tables import PrintOptions, print_text_table


@with_groups
def table(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    sort: option(
        str,
        "Best row first: a task, mad_average, loss_l5, steps_to_X, budget_ratio or n; label is their order.",
        metavar="COLUMN",
    ) = "label",
    printed: PrintOptions,
) -> None:
    """Tabulate what the store holds: means over seeds with 95% intervals, and which labels may be the best.

    Every suite has one protocol: profile, fidelity, budget and overrides are never
    mixed, nor the language model's presets and corpora. So give the same profile,
    overrides, fidelity and budget as for madbench run, which prints the command
    that shows its table again. madbench lm table has more of the language model.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table -t compression,language_model -f html > table.html
    """
    from madbench.analysis.tables import result_table

    selection = stored.selection(words)
    print_text_table(result_table(selection.select(), is_brief=True).sorted_by(sort), printed.asked)
