from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from madbench.cli.selection import Selection
from madbench.cli.tables import Format, FormatOption, print_format, print_text_table

if TYPE_CHECKING:
    from madbench.analysis.findings import Finding
    from madbench.store.runs import Run


def findings(
    words: StoredWordsArgument = None,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="NAME", help="All about one claim, such as lag; all for every claim."),
    ] = None,
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    results: ResultsOption = RESULTS,
    format: FormatOption = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Hold the claims of the HyperMLP paper against the stored runs: supported, contradicted, not enough data.

    Each claim has the pairs of labels that isolate it, the published number,
    ours with an interval over seeds, and a verdict. What is not stored comes with
    the command that trains it. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench findings
      madbench findings --explain lag
      madbench findings --profile full --format markdown
      madbench findings -t language_model --format json
    """
    from madbench.analysis.attribution_table import measured_values
    from madbench.analysis.findings import findings
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.language_runs import LanguageProtocol
    from madbench.analysis.loss_curves import run_losses
    from madbench.analysis.quantities import LOSS, MAD_AVERAGE
    from madbench.analysis.scores import scores
    from madbench.errors import StoreError
    from madbench.suites.profile import load_profile
    from madbench.tasks.registry import TASK_NAMES, check_task

    format = print_format(format, as_json)
    selection = Selection.of(words, profile, tasks, fidelity, budget, protocol, results)
    overrides = selection.overrides
    for task in selection.mad_tasks or ():
        check_task(task)
    loaded = load_profile(profile, overrides)
    quantities = None
    if selection.tasks is not None:
        averaged = [MAD_AVERAGE] * (set(TASK_NAMES) <= set(selection.tasks))
        quantities = [*selection.mad_tasks, *averaged, *[LOSS] * selection.has_language]

    is_empty = results == RESULTS and not results.exists()
    cells = losses = None
    runs: list[Run] = []
    sentences = []
    if selection.has_language and not (is_empty and protocol is None):
        try:
            runs, described = selection.language("no language models of these labels")
            sentences += described
        except StoreError:
            if protocol is not None or not results.exists():
                raise
        losses = run_losses(runs, ()) if runs else None
        if runs and not LanguageProtocol.of(runs[0].job).is_comparable_with_paper:
            sentences.append("It is not comparable with the paper: verdicts on L5 are about this protocol.")
    if selection.has_mad and not is_empty:
        try:
            collected, described = selection.mad_runs()
            cells = scores(collected)
            sentences += described
            if not loaded.comparable_with_paper:
                sentences.append("The profile is not comparable with the paper: verdicts are about this profile.")
        except StoreError as error:
            if not runs:
                print(f"warning: {error}", file=sys.stderr)
    rows = findings(
        cells,
        losses,
        quantities,
        mad_options=_mad_options(overrides, profile, fidelity, budget, results),
        language_options=_language_options(runs, budget, results),
    )
    if explain is not None:
        rows = _explained(rows, explain)
        if format is Format.terminal:
            _print_explanations(rows, explain == "all")
            return
    left_out = measured_values(cells, losses)[1] if cells is not None or losses is not None else 0
    print_text_table(findings_table(rows, sentences, left_out), format)


def _mad_options(overrides: list[str], profile: str, fidelity: Fidelity, budget: Counting, results: Path) -> str:
    """What ``madbench run`` is told of the protocol."""
    given = {"--profile": profile, "--fidelity": fidelity.value}
    usual = {"--profile": "quick", "--fidelity": "corrected"}
    options = [word for option in given.items() if option not in usual.items() for word in option]
    return shlex.join([*overrides, *options, *_shared_options(budget, results)])


def _language_options(runs: list[Run], budget: Counting, results: Path) -> str:
    """What ``madbench lm`` is told of the protocol of ``runs``."""
    from madbench.analysis.language_runs import LanguageProtocol, corpus_of

    options = []
    if runs:
        preset, *changes = LanguageProtocol.of(runs[0].job).preset.split()
        options += [*changes, *["--preset", preset] * (preset != "tiny")]
        corpus = corpus_of(runs[0])
        if not corpus["name"].startswith("stdlib-"):
            options += ["--corpus", corpus.get("folder", corpus["name"])]
    return shlex.join([*options, *_shared_options(budget, results)])


def _shared_options(budget: Counting, results: Path) -> list[str]:
    options = ["--budget", budget.value] * (budget is not Counting.strict)
    return options + ["--results", str(results)] * (results != RESULTS)


def _explained(rows: list[Finding], name: str) -> list[Finding]:
    from madbench.errors import ConfigError, did_you_mean

    names = list(dict.fromkeys(row.name for row in rows))
    if name not in (*names, "all"):
        raise ConfigError(f"--explain {name}: no such claim here{did_you_mean(name, [*names, 'all'])}")
    return [row for row in rows if name in (row.name, "all")]


def _print_explanations(rows: list[Finding], is_all: bool) -> None:
    import itertools

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from madbench.analysis.claims import NOT_ISOLATED
    from madbench.analysis.findings_table import explanation

    console = Console(highlight=False)
    for i, (name, of_claim) in enumerate(itertools.groupby(rows, key=lambda row: row.name)):
        found = list(of_claim)
        if i:
            console.print()
        console.print(f"{name}: {found[0].about.title}", style="bold", markup=False)
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for heading, text in explanation(found):
            table.add_row(Text(heading), Text(text))
        console.print(table)
    if is_all:
        console.print(f"\nNot listed, as no two labels isolate them: {NOT_ISOLATED}.", markup=False)


def add_to(app: typer.Typer) -> None:
    app.command()(findings)
