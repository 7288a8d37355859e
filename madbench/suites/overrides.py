"""Which overrides of a profile decide something of which jobs: a job never has one that decides nothing about it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from madbench.config import key_of, parse_override
from madbench.errors import ConfigError, LabelError, MadbenchError
from madbench.jobs import Budget, Job
from madbench.labels import parse
from madbench.mixers import effective_settings, label_traits, solve
from madbench.suites.planning import check_count, stored_code, unique
from madbench.suites.profile import Profile

MOST_NAMED = 4  # labels of a message


@dataclass(frozen=True)
class Plan:
    """Jobs under the overrides that decide something about them."""

    jobs: list[Job]
    idle: Mapping[str, Mapping[str, str]]  # overrides that decide nothing of any job of a label, and why, by label
    respelled: Mapping[str, str]  # overrides that train what another value of theirs does, and that one

    def checked(self) -> list[Job]:
        """The jobs; ``ConfigError`` for an override that decides nothing about any of them, or has another spelling."""
        for word in self.idle:
            check_idle(key_of(word), [self])
        self.check_spelling()
        return self.jobs

    def check_spelling(self) -> None:
        """Raises ``ConfigError`` for an override that has another spelling."""
        for word, other in self.respelled.items():
            raise ConfigError(f"{word} has no effect that {other} does not have, which is the one spelling of it")

    def why_idle(self, key: str) -> Mapping[str, str]:
        """Why the override of a key decides nothing, by label."""
        return next((why for word, why in self.idle.items() if key_of(word) == key), {})

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(job.label for job in self.jobs))


def check_idle(key: str, plans: Sequence[Plan]) -> None:
    """Raises ``ConfigError`` if no override of a key decides anything about a job of plans that all have one."""
    why = [(label, plan.why_idle(key).get(label, "")) for plan in plans for label in plan.labels]
    if why and all(reason for _, reason in why):
        names = [repr(label) for label in dict.fromkeys(label for label, _ in why)]
        others = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise ConfigError(f"{key} has no effect on {', '.join(names[:MOST_NAMED])}{others}; {why[0][1]}")


def decided(
    profile: Profile,
    labels: Iterable[str],
    seeds: Sequence[int],
    plan: Callable[[Profile, Sequence[str]], list[Job]],
    trained: Callable[[Job], Hashable],
    spelled: Callable[[Job], Mapping[str, Any]] = lambda job: {},
) -> Plan:
    """The jobs of ``plan(profile, labels)`` for every seed, each without the overrides that decide nothing about it.

    So a job has the identity that it has without them. ``plan`` gives each job once. ``trained(job)`` is equal for two
    jobs that train the same but for the seed. ``spelled(job)`` are training settings of which several values train the
    same, each at the one that stands for them. Raises ``ConfigError`` for too many jobs.
    """
    words, labels = profile.overrides, list(labels)

    @functools.cache
    def planned(kept: tuple[str, ...], label: str) -> dict[Hashable, Job]:
        try:
            under = plan(profile.under(kept), [label] if labels else [])
        except MadbenchError:  # the others need the one that is left out
            return {}
        return {trained(job): job for job in under if job.label == label}

    def without_idle(job: Job) -> tuple[Job, tuple[str, ...], set[str]]:
        """The job, the overrides that decide something about it, and those of the others that change its identity."""
        kept, changing = words, set()
        what = trained(job) if words else None
        for word in words:
            fewer = tuple(other for other in kept if other != word)
            if (same := planned(fewer, job.label).get(what)) is not None:
                changing |= {word} if same.id != job.id else set()
                job, kept = same, fewer
        return job, kept, changing

    planned_jobs, deciding, changing, where = [], {}, {}, ""
    for job in plan(profile, labels):
        job, kept, identity = without_idle(job)
        planned_jobs.append(job)
        where = f" in the {job.fidelity} fidelity" if job.fidelity != "corrected" else ""
        deciding.setdefault(job.label, set()).update(kept)
        changing.setdefault(job.label, set()).update(identity)
    idle: dict[str, dict[str, str]] = {}
    for label, kept in deciding.items():
        for word in words:
            if unread := _why_unread(profile, word, label):
                idle.setdefault(word, {})[label] = unread
            elif word in changing[label] - kept:
                idle.setdefault(word, {})[label] = f"its runs are the same without {word}{where}"
    once, seeds = unique(planned_jobs) if words else planned_jobs, dict.fromkeys(seeds)
    check_count(len(once) * len(seeds))
    jobs = [job if seed == job.seed else replace(job, seed=seed) for job in once for seed in seeds]
    return Plan(jobs, idle, _respelled(words, once, spelled))


def _why_unread(profile: Profile, word: str, label: str) -> str:
    try:
        return profile.why_unread(word, label)
    except LabelError:  # of a family that is not installed, whose runs are planned as they are stored
        if stored_code(label):
            return ""
        raise


def _respelled(
    words: Sequence[str], jobs: Iterable[Job], spelled: Callable[[Job], Mapping[str, Any]]
) -> dict[str, str]:
    """The overrides of training settings that every job of theirs has another spelling for, and that spelling."""
    values = [(vars(job.training), spelled(job)) for job in jobs] if words else []
    respelled = {}
    for word in words:
        key, value = parse_override(word)
        section, _, name = key.rpartition(".")
        if section.endswith("training"):
            others = [own[name] for settings, own in values if name in own and settings[name] == float(value)]
            if others and float(value) not in others:
                respelled[word] = f"{key}={max(others):g}"
    return respelled


def content(
    job: Job,
    width: int,
    max_len: int,
    changes: Mapping[str, Any] = MappingProxyType({}),
    redraws: bool = False,
    is_shorter: bool = True,
    setting: Any = None,
) -> Hashable:
    """What a job trains but for the seed; ``changes`` stand in for fields of its model and training.

    ``width`` and ``max_len`` are those of its mixers; ``redraws`` says that the model draws their linear maps anew,
    ``is_shorter`` that inputs are not all of ``max_len`` tokens.
    ``setting`` stands in for the job's where several of those are one.
    """
    identity = (job.task, job.label, job.family, job.fidelity, job.budget, job.task_source, setting or job.setting)
    settings = vars(job.model) | vars(job.training) | changes
    if stored_code(job.label):
        return repr((*identity, job.mixer, settings))
    heads = settings.pop("n_head")
    mixer = _mixer(job.label, width, heads, max_len, job.budget, tuple(job.mixer.items()), redraws, is_shorter)
    return repr((*identity, mixer, heads if label_traits(parse(job.label)).has_heads else 0, settings))


@functools.cache
def _mixer(
    label: str, width: int, n_head: int, max_len: int, budget: Budget, settings: tuple[Any, ...], redraws: bool,
    is_shorter: bool,
) -> Hashable:  # fmt: skip
    """What decides a mixer beside its label and size: its ranks, and the settings that it reads otherwise."""
    parsed, values = parse(label), dict(settings)
    allocation = solve(parsed, width, n_head, max_len, budget, **values)
    traits = label_traits(parsed)
    idle = traits.start_settings * redraws + traits.shorter_settings * (not is_shorter)
    read = effective_settings(allocation, values)
    return *allocation.ranks.items(), *(item for item in read.items() if item[0] not in idle)
