from __future__ import annotations

from typing import Annotated

import typer

from madbench.cli.options import (
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
    StoredWordsArgument,
)
from madbench.cli.selection import Selection, in_grammar_order
from madbench.cli.tables import Format, FormatOption, print_format, print_text_table


def table(
    words: StoredWordsArgument = None,
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
    format: FormatOption = Format.terminal,
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

    format = print_format(format, as_json)
    selection = Selection.of(words, profile, tasks, fidelity, budget, protocol, results)
    labels = selection.labels
    mad = language = None
    if selection.has_mad:
        mad = tabulate(selection.experiment(), selection.store)
    if selection.has_language:
        runs, _ = selection.language("no language-model run is as asked")
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
