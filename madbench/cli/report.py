"""``madbench report``: write a page with all stored results."""

from __future__ import annotations

import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from madbench.cli.shared import options
from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import NameOptions
from madbench.cli.shared.printing import count_text, quantity
from madbench.config.options import option
from madbench.errors import no_effect
from madbench.execute.journal import command_line
from madbench.files import explain_os_errors, output_file, write_atomically

if TYPE_CHECKING:
    from madbench.analysis.marked_text import Shows


def report(
    words: StoredWordsArgument = None,
    *,
    stored_options: StoredOptions,
    name_options: NameOptions,
    output: Annotated[
        Path | None, output_option("The file to write.", show_default="report.html in the results")
    ] = None,
    claims: options.ClaimsOption = None,
    spread: options.SpreadOption = "interval",
    baselines: options.BaselinesOption = False,
    open_it: Annotated[bool, option("Show the page in the browser.", "--open")] = False,
    archive: Annotated[
        list[Path] | None,
        option(
            "Write a leaderboard of the runs of this archive instead; may be repeated for several archives.",
            "--archive",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Write one HTML file with all tables, figures, findings and runs.

    The page needs no network and no other file. Click a heading to sort, a label
    to filter, and a number to see its runs: settings, curve, versions, folder,
    measurements, and the command that trains it again. The report names missing
    results. Protocols are never mixed, as in madbench table.

    With --archive the page is a leaderboard: one table per protocol of the
    archives, with the archives of each row. --profile names the file of runs that
    follow no shipped profile. The results folder is not changed.

    [bold]Examples[/bold]

      madbench report --open
      madbench report @table1 --profile full -o table1.html
      madbench report -t language_model --spread sd
      madbench report --archive ours.tar.xz --archive theirs.tar.xz
    """
    written_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if archive:
        choices = {" ".join(words or ()): words, "--claims": claims is not None, "--baselines": baselines}
        path = output or Path("leaderboard.html")
        _write(
            path,
            _leaderboard(archive, choices, stored_options, spread, written_at),
            count_text(len(archive), "archive"),
        )
        _open(path, open_it)
        return
    from madbench.analysis.claims import load_claims
    from madbench.analysis.tables import TableOptions
    from madbench.report.page import report_page

    by_paper = None if claims is None else {"": load_claims(claims)}
    selection = stored_options.selection(words)
    results = selection.select()
    with Console(stderr=True).status("making the tables and figures"):
        page = report_page(results, selection.labels, by_paper, TableOptions(shows=spread, shows_baselines=baselines))
        content = page.render(command_line(), written_at)
    path = output or stored_options.results / "report.html"
    _write(path, content, f"{page.count:,} jobs")
    for part in page.missing:
        print(f"missing: {part.text}")
        if part.command:
            print(f"  {part.command}")
    _open(path, open_it)


def _leaderboard(
    archives: list[Path], choices: dict[str, Any], stored_options: StoredOptions, spread: Shows, written_at: str
) -> bytes:
    """The HTML page with the leaderboard of ``archives``.

    Raises ``ConfigError`` if the user gave an option that has no effect on it: one of ``choices``, by its name, or an
    option that selects stored runs, except ``--profile``.
    """
    from madbench.report.leaderboard import leaderboard

    given_names = [name for name, value in choices.items() if value]
    given_names += [f"--{name}" for name in stored_options.given if name != "profile"]
    if given_names:
        raise no_effect(given_names[0], "with --archive, which shows every run of the archives")
    with (
        tempfile.TemporaryDirectory(prefix="madbench-") as work,
        Console(stderr=True).status("reading the archives and making the tables"),
    ):
        board = leaderboard(archives, Path(work), shows=spread, profile=stored_options.profile)
        for line in board.left_out:
            options.warn(line)
        command = shlex.join(["madbench", "report", *(word for path in archives for word in ("--archive", path.name))])
        return board.render(command, written_at)  # without folders, as the page will be shared


def _write(path: Path, content: bytes, what: str) -> None:
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output_file(path), content)
    print(f"{path}: {quantity(len(content))}B, {what}")


def _open(path: Path, is_asked: bool) -> None:
    if is_asked:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print(f"no browser found; open {path.resolve().as_uri()}", file=sys.stderr)
