"""Training a sweep on the command line: the screen while it runs, the tables, and what failed."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from madbench.cli.tables import PLAIN, Format, print_text_table

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.cli.executors import Placement
    from madbench.execute.base import Policy
    from madbench.experiment import Experiment

MOST_FAILURES = 20
"""Failures that are listed; the JSON has all."""


def train_and_show(
    sweep: Experiment,
    policy: Policy,
    placement: Placement,
    gpus: list[str] | None,
    format: Format,
    console: Console,
    trackers: list[str],
) -> None:
    """Trains what is missing, prints the tables and lists the failures; exits with code 1 where there are any."""
    from madbench.analysis.sweep_table import sweep_tables
    from madbench.cli.observation import observed
    from madbench.cli.text import count_of_jobs
    from madbench.execute.failure import reason

    reasons: dict[str, str | None] = {}

    try:
        with observed(sweep.jobs, sweep.title, sweep.results, console, trackers) as (show, _):

            def on_event(event: dict[str, Any]) -> None:
                show(event)
                if event["event"] == "failed":
                    reasons[event["job"].id] = reason(event["record"])
                elif event["event"] == "skipped" and event["reason"] == "failed":
                    reasons[event["job"].id] = None

            how = {"slots": placement.slots, "executor": placement.executor, "devices": gpus}
            summary = sweep.execute(on_event, policy=policy, **how)
    except KeyboardInterrupt:
        rest = "jobs that were not retrained keep their earlier results" if policy.redo else "the same command resumes"
        console.print(f"stopped; finished runs are in {sweep.results}, {rest}", **PLAIN)
        raise
    tables = sweep_tables(sweep)
    failures = _failures(sweep, reasons)
    if format is Format.json:
        contents = {name: {"caption": table.caption, "cells": table.records()} for name, table in tables.items()}
        language = {"language_model": contents["language"]} if "language" in contents else {}
        output = contents.get("mad", {}) | language | {"failed": failures, "left": summary.left}
        print(json.dumps(output, indent=2))
    else:
        for i, table in enumerate(tables.values()):
            if i:
                print()
            print_text_table(table, format)
    if tables:
        console.print(f"runs: {sweep.results}/runs    the same command shows this again", **PLAIN)
    if summary.busy:
        console.print(f"{count_of_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.left:
        most = f"after {count_of_jobs(policy.max_failures)} had failed"
        console.print(f"{count_of_jobs(summary.left)} not started {most}; the same command trains them")
    if failures:
        console.print(f"{len(failures)} of {len(sweep.jobs)} jobs failed:")
        for failure in failures[:MOST_FAILURES]:
            where = f"{failure['row']} {failure['task']} seed {failure['seed']}"
            console.print(f"  {where}: {failure['reason']}", **PLAIN)
        if len(failures) > MOST_FAILURES:
            console.print(f"  and {len(failures) - MOST_FAILURES:,} more; --json has them all")
        words = [word for word in sys.argv[1:] if word not in ("--force", "--retry")]
        console.print(f"to retry them: {shlex.join(['madbench', *words, '--retry'])}", **PLAIN)
        raise typer.Exit(1)


def _failures(sweep: Experiment, reasons: dict[str, str | None]) -> list[dict[str, Any]]:
    """The failed jobs in the order of the rows, with the last line of the error, from the store where it is not known."""
    from madbench.execute.failure import reason
    from madbench.store.runs import Store

    stored = Store.open(sweep.results, create=False).records(job for job, why in reasons.items() if why is None)
    found: dict[str, dict[str, Any]] = {}
    for row in sweep.rows:
        for job in row.jobs:
            if job.id in reasons and job.id not in found:
                record = stored.get(job.id)
                why = reasons[job.id] or (reason(record) if record else "its record cannot be read")
                found[job.id] = {"row": row.name, "label": job.label, "task": job.task, "seed": job.seed}
                found[job.id] |= {"id": job.id, "reason": why}
    return list(found.values())
