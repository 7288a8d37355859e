from __future__ import annotations

from typing import Annotated

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    ProfileOption,
    ResultsOption,
    TasksOption,
    labels_and_overrides,
    split_list,
)
from madbench.cli.selection import stored_experiment
from madbench.cli.tables import Format, print_format, print_text_table


def table(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " All labels in the store by default."),
    ] = None,
    profile: ProfileOption = "quick",
    tasks: TasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    results: ResultsOption = RESULTS,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Tabulate what the store holds under one protocol: profile, fidelity, budget and overrides are never mixed.

    So give the same profile, overrides, fidelity and budget as for madbench
    run, which prints the command that shows its table again.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --format csv
    """
    from madbench.experiment import tabulate

    format = print_format(format, as_json)
    named, overrides = labels_and_overrides(words or [])
    chosen = stored_experiment(named, overrides, profile, split_list(tasks), fidelity, budget, results)
    print_text_table(tabulate(chosen), format)


def add_to(app: typer.Typer) -> None:
    app.command()(table)
