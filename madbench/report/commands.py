"""The commands that train the runs of a report, or its missing runs, as lists of words for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.config import seed_list
from madbench.jobs import Budget, Job, Record
from madbench.labels import is_shown_as_stored
from madbench.labels.budgets import budget_words
from madbench.labels.names import display_name, with_typed_labels
from madbench.rows import SuiteRow
from madbench.suites.corpora import StoredCorpus
from madbench.suites.protocol import OWN_PROFILE, Protocol

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

_USUAL = {
    "--fidelity": "corrected",
    "--tokenizer": "gpt2",
    "--dtype": "uint16",
    "--results": "results",
}
"""The default values of options, which a command need not state. The default of ``--profile`` depends on the suite."""
_MOST_NAMED = 8  # the most labels in one sentence


def train_words(
    row: SuiteRow, results: Path, labels: Sequence[str], seeds: Collection[int], tasks: Sequence[str] | None = None
) -> list[str]:
    """The command that trains labels and seeds under the protocol of ``row``, on all of its tasks or on ``tasks``."""
    protocol = row.protocol
    without_effect = _words_without_effect(protocol, labels)
    words = [word for word in protocol_words(row, results) if word not in without_effect]
    chosen = ["-t", ",".join(tasks or protocol.tasks)]
    return ["madbench", "run", *labels, *chosen, "--seeds", seed_list(seeds), *words]


def _words_without_effect(protocol: Protocol, labels: Sequence[str]) -> set[str]:
    """The overrides of a protocol that have no effect on any of the labels.

    Empty if the code of a label must not be run, because the effect of overrides is then unknown.
    """
    if not protocol.profile.overrides or any(map(is_shown_as_stored, labels)):
        return set()
    without_effect = protocol.plan(labels, [0]).without_effect
    return {word for word, of_labels in without_effect.items() if set(labels) <= of_labels.keys()}


def protocol_words(row: SuiteRow, results: Path) -> list[str]:
    """The words for ``madbench run`` that select the protocol of ``row``, without its tasks."""
    protocol = row.protocol
    name, overrides = protocol.profile_name, list(protocol.overrides)
    if name == OWN_PROFILE:
        name = protocol.suite.default
        overrides = protocol.suite.Profile.load(name).changes(row.jobs[0])
    return _words(protocol, name, overrides, results)


def job_words(row: SuiteRow, job: Job, results: Path) -> list[str]:
    """The verb and the options that train only ``job`` of ``row``, without its label and seed."""
    protocol = row.protocol
    name = protocol.profile_name
    if name == OWN_PROFILE:
        return ["run", "-t", job.task, *protocol_words(row, results)]
    alone = protocol.profile.job_words(job)
    changes = protocol.suite.Profile.load(name, alone).changes(job)
    return ["run", "-t", job.task, *_words(protocol, name, [*changes, *alone], results)]


def _words(protocol: Protocol, name: str, changes: Sequence[str], results: Path) -> list[str]:
    """The changes of the profile ``name`` and the options of the protocol."""
    is_said = protocol.suite.Profile.load(name, list(changes)).precision == protocol.precision
    precision = [] if is_said else [f"precision={protocol.precision}"]
    profile = None if name == protocol.suite.default else name
    options = option_words({"--profile": profile, "--fidelity": protocol.fidelity}, protocol.budget)
    data = option_words({**_corpus_options(protocol.corpus), "--results": str(results)})
    return [*changes, *precision, *options, *data]


def _corpus_options(corpus: Corpus | StoredCorpus | None) -> dict[str, str]:
    """The options that name the corpus of stored runs. Empty for the default corpus."""
    if not isinstance(corpus, StoredCorpus) or corpus.folder is None or corpus.name.startswith("stdlib-"):
        return {}
    return {"--corpus": str(corpus.folder), **corpus.options}


def option_words(options: Mapping[str, str | None], budget: Budget | None = None) -> list[str]:
    """The words for all options whose value is neither None nor the default, and then for the budget."""
    named = ((option, value) for option, value in options.items() if value is not None and value != _USUAL.get(option))
    words = [word for pair in named for word in pair]
    return words if budget in (None, "strict") else [*words, *budget_words(budget)]


@dataclass(frozen=True)
class Missing:
    """A missing part of the results."""

    text: str
    command: str = ""
    """The command that trains or makes the missing part. Empty if no single command does."""


def missing_runs(
    rows: Sequence[SuiteRow], asked: Sequence[str], records: Mapping[str, Record], results: Path
) -> list[Missing]:
    """The missing parts of the rows of one suite.

    They are labels without runs, seeds and jobs without a result, and labels with a single seed. ``asked`` are the
    requested labels, ``records`` the stored records by job id, and ``results`` is the store.
    """
    tasks, what = rows[0].protocol.tasks, rows[0].protocol.suite.title

    def command(labels: Collection[str], seeds: Collection[int], tasks: Sequence[str] | None = None) -> str:
        return with_typed_labels(shlex.join(train_words(rows[0], results, list(labels), seeds, tasks)))

    seeds_of = {row.name: {job.seed for job in row.jobs} for row in rows}
    seeds = sorted(set().union(*seeds_of.values()))
    missing = []
    if without := [label for label in asked if label not in seeds_of]:
        missing.append(Missing(f"No runs ({what}): {_named(without)}.", command(without, seeds)))
    jobs = [job for row in rows for job in row.jobs]
    failed = [job for job in jobs if job.id in records and records[job.id].status == "failed"]
    if lacking := [job for job in jobs if job.id not in records] + failed:
        text = f"{len(lacking):,} of {len(jobs):,} jobs ({what}) have no result"
        text += f", {len(failed):,} of them failed" if failed else ""
        labels = [label for label in seeds_of if label in {job.label for job in lacking}]
        of_tasks = [task for task in tasks if task in {job.task for job in lacking}]
        words = command(labels, {job.seed for job in lacking}, of_tasks)
        missing.append(Missing(f"{text}: {_named(labels)}.", words))
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for label, own in seeds_of.items():
        by_seeds.setdefault(tuple(seed for seed in seeds if seed not in own), []).append(label)
    for rest, labels in by_seeds.items():
        if rest:
            text = f"No seed {seed_list(rest)}, which other labels have ({what}): {_named(labels)}."
            missing.append(Missing(text, command(labels, rest)))
    if single := [label for label, own in seeds_of.items() if len(own) == 1]:
        further = command(single, [max(seeds) + 1]) if len(seeds) == 1 else ""
        missing.append(Missing(f"Single seed; excluded from tests ({what}): {_named(single)}.", further))
    return missing


def _named(labels: Sequence[str]) -> str:
    rest = len(labels) - _MOST_NAMED
    names = ", ".join(map(display_name, labels if rest <= 1 else labels[:_MOST_NAMED]))
    return f"{names} and {rest} more" if rest > 1 else names
