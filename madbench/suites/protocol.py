"""The protocol of a table: the settings that all its runs share, over labels and seeds.

A protocol is known from a plan, or is recognized from stored jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from madbench.config import Override
from madbench.details import Details
from madbench.errors import MadbenchError
from madbench.jobs import Budget, Fidelity, Job, Precision, content_id
from madbench.labels.budgets import COUNTINGS
from madbench.mixers import used_settings
from madbench.suites.base import Suite
from madbench.suites.corpora import StoredCorpus
from madbench.suites.overrides import Plan
from madbench.suites.planning import PlanOptions
from madbench.suites.profile import Profile, ProfileFacts, has_settings, is_rate_change, usual_settings

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

T = TypeVar("T")


@dataclass(frozen=True)
class Protocol:
    """The settings that all runs of a table share, over labels and seeds."""

    suite: Suite[Any, Any]
    profile: ProfileFacts
    profile_name: str
    overrides: tuple[Override, ...]
    """Changes to the profile."""
    tasks: Sequence[str]
    fidelity: Fidelity
    budget: Budget
    precision: Precision
    device: str = "cpu"
    corpus: Corpus | StoredCorpus | None = None

    @property
    def name(self) -> str:
        """The name of the profile and its overrides, such as ``evening training.epochs=20``."""
        return " ".join([self.profile_name, *map(str, self.overrides)])

    @property
    def title(self) -> str:
        """One line with the profile and the device.

        The line also has the fidelity if the suite has several, and the budget unless it is ``strict`` or ``paper``. If
        there is a corpus, the line begins with the title of the suite, and the corpus comes before the device.
        """
        noun = self.profile.noun
        parts = [f"{noun} {self.profile_name}"]
        if len(self.suite.fidelities) > 1:
            parts.append(self.fidelity)
        if self.budget not in COUNTINGS:
            parts.append(f"matched by {self.budget}")
        if self.corpus is not None:
            parts = [self.suite.title.lower(), *parts, f"corpus {self.corpus.name}"]
        return ", ".join([*parts, self.device])

    def plan(self, labels: Sequence[str], seeds: Sequence[int]) -> Plan:
        """Plan the jobs of ``labels`` for ``seeds``. Raises a ``MadbenchError`` if one of them could not be trained."""
        options: PlanOptions = {
            "seeds": seeds,
            "tasks": self.tasks,
            "fidelity": self.fidelity,
            "budget": self.budget,
            "precision": self.precision,
        }
        if self.corpus is not None:
            options["corpus"] = self.corpus
        return self.suite.plan(labels, self.profile.loaded, **options)

    def plans(self, job: Job) -> bool:
        """True if this protocol, planned for the label and seed of ``job``, has exactly this job (the same id).

        False if the label cannot be planned under it. The protocol may change settings that the label does not use.
        """
        try:
            return any(planned.id == job.id for planned in self.plan([job.label], [job.seed]).jobs)
        except MadbenchError:  # the label has no ranks under the profile
            return False


def recognize_protocol(suite: Suite[Any, Any], stored: Sequence[tuple[Job, Details]]) -> Protocol:
    """The protocol of stored jobs of one table, named after the nearest shipped profile.

    ``stored`` has pairs of a job and the details of its record. The protocol has the learning rates and weight decays
    of all jobs. Its other settings come from the job with the most mixer settings that are not at their defaults.
    """
    job, details = max(stored, key=lambda pair: len(changed_settings(pair[0])))
    name, changes = suite.nearest(job)
    jobs = [stored_job for stored_job, _ in stored]
    if (shipped_profile := suite.shipped().get(name)) and len(
        {protocol_id(suite, stored_job) for stored_job in jobs}
    ) > 1:
        changes = (*(change for change in changes if not is_rate_change(change)), *rate_changes(jobs, shipped_profile))
    profile = suite.profile_of(job, name, changes)
    tasks = [task for task in suite.tasks() if task in {stored_job.task for stored_job, _ in stored}]
    corpus = suite.corpus_of(job, details)
    shared = (job.fidelity, job.budget, job.training.precision, "cpu", corpus)
    return Protocol(suite, profile, name, changes, tasks, *shared)


def protocol_id(suite: Suite, job: Job) -> str:
    """A hash of all settings that runs of one table share: eight hexadecimal digits, equal on every machine."""
    return content_id(suite.shared_settings(job) | {"mixer": changed_settings(job)})[:8]


def changed_settings(job: Job) -> dict[str, Any]:
    """The mixer settings of a job that differ from the defaults of its family: name to value.

    Empty if the family is not installed.
    """
    if not has_settings(job.label):
        return {}
    usual = usual_settings(job.label)
    return {name: value for name, value in job.mixer.items() if usual.get(name) != value}


def by_protocol(suite: Suite[Any, Any], items: Iterable[T], job_of: Callable[[T], Job]) -> dict[str, list[T]]:
    """Group stored items of one suite, such as runs, by protocol. Keys are ids of protocols.

    The items of a group keep their order. ``job_of`` returns the job of an item. An item can be in several groups, by
    these rules:

    - A run belongs to its own protocol, and to every protocol that differs from it only in settings that the label of
      the run does not use.
    - Runs that differ only in learning rates and weight decays belong to one protocol, if their label was trained at
      all rates and decays of the protocol.
    - A protocol is left out if another protocol has all its runs and more.
    - If several protocols have the same runs, only the protocol with the most changed settings is kept, so that later
      runs of labels that use these settings belong to it too.
    """
    items = list(items)
    first: dict[str, Job] = {}
    ids = [protocol_id(suite, job_of(item)) for item in items]
    for name, item in zip(ids, items):
        first.setdefault(name, job_of(item))
    if len(first) < 2:
        return {name: items for name in first}  # noqa: C420  a list, which dict.fromkeys is not for
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, job in first.items():
        kinds[content_id(suite.shared_without_rates(job) | {"mixer": changed_settings(job)})].append(name)
    groups: dict[str, list[T]] = {}
    for names in sorted(kinds.values(), key=lambda names: -len(changed_settings(first[names[0]]))):
        items_of_profiles = [
            (item, {name for name in names if own_id == name or _follows(suite, job_of(item), first[name])})
            for own_id, item in zip(ids, items)
        ]
        groups |= _by_rates([(item, job_of(item), of_item) for item, of_item in items_of_profiles if of_item])
    members = {name: {job_of(item).id for item in group} for name, group in groups.items()}
    distinct = {frozenset(ids): name for name, ids in reversed(members.items())}.values()
    return {
        name: group
        for name, group in groups.items()
        if name in distinct and not any(members[name] < others for others in members.values())
    }


def _by_rates(items_of_profiles: Sequence[tuple[T, Job, set[str]]]) -> dict[str, list[T]]:
    """Group items whose protocols differ only in learning rates and weight decays. Keys are ids of protocols.

    ``items_of_profiles`` has triples of an item, its job, and the ids of the protocols to which the item belongs. At
    first, each pair of rate and decay is a protocol of its own. Labels are compared at equal rates and decays, so there
    is one group for each set of rates and decays at which a label was trained. A group has the items at these rates of
    every label that was trained at all of them. An item can be in several groups.
    """
    ids_of: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, job, names in items_of_profiles:
        ids_of[job.label][job.task] |= names
    groups = {}
    for of_label in ids_of.values():
        ids = sorted(set().union(*of_label.values()))
        name = ids[0]
        if len(ids) > 1:
            is_same = all(len(names) == len(ids) for names in of_label.values())
            name = content_id({"rates": ids if is_same else {task: sorted(of_label[task]) for task in of_label}})[:8]
        groups[name] = [
            item
            for item, job, names in items_of_profiles
            if names & (wanted := of_label.get(job.task, set())) and wanted <= ids_of[job.label][job.task]
        ]
    return groups


class RatesTried:
    """The learning rates and weight decays with which jobs were trained, and those that their profile tries."""

    def __init__(self) -> None:
        self.rates: dict[str, set[float]] = defaultdict(set)
        self.usual_rates: dict[str, set[float]] = {}
        self.decays: set[float] = set()
        self.usual_decays: set[float] = set()

    def add(self, job: Job, profile: Profile | None) -> None:
        """Add the learning rate and weight decay of ``job``, and those that ``profile`` tries on its task setting.

        If the profile is not a shipped one, ``profile`` is None. The job's own rate and decay then count as those of
        the profile.
        """
        trainings = profile.trainings_of(job) if profile else [job.training]
        self.rates[job.task].add(job.training.learning_rate)
        self.decays.add(job.training.weight_decay)
        self.usual_rates.setdefault(job.task, set()).update(training.learning_rate for training in trainings)
        self.usual_decays.update(training.weight_decay for training in trainings)

    @property
    def changes(self) -> tuple[Override, ...]:
        """The overrides with which the profile tries every learning rate and weight decay of the jobs.

        Empty if the profile already tries all of them.
        """
        usual = self.usual_rates
        unusual = {task: rates for task, rates in self.rates.items() if rates - usual[task]}
        if unusual and all(rates == self.rates[next(iter(unusual))] for rates in self.rates.values()):
            changed = {"learning_rates": next(iter(unusual.values()))}
        else:
            changed = {f"tasks.{task}.learning_rates": rates for task, rates in unusual.items()}
        if self.decays - self.usual_decays:
            changed["weight_decays"] = self.decays
        lists = {key: sorted(values) for key, values in changed.items()}
        return tuple(Override.of(key, values, f"[{','.join(map(str, values))}]") for key, values in lists.items())

    @property
    def has_usual(self) -> bool:
        """True if the jobs have every learning rate and weight decay that the profile tries."""
        usual = self.usual_rates
        return self.usual_decays <= self.decays and all(usual[task] <= self.rates[task] for task in self.rates)


def rate_changes(jobs: Iterable[Job], profile: Profile) -> tuple[Override, ...]:
    """The overrides with which ``profile`` tries every learning rate and weight decay of ``jobs``.

    Empty if the profile already tries all of them.
    """
    tried = RatesTried()
    for job in jobs:
        tried.add(job, profile)
    return tried.changes


def _follows(suite: Suite, job: Job, other: Job) -> bool:
    """True if ``job`` agrees with ``other`` in all settings that the jobs of a table share.

    The two jobs may differ in mixer settings that the label of ``job`` does not use. Their labels, seeds and tasks are
    not compared.
    """
    if suite.shared_settings(job) != suite.shared_settings(other):
        return False
    ours, theirs = changed_settings(job), changed_settings(other)
    read = used_settings(job.label) if has_settings(job.label) else ()
    return all(name not in read for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
