"""Plans of jobs: one job for each label and each run of a profile. The number of jobs is limited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar

from madbench.errors import BudgetError, ConfigError
from madbench.jobs import BlocksSettings, Budget, Fidelity, J, Job, Precision, T, mapping_text
from madbench.labels import Label, label_identity, parse
from madbench.mixers.sequence import MixerSequence, solve_blocks
from madbench.suites.profile import Profile

if TYPE_CHECKING:
    from madbench.suites.corpora import StoredCorpus
    from madbench.text.corpus import Corpus

B = TypeVar("B", bound=BlocksSettings)
LEAST_SEEDS = 3
"""The smallest number of reported seeds per label for which tables and tests state significance."""
MOST_JOBS = 100_000
"""The largest number of jobs of one experiment."""


class PlanOptions(TypedDict, total=False):
    """The keyword arguments of :meth:`madbench.suites.base.Suite.plan`. Each suite has defaults for them."""

    seeds: Sequence[int]
    tasks: Iterable[str] | None  # None for the usual tasks of the suite
    fidelity: Fidelity
    budget: Budget
    precision: Precision
    corpus: Corpus | StoredCorpus  # only for suites that read text, which need it


@dataclass(frozen=True)
class StoredCode:
    """The identity and the settings of a label's code, taken from stored runs.

    With these, the same runs can be planned without the code.
    """

    identities: dict[str, str]
    """The identity of the label's code, by task: the field ``family`` of the label's jobs."""
    mixer: dict[str, Any]
    """The settings of the label's family: the field ``mixer`` of the label's jobs."""
    steps: dict[str, int] = field(default_factory=dict)
    """The number of steps of jobs whose budget chose it, by :func:`run_key` of the job."""

    @classmethod
    def from_jobs(cls, jobs: Sequence[Job]) -> StoredCode:
        """The stored code of a label, from stored ``jobs`` that all have this label and one version of its code."""
        steps = {run_key(job): job.steps for job in jobs if job.steps}
        return cls({job.task: job.family for job in jobs}, jobs[0].mixer, steps)

    def identity(self, task: str) -> str:
        """The identity of the label's code for a job on ``task``.

        If no run of the task is stored, the identity for another task is returned.
        """
        return self.identities.get(task, next(iter(self.identities.values())))


def run_key(job: Job) -> str:
    """A key that is equal for jobs that have the same task, task setting, model, training, fidelity and budget.

    Label, seed, learning rate, weight decay, mixer settings and code do not enter the key.
    """
    training = replace(job.training, learning_rate=0.0, weight_decay=0.0)
    return repr((job.task, mapping_text(job.setting), job.model, training, job.fidelity, job.budget))


def codes_of(jobs: Iterable[Job]) -> dict[str, StoredCode]:
    """The stored code of every label in ``jobs`` whose code is outside of this package, by label."""
    by_label: dict[str, list[Job]] = {}
    for job in jobs:
        if job.has_outside_mixer:
            by_label.setdefault(job.label, []).append(job)
    return {label: StoredCode.from_jobs(code_jobs) for label, code_jobs in by_label.items()}


_STORED_CODE: ContextVar[Mapping[str, StoredCode]] = ContextVar("stored_code", default=MappingProxyType({}))


@contextmanager
def plan_as_stored(codes: Mapping[str, StoredCode]) -> Iterator[None]:
    """A context in which the labels in ``codes`` are planned from their stored code, without importing their code.

    It is not checked that these labels meet their budgets. ``codes`` maps labels to their stored code.
    """
    token = _STORED_CODE.set(codes)
    try:
        yield
    finally:
        _STORED_CODE.reset(token)


def stored_code(label: str) -> StoredCode | None:
    """The stored code from which a label is planned inside :func:`plan_as_stored`. None if its own code is used."""
    return _STORED_CODE.get().get(label)


class PlannedRun(NamedTuple, Generic[T]):
    """A run of a profile, before it is combined with labels: the fields of a job that do not depend on its label."""

    task: str
    setting: dict[str, Any]
    max_len: int
    """The length of the longest sequence in tokens."""
    training: T
    task_source: str = ""


def plan_jobs(
    suite: str,
    labels: Iterable[str],
    profile: Profile[B],
    runs: Sequence[PlannedRun[T]],
    budget: Budget,
    fidelity: Fidelity = "corrected",
) -> list[Job[B, T]]:
    """Plan one job per label and run, with seed 0.

    ``runs`` has no duplicates. Labels that occur twice are planned once. Raises ``ConfigError`` for more jobs than one
    experiment may have. Raises ``BudgetError``, with the task in its message, if no ranks of a label meet the budget at
    the model size and sequence length. Labels with stored code (:func:`plan_as_stored`) are not checked for this.
    """
    parsed: list[str | Label] = [label if stored_code(label) else parse(label) for label in labels]
    check_count(len(parsed) * len(runs))
    model, tasks = profile.model_config(), {run.task for run in runs}
    blocks = getattr(model, "n_layer", 1)
    task_of_length = {run.max_len: run.task for run in reversed(runs)}
    jobs = []
    for name, label in {str(label): label for label in parsed}.items():
        code = stored_code(name)
        if code is None:
            mixer = profile.identifying_settings(label)
            identities = dict.fromkeys(tasks, label_identity(label))
            for length, task in task_of_length.items():
                try:
                    solve_blocks(label, blocks, model.d_model, model.n_head, length, budget, **mixer)
                except BudgetError as error:
                    raise type(error)(f"{task} at seq_len {length}: {error}") from None
        else:
            mixer, identities = code.mixer, {task: code.identity(task) for task in tasks}
        jobs += [
            Job(
                suite=suite,
                task=run.task,
                label=name,
                family=identities[run.task],
                setting=run.setting,
                model=model,
                mixer=dict(mixer),
                training=run.training,
                seed=0,
                fidelity=fidelity,
                budget=budget,
                task_source=run.task_source,
            )
            for run in runs
        ]
    return jobs


def solve_mixers(job: Job[BlocksSettings], max_len: int) -> MixerSequence:
    """The ranks and widths of the mixers of a job's model, for inputs of up to ``max_len`` tokens."""
    model = job.model
    return solve_blocks(job.label, model.n_layer, model.d_model, model.n_head, max_len, job.budget, **job.mixer)


def check_count(count: int) -> None:
    """Raise ``ConfigError`` if ``count`` jobs are more than one experiment may have."""
    if count > MOST_JOBS:
        raise ConfigError(f"{count:,} jobs; at most {MOST_JOBS:,} are allowed: fewer labels, seeds or learning rates")


def unique(jobs: Iterable[J]) -> list[J]:
    """The jobs in order. Of jobs with equal ids, only one is kept."""
    return list({job.id: job for job in jobs}.values())


def choosing_note(seeds: int) -> str:
    """A note for users: the first of ``seeds`` seeds chooses the learning rate and decay, and is not reported."""
    what = "The first seed of a label chooses among several learning rates or decays, and is not reported"
    return f"{what}: {seeds} seeds give n = {seeds - 1}."


def choosing_advice(seeds: int) -> str:
    """Advice to train ``LEAST_SEEDS + 1`` seeds, because the first seed only chooses the learning rate and decay.

    ``seeds`` is the number of all seeds of a label. Empty if it is above ``LEAST_SEEDS``.
    """
    if seeds > LEAST_SEEDS:
        return ""
    return f"Nothing is tested with n below {LEAST_SEEDS}: train {LEAST_SEEDS + 1} seeds."
