"""``madbench verify``: check that a mixer has the properties that theory promises."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench.cli.shared.options import LABELS_HELP
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import print_json, track_progress
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument, option
from madbench.errors import no_effect
from madbench.labels import check_code, expand
from madbench.labels.names import typed_label
from madbench.mixers.checks import CheckResult, run_checks
from madbench.suites import checks_of

STYLES = {"fail": "bold red", "pass": "green", "not applicable": "dim"}
"""Styles of verdicts, in the order in which these are shown."""
GROUPS = {
    "the protocol": "build and run",
    "the budget": "parameters, state",
    "costs": "parameters, state",
    "causal mixing": "causality",
    "autograd": "gradients",
    "decoding": "decoding",
    "the definition": "float64 loops",
    "precision": "bfloat16",
    "ordinary use": "sizes, settings",
    "settings": "sizes, settings",
}
"""The groups of checks in the summary of a label, in order, by the source of a check."""
THEORY = "equations, theorems"
"""The group of all other checks, whose source is a place in a paper."""


def verify(
    labels: Annotated[list[str], argument("LABEL", LABELS_HELP, show_default=False)],
    show_all: Annotated[
        bool, option("Print every check of every label with its statement, also those that do not apply.", "--all")
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
    ("> 1e-03"). One label has one line per group of checks, and every failed
    check with its statement. --all lists all, and why some do not apply.

    Families of installed packages are also checked. If a check fails, the
    operator is not the one that its label names, and the exit code is 1.

    [bold]Examples[/bold]

      madbench verify G-cg-q-12o         one line per group, a few seconds
      madbench verify G-cg-q-12o --all   every check with its statement and source
      madbench verify @table1            one line per label, and failed checks
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
            _print(console, label, outcomes_of[label], show_all, has_groups=len(outcomes_of) == 1 and not show_all)
        if len(outcomes_of) > 1:
            failing = sum(map(_fails, outcomes_of.values()))
            console.print(f"{len(outcomes_of)} labels, {failing or 'none'} with a failed check", style="bold")
    if any(map(_fails, outcomes_of.values())):
        raise typer.Exit(1)


def _fails(outcomes: Sequence[CheckResult]) -> bool:
    return any(outcome.verdict == "fail" for outcome in outcomes)


def _print(console: Console, label: str, outcomes: Sequence[CheckResult], show_all: bool, has_groups: bool) -> None:
    """Print the outcomes of a label's checks: a line with the number of checks per verdict, and every failed check.

    If ``show_all`` is True, every check is printed, and the label's line is repeated below. If ``has_groups`` is True,
    the groups of the checks are printed, too.
    """
    counts: Counter[str] = Counter(outcome.verdict for outcome in outcomes)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])
    worst = next(verdict for verdict in STYLES if counts[verdict] or verdict == "not applicable")
    line = Text.assemble((f"{worst:4}", STYLES[worst]), "  ", (typed_label(label), "bold"), f"  {summary}")
    console.print(line, soft_wrap=True)
    if has_groups:
        _print_groups(console, outcomes)
    shown_verdicts = [verdict for verdict in STYLES if verdict == "fail" or show_all]
    shown = [outcome for verdict in shown_verdicts for outcome in outcomes if outcome.verdict == verdict]
    if shown:
        _print_checks(console, shown)
    if shown and show_all:
        console.print(line, soft_wrap=True)
    if has_groups:
        console.print("--all lists every check with its statement and source", style="dim")
    elif shown:
        console.print()


def _print_groups(console: Console, outcomes: Sequence[CheckResult]) -> None:
    """Print one line per group: the number of checks per verdict, and the residual that is closest to its bound."""
    groups: dict[str, list[CheckResult]] = {}
    for outcome in outcomes:
        groups.setdefault(_group(outcome), []).append(outcome)
    numbers = [Column(heading, justify="right") for heading in ("pass", "fail", "n/a")]
    table = Table(
        Column("checks", no_wrap=True), *numbers, Column("worst residual", justify="right"), "bound", "in", box=None
    )
    for name in sorted(groups, key=[*GROUPS.values(), THEORY].index):
        verdicts = Counter(outcome.verdict for outcome in groups[name])
        measured = [outcome for outcome in groups[name] if outcome.residual is not None]
        cells = ["", "", ""]
        if measured:
            row = max(measured, key=_share_of_bound).row
            cells = [_residual_text(row["residual"]), row["bound"], row["check"]]
        style = STYLES["fail"] if verdicts["fail"] else ""
        counts = [str(verdicts[verdict]) for verdict in ("pass", "fail", "not applicable")]
        table.add_row(*(Text(cell, style) for cell in (name, *counts, *cells)))
    console.print(table)


def _group(outcome: CheckResult) -> str:
    """The group of a check in the summary of a label, by the check's kind and source."""
    from madbench.mixers.checks.path_checks import LoopsCheck  # imports torch

    if isinstance(outcome.check, LoopsCheck):
        return GROUPS["the definition"]
    return GROUPS.get(outcome.check.source, THEORY)


def _share_of_bound(outcome: CheckResult) -> float:
    """The residual divided by its bound, or for a difference the bound divided by the residual. Above 1 if it fails."""
    residual, tolerance = outcome.residual or 0.0, outcome.check.tolerance
    share, of = (tolerance, residual) if outcome.check.is_difference else (residual, tolerance)
    return share / of if of else math.inf if share else 0.0


def _print_checks(console: Console, outcomes: Sequence[CheckResult]) -> None:
    names = Column("check", min_width=max(len(outcome.check.name) for outcome in outcomes))
    table = Table("", names, Column("residual", justify="right", min_width=8), "bound", "statement", box=None)
    for outcome in outcomes:
        row = outcome.row
        residual = _residual_text(row["residual"])
        lines = [(row["statement"], ""), (f"\n{row['source']}", "dim")]
        if row["reason"]:
            lines.append((f"\n{row['reason']}", STYLES[outcome.verdict]))
        verdict = Text(outcome.verdict.replace("not applicable", "n/a"), STYLES[outcome.verdict])
        bound_text = row["bound"] if residual else ""
        table.add_row(verdict, Text(row["check"]), residual, bound_text, Text.assemble(*lines))
    console.print(table)


def _residual_text(residual: float | None) -> str:
    return "" if residual is None else f"{residual:.1e}".replace("0.0e+00", "0")
