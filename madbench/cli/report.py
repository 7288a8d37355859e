from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import (
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    LanguageProtocolOption,
    ProfileOption,
    ResultsOption,
    StoredTasksOption,
    StoredWordsArgument,
)
from madbench.cli.selection import Selection, in_grammar_order

if TYPE_CHECKING:
    from madbench.report.facts import Stored


def report(
    words: StoredWordsArgument = None,
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    results: ResultsOption = RESULTS,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write.", show_default="report.html in the results"),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write one HTML file with the tables, the figures, the findings and every run behind a number.

    It needs no network and no other file. Headings sort, labels filter, a number
    opens its runs: settings, curve, versions, folder, and the command that makes
    it again. The report says what is missing. Protocols are never mixed, as in
    madbench table.

    [bold]Examples[/bold]

      madbench report --open
      madbench report @table1 --profile full -o table1.html
      madbench report -t language_model
    """
    import functools
    import shlex
    import sys
    from datetime import UTC, datetime

    from rich.console import Console

    from madbench.cli.text import quantity
    from madbench.files import explain_os_errors, write_atomically
    from madbench.report.kept import report_of

    selection = Selection.of(words, profile, tasks, fidelity, budget, protocol, results)
    command = shlex.join(["madbench", *sys.argv[1:]])
    screen = Console(stderr=True)
    waiting = functools.partial(screen.status, "making the tables and figures")
    made = report_of(stored_of(selection), waiting)
    content = made.page(command, datetime.now(UTC))
    path = output or results / "report.html"
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    print(f"{path}: {quantity(len(content))}B, {made.count:,} jobs")
    for one in made.missing:
        print(f"missing: {one.text}")
        if one.command:
            print(f"  {one.command}")
    if open_it:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print(f"no browser found; open {path.resolve().as_uri()}", file=sys.stderr)


def stored_of(selection: Selection) -> Stored:
    """The runs of one protocol of either half; a half that is neither stored nor asked for is left out."""
    from madbench.analysis.figures.data import FigureData
    from madbench.errors import StoreError
    from madbench.jobs import Job
    from madbench.report.facts import Stored

    store, labels = selection.store, selection.labels
    jobs = store.jobs()
    records = store.records(jobs)
    has_mad = any(isinstance(job, Job) for job in jobs.values())
    made, language, sentences = None, [], []
    if selection.mad_tasks or (selection.tasks is None and (has_mad or not records)):
        made = selection.experiment()
    if selection.has_language:
        nothing = "no language-model runs" + (f" of {', '.join(labels)}" if labels else "")
        language, sentences = selection.language(nothing)
    if made is None and not language:
        raise StoreError(f"{selection.results}: no language-model runs of one protocol; name one with --protocol ID")
    if not labels:
        labels = in_grammar_order(
            {run.job.label for run in language} | {job.label for job in (made.jobs if made else ())}
        )
    return Stored(FigureData(store, made, language, sentences), labels, records, store.problems)


def add_to(app: typer.Typer) -> None:
    app.command()(report)
