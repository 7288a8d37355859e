"""What a report does not have, and the command that would give it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from madbench.config import seed_list
from madbench.experiment import PlannedRow
from madbench.jobs import Record
from madbench.report.commands import train_words
from madbench.report.properties import suite_title

MOST_NAMED = 8
"""Labels in one sentence."""


@dataclass(frozen=True)
class Missing:
    """One thing that is not there."""

    text: str
    command: str = ""
    """What would give it; empty where no single command does."""


def missing_runs(
    rows: Sequence[PlannedRow], asked: Sequence[str], records: Mapping[str, Record], results: Path
) -> list[Missing]:
    """Labels without any run, seeds and jobs without a result, and labels of a single seed, of one suite.

    Args:
        rows: those of the suite; at least one.
        asked: the labels that a row was asked for.
        records: what stored jobs gave, by id.
        results: folder of the store.
    """
    tasks, what = rows[0].protocol.tasks, suite_title(rows[0].protocol.suite)

    def command(labels: Collection[str], seeds: Collection[int], tasks: Sequence[str] | None = None) -> str:
        return shlex.join(train_words(rows[0], results, list(labels), seeds, tasks))

    seeds_of = {row.name: {job.seed for job in row.jobs} for row in rows}
    seeds = sorted(set().union(*seeds_of.values()))
    found = []
    if without := [label for label in asked if label not in seeds_of]:
        found.append(Missing(f"No runs ({what}): {_named(without)}.", command(without, seeds)))
    jobs = [job for row in rows for job in row.jobs]
    failed = [job for job in jobs if job.id in records and records[job.id].status == "failed"]
    if lacking := [job for job in jobs if job.id not in records] + failed:
        text = f"{len(lacking):,} of {len(jobs):,} jobs ({what}) have no result"
        text += f", {len(failed):,} of them failed" if failed else ""
        labels = [label for label in seeds_of if label in {job.label for job in lacking}]
        of_tasks = [task for task in tasks if task in {job.task for job in lacking}]
        words = command(labels, {job.seed for job in lacking}, of_tasks)
        found.append(Missing(f"{text}: {_named(labels)}.", words))
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for label, own in seeds_of.items():
        by_seeds.setdefault(tuple(seed for seed in seeds if seed not in own), []).append(label)
    for rest, labels in by_seeds.items():
        if rest:
            text = f"No seed {seed_list(rest)}, which other labels have ({what}): {_named(labels)}."
            found.append(Missing(text, command(labels, rest)))
    if single := [label for label, own in seeds_of.items() if len(own) == 1]:
        further = command(single, [max(seeds) + 1]) if len(seeds) == 1 else ""
        found.append(Missing(f"Single seed; excluded from tests ({what}): {_named(single)}.", further))
    return found


def _named(labels: Sequence[str]) -> str:
    rest = len(labels) - MOST_NAMED
    shown = ", ".join(labels if rest <= 1 else labels[:MOST_NAMED])
    return f"{shown} and {rest} more" if rest > 1 else shown
