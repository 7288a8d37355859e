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
    LanguageProtocolOption,
    ProfileOption,
    ResultsOption,
    StoredTasksOption,
    labels_and_overrides,
    split_list,
)
from madbench.cli.selection import in_grammar_order, mad_tasks_of, runs_of_one_protocol, stored_experiment
from madbench.cli.tables import Format, print_format, print_text_table


def table(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " All labels in the store by default."),
    ] = None,
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    sort: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Best row first: a task, mad_average, loss_l5, steps_to_X, budget_ratio or n; label is their order.",
        ),
    ] = "label",
    results: ResultsOption = RESULTS,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Tabulate what the store holds: means over seeds with 95% intervals, and which labels may be the best.

    Every half has one protocol: profile, fidelity, budget and overrides are never
    mixed, nor the language model's presets and corpora. So give the same profile,
    overrides, fidelity and budget as for madbench run, which prints the command
    that shows its table again. madbench lm table has more of the language model.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table -t compression,language_model -f html > table.html
    """
    from madbench.analysis.joint_table import JointTable
    from madbench.analysis.language_table import language_table
    from madbench.experiment import tabulate
    from madbench.labels import expand
    from madbench.language_jobs import TASK

    format = print_format(format, as_json)
    named, overrides = labels_and_overrides(words or [])
    labels = expand(named)
    asked = split_list(tasks)
    mad_tasks = mad_tasks_of(asked, overrides, profile, fidelity, protocol)

    mad = language = None
    if mad_tasks != []:
        mad = tabulate(stored_experiment(labels, overrides, profile, mad_tasks, fidelity, budget, results))
    if asked is None or TASK in asked:
        is_asked = asked is not None or protocol is not None
        nothing = "no language-model run is as asked"
        runs, _ = runs_of_one_protocol(results, labels, budget, protocol, is_asked, bool, nothing)
        if runs:
            found = {run.job.label for run in runs}
            language = language_table(runs, labels or in_grammar_order(found), is_brief=True)
    if mad and language:
        either = {*mad.rows, *language.rows}
        order = [label for label in labels if label in either] or in_grammar_order(either)
        table = JointTable(mad, language, order)
    else:
        table = mad or language
    print_text_table(table.sorted_by(sort), format)


def add_to(app: typer.Typer) -> None:
    app.command()(table)
