"""``madbench findings``: claims against the stored runs, and how many seeds they need."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench.cli import options
from madbench.cli.options import PrintOptions, StoredOptions, StoredWordsArgument
from madbench.cli.parameters import option
from madbench.cli.printing import print_text_table, tracked
from madbench.cli.words import split_list
from madbench.errors import ConfigError, did_you_mean
from madbench.report.commands import option_words, protocol_words
from madbench.suites import suites
from madbench.suites.addressing import own_overrides

if TYPE_CHECKING:
    from madbench.analysis.claims import Claim
    from madbench.analysis.findings import Finding
    from madbench.analysis.scores import Results
    from madbench.analysis.stored import Selection


def findings(
    words: StoredWordsArgument = None,
    claims: options.ClaimsOption = "hypermlp",
    explain: option(
        str | None, "All about one claim, such as lag; all for every claim.", metavar="CLAIM", completes="CLAIM"
    ) = None,
    registered: option(
        Path | None, "Exactly what was registered (madbench register); anything else is marked exploratory."
    ) = None,
    power: option(bool, "Instead of verdicts, how many seeds each claim needs.", "--power") = False,
    claim: option(
        list[str] | None, "With --power: only these claims; all by default.", metavar="CLAIM,...", completes="CLAIM,..."
    ) = None,
    *,
    stored: StoredOptions,
    printed: options.PrintOptions,
) -> None:
    """Hold claims, a paper's or your own, against the stored runs: supported, contradicted, not enough data.

    Each claim has the pairs of labels that isolate it, the published number,
    ours with an interval over seeds, and a verdict. What is not stored comes with
    the command that trains it. The paper's claims are about S/R/G labels and the
    six MAD tasks; madbench new claim writes your own, about any label and column.
    Protocols are never mixed, as in madbench table.

    --power: the number of seeds with which a claim would be decided with a
    probability of 80%, if further seeds are like the stored ones: means, spreads
    and shares of solved seeds are drawn from what the stored seeds allow, seeds
    are drawn from these, and tested as for a verdict, at the level that Holm's
    method leaves the first of as many tests. It needs two stored seeds of every
    label.

    [bold]Examples[/bold]

      madbench findings
      madbench findings --explain lag
      madbench findings --claims my_claims.yaml
      madbench findings --profile full --format markdown
      madbench findings -t language_model --format json
      madbench findings --registered lag.registered.json
      madbench findings --power --claim lag,mixing
      madbench findings --power -t selective_copying --json
    """
    from madbench.analysis.claims import load_claims
    from madbench.analysis.findings import findings as judge_claims
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.samples import count_left_out

    if claim and not power:
        raise ConfigError(f"--claim {','.join(claim)}: has no effect without --power; --explain NAME shows one claim")
    for flag, value in {"--explain": explain, "--registered": registered}.items():
        if power and value is not None:
            raise ConfigError(f"{flag} {value}: has no effect with --power")
    if power:
        print_power(load_claims(claims), claim, stored.selection(words), printed)
        return
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


def print_power(every: Sequence[Claim], only: list[str] | None, selection: Selection, printed: PrintOptions) -> None:
    """How many seeds the claims need, or those of the names ``only``, from the spread of the stored seeds."""
    from madbench.analysis.power import power_table

    known = [one.name for one in every]
    names = split_list(only, "--claim", "claim") or known
    for name in names:
        if name not in known:
            raise ConfigError(f"--claim {name}: no such claim{did_you_mean(name, known)}")
    found = selection.select()
    asked = [one for one in every if one.name in names]
    table = power_table(found.scores, asked, found.sentences(), functools.partial(tracked, description="simulating"))
    print_text_table(table, printed)


def print_registered(words: list[str] | None, path: Path, stored: StoredOptions, printed: PrintOptions) -> None:
    """The findings that were registered, and every other claim as exploratory."""
    from madbench.analysis.findings_table import findings_table
    from madbench.analysis.registration import load_registration, registered_findings, sentences

    if words or dataclasses.replace(stored, results=options.RESULTS) != StoredOptions():
        raise ConfigError(
            "--registered: labels, tasks and protocol are those registered; give only --results beside it"
        )
    found, results = load_registration(path, stored.results)
    about = sentences(found, path, results)
    table = findings_table(registered_findings(found, results), results.sentences())
    print_text_table(dataclasses.replace(table, caption=" ".join([*about, table.caption])), printed)
