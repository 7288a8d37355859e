"""``madbench table``: a table of stored runs."""

from __future__ import annotations

from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.printing import print_text_table
from madbench.config import short_repr
from madbench.config.options import EVERY_VERB, option
from madbench.errors import ConfigError, no_effect


def table(
    words: StoredWordsArgument = None,
    *,
    stored_options: StoredOptions,
    thresholds: Annotated[
        str | None,
        option(
            "Language models: the losses x of the columns 'to x' (steps to x), such as 2.0,1.9.",
            show_default="chosen from the curves",
            rare=EVERY_VERB,
        ),
    ] = None,
    sort: Annotated[
        str,
        option(
            "Sort rows, best first: a task, an average, loss_l5, steps_to_X, budget_ratio or n; label keeps the order.",
            metavar="COLUMN",
            completes="COLUMN",
        ),
    ] = "label",
    published: Annotated[
        bool, option("Show the paper's numbers also under a profile of another size.", "--published", rare=EVERY_VERB)
    ] = False,
    baselines: options.BaselinesOption = False,
    spread: options.SpreadOption = "interval",
    ranks: Annotated[
        bool,
        option(
            "Show ranks instead of means, with 95% intervals that hold for all labels of a column at once.",
            "--ranks",
        ),
    ] = False,
    costs: CostsOptions,
    print_options: PrintOptions,
) -> None:
    """Tabulate stored runs: means over seeds with 95% intervals.

    Bold is the best of a column; underlined labels are not significantly worse.
    A table never mixes protocols (profile, fidelity, budget, overrides, corpus).
    So give the options that you gave to madbench run, or copy the command for the
    table that it printed. If several protocols are stored, they are listed with
    the options that choose one. Several suites stand side by side with their main
    results. A single suite shows all columns: for language models also validation
    loss, bits, loss at equal time, and speed.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table @table1 --ranks
      madbench table S-p KDA --costs       parameters, FLOPs, state, time
      madbench table --spread sd --baselines --format latex
      madbench table -t language_model --thresholds 2.0,1.9,1.8
      madbench table -t compression,language_model -f html > table.html
    """
    if ranks and (spread == "sd" or baselines):
        flag = "--spread sd" if spread == "sd" else "--baselines"
        raise no_effect(flag, "with --ranks, which shows no means; give one of the two")
    from madbench.analysis.tables import TableOptions  # imports scipy

    selection = stored_options.selection(words)
    results = selection.select()
    options = TableOptions(
        thresholds=losses_of(thresholds),
        shows="rank" if ranks else spread,
        shows_baselines=baselines,
        shows_published=published,
    )
    results_table = selection.table_of(results, options).sorted_by(sort)
    print_text_table(results_table, print_options, costs=costs.tables(results, list(results_table.rows)))


def losses_of(thresholds: str | None) -> list[float] | None:
    """Parse the losses of ``--thresholds``: ``"2.0,1.9"`` becomes ``[2.0, 1.9]``. None if the option is not given.

    Raises ``ConfigError`` for other text.
    """
    try:
        return None if thresholds is None else [float(part) for part in thresholds.split(",")]
    except ValueError:
        raise ConfigError(f"--thresholds {short_repr(thresholds)}: expected losses such as 2.0,1.9") from None
