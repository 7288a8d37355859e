"""A sweep under the eyes of a user: the screen while it works, the tables, and what failed."""

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
    from madbench.jobs import JobBase
    from madbench.store.runs import Store
    from madbench.sweep_experiment import Sweep

MOST_FAILURES = 20
"""Failures that are listed; the JSON has all."""


def train_and_show(
    sweep: Sweep,
    policy: Policy,
    placement: Placement,
    gpus: list[str] | None,
    format: Format,
    console: Console,
    trackers: list[str],
) -> None:
    from madbench.cli.observation import observed
    from madbench.cli.text import count_of_jobs
    from madbench.execute.failure import reason

    failed: dict[str, str | None] = {}

    try:
        with observed(sweep.jobs, sweep.title, sweep.results, console, trackers) as (show, _):

            def on_event(event: dict[str, Any]) -> None:
                show(event)
                if event["event"] == "failed":
                    failed[event["job"].id] = reason(event["record"])
                elif event["event"] == "skipped" and event["reason"] == "failed":
                    failed[event["job"].id] = None

            how = {"slots": placement.slots, "executor": placement.executor, "devices": gpus}
            summary = sweep.execute(on_event, policy=policy, **how)
    except KeyboardInterrupt:
        rest = (
            "what was not done again keeps its earlier result" if policy.redo else "the same command goes on from here"
        )
        console.print(f"stopped; finished runs are in {sweep.results}, {rest}", **PLAIN)
        raise
    tables = sweep.tabulate()
    failures = _failures(sweep, failed)
    if format is Format.json:
        content = [{"caption": table.caption, "cells": table.records()} for table in tables]
        of_mad = content.pop(0) if tables and tables[0].shown != "loss_l5" else {}
        language = {"language_model": content[0]} if content else {}
        print(json.dumps(of_mad | language | {"failed": failures, "left": summary.left}, indent=2))
    else:
        for i, table in enumerate(tables):
            if i:
                print()
            print_text_table(table, format)
    if tables:
        console.print(f"runs: {sweep.results}/runs    the same command shows this again", **PLAIN)
    if summary.busy:
        console.print(f"{count_of_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.left:
        most = f"after {count_of_jobs(policy.max_failures)} had failed"
        console.print(f"{count_of_jobs(summary.left)} not started {most}; the same command goes on with them")
    if failures:
        console.print(f"{len(failures)} of {len(sweep.jobs)} jobs failed:")
        for failure in failures[:MOST_FAILURES]:
            where = f"{failure['row']} {failure['task']} seed {failure['seed']}"
            console.print(f"  {where}: {failure['reason']}", **PLAIN)
        if len(failures) > MOST_FAILURES:
            console.print(f"  and {len(failures) - MOST_FAILURES:,} more; --json has them all")
        console.print(f"to try them again: {_again()}", **PLAIN)
        raise typer.Exit(1)


def _failures(sweep: Sweep, failed: dict[str, str | None]) -> list[dict[str, Any]]:
    """The failed jobs in the order of the rows, with the last line of the error, from the store where it is not known."""
    from madbench.store.runs import Store

    store = Store.open(sweep.results, create=False)
    found: dict[str, dict[str, Any]] = {}
    for row in [*sweep.mad, *sweep.language]:
        for job in row.jobs:
            if job.id in failed and job.id not in found:
                why = failed[job.id] or _stored_reason(store, job)
                found[job.id] = {"row": row.row.name, "label": job.label, "task": job.task, "seed": job.seed}
                found[job.id] |= {"id": job.id, "reason": why}
    return list(found.values())


def _stored_reason(store: Store, job: JobBase) -> str:
    from madbench.errors import StoreError
    from madbench.execute.failure import reason

    try:
        return reason(store.read(job.id).record)
    except StoreError as problem:
        return str(problem)


def _again() -> str:
    """The command that was given, with --retry."""
    words = [word for word in sys.argv[1:] if word not in ("--force", "--retry")]
    return shlex.join(["madbench", *words, "--retry"])
