from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from madbench.cli.options import JsonOption


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to check instead of everything shipped.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check YAML files and the labels in them before any training: every problem of every file, not only the first.

    A file with the key labels is a set of variants, one with the key task a
    task, one with learning_rates a profile and one with training but without
    learning_rates a preset. Exit code 2 when anything is wrong.

    [bold]Examples[/bold]

      madbench validate                       every shipped file and label
      madbench validate variants/mine.yaml
      madbench validate my_task.yaml my_profile.yaml --json
    """
    from rich.console import Console

    from madbench.cli.validation import check_file, shipped_files
    from madbench.errors import ConfigError

    reports = [check_file(path) for path in files or shipped_files()]
    if as_json:
        print(json.dumps(reports, indent=2))
    else:
        console = Console(highlight=False)
        for report in reports:
            _print(console, report)
    wrong = [report for report in reports if not report["ok"]]
    if wrong:
        problems = sum(len(report["problems"]) for report in wrong)
        raise ConfigError(
            f"{problems} problem{'s' * (problems > 1)} in {len(wrong)} of {len(reports)} file{'s' * (len(reports) > 1)}"
        )


def _print(console: Any, report: dict[str, Any]) -> None:
    from rich.text import Text

    verdict = ("ok   ", "green") if report["ok"] else ("wrong", "bold red")
    content = f"  {report['kind']}: {report['summary']}" if report["ok"] else ""
    console.print(Text.assemble(verdict, f"  {report['file']}", (content, "dim")), soft_wrap=True)
    for text in (*report["problems"], *(f"note: {note}" for note in report["notes"])):
        console.print(Text("       " + text.replace("\n", "\n       ")), soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command()(validate)
