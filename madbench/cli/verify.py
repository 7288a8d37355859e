"""``madbench verify``: check that a mixer has the properties that theory promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench.cli.shared.options import LABELS_HELP
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import count_text, print_json, track_progress
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument, option
from madbench.errors import no_effect
from madbench.labels import check_code, expand
from madbench.labels.names import typed_label
from madbench.mixers.checks import CheckResult, run_checks
from madbench.suites import checks_of

STYLES = {"fail": "bold red", "pass": "green", "not applicable": "dim"}
"""Styles of verdicts, in the order in which these are shown."""


def verify(
    labels: Annotated[list[str], argument("LABEL", LABELS_HELP, show_default=False)],
    show_all: Annotated[
        bool, option("Print every check of every label, also those that do not apply.", "--all")
    ] = False,
    format: FormatOption = "terminal",
) -> None:
    """Check that a label's mixer does what its theory promises.

    Each check is a statement with its source. It is run in float64 on a small
    mixer with random weights, and on a mixer of ordinary size with default and
    with random settings. The checks cover causality, the exact parameter count,
    every path and all its gradients against float64 loops on both sides of every
    block, decoding that equals the parallel form, bounds for bfloat16, and the
    theorems of the family's paper. The residual is the difference that should be
    zero ("<= 1e-09"), or the difference of two results that must differ
    ("> 1e-03"). Statements that do not apply to the label are counted, and --all
    lists them with the reason.

    Families of installed packages are also checked. If a check fails, the
    operator is not the one that its label names, and the exit code is 1.

    [bold]Examples[/bold]

      madbench verify G-cg-q-12o         every check that applies, a few seconds
      madbench verify @table1            one line per label, and failed checks
      madbench verify '~R-cg-q-12o' --all
      madbench verify S-p -f json         for a program
    """
    as_json = format == "json"
    if show_all and as_json:
        raise no_effect("--all", "with -f json, which has every check")
    words, overrides = labels_and_overrides(labels)
    if overrides:
        raise no_effect(str(overrides[0]), because="verify takes labels, and checks them with settings of its own")
    canonical_labels = expand(words)
    check_code(canonical_labels)
    outcomes_of = {label: run_checks(label, checks_of) for label in track_progress(canonical_labels, "checking")}
    if as_json:
        print_json([{"label": label} | outcome.row for label, outcomes in outcomes_of.items() for outcome in outcomes])
    else:
        console = Console(highlight=False)
        failed_first = sorted(outcomes_of, key=lambda label: not _fails(outcomes_of[label]))
        for label in failed_first:
            _print(console, label, outcomes_of[label], show_all, is_whole=show_all or len(outcomes_of) == 1)
        if len(outcomes_of) > 1:
            failing = sum(map(_fails, outcomes_of.values()))
            console.print(f"{len(outcomes_of)} labels, {failing or 'none'} with a failed check", style="bold")
    if any(map(_fails, outcomes_of.values())):
        raise typer.Exit(1)


def _fails(outcomes: Sequence[CheckResult]) -> bool:
    return any(outcome.verdict == "fail" for outcome in outcomes)


def _print(
    console: Console, label: str, outcomes: Sequence[CheckResult], shows_inapplicable: bool, is_whole: bool
) -> None:
    """Print the outcomes of a label's checks: a line with the number of checks per verdict, and a line per check.

    If ``is_whole`` is True, all checks have a line, and the label's line is repeated below them. Otherwise only failed
    checks have a line. If ``shows_inapplicable`` is False, the checks that do not apply to the label have no line and
    are only counted.
    """
    counts: Counter[str] = Counter(outcome.verdict for outcome in outcomes)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])
    worst = next(verdict for verdict in STYLES if counts[verdict] or verdict == "not applicable")
    line = Text.assemble((f"{worst:4}", STYLES[worst]), "  ", (typed_label(label), "bold"), f"  {summary}")
    console.print(line, soft_wrap=True)
    shown_verdicts = [verdict for verdict in STYLES if verdict == "fail" or is_whole]
    if not shows_inapplicable:
        shown_verdicts = [verdict for verdict in shown_verdicts if verdict != "not applicable"]
    outcomes = [outcome for verdict in shown_verdicts for outcome in outcomes if outcome.verdict == verdict]
    if outcomes:
        _print_checks(console, outcomes)
    if is_whole and "not applicable" not in shown_verdicts and (count := counts["not applicable"]):
        console.print(f"{count_text(count, 'check')} not applicable to the label; --all lists them", style="dim")
    if outcomes and is_whole:
        console.print(line, soft_wrap=True)
    if outcomes:
        console.print()


def _print_checks(console: Console, outcomes: Sequence[CheckResult]) -> None:
    names = Column("check", min_width=max(len(outcome.check.name) for outcome in outcomes))
    table = Table("", names, Column("residual", justify="right", min_width=8), "bound", "statement", box=None)
    for outcome in outcomes:
        row = outcome.row
        residual = "" if row["residual"] is None else f"{row['residual']:.1e}".replace("0.0e+00", "0")
        lines = [(row["statement"], ""), (f"\n{row['source']}", "dim")]
        if row["reason"]:
            lines.append((f"\n{row['reason']}", STYLES[outcome.verdict]))
        verdict = Text(outcome.verdict.replace("not applicable", "n/a"), STYLES[outcome.verdict])
        bound_text = row["bound"] if residual else ""
        table.add_row(verdict, Text(row["check"]), residual, bound_text, Text.assemble(*lines))
    console.print(table)
