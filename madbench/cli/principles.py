"""``madbench principles``: the design principles of the coefficient dynamics paper, run, measured and judged."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from madbench.cli import options
from madbench.cli.options import PrintOptions, TrainingOptions, argument, option
from madbench.cli.plots import LayoutOptions, write_figure
from madbench.cli.printing import PLAIN, print_json, print_text_table
from madbench.cli.training import carry_out
from madbench.config import key_of, parse_seeds
from madbench.errors import ConfigError, did_you_mean
from madbench.execute.base import Policy
from madbench.grid import Grid, Row
from madbench.principles import QUICK, Decision, Principle, Study
from madbench.principles.studies import PRINCIPLES, principle
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.figures.panels import Layout
    from madbench.analysis.rendering import TextTable


def principles(
    words: argument(
        list[str] | None,
        "N|KEY=VALUE",
        "Number of a principle: 1, 2, 2.1, 2.2, 3, 4, 5 or 6; none lists them. KEY=VALUE changes the profile.",
    ) = None,
    profile: option(
        str,
        "coefficients-quick, coefficients (the paper's sizes) or a YAML file.",
        "--profile",
        "-p",
        completes="PROFILE",
    ) = QUICK,
    seeds: option(str | None, "Seeds such as 0-2.", show_default="0-2; 0-4 for principle 5") = None,
    tasks: option(list[str] | None, "Tasks, comma-separated.", "--tasks", "-t", show_default="the principle's") = None,
    *,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    slots: options.SlotsOption = None,
    threads: options.ThreadsOption = None,
    force: options.ForceOption = False,
    dry_run: option(bool, "Show jobs, FLOPs and a time estimate; train nothing.", "--dry-run") = False,
    shape: LayoutOptions,
    printed: PrintOptions,
) -> None:
    """Test a design principle of the coefficient dynamics paper: train what is missing, draw, give a verdict.

    A mixer of the family cd: multiplies values with coefficients phi(s) / eta;
    its score s comes from keys that a matrix A evolves and b scales (madbench
    explain cd:softmax). The paper draws six design principles from that. Each
    is an experiment here: labels that differ in one factor, trained on tasks that
    the factor decides, as madbench run --budget paper does; the same command
    again does only what is missing.

    Below the accuracies are the contrasts that the paper expects to be positive,
    with interval and p-value after Holm; 1, 2 and 5 have measures of their own. A
    principle is supported where all of them are significant, contradicted where
    one is in the other direction, and otherwise not decided by these seeds. The
    figure lies in RESULTS/plots.

    [bold]Examples[/bold]

      madbench principles                      the claims, and what each trains
      madbench principles 3 --dry-run          how long that takes here
      madbench principles 3                    positions from a constant gate
      madbench principles 6 --seeds 0-4
      madbench principles 3 --profile coefficients --device cuda
    """
    numbers, overrides = options.labels_and_overrides(words or [])
    if len(numbers) > 1:
        raise ConfigError(f"{' '.join(numbers)}: one principle at a time")
    chosen = principle(numbers[0]) if numbers else None
    if numbers and chosen is None:
        known = did_you_mean(numbers[0], [one.number for one in PRINCIPLES])
        raise ConfigError(f"principle {numbers[0]!r} is unknown{known}")
    if shape != LayoutOptions() and (chosen is None or dry_run):
        why = "with --dry-run" if dry_run else "without the number of a principle"
        raise ConfigError(f"--width, --no-title and --no-caption have no effect {why}")
    if chosen is None or chosen.judge == "time":
        given = {"--profile": profile != QUICK, "--seeds": seeds, "--tasks": tasks, "--slots": slots}
        given |= {"--threads": threads, "--force": force, "--dry-run": dry_run}
        why = f"on principle {chosen.number}: it trains nothing" if chosen else "without the number of a principle"
        for name in [*(name for name, value in given.items() if value), *overrides]:
            raise ConfigError(f"{name} has no effect {why}")
    if chosen is None:
        _list(printed)
        return
    if chosen.judge == "time":
        from madbench.principles.timing import decide_time

        if printed.asked == "terminal":
            _introduce(chosen)
        with Console(stderr=True).status("timing forward passes"):
            decision = decide_time(chosen, resolve_device(device))
        _report(chosen, decision, [], results, printed, shape.layout)
        return
    study = chosen.study(profile)
    if asked := options.split_list(tasks):
        study = dataclasses.replace(study, tasks=tuple(asked))
    grid = Grid(
        _rows(study),
        profile=profile,
        tasks=study.tasks,
        overrides=(*(own for own in study.overrides if key_of(own) not in map(key_of, overrides)), *overrides),
        seeds=tuple(parse_seeds(seeds or chosen.seeds)),
        budget="paper",
    )
    if printed.asked == "terminal":
        _introduce(chosen)
    training = TrainingOptions(device=device, results=results, slots=slots, threads=threads, dry_run=dry_run)
    keep_weights = chosen.keeps_weights and not dry_run
    found = carry_out(grid, Policy(redo=force), training, keep_weights, has_tables=False, printed=printed)
    if found is not None:
        from madbench.analysis.tables import result_tables
        from madbench.principles.deciding import decide

        with Console(stderr=True).status("measuring"):
            decision = decide(chosen, study, found)
        _report(chosen, decision, result_tables(found), results, printed, shape.layout)


def _rows(study: Study) -> tuple[Row, ...]:
    axes = [[f"{key}={value}" for value in values] for key, values in (study.vary or {}).items()]
    return tuple(Row(label, changes, changes) for label in study.labels for changes in itertools.product(*axes))


def _list(printed: PrintOptions) -> None:
    if printed.asked == "json":
        about = ("number", "claim", "source", "expected", "limits")
        print_json(
            [{name: getattr(one, name) for name in about} | {"labels": one.study(QUICK).labels} for one in PRINCIPLES]
        )
        return
    console = Console(highlight=False)
    for one in PRINCIPLES:
        study = one.study(QUICK)
        console.print(f"[bold]{one.number}[/bold]  {one.claim} [dim]{one.source}[/dim]")
        if study.tasks:
            console.print(f"   {len(study.labels)} labels on {', '.join(study.tasks)}", style="cyan")


def _introduce(one: Principle) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]Principle {one.number}[/bold]  {one.claim} [dim]{one.source}[/dim]")
    console.print(f"The paper: {one.expected}.")
    if one.limits:
        console.print(one.limits, style="dim")


def _report(
    one: Principle,
    decision: Decision,
    tables: Sequence[TextTable],
    results: Path,
    printed: PrintOptions,
    layout: Layout,
) -> None:
    """Writes the figure and prints the tables and the verdicts."""
    files = write_figure(decision.draw(layout=layout), results / "plots" / f"principle_{one.number}", decision.frame)
    if printed.asked == "json":
        about = {"principle": one.number, "claim": one.claim, "expected": one.expected, "limits": one.limits}
        accuracies = [cell for table in tables for cell in table.records()]
        measured = {"measured": decision.measured.records()} if decision.measured else {}
        rows = {"rows": decision.table.records(), "cells": accuracies}
        print_json(about | {"verdicts": dict(decision.verdicts)} | rows | measured)
        return
    for i, table in enumerate(filter(None, (*tables, decision.measured, decision.table))):
        print()
        print_text_table(table, printed, i)
    if printed.asked == "terminal":
        console = Console(highlight=False)
        console.print()
        for group, verdict in decision.verdicts.items():
            console.print(f"{group}: [bold]{verdict}[/bold]")
        console.print(*files, sep="\n", **PLAIN)
