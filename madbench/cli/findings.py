"""``madbench findings`` and ``madbench report``."""

from __future__ import annotations

import itertools
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from madbench.cli.options import RESULTS, PrintOptions, StoredOptions, StoredWordsArgument, option, with_groups
from madbench.cli.printing import print_text_table, quantity
from madbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from madbench.analysis.findings import Finding
    from madbench.analysis.scores import Results
    from madbench.analysis.stored import Selection


@with_groups
def findings(
    words: StoredWordsArgument = None,
    explain: option(str | None, "All about one claim, such as lag; all for every claim.", metavar="NAME") = None,
    *,
    stored: StoredOptions,
    printed: PrintOptions,
) -> None:
    """Hold the claims of the HyperMLP paper against the stored runs: supported, contradicted, not enough data.

    Each claim has the pairs of labels that isolate it, the published number,
    ours with an interval over seeds, and a verdict. What is not stored comes with
    the command that trains it. Claims are about S/R/G labels and the six MAD
    tasks. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench findings
      madbench findings --explain lag
      madbench findings --profile full --format markdown
      madbench findings -t language_model --format json
    """
    from madbench.analysis.attribution import measured_values
    from madbench.analysis.findings import findings
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.quantities import LOSS, mad_columns

    selection = stored.selection(words)
    quantities = None
    if selection.tasks is not None:
        quantities = [column.name for column in mad_columns(selection.mad_tasks)]
        quantities += [LOSS] if selection.has_language else []
    found = _stored(selection)
    scores, sentences = (found.scores, _sentences(found)) if found else (None, [])
    rows = findings(scores, quantities, **_options(selection, found))
    if explain is not None:
        names = [*dict.fromkeys(row.claim.name for row in rows), "all"]
        if explain not in names:
            raise ConfigError(f"--explain {explain}: no such claim here{did_you_mean(explain, names)}")
        rows = [row for row in rows if explain in (row.claim.name, "all")]
        if printed.asked == "terminal":
            _print_explanations(rows, explain == "all")
            return
    left_out = 0 if scores is None else measured_values(scores)[1]
    print_text_table(findings_table(rows, sentences, left_out), printed.asked)


def _stored(selection: Selection) -> Results | None:
    """What is stored of either suite; None where the default folder is not there yet."""
    if selection.results == RESULTS and not RESULTS.exists() and selection.protocol is None:
        return None
    rows, missing = selection.available()
    if "language" in missing and (selection.protocol is not None or not selection.results.exists()):
        raise missing["language"]
    if "mad" in missing and not rows:
        selection.warn(str(missing["mad"]))
    return selection.results_of(rows)


def _sentences(found: Results) -> list[str]:
    profiles = {row.protocol.profile.noun: row.protocol.profile for row in found.experiment.rows}
    return found.sentences() + [
        f"The {noun} is not comparable with the paper: verdicts are about this {noun}."
        for noun, profile in profiles.items()
        if not profile.comparable_with_paper
    ]


def _options(selection: Selection, found: Results | None) -> dict[str, str]:
    """What ``madbench run`` and ``madbench lm`` need to know of the protocols."""
    from madbench.grid import suite_of_override
    from madbench.report.commands import option_words, protocol_words
    from madbench.suites import LANGUAGE, MAD

    overrides = [word for word in selection.overrides if suite_of_override(word) == MAD.name]
    MAD.Profile.load(selection.profile, overrides)  # which has to be one, with runs or without
    of_language = option_words({"--budget": selection.budget, "--results": str(selection.results)})
    named = option_words({"--profile": selection.profile, "--fidelity": selection.fidelity})
    of_mad = [*overrides, *named, *of_language]
    if found and found.has(LANGUAGE):
        of_language = protocol_words(found.rows(LANGUAGE)[0], selection.results)
    return {"mad_options": shlex.join(of_mad), "language_options": shlex.join(of_language)}


def _print_explanations(rows: list[Finding], is_all: bool) -> None:
    from madbench.analysis.claims import NOT_ISOLATED
    from madbench.analysis.findings_table import explanation

    console = Console(highlight=False)
    for i, (claim, found) in enumerate(itertools.groupby(rows, key=lambda row: row.claim)):
        if i:
            console.print()
        console.print(f"{claim.name}: {claim.title}", style="bold", markup=False)
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for heading, text in explanation(list(found)):
            table.add_row(Text(heading), Text(text))
        console.print(table)
    if is_all:
        console.print(f"\nNot listed, as no two labels isolate them: {NOT_ISOLATED}.", markup=False)


@with_groups
def report(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    output: option(
        Path | None, "The file to write.", "--output", "-o", show_default="report.html in the results"
    ) = None,
    open_it: option(bool, "Show it in the browser.", "--open") = False,
) -> None:
    """Write one HTML file with the tables, the figures, the findings and every run behind a number.

    It needs no network and no other file. Headings sort, labels filter, a number
    opens its runs: settings, curve, versions, folder, measurements, and the command
    that trains it again. The report says what is missing. Protocols are never mixed, as in
    madbench table.

    [bold]Examples[/bold]

      madbench report --open
      madbench report @table1 --profile full -o table1.html
      madbench report -t language_model
    """
    from madbench.files import explain_os_errors, write_atomically
    from madbench.report.page import report_page

    selection = stored.selection(words)
    selected = selection.select()
    with Console(stderr=True).status("making the tables and figures"):
        page = report_page(selected, selection.labels)
        command = shlex.join(["madbench", *sys.argv[1:]])
        content = page.render(command, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    path = output or stored.results / "report.html"
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    print(f"{path}: {quantity(len(content))}B, {page.count:,} jobs")
    for one in page.missing:
        print(f"missing: {one.text}")
        if one.command:
            print(f"  {one.command}")
    if open_it:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print(f"no browser found; open {path.resolve().as_uri()}", file=sys.stderr)
