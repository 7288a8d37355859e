"""The protocols of stored runs, recognised from the jobs alone. Runs of two protocols never share a table."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.errors import ConfigError, MadbenchError
from madbench.experiment import Protocol
from madbench.jobs import Job, content_id
from madbench.labels import family_of
from madbench.mixers import used_settings
from madbench.store.runs import Run
from madbench.suites import INTERACTIONS, LANGUAGE, MAD, Suite, suite_of
from madbench.suites.base import Profile
from madbench.suites.language import TASK
from madbench.text.manifest import AS_FOUND

PUBLISHED_VOCABULARY = 50304  # GPT-2's, as padded for the paper's runs

MOST_CHANGES = 6  # beyond which a protocol is not called after a shipped profile
OWN = "of its own"
_RATES = ("learning_rates=", "weight_decays=")
_VARIANT = ("embedding", "control")  # settings in which runs of interactions under one profile differ


@dataclass(frozen=True)
class StoredCorpus:
    """A corpus as a record describes it; its tokens need not be there."""

    digest: str
    padded_vocab_size: int
    description: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.description.get("name", self.digest)

    @property
    def folder(self) -> Path | None:
        """Where it was when the run was trained."""
        return Path(self.description["folder"]) if "folder" in self.description else None

    @property
    def options(self) -> dict[str, str]:
        """What a command has to say beside the folder: of token files of another program, what their ids are."""
        known = self.description if self.description.get("split_rule") == AS_FOUND else {}
        return {f"--{name}": known[name] for name in ("tokenizer", "dtype") if name in known}


@functools.cache
def shipped_profiles(suite: Suite) -> dict[str, Profile]:
    """The suite's profiles by name."""
    return {name: suite.Profile.load(name) for name in suite.Profile.names()}


def nearest_profile(job: Job, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[str, ...]]:
    """The shipped profile nearest to what the job trains, and the changes that make it so, but for the precision.

    The profile is ``of its own`` where there are more changes than a name should have.
    """
    changes = {name: profile_changes(job, profile) for name, profile in shipped_profiles(suite_of(job)).items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    return (OWN, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))


def profile_changes(job: Job, profile: Profile) -> list[str]:
    """The overrides with which ``profile`` trains the job, but for a precision that depends on the machine."""
    usual, precision = _default_settings(job.label), job.training.precision
    of_mixer = _changes("model", usual | job.mixer, usual | profile.mixer_settings(job.label))
    if suite_of(job) is INTERACTIONS:
        setting = profile.settings(job.task)[0] | {name: job.setting[name] for name in _VARIANT if name in job.setting}
        changes = _changes(f"tasks.{job.task}.setting", job.setting, setting)
        training = vars(profile.training_config(job.task, job.setting)) | {"precision": precision}
        changes += _changes("training", vars(job.training), training)
        changes += [f"precision={precision}"] * (precision != profile.precision)
        heads = {"n_head": profile.plan(job.task).heads.get(job.label, 1)}
        return changes + _changes("model", vars(job.model), heads) + of_mixer
    changes = _changes("model", vars(job.model), vars(profile.model_config())) + of_mixer
    if suite_of(job) is LANGUAGE:
        return changes + _changes("training", vars(job.training), vars(profile.training_config(precision)))
    trainings = profile.trainings(job.task, precision)
    rates = {name: getattr(job.training, name) for name in ("learning_rate", "weight_decay")}
    changes += _changes("training", vars(job.training), vars(trainings[0]) | rates)
    for name, value in rates.items():
        if value not in [getattr(training, name) for training in trainings]:
            changes.append(f"{name}s=[{value:g}]")
    settings = profile.settings(job.task)
    if job.setting not in settings:
        changes += _changes(f"tasks.{job.task}.setting", job.setting, settings[0])
    return changes


def interaction_change(job: Job) -> list[str]:
    """The shipped profile of interactions nearest to a job, its variant of the task, and what else the job changes."""
    nearest, changes = nearest_profile(job, most_changes=math.inf)
    return [nearest, *(job.setting[name] for name in _VARIANT if job.setting.get(name)), *changes]


