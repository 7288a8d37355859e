"""``madbench table``: what is stored, as a table."""

from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import StoredOptions, StoredWordsArgument
from madbench.cli.parameters import option
from madbench.cli.printing import print_text_table
from madbench.errors import ConfigError


def table(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    thresholds: option(
        str | None, "Of language models, losses x of the columns 'to x', such as 2.0,1.9.", show_default="by the curves"
    ) = None,
    sort: option(
        str,
        "Best row first: a task, an average, loss_l5, steps_to_X, budget_ratio or n; label is their order.",
        metavar="COLUMN",
    ) = "label",
    published: option(bool, "Show the paper's numbers under a profile of another size, too.", "--published") = False,
    printed: options.PrintOptions,
) -> None:
    """Tabulate what the store holds: means over seeds with 95% intervals, and which labels may be the best.

    Every suite has one protocol: profile, fidelity, budget and overrides are
    never mixed, nor presets and corpora of language models. So give the same
    profile, overrides, fidelity and budget as for madbench run, which prints
    the command that shows its table again. Where several protocols are stored,
    they are listed with how to choose one. Suites stand side by side with their
    main results; of one alone the table has everything: of language models
    validation loss, bits, loss at equal time and speed.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table -t language_model --thresholds 2.0,1.9,1.8
      madbench table -t compression,language_model -f html > table.html
    """
    from madbench.analysis.tables import stored_table

    try:
        losses = None if thresholds is None else [float(part) for part in thresholds.split(",")]
    except ValueError:
        raise ConfigError(f"--thresholds {thresholds!r}: expected losses such as 2.0,1.9") from None
    found = stored_table(stored.selection(words), thresholds=losses, shows_published=published)
    print_text_table(found.sorted_by(sort), printed)
