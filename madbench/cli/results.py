"""What stored runs say: ``madbench table``, ``attribute``, ``compare``, ``findings`` and ``report``."""

from __future__ import annotations

import itertools
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench.cli import options
from madbench.cli.options import StoredOptions, StoredWordsArgument, argument, option, output_option
from madbench.cli.printing import print_text_table, quantity
from madbench.cli.registering import print_registered
from madbench.errors import ConfigError, StoreError, did_you_mean
from madbench.execute.journal import command_line
from madbench.files import explain_os_errors, write_atomically
from madbench.report.commands import option_words, protocol_words
from madbench.suites import suites
from madbench.suites.addressing import own_overrides

if TYPE_CHECKING:
    from madbench.analysis.findings import Finding
    from madbench.analysis.scores import Results
    from madbench.analysis.stored import Selection


def table(
    words: StoredWordsArgument = None,
    *,
    stored: StoredOptions,
    thresholds: option(
        str | None, "Of language models, losses x of the columns 'to x', such as 2.0,1.9.", show_default="by the curves"
    ) = None,
    sort: option(
        str,
        "Best row first: a task, an average, loss_l5, steps_to_X, budget_ratio or n; label is their order.",
        metavar="COLUMN",
    ) = "label",
    published: option(bool, "Show the paper's numbers under a profile of another size, too.", "--published") = False,
    printed: options.PrintOptions,
) -> None:
    """Tabulate what the store holds: means over seeds with 95% intervals, and which labels may be the best.

    Every suite has one protocol: profile, fidelity, budget and overrides are
    never mixed, nor presets and corpora of language models. So give the same
    profile, overrides, fidelity and budget as for madbench run, which prints
    the command that shows its table again. Where several protocols are stored,
    they are listed with how to choose one. Suites stand side by side with their
    main results; of one alone the table has everything: of language models
    validation loss, bits, loss at equal time and speed.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --sort mad_average
      madbench table -t language_model --thresholds 2.0,1.9,1.8
      madbench table -t compression,language_model -f html > table.html
    """
    from madbench.analysis.tables import stored_table

    try:
        losses = None if thresholds is None else [float(part) for part in thresholds.split(",")]
    except ValueError:
        raise ConfigError(f"--thresholds {thresholds!r}: expected losses such as 2.0,1.9") from None
    found = stored_table(stored.selection(words), thresholds=losses, shows_published=published)
    print_text_table(found.sorted_by(sort), printed)


def attribute(
    words: StoredWordsArgument = None,
    pairs: option(bool, "Show every pair of labels below its factor.", "--pairs") = False,
    *,
    stored: StoredOptions,
    printed: options.PrintOptions,
) -> None:
    """Estimate what each factor of the labels is worth: convolution, gates, RoPE, rank, mixing, layout, base, budget.

    A factor's effect is its mean over all pairs of stored labels that differ in
    it alone, with a 95% interval. Below are the significant interactions of two
    factors. Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench attribute
      madbench attribute @table1 --profile full --pairs
      madbench attribute -t in_context_recall,language_model --format json
    """
    from madbench.analysis.attribution import attribution_table

    selection = stored.selection(words)
    found = selection.select("no two labels share a protocol", lambda labels: len(labels) > 1)
    table = attribution_table(found.scores, found.sentences(), pairs).checked(stored.results)
    print_text_table(table, printed)


def compare(
    words: argument(
        list[str],
        "LABEL|KEY=VALUE",
        options.LABELS_HELP + " The first label is compared with each of the others. KEY=VALUE is one of the profile.",
    ),
    *,
    stored: StoredOptions,
    printed: options.PrintOptions,
) -> None:
    """Compare labels on the runs they share: mean difference, interval, p-value, and whether it is significant.

    The unit is the seed, under one protocol as in madbench table. Where the
    noise of the profile is known, or the seeds of both labels scatter about one
    value, Cochran and Cox's t; where some seeds solve the task and others do not,
    an exact test of how many solve it. p is adjusted by Holm's method for all
    rows. Nothing is tested with fewer than three seeds.

    [bold]Examples[/bold]

      madbench compare R-cg-q R-cg-q-12o            what sequence mixing adds
      madbench compare S-p R-c G-cg-q-12o -t in_context_recall,selective_copying
      madbench compare R-cg-q-12o '~R-cg-q-12o' -p full -f latex > factors.tex
      madbench compare S-p G-cg-q-12o -t language_model
    """
    from madbench.analysis.comparison import comparison_table

    selection = stored.selection(words)
    if len(selection.labels) < 2:
        named = selection.labels[0] if selection.labels else "no label"
        raise ConfigError(f"{named}: nothing to compare with; give two labels or more")
    baseline, *others = selection.labels
    among = f"{baseline} shares no {{}} with {' or '.join(others)}"
    found = selection.select(among.format("protocol"), lambda labels: labels > {baseline})
    table = comparison_table(baseline, others, found.scores, found.sentences())
    compared = {row.label for row in table.rows}
    begun = found.scores[found.scores.done > 0].groupby("label").column.agg(set)
    unfinished = [label for label in others if begun.get(label, set()) & begun.get(baseline, set())]
    whole = " of which both have a whole seed"
    if not compared:
        raise StoreError(f"{stored.results}: {among.format('task')}{whole if unfinished else ''}")
    for label in others:
        if label not in compared:
            which = whole if label in unfinished else ""
            selection.warn(f"{label} is left out: it shares no task with {baseline}{which}")
    print_text_table(table, printed)


