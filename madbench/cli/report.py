"""``madbench report``: all that is stored in one page."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from rich.console import Console

from madbench.cli import options
from madbench.cli.options import StoredOptions, StoredWordsArgument
from madbench.cli.parameters import option, output_option
from madbench.cli.printing import quantity
from madbench.execute.journal import command_line
from madbench.files import explain_os_errors, write_atomically


def report(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    named: options.NameOptions,
    output: output_option("The file to write.", show_default="report.html in the results") = None,
    claims: options.ClaimsOption = "hypermlp",
    open_it: option(bool, "Show it in the browser.", "--open") = False,
) -> None:
    """Write one HTML file with the tables, the figures, the findings and every run behind a number.

    It needs no network and no other file. Headings sort, labels filter, a
    number opens its runs: settings, curve, versions, folder, measurements, and
    the command that trains it again. The report says what is missing. Protocols
    are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench report --open
      madbench report @table1 --profile full -o table1.html
      madbench report -t language_model
    """
    from madbench.analysis.claims import load_claims
    from madbench.report.page import report_page

    asked, selection = load_claims(claims), stored.selection(words)
    selected = selection.select()
    with Console(stderr=True).status("making the tables and figures"):
        page = report_page(selected, selection.labels, asked)
        content = page.render(command_line(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
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
