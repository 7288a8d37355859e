"""Plans whose jobs carry only the overrides that have an effect on them. Other overrides are dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from madbench.config import Override
from madbench.errors import ConfigError, LabelError, MadbenchError, no_effect
from madbench.jobs import Budget, J
from madbench.labels import parse
from madbench.mixers import effective_settings, label_traits
from madbench.mixers.sequence import solve_blocks
from madbench.suites.planning import check_count, stored_code, unique
from madbench.suites.profile import Profile

P = TypeVar("P", bound=Profile)
MOST_NAMED = 4  # most labels in a message
TOKEN_COUNTS = ("window",)
"""Names of mixer settings that count tokens. A value above the input's length has the same effect as the length."""


@dataclass(frozen=True)
class Plan(Generic[J]):
    """Planned jobs, and the overrides that have no effect on them."""

    jobs: list[J]
    # by override, then by label: the reason why the override has no effect on the label's jobs
    without_effect: Mapping[Override, Mapping[str, str]]
    canonical: Mapping[Override, str]
    """Each override whose value is not canonical, with the text of the canonical override that it equals."""

    def checked(self) -> list[J]:
        """Return the jobs.

        Raises ``ConfigError`` if an override has no effect on any of the jobs, or if its value is not canonical
        (:meth:`check_spelling`).
        """
        for override in self.without_effect:
            check_effect(override, [self])
        self.check_spelling()
        return self.jobs

    def check_spelling(self) -> None:
        """Raise ``ConfigError`` for an override whose value is not canonical.

        The canonical value trains the same models, and the message names it.
        """
        for override, other in self.canonical.items():
            raise ConfigError(f"{override.user_word} trains the same as {other}; use {other}")

    def why_without_effect(self, key: str) -> Mapping[str, str]:
        """The reasons why the override of ``key`` has no effect on labels: label to reason.

        Labels on which it has an effect are left out.
        """
        return next((reason for override, reason in self.without_effect.items() if override.key == key), {})

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(job.label for job in self.jobs))


def check_effect(override: Override, plans: Sequence[Plan[Any]]) -> None:
    """Raise ``ConfigError`` if overriding the key of ``override`` has no effect on any label in any of the plans."""
    labels_and_reasons = [
        (label, plan.why_without_effect(override.key).get(label, "")) for plan in plans for label in plan.labels
    ]
    if labels_and_reasons and all(reason for _, reason in labels_and_reasons):
        names = [repr(label) for label in dict.fromkeys(label for label, _ in labels_and_reasons)]
        others = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise no_effect(override.user_path, f"on {', '.join(names[:MOST_NAMED])}{others}; {labels_and_reasons[0][1]}")


def drop_ineffective_overrides(
    profile: P,
    labels: Iterable[str],
    seeds: Sequence[int],
    plan: Callable[[P, Sequence[str]], list[J]],
    canonical: Callable[[J], J],
) -> Plan[J]:
    """Plan the jobs of all seeds under a profile, and drop from each job the overrides that have no effect on it.

    A job then has the same id with and without such overrides. ``plan(profile, labels)`` returns jobs of one seed,
    without duplicates. ``canonical`` is :meth:`madbench.suites.base.Suite.canonical`. Raises ``ConfigError`` for more
    jobs than one experiment may have.
    """
    overrides, labels = profile.overrides, list(labels)

    @functools.cache
    def planned(kept: tuple[Override, ...], label: str) -> dict[str, J]:
        try:
            under = plan(profile.under(kept), [label] if labels else [])
        except MadbenchError:  # other overrides need the one left out
            return {}
        return {canonical(job).id: job for job in under if job.label == label}

    def without_overrides(job: J) -> tuple[J, tuple[Override, ...], set[Override]]:
        """Drop the overrides that have no effect on a job.

        Return the job without them, the overrides that are left, and those dropped overrides that changed the id.
        """
        kept, changing = overrides, set[Override]()
        canonical_id = canonical(job).id if overrides else ""
        for override in overrides:
            fewer = tuple(other for other in kept if other != override)
            if (same := planned(fewer, job.label).get(canonical_id)) is not None:
                changing |= {override} if same.id != job.id else set()
                job, kept = same, fewer
        return job, kept, changing

    planned_jobs: list[J] = []
    deciding: dict[str, set[Override]] = {}
    changing: dict[str, set[Override]] = {}
    where = ""
    for job in plan(profile, labels):
        job, kept, identity = without_overrides(job)
        planned_jobs.append(job)
        where = f" in the {job.fidelity} fidelity" if job.fidelity != "corrected" else ""
        deciding.setdefault(job.label, set()).update(kept)
        changing.setdefault(job.label, set()).update(identity)
    without_effect: dict[Override, dict[str, str]] = {}
    for label, with_effect in deciding.items():
        for override in overrides:
            if unread := _why_unread(profile, override, label):
                without_effect.setdefault(override, {})[label] = unread
            elif override in changing[label] - with_effect:
                reason = f"its runs are the same without {override.user_word}{where}"
                without_effect.setdefault(override, {})[label] = reason
    once, each_seed = unique(planned_jobs) if overrides else planned_jobs, dict.fromkeys(seeds)
    check_count(len(once) * len(each_seed))
    jobs = [job if seed == job.seed else replace(job, seed=seed) for job in once for seed in each_seed]
    effective = [override for override in overrides if any(override in kept for kept in deciding.values())]
    return Plan(jobs, without_effect, _canonical_overrides(effective, once, canonical))


