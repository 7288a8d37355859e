from __future__ import annotations

from typing import Annotated

import typer

from madbench.cli.options import LABELS_HELP, JsonOption


def explain(
    labels: Annotated[list[str], typer.Argument(help=LABELS_HELP, show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Say what every letter of a label does; with two labels or more, also how each differs from the first.

    [bold]Examples[/bold]

      madbench explain G-cg-q-12o

      madbench explain R-cg-q R-cg-q-12o
    """
    import dataclasses
    import json

    from rich.console import Console
    from rich.table import Table

    from madbench.labels import diff, expand, explain, parse

    variants = [parse(label) for label in expand(labels)]
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
    console = Console()
    for variant in variants:
        table = Table(title=str(variant), title_justify="left", title_style="bold", show_lines=False, expand=False)
        for column in ("letter", "name", "what it does", "equation", "in the paper"):
            table.add_column(column, overflow="fold")
        for row in explain(variant):
            table.add_row(*dataclasses.astuple(row))
        console.print(table)
        if variant != variants[0]:
            console.print(f"differs from {variants[0]} in: {', '.join(diff(variants[0], variant))}")


def add_to(app: typer.Typer) -> None:
    app.command()(explain)
