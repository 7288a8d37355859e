"""The missing parts of a report, such as runs or figures, with commands that train or make them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from madbench.config import seed_list
from madbench.experiment.commands import train_words
from madbench.jobs import Record
from madbench.labels.names import display_name, with_typed_labels
from madbench.rows import SuiteRow

_MOST_NAMED = 8  # the most labels in one sentence


@dataclass(frozen=True)
class Missing:
    """Something that a report lacks, such as runs or a figure, described in a sentence."""

    text: str
    command: str = ""
    """The command that trains or makes the missing part. Empty if no single command does."""


def missing_runs(
    rows: Sequence[SuiteRow], requested_labels: Sequence[str], records: Mapping[str, Record], results: Path
) -> list[Missing]:
    """The missing parts of the results of one suite, with commands that train them.

    These are requested labels without runs, jobs without a result, seeds that some labels have and others lack, and
    labels with a single seed.

    Args:
        rows: the rows of the suite, at least one.
        requested_labels: the labels that the report is about.
        records: the stored records by job id.
        results: the folder of the store.
    """
    tasks, what = rows[0].protocol.tasks, rows[0].protocol.suite.title

    def command(labels: Collection[str], seeds: Collection[int], tasks: Sequence[str] | None = None) -> str:
        return with_typed_labels(shlex.join(train_words(rows[0], results, list(labels), seeds, tasks)))

    seeds_of = {row.name: {job.seed for job in row.jobs} for row in rows}
    seeds = sorted(set().union(*seeds_of.values()))
    missing = []
    if labels_without_runs := [label for label in requested_labels if label not in seeds_of]:
        missing.append(
            Missing(f"No runs ({what}): {_label_list(labels_without_runs)}.", command(labels_without_runs, seeds))
        )
    jobs = [job for row in rows for job in row.jobs]
    failed = [job for job in jobs if job.id in records and records[job.id].status == "failed"]
    if lacking := [job for job in jobs if job.id not in records] + failed:
        text = f"{len(lacking):,} of {len(jobs):,} jobs ({what}) have no result"
        text += f", {len(failed):,} of them failed" if failed else ""
        labels = [label for label in seeds_of if label in {job.label for job in lacking}]
        of_tasks = [task for task in tasks if task in {job.task for job in lacking}]
        words = command(labels, {job.seed for job in lacking}, of_tasks)
        missing.append(Missing(f"{text}: {_label_list(labels)}.", words))
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for label, present_seeds in seeds_of.items():
        by_seeds.setdefault(tuple(seed for seed in seeds if seed not in present_seeds), []).append(label)
    for missing_seeds, labels in by_seeds.items():
        if missing_seeds:
            text = f"No seed {seed_list(missing_seeds)}, which other labels have ({what}): {_label_list(labels)}."
            missing.append(Missing(text, command(labels, missing_seeds)))
    with_results = {job.label for job in jobs if job.id in records and records[job.id].status != "failed"}
    if single := [label for label in seeds_of if len(seeds_of[label]) == 1 and label in with_results]:
        further = command(single, [max(seeds) + 1]) if len(seeds) == 1 else ""
        missing.append(Missing(f"Single seed; excluded from tests ({what}): {_label_list(single)}.", further))
    return missing


def _label_list(labels: Sequence[str]) -> str:
    hidden_count = len(labels) - _MOST_NAMED
    names = ", ".join(map(display_name, labels if hidden_count <= 1 else labels[:_MOST_NAMED]))
    return f"{names} and {hidden_count} more" if hidden_count > 1 else names