def _why_unread(profile: Profile, override: Override, label: str) -> str:
    try:
        return profile.why_unread(override, label)
    except LabelError:  # a family that is not installed; its runs are planned as stored
        if stored_code(label):
            return ""
        raise


def _canonical_overrides(
    overrides: Sequence[Override], jobs: Iterable[J], canonical: Callable[[J], J]
) -> dict[Override, str]:
    """The overrides whose number is not canonical, each with the text of the canonical override of equal effect.

    A number is canonical if the canonical form of at least one job has it. Only training settings and
    ``TOKEN_COUNTS`` are considered. An override whose canonical value is 0 is left out, since 0 stands for a value that
    depends on other settings; both values are then accepted.
    """
    forms = [(job, canonical(job)) for job in jobs] if overrides else []
    trainings = [(vars(job.training), vars(form.training)) for job, form in forms]
    mixers = [(job.mixer, form.mixer) for job, form in forms]
    others = {}
    for override in overrides:
        section, _, name = override.key.rpartition(".")
        pairs = trainings if section.endswith("training") else mixers if name in TOKEN_COUNTS else []
        if (number := _number(override.value)) is not None:
            values = [own[name] for settings, own in pairs if settings.get(name) == number and name in own]
            if values and number not in values and max(values):
                others[override] = f"{override.user_path}={max(values):g}"
    return others


def _number(value: Any) -> float | None:
    """The value of an override as a number, such as 1e6 for the text ``1e6``. None if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def canonical_job(
    job: J, width: int, max_len: int, *, redraws: bool = False, is_shorter: bool = True, **fields: Any
) -> J:
    """The canonical form of a job, for :meth:`madbench.suites.base.Suite.canonical`.

    The seed is 0. The mixer settings are replaced by the ranks that follow from them. A mixer setting is kept only if
    it changes the mixer even when the ranks are given. If the label has no heads, ``n_head`` is 1. If the label is
    planned from stored code, only the seed and ``fields`` are replaced.

    Args:
        job: the job, whose model has ``n_head``.
        width: model width of the mixers.
        max_len: largest input length of the mixers, in tokens.
        redraws: True if the model initializes the linear maps of its mixers itself.
        is_shorter: True if some inputs have fewer than ``max_len`` tokens.
        fields: fields of the job that the suite has made canonical.
    """
    job = replace(job, seed=0, **fields)
    if stored_code(job.label):
        return job
    heads = job.model.n_head
    size = getattr(job.model, "n_layer", 1), width, heads, max_len, job.budget
    mixer = _canonical_mixer(job.label, *size, tuple(job.mixer.items()), redraws, is_shorter)
    has_heads = label_traits(parse(job.label)).has_heads
    return replace(job, model=job.model if has_heads else replace(job.model, n_head=1), mixer=mixer)


@functools.cache
def _canonical_mixer(
    label: str, blocks: int, width: int, n_head: int, max_len: int, budget: Budget, settings: tuple[Any, ...],
    redraws: bool, is_shorter: bool,
) -> dict[str, Any]:  # fmt: skip
    parsed, values = parse(label), dict(settings)
    mixers = solve_blocks(parsed, blocks, width, n_head, max_len, budget, **values)
    traits = label_traits(parsed)
    unused = (traits.start_settings if redraws else ()) + (() if is_shorter else traits.shorter_settings)
    read: dict[str, Any] = {}
    for mixer, _ in mixers.kinds:
        read |= effective_settings(mixer, values)
    read |= {name: min(read[name], max_len) for name in TOKEN_COUNTS if name in read}
    return {"ranks": mixers.ranks, **{name: read[name] for name in read if name not in unused}}
