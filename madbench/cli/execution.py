"""Carrying out a grid on the command line: its plan, or the training with its screen, tables and failures."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from madbench.cli.options import TrainingOptions, parse_trackers
from madbench.cli.plan import make_plan, print_plan
from madbench.cli.progress import observed
from madbench.cli.tables import PLAIN, Format, print_text_table
from madbench.cli.text import count_of_jobs, first_of
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from madbench.execute.base import Executor, Policy
    from madbench.experiment import Experiment
    from madbench.grid import Grid
    from madbench.store.runs import Store

MOST_FAILURES = 20
"""Failures that are listed; the JSON has all."""


def carry_out(
    grid: Grid,
    policy: Policy,
    options: TrainingOptions,
    *,
    executor: Executor | None = None,
    devices: list[str] | None = None,
    details: bool = False,
    has_baseline: bool = False,
    format: Format = Format.terminal,
) -> None:
    """Prepares the grid, then prints its plan, or trains it and prints its tables.

    With ``has_baseline`` rows are compared with the first one. Exits with code 1 where jobs failed. Under torchrun only
    the first process prints.
    """
    from madbench.experiment import prepare
    from madbench.training.distributed import is_first

    if details and not options.dry_run:
        raise ConfigError("--details has no effect without --dry-run")
    if options.tokenizer is not None and options.corpus is None:
        raise ConfigError(f"--tokenizer {options.tokenizer}: has no effect without --corpus")
    track = parse_trackers(options.track)
    console = Console(stderr=True, quiet=not is_first())
    with console.status("opening the corpus and planning"):
        where = {name: getattr(options, name) for name in ("device", "results", "corpus", "tokenizer")}
        experiment = prepare(grid, is_remote=executor is not None, **where)
    if format is Format.csv and len(experiment.suites) > 1:
        raise ConfigError("--format csv is for one table; choose the MAD tasks or language_model with --tasks")
    for note in experiment.notes:
        console.print(note, **PLAIN)
    how = {"slots": options.slots, "devices": devices, "micro_batch": options.micro_batch}
    if not options.dry_run:
        how |= {"executor": executor, "compile": options.compile}
        train_and_show(experiment, policy, console, format, has_baseline, track, **how)
    elif is_first():
        plan = make_plan(experiment, policy, console, details=details, **how)
        if format is Format.json:
            print(json.dumps(plan, indent=2))
        else:
            print_plan(experiment, plan, by_task=not has_baseline)


def train_and_show(
    experiment: Experiment,
    policy: Policy,
    console: Console,
    format: Format,
    has_baseline: bool,
    track: Sequence[str],
    **how: Any,
) -> None:
    """Trains what is missing, prints the tables and lists the failures; exits with code 1 where there are any."""
    from madbench.analysis.results import Results
    from madbench.analysis.tables import result_tables
    from madbench.store.runs import Snapshot
    from madbench.suites import LANGUAGE

    results = experiment.results
    try:
        with observed(experiment.jobs, experiment.title, results, console, track) as (on_event, screen):
            summary = experiment.execute(on_event, policy=policy, **how)
    except KeyboardInterrupt:
        rest = "jobs that were not retrained keep their earlier results" if policy.redo else "the same command resumes"
        console.print(f"stopped; finished runs are in {results}, {rest}", **PLAIN)
        raise
    if console.quiet:
        return
    store = Snapshot.open(results, create=False)
    tables = result_tables(Results(experiment, store), has_baseline)
    failures = _failures(experiment, store, {job.id: why for job, why in screen.failures})
    if format is Format.json:
        output: dict[str, Any] = {}
        for table in tables:
            content = {"caption": table.caption, "cells": table.records()}
            output |= {"language_model": content} if LANGUAGE in table.suites else content
        print(json.dumps(output | {"failed": failures, "left": summary.left}, indent=2))
    for i, table in enumerate(tables if format is not Format.json else ()):
        print(end="\n" if i else "")
        print_text_table(table, format)
    if tables:
        again = (
            "the same command shows this again" if has_baseline else f"again as a table: {table_command(experiment)}"
        )
        console.print(f"runs: {results}/runs    {again}", **PLAIN)
    if summary.busy:
        console.print(f"{count_of_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.left:
        most = f"after {count_of_jobs(policy.max_failures)} had failed"
        console.print(f"{count_of_jobs(summary.left)} not started {most}; the same command trains them")
    if failures:
        console.print(f"{len(failures)} of {len(experiment.jobs)} jobs failed:")
        lines = ["  {row} {task} seed {seed}: {reason}".format(**failure) for failure in failures]
        for line in first_of(lines, MOST_FAILURES, "  and {:,} more; --json has them all"):
            console.print(line, **PLAIN)
        words = [word for word in sys.argv[1:] if word not in ("--force", "--retry")]
        again = "the same command" if policy.retry else shlex.join(["madbench", *words, "--retry"])
        console.print(f"to retry them: {again}", **PLAIN)
        raise typer.Exit(1)


def _failures(experiment: Experiment, store: Store, reasons: dict[str, str]) -> list[dict[str, Any]]:
    """The jobs that failed now, with their ``reasons``, or are stored as failed, in the order of the rows."""
    from madbench.execute.base import reason

    stored = store.records({job.id for job in experiment.jobs})
    reasons = {name: reason(record) for name, record in stored.items() if record.status == "failed"} | reasons
    found = {}
    for row in experiment.rows:
        for job in row.jobs:
            if job.id in reasons:
                names = {"row": row.name, "label": job.label, "task": job.task, "seed": job.seed}
                found.setdefault(job.id, names | {"id": job.id, "reason": reasons[job.id]})
    return list(found.values())


def table_command(experiment: Experiment) -> str:
    """The command that shows the table of rows that differ in their labels alone."""
    from madbench.report.commands import option_words
    from madbench.suites import LANGUAGE

    grid, protocol, results = experiment.grid, experiment.protocol, {"--results": str(experiment.results)}
    if experiment.suites == [LANGUAGE]:
        words = ["lm", "table", *experiment.labels, *protocol.overrides, "--corpus", protocol.corpus.digest]
        words += ["--preset", protocol.profile_name, "--budget", grid.budget]
    else:
        given = {"--profile": grid.profile, "--fidelity": grid.fidelity, "--budget": grid.budget}
        words = [
            "table",
            *grid.overrides,
            *option_words(given),
            *(["--tasks", ",".join(grid.tasks)] if grid.tasks else []),
        ]
    return shlex.join(["madbench", *words, *option_words(results)])