def findings(
    words: StoredWordsArgument = None,
    claims: options.ClaimsOption = "hypermlp",
    explain: option(str | None, "All about one claim, such as lag; all for every claim.", metavar="NAME") = None,
    registered: option(
        Path | None, "Exactly what was registered (madbench register); anything else is marked exploratory."
    ) = None,
    *,
    stored: StoredOptions,
    printed: options.PrintOptions,
) -> None:
    """Hold claims, a paper's or your own, against the stored runs: supported, contradicted, not enough data.

    Each claim has the pairs of labels that isolate it, the published number,
    ours with an interval over seeds, and a verdict. What is not stored comes with
    the command that trains it. The paper's claims are about S/R/G labels and the
    six MAD tasks; madbench claim writes your own, about any label and column.
    Protocols are never mixed, as in madbench table.

    [bold]Examples[/bold]

      madbench findings
      madbench findings --explain lag
      madbench findings --claims my_claims.yaml
      madbench findings --profile full --format markdown
      madbench findings -t language_model --format json
      madbench findings --registered lag.registered.json
    """
    from madbench.analysis.claims import load_claims
    from madbench.analysis.findings import findings as judge_claims
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.samples import count_left_out

    if registered is not None:
        if explain is not None:
            raise ConfigError(f"--explain {explain}: has no effect with --registered")
        if claims != "hypermlp":
            raise ConfigError(f"--claims {claims}: has no effect with --registered, which has its own")
        print_registered(words, registered, stored, printed)
        return
    asked, selection = load_claims(claims), stored.selection(words)
    quantities = None
    if selection.tasks is not None:
        quantities = asked_columns(selection)
        quantities += [name for claim in asked for name in claim.quantities if _is_detail(selection, name)]
    found, left_out, sentences = _stored(selection), 0, []
    if found:
        left_out, sentences = count_left_out(found.scores), found.sentences()
        profiles = {row.protocol.profile.noun: row.protocol.profile for row in found.experiment.rows}
        for noun, profile in profiles.items():
            if not profile.comparable_with_paper:
                sentences.append(f"The {noun} is not comparable with the paper: verdicts are about this {noun}.")
    rows = judge_claims(found and found.scores, quantities, _command_options(selection, found), asked)
    if explain is not None:
        names = [*dict.fromkeys(row.claim.name for row in rows), "all"]
        if explain not in names:
            raise ConfigError(f"--explain {explain}: no such claim here{did_you_mean(explain, names)}")
        rows = [row for row in rows if explain in (row.claim.name, "all")]
        if printed.asked == "terminal":
            _print_explanations(rows, explain == "all" and claims == "hypermlp")
            return
    print_text_table(findings_table(rows, sentences, left_out), printed)


def asked_columns(selection: Selection) -> list[str]:
    """The columns of the tasks that were asked for, and the steps to losses that claims are about."""
    shown = [(suite, selection.tasks_of(suite)) for suite in suites().values()]
    names = [column.name for suite, tasks in shown if tasks for column in suite.columns(tasks)]
    return names + [name for suite, tasks in shown if tasks for name in suite.claimed_columns]


def _is_detail(selection: Selection, name: str) -> bool:
    """Whether a column is neither a task nor an average, of a suite whose tasks were asked for."""
    from madbench.analysis.quantities import is_average, suite_of_column

    suite = suite_of_column(name)
    is_of_suite = suite is not None and bool(selection.tasks_of(suite))
    return is_of_suite and name not in suite.tasks() and not is_average(name)


def _stored(selection: Selection) -> Results | None:
    """What is stored of any suite; None where the default folder is not there yet."""
    if selection.results == options.RESULTS and not options.RESULTS.exists() and selection.protocol is None:
        return None
    rows, missing = selection.available()
    for error in missing.values():
        is_ambiguous = selection.tasks is not None and isinstance(error, ConfigError)
        if is_ambiguous or selection.protocol is not None or not selection.results.exists():
            raise error
        if not rows:
            selection.warn(str(error))
    return selection.results_of(rows)


def _command_options(selection: Selection, found: Results | None) -> dict[str, str]:
    """The options with which ``madbench run`` trains under the protocol of each suite, by name of the suite."""
    profile = selection.profile or selection.leading.default
    overrides = own_overrides(selection.overrides, selection.leading, selection.leading)
    selection.leading.Profile.load(profile, overrides)  # which has to be one, with runs or without
    given = {"--profile": selection.profile, "--fidelity": selection.fidelity}
    given |= {"--budget": selection.budget, "--results": str(selection.results)}
    words = {suite.name: [*overrides, *option_words(given)] for suite in [selection.leading]}
    for suite in found.suites if found else ():
        words[suite.name] = protocol_words(found.rows(suite)[0], selection.results)
    return {name: shlex.join(of_suite) for name, of_suite in words.items()}


def _print_explanations(rows: list[Finding], is_all: bool) -> None:
    from madbench.analysis.claims import HYPERMLP
    from madbench.analysis.findings_table import explanation

    console = Console(highlight=False)
    for i, (claim, found) in enumerate(itertools.groupby(rows, key=lambda row: row.claim)):
        console.print(end="\n" * (i > 0))
        console.print(f"{claim.name}: {claim.title}", style="bold", markup=False)
        table = Table.grid(Column(no_wrap=True, style="dim"), Column(overflow="fold"), padding=(0, 2))
        for heading, text in explanation(list(found)):
            table.add_row(Text(heading), Text(text))
        console.print(table)
    if is_all:
        console.print(
            f"\nNot listed, as no two labels of the paper isolate them: {HYPERMLP.not_isolated}.", markup=False
        )


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
