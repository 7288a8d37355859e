"""What a report does not have, and the command that would give it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from madbench.config import seed_list
from madbench.experiment import Experiment
from madbench.jobs import Record
from madbench.report.commands import run_command
from madbench.store.runs import Run

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 8  # labels in one sentence


@dataclass(frozen=True)
class Missing:
    """One thing that is not there."""

    text: str
    command: str = ""
    """What would give it; empty where no single command does."""


def missing_of_mad(
    experiment: Experiment, collected: pd.DataFrame, asked: Sequence[str], records: Mapping[str, Record]
) -> list[Missing]:
    """Labels without any run, seeds and jobs without a result, and labels of a single seed; ``records`` are by id."""
    found = []
    begun = collected.label.unique()
    seeds = sorted(collected.seed.unique().tolist())
    if without := [label for label in asked if label not in begun]:
        command = shlex.join(run_command(experiment, without, seeds))
        found.append(Missing(f"No run on the MAD tasks: {_named(without)}.", command))
    lacking = collected[collected.status.isin(["missing", "failed"])]
    if len(lacking):
        failed = sum(run_id in records for run_id in lacking.id)
        text = f"{len(lacking):,} of {len(collected):,} jobs on the MAD tasks have no result"
        text += f", {failed:,} of them failed" if failed else ""
        labels = lacking.label.unique().tolist()
        seeds_of_them, tasks = lacking.seed.unique().tolist(), lacking.task.unique().tolist()
        command = shlex.join(run_command(experiment, labels, seeds_of_them, tasks))
        found.append(Missing(f"{text}: {_named(labels)}.", command))
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for label, of_label in collected.groupby("label", sort=False):
        if rest := tuple(seed for seed in seeds if seed not in set(of_label.seed)):
            by_seeds.setdefault(rest, []).append(label)
    for rest, labels in by_seeds.items():
        text = f"Without seed{'s' * (len(rest) > 1)} {seed_list(rest)}, which other labels have: {_named(labels)}."
        found.append(Missing(text, shlex.join(run_command(experiment, labels, rest))))
    counts = collected.groupby("label", sort=False).seed.nunique()
    if single := counts[counts == 1].index.tolist():
        further = [max(seeds) + 1] if len(seeds) == 1 else seeds
        command = shlex.join(run_command(experiment, single, further)) if len(seeds) == 1 else ""
        found.append(Missing(f"One seed, which has no interval and claims nothing: {_named(single)}.", command))
    return found


def missing_of_language(runs: Sequence[Run], labels: Iterable[str], words: Sequence[str]) -> list[Missing]:
    """Labels and seeds without a language model; ``words`` are the options of the protocol for ``madbench lm``."""
    found = []
    seeds_of: dict[str, set[int]] = {}
    for run in runs:
        if run.record.status != "failed":
            seeds_of.setdefault(run.job.label, set()).add(run.job.seed)
    seeds = sorted(set().union(*seeds_of.values()))
    lacking: dict[tuple[int, ...], list[str]] = {}
    for label in labels:
        if rest := tuple(seed for seed in seeds if seed not in seeds_of.get(label, ())):
            lacking.setdefault(rest, []).append(label)
    for rest, of_rest in lacking.items():
        which = "" if list(rest) == seeds else f" with seed{'s' * (len(rest) > 1)} {seed_list(rest)}"
        command = shlex.join(["madbench", "lm", *of_rest, *words, "--seeds", seed_list(rest)])
        found.append(Missing(f"No language model{which}: {_named(of_rest)}.", command))
    if single := [label for label, of_label in seeds_of.items() if len(of_label) == 1]:
        found.append(Missing(f"A language model of one seed, which claims nothing: {_named(single)}."))
    return found


def _named(labels: Sequence[str]) -> str:
    rest = len(labels) - MOST_NAMED
    shown = ", ".join(labels if rest <= 1 else labels[:MOST_NAMED])
    return f"{shown} and {rest} more" if rest > 1 else shown
