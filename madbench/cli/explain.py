from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from madbench.cli.options import LABELS_HELP, JsonOption, argument

if TYPE_CHECKING:
    from madbench.labels import Explanation


def explain(
    labels: argument(list[str], "LABEL", LABELS_HELP, show_default=False),
    as_json: JsonOption = False,
) -> None:
    """Explain every letter of a label; with two labels or more, also how each differs from the first.

    A row a letter: what it does, its equation, its place in the HyperMLP paper.
    A row - says what the label does without.

    [bold]Examples[/bold]

      madbench explain G-cg-q-12o           one label, letter by letter
      madbench explain R-cg-q R-cg-q-12o    and how they differ
      madbench explain HyperGLU --json      the paper's names are labels too
    """
    from madbench.labels import diff, expand, explain, parse

    first, *_ = parsed = [parse(label) for label in expand(labels)]
    if as_json:
        content = [
            {
                "label": str(label),
                "letters": [dataclasses.asdict(row) for row in explain(label)],
                "differs_from_first_in": list(diff(first, label)),
            }
            for label in parsed
        ]
        print(json.dumps(content, indent=2))
        return
    console = Console(highlight=False)
    for i, label in enumerate(parsed):
        if i:
            console.print()
        console.print(str(label), style="bold", markup=False)
        console.print(_letters(explain(label)))
        if i:
            console.print(f"differs from {first} in: {', '.join(diff(first, label))}", markup=False)


def _letters(rows: Sequence[Explanation]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=2, justify="right", style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        about = [(row.name, "bold"), (row.what, ""), (row.equation, "cyan"), (row.source, "dim")]
        table.add_row(Text(row.letter or "-"), Text("\n").join(Text(*part) for part in about if part[0]))
    return table
