"""The commands that train what a report shows, as words of a shell."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from madbench.analysis.protocols import OWN, profile_changes
from madbench.config import key_of, seed_list
from madbench.experiment import PlannedRow, Protocol
from madbench.jobs import Job
from madbench.suites import LANGUAGE
from madbench.tasks import load_task

_USUAL = {
    "--profile": "quick",
    "--preset": "tiny",
    "--fidelity": "corrected",
    "--budget": "strict",
    "--results": "results",
}
"""Values that a command needs no option for."""


def train_words(
    row: PlannedRow, results: Path, labels: Sequence[str], seeds: Collection[int], tasks: Sequence[str] | None = None
) -> list[str]:
    """The command that trains labels and seeds under the protocol of ``row``, on all its tasks or on some."""
    protocol = row.protocol
    verb = ["lm", *labels] if protocol.suite is LANGUAGE else ["run", *labels, "-t", ",".join(tasks or protocol.tasks)]
    return ["madbench", *verb, "--seeds", seed_list(seeds), *protocol_words(row, results)]


def protocol_words(row: PlannedRow, results: Path) -> list[str]:
    """What ``madbench run`` or ``madbench lm`` needs to know of the protocol of ``row``."""
    name, overrides = _profile(row)
    return [*overrides, *_precision(row.protocol, overrides), *_options(row.protocol, name, results)]


def job_words(row: PlannedRow, job: Job, results: Path) -> list[str]:
    """Verb and options that train ``job`` of ``row`` alone, but for its label and seed."""
    protocol = row.protocol
    if protocol.suite is LANGUAGE:
        return ["lm", *protocol_words(row, results)]
    profile, training, of_task = protocol.profile, job.training, f"tasks.{job.task}."
    alone: list[str] = []
    if profile.difficulty == "all":
        baseline = dataclasses.asdict(load_task(job.task).baseline)
        changes = [f"{of_task}setting.{name}={value}" for name, value in job.setting.items() if value != baseline[name]]
        alone += ["difficulty=baseline", *changes]
    trainings = profile.trainings(job.task, training.precision)
    for name, key in (("learning_rate", "learning_rates"), ("weight_decay", "weight_decays")):
        if len({getattr(one, name) for one in trainings}) > 1:
            alone.append(f"{key}=[{getattr(training, name)}]")
    replaced = {key_of(word) for word in alone}
    if "learning_rates" in replaced:
        replaced.add(f"{of_task}learning_rates")
    others = [
        word
        for word in protocol.overrides
        if key_of(word) not in replaced and (word.startswith(of_task) or not word.startswith("tasks."))
    ]
    words = [*others, *alone, *_precision(protocol, others)]
    return ["run", "-t", job.task, *words, *_options(protocol, protocol.profile_name, results)]


def _profile(row: PlannedRow) -> tuple[str, Sequence[str]]:
    """A profile or preset that a command can name, and its changes."""
    protocol = row.protocol
    if protocol.profile_name != OWN:
        return protocol.profile_name, protocol.overrides
    return _USUAL["--preset"], profile_changes(row.jobs[0], protocol.suite.Profile.load(_USUAL["--preset"]))


def _precision(protocol: Protocol, overrides: Sequence[str]) -> list[str]:
    return [] if "precision" in map(key_of, overrides) else [f"precision={protocol.precision}"]


def _options(protocol: Protocol, name: str, results: Path) -> list[str]:
    corpus = protocol.corpus
    is_named = corpus is not None and corpus.folder and not corpus.name.startswith("stdlib-")
    given = {
        f"--{protocol.profile.noun}": name,
        "--fidelity": protocol.fidelity,
        "--budget": protocol.budget,
        "--corpus": str(corpus.folder) if is_named else None,
        "--results": str(results),
    }
    return option_words(given)


def option_words(given: Mapping[str, str | None]) -> list[str]:
    """The options that a command has to name, as their values are not the usual ones."""
    return [word for option, value in given.items() if value != _USUAL.get(option) for word in (option, value)]
