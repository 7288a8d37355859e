"""Training under the eyes of a user: the screen while it works, the table, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from madbench.cli.observation import observed
from madbench.cli.tables import PLAIN, print_text_table
from madbench.cli.text import count_of_jobs
from madbench.execute.base import Policy

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.analysis.rendering import TextTable
    from madbench.experiment import Experiment
    from madbench.language_experiment import LanguageExperiment


def train_and_show(
    experiment: Experiment | LanguageExperiment,
    tabulate: Callable[..., TextTable],
    table_command: str,
    console: Console,
    force: bool,
    as_json: bool,
    track: Sequence[str] = (),
    **how: Any,
) -> tuple[dict[str, Any], bool]:
    """Trains what is missing and prints the table, unless it is to be JSON or ``console`` is quiet.

    Returns the table as JSON has it, empty without a result, and whether any job failed.
    """
    try:
        with observed(experiment.jobs, experiment.title, experiment.results, console, track) as (on_event, screen):
            summary = experiment.execute(on_event, policy=Policy(redo=force), **how)
    except KeyboardInterrupt:
        rest = "what was not done again keeps its earlier result" if force else "the same command goes on from here"
        console.print(f"stopped; finished runs are in {experiment.results}, {rest}", **PLAIN)
        raise
    has_results = summary.failed + summary.busy < len(experiment.jobs)
    table = tabulate(experiment) if has_results else None
    if table and not as_json and not console.quiet:
        print_text_table(table)
        console.print(f"runs: {experiment.results}/runs    again as a table: {table_command}", **PLAIN)
    if summary.busy:
        console.print(f"{count_of_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.failed:
        console.print(f"{summary.failed} of {len(experiment.jobs)} jobs failed; the same command tries them again:")
        for job, reason in screen.failures:
            console.print(f"  {job.label} {job.task} seed {job.seed}: {reason}", **PLAIN)
    return {"caption": table.caption, "cells": table.records()} if table else {}, summary.failed > 0