def trains(profile: Profile, job: Job) -> bool:
    """Whether ``profile`` trains the job; ``auto`` precision is either."""
    try:
        return profile.precision in ("auto", job.training.precision) and not profile_changes(job, profile)
    except ConfigError:  # a setting that the job's family does not have
        return False


def plans(profile: Profile, job: Job) -> bool:
    """Whether a preset plans the language-model job, of which it may have changes that the label does not read."""
    corpus = StoredCorpus(job.setting["corpus"], job.setting["vocab_size"], {})
    how = {"seeds": [job.seed], "budget": job.budget, "precision": job.training.precision}
    try:
        return any(one.id == job.id for one in LANGUAGE.plan([job.label], profile, corpus=corpus, **how).jobs)
    except MadbenchError:  # it has no ranks under the preset
        return False


def _changes(section: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [f"{section}.{name}={value}" for name, value in ours.items() if theirs.get(name) != value]


def language_protocol_id(job: Job) -> str:
    """8 hexadecimal digits of everything that language models of one table share, the same on every machine."""
    shared = {name: getattr(job, name) for name in ("setting", "model", "training", "budget")}
    return content_id(shared | {"mixer": changed_settings(job)})[:8]


def changed_settings(job: Job) -> dict[str, Any]:
    """The settings of the job's mixer that are not the defaults of its family."""
    usual = _default_settings(job.label)
    return {name: value for name, value in job.mixer.items() if usual.get(name) != value}


@functools.cache
def _default_settings(label: str) -> dict[str, Any]:
    return dataclasses.asdict(family_of(label).Settings())


def language_protocol(*runs: Run) -> Protocol:
    """The protocol that language-model runs follow, its preset named after the nearest one that is shipped.

    That of several is the one of a run whose label reads most of the settings that are changed.
    """
    run = max(runs, key=lambda run: len(changed_settings(run.job)))
    job = run.job
    name, changes = nearest_profile(job)
    training = {key: value for key, value in vars(job.training).items() if key != "precision"}
    vocab_size = job.setting["vocab_size"]
    shipped = shipped_profiles(LANGUAGE).get(name) if not changes and vocab_size == PUBLISHED_VOCABULARY else None
    profile = LANGUAGE.Profile(
        description="",
        comparable_with_paper=shipped is not None and shipped.comparable_with_paper,
        precision=job.training.precision,
        model=vars(job.model) | changed_settings(job),
        training=training,
    )
    corpus = StoredCorpus(job.setting["corpus"], vocab_size, run.record.details.get("corpus", {}))
    shared = (job.fidelity, job.budget, job.training.precision, "cpu", corpus)
    return Protocol(LANGUAGE, profile, name, changes, [TASK], *shared)


def describe(*runs: Run) -> str:
    """The protocol of language-model runs in a line."""
    protocol = language_protocol(*runs)
    preset, corpus = " ".join([protocol.profile_name, *protocol.overrides]), protocol.corpus
    about = f"corpus {corpus.name} ({corpus.digest[:8]}), preset {preset}"
    return f"{about}, {protocol.precision}, budget {protocol.budget}"


def by_protocol(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Language-model runs by the id of their protocol, in their order.

    A run follows every protocol that differs from its own in settings alone that its label does not read; a protocol
    whose runs all follow another one is none of its own.
    """
    runs, first = list(runs), {}
    ids = [language_protocol_id(run.job) for run in runs]
    for name, run in zip(ids, runs):
        first.setdefault(name, run.job)
    if len(first) < 2:
        return {name: runs for name in first}
    found = {
        name: [run for own, run in zip(ids, runs) if own == name or _follows(run.job, job)]
        for name, job in first.items()
    }
    members = {name: {run.job.id for run in group} for name, group in found.items()}
    return {
        name: group for name, group in found.items() if not any(members[name] < others for others in members.values())
    }


def _follows(job: Job, other: Job) -> bool:
    """Whether a job differs from one of another label in settings of mixers alone that its own label does not read."""
    shared = ("setting", "model", "training", "budget")
    if any(getattr(job, name) != getattr(other, name) for name in shared):
        return False
    ours, theirs = changed_settings(job), changed_settings(other)
    read = used_settings(job.label)
    return all(name not in read for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def check_one_protocol(runs: Sequence[Run]) -> None:
    """Raises ``ConfigError`` for language-model runs of several protocols, which it lists."""
    if (count := len(by_protocol(runs))) > 1:
        raise ConfigError(
            f"the runs follow {count} protocols, which cannot be compared; choose one with --protocol ID, or with "
            "what tells it apart (--corpus, --preset, KEY=VALUE, --budget):\n" + protocol_list(runs)
        )


def protocol_list(runs: Iterable[Run]) -> str:
    """A line a protocol of language-model runs: its id, what it is, and its labels."""
    return "\n".join(
        f"  {protocol}  {describe(*found)}: {some(run.job.label for run in found)}"
        for protocol, found in by_protocol(runs).items()
    )


def mad_protocol_list(jobs: Iterable[Job], results: Path) -> str:
    """A line a protocol of MAD jobs: the command that shows it, and its labels.

    Of a label that was tried at other rates than its profile's the command has all of them; the profile itself has a
    line where the label was tried at all of its rates too.
    """
    alike = defaultdict(list)
    for job in jobs:
        key = (job.task, job.fidelity, job.budget, str(job.setting), str(job.mixer), job.model, job.training)
        alike[key].append(job)
    tried: dict[tuple[str, ...], dict[str, _Tried]] = defaultdict(lambda: defaultdict(_Tried))
    for found in alike.values():
        job = found[0]
        name, changes = nearest_profile(job)
        chosen = name if name != OWN else f"YAML with model.d_model={job.model.d_model}"
        others = [change for change in changes if not change.startswith(_RATES)]
        others += [f"precision={job.training.precision}", "--profile", chosen]
        words = (*others, "--fidelity", job.fidelity, "--budget", job.budget)
        for label in {one.label for one in found}:
            tried[words][label].add(job, shipped_profiles(MAD).get(name))
    where = ["--results", str(results)] if results != Path("results") else []
    labels: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for words, of_label in tried.items():
        for label, rates in of_label.items():
            for overrides in rates.overrides:
                labels[(*overrides, *words)].append(label)
    return "\n".join(
        f"  {shlex.join(['madbench', 'table', *words, *where])}: {some(found)}" for words, found in labels.items()
    )


class _Tried:
    """The learning rates and weight decays at which a label was tried, by task, beside those of a profile."""

    def __init__(self):
        self.rates: dict[str, set[float]] = defaultdict(set)
        self.usual_rates: dict[str, set[float]] = {}
        self.decays: set[float] = set()
        self.usual_decays: set[float] = set()

    def add(self, job: Job, profile: Profile | None) -> None:
        """Adds what ``job`` was tried at; of ``profile``, unless it is none that is shipped, what it tries."""
        trainings = profile.trainings(job.task, job.training.precision) if profile else [job.training]
        self.rates[job.task].add(job.training.learning_rate)
        self.decays.add(job.training.weight_decay)
        self.usual_rates.setdefault(job.task, set()).update(one.learning_rate for one in trainings)
        self.usual_decays.update(one.weight_decay for one in trainings)

    @property
    def overrides(self) -> list[tuple[str, ...]]:
        """The changes of the profile that show all of it, and none where all that the profile tries is there too."""
        usual = self.usual_rates
        unusual = {task: rates for task, rates in self.rates.items() if rates - usual[task]}
        if unusual and all(rates == self.rates[next(iter(unusual))] for rates in self.rates.values()):
            changed = {"learning_rates": next(iter(unusual.values()))}
        else:
            changed = {f"tasks.{task}.learning_rates": rates for task, rates in unusual.items()}
        if self.decays - self.usual_decays:
            changed["weight_decays"] = self.decays
        changes = tuple(f"{key}=[{','.join(map(str, sorted(values)))}]" for key, values in changed.items())
        is_whole = self.usual_decays <= self.decays and all(usual[task] <= self.rates[task] for task in self.rates)
        return [()] * (is_whole or not changes) + [changes] * bool(changes)


def some(labels: Iterable[str], most: int = 4) -> str:
    """The labels, each once, or the first of them and the number of the others."""
    found = sorted(set(labels))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
