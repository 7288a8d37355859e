from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import LABELS_HELP, JsonOption, variants_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from madbench.labels import Variant


def explain(
    labels: Annotated[list[str], typer.Argument(metavar="LABEL", help=LABELS_HELP, show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Say what every letter of a label does; with two labels or more, also how each differs from the first.

    A row a letter: what it does, its equation, its place in the HyperMLP paper.
    A row - says what the label does without.

    [bold]Examples[/bold]

      madbench explain G-cg-q-12o           one label, letter by letter
      madbench explain R-cg-q R-cg-q-12o    and how they differ
      madbench explain HyperGLU --json      the paper's names are labels too
    """
    import dataclasses
    import json

    from rich.console import Console

    from madbench.labels import diff, explain

    variants = variants_of(labels)
    if as_json:
        content = [
            {
                "label": str(variant),
                "letters": [dataclasses.asdict(row) for row in explain(variant)],
                "differs_from_first_in": list(diff(variants[0], variant)),
            }
            for variant in variants
        ]
        print(json.dumps(content, indent=2))
        return
    console = Console(highlight=False)
    for i, variant in enumerate(variants):
        if i:
            console.print()
        console.print(str(variant), style="bold", markup=False)
        console.print(_letters(variant))
        if i:
            console.print(f"differs from {variants[0]} in: {', '.join(diff(variants[0], variant))}", markup=False)


def _letters(variant: Variant) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from madbench.labels import explain

    table = Table.grid(padding=(0, 2))
    table.add_column(width=2, justify="right", style="bold")
    table.add_column(overflow="fold")
    for row in explain(variant):
        table.add_row(
            Text(row.letter or "-"),
            Text.assemble((row.name, "bold"), "\n", row.what, "\n", (row.equation, "cyan"), "\n", (row.source, "dim")),
        )
    return table


def add_to(app: typer.Typer) -> None:
    app.command()(explain)
