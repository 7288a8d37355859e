"""``madbench explain``: the meaning of labels, and with ``--cost`` their costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench import labels as grammar
from madbench.cli.explain.costs import CostOptions, print_costs
from madbench.cli.shared.options import LABELS_HELP
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import print_json
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument, option
from madbench.errors import no_effect
from madbench.labels import Label, differing_factors, expand, factor_names, levels, parse
from madbench.labels.names import typed_label


def explain(
    words: Annotated[
        list[str],
        argument(
            "LABEL|KEY=VALUE",
            LABELS_HELP + " With --cost, KEY=VALUE is a size or a setting of the mixers: model.d_model=64, mix_rank=8.",
            show_default=False,
        ),
    ],
    show_all: Annotated[bool, option("Also show the letters that several labels share.", "--all")] = False,
    cost: Annotated[bool, option("Show costs: ranks, parameters, decoding state and FLOPs.", "--cost")] = False,
    *,
    costs: CostOptions,
    format: FormatOption = "terminal",
) -> None:
    """Explain every letter of a label, or count what it costs.

    Each letter has one row: what it does, its equation, its place in the paper. A
    row that begins with - is about a part that the label does not have. With
    several labels, + marks parts that a label adds to the first, and - parts that
    it lacks.

    --cost: the budget B is 4 d^2, the parameters of softmax attention of width d.
    Some letters, such as c, raise it by the parameters that they add: B is shown
    for each label. --budget selects the rule for the ranks. Both counts are
    always shown: strict counts every parameter, paper leaves out the tables of
    R(1) and R(2).

    [bold]Examples[/bold]

      madbench explain G-cg-q-12o           one label, letter by letter
      madbench explain R-cg-q R-cg-q-12o    how the second differs from the first
      madbench explain R-cg-q R-cg-q-12o --all   and all letters of both
      madbench explain HyperGLU -f json      the paper's names are labels too
      madbench explain --cost G-cg-q-12o    its ranks and parameters, term by term
      madbench explain --cost @table1       the paper's labels
      madbench explain --cost '~R-cg-q-12o' --budget paper
      madbench explain --cost S-c G-cg-q-12o --d-model 768 --n-head 12
      madbench explain --cost S-p G-cg-q-12o -p evening
    """
    as_json = format == "json"
    labels, overrides = labels_and_overrides(words)
    if cost:
        if show_all:
            raise no_effect("--all", "with --cost, which has one row per label")
        print_costs(labels, overrides, costs, as_json)
        return
    for setting in (*map(str, overrides), *costs.changed_options):
        raise no_effect(setting, "without --cost")
    first, *others = parsed_labels = [parse(label) for label in expand(labels)]
    if show_all and as_json:
        raise no_effect("--all", "with -f json, which has every letter")
    if show_all and not others:
        raise no_effect("--all", f"with one label, {first}", "all of its letters are shown")
    if as_json:
        print_json([_content(label, first) for label in parsed_labels])
        return
    console = Console(highlight=False)
    if show_all or not others:
        _print_letters(console, first)
    for i, label in enumerate(others):
        if show_all or i > 0:
            console.print()
        if show_all:
            _print_letters(console, label)
            _print_differences(console, first, label)
        else:
            _print_changed_letters(console, first, label)


def _content(label: Label, first: Label) -> dict[str, Any]:
    """The JSON content of a label: its letters, and the factors in which it differs from the first label."""
    letters = [dataclasses.asdict(row) for row in grammar.explain(label)]
    return {"label": str(label), "letters": letters, "differs_from_first_in": list(differing_factors(first, label))}


def _print_letters(console: Console, label: Label) -> None:
    _print_rows(console, label, [(row.letter or "-", row) for row in grammar.explain(label)])


def _print_changed_letters(console: Console, first: Label, label: Label) -> None:
    """Print the letters that ``label`` adds to ``first``, those that it lacks, and the names of the shared ones."""
    of_first, rows = grammar.explain(first), grammar.explain(label)
    added = [(f"+ {row.letter}".strip(), row) for row in rows if row not in of_first]
    lacking = [(f"- {row.letter}".strip(), row) for row in of_first if row not in rows]
    _print_rows(console, label, added + lacking)
    _print_differences(console, first, label)
    if shared := ", ".join(f"{row.letter} {row.name}".strip() for row in rows if row in of_first):
        console.print(f"shares: {shared} (--all explains these)", markup=False, style="dim")


def _print_differences(console: Console, first: Label, label: Label) -> None:
    text = ", ".join(_differences(first, label))
    console.print(f"differs from {typed_label(str(first))} in: {text}", markup=False)


def _print_rows(console: Console, label: Label, rows: Iterable[tuple[str, grammar.Explanation]]) -> None:
    """Print a label, and a table with one row per letter or part of it: the letter, or a mark such as ``-``, and its
    explanation."""
    short, long = typed_label(str(label)), str(label)
    console.print(Text.assemble((short, "bold"), ("" if short == long else f" = {long}", "dim")))
    table = Table.grid(
        Column(min_width=2, justify="right", style="bold", no_wrap=True), Column(overflow="fold"), padding=(0, 2)
    )
    for letter, row in rows:
        paragraphs = [(row.name, "bold"), (row.what, ""), (row.equation, "cyan"), (row.source, "dim")]
        table.add_row(Text(letter), Text("\n").join(Text(*part) for part in paragraphs if part[0]))
    console.print(table)


def _differences(first: Label, label: Label) -> Iterator[str]:
    """Yield the factors in which ``label`` differs from ``first``, with the levels of both: ``R(1) (1o vs. none)``.

    Levels are left out if only one of the labels has the factor.
    """
    of_first, of_label = levels(first), levels(label)
    names = {**factor_names(first), **factor_names(label)}
    for factor in differing_factors(first, label):
        level, first_level = of_label.get(factor), of_first.get(factor)
        is_shown = None not in (level, first_level) and level != first_level  # not for factors of only one family
        name = names.get(factor, factor)
        yield f"{name} ({level or 'none'} vs. {first_level or 'none'})" if is_shown else name
