"""The base class of suites. A suite trains labels and scores them. Packages that import suites use this interface."""

from __future__ import annotations

import abc
import functools
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Unpack

from madbench.config import Override
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels import Label
from madbench.labels.budgets import BUDGETS
from madbench.mixers import Check
from madbench.suites.columns import Average, Column
from madbench.suites.corpora import CorpusSource, StoredCorpus
from madbench.suites.overrides import Plan
from madbench.suites.planning import PlanOptions
from madbench.suites.profile import Profile
from madbench.suites.training import Schedule

if TYPE_CHECKING:
    from madbench.mixers.sequence import MixerSequence
    from madbench.suites.trial import Trial
    from madbench.text.corpus import Corpus

AnyProfile: TypeAlias = Profile
"""The base class of profiles, for annotations inside :class:`Suite`, whose attribute ``Profile`` hides its name."""
MICRO_BATCH_TOKENS = 12_288
"""Default number of text tokens that go through a model at once: 12 windows of 1,024, as in nanoGPT."""
MOST_CHANGES = 6
"""The largest number of changes with which a protocol is still named after a shipped profile."""
OWN_PROFILE = "of its own"
"""The profile name of a protocol with more than ``MOST_CHANGES`` changes."""


@dataclass(frozen=True)
class JobSize:
    """The size of a job: parameters, steps and FLOPs, without early stopping.

    It is computed without building the model.
    """

    parameters: int  # trainable parameters of the whole model
    steps: int  # optimizer steps
    seq_len: int  # tokens per input
    sequences_per_step: int
    flops_per_token: float  # forward floating-point operations per token, two for each multiply-add
    trained_tokens: int
    evaluated_tokens: int
    mixers: MixerSequence | None = None  # the allocations of the model's mixers; None if the suite does not state them
    is_causal: bool = True  # False if a token sees all tokens

    @property
    def flops(self) -> float:
        """FLOPs of all steps and evaluations; a backward pass counts as two forward passes."""
        return self.flops_per_token * (3 * self.trained_tokens + self.evaluated_tokens)


class Suite(abc.ABC):
    """A way to train and score labels.

    Each suite is an instance of a subclass that sets the attributes below without a default and defines the abstract
    methods.

    The defaults fit a suite whose tasks have one column each, an accuracy in percent.
    """

    name: ClassVar[str]
    """The suite's name in jobs, and the prefix of its overrides if another suite leads and ``key`` is empty."""
    title: ClassVar[str]
    """The title in words, such as ``MAD tasks``."""
    Profile: ClassVar[type[AnyProfile]]
    """The class of the suite's profiles, read from YAML files."""
    default: ClassVar[str]
    """The name of the default profile."""
    trial: ClassVar[str]
    """``module:class`` of the suite's :class:`madbench.suites.trial.Trial`, imported with torch on first use."""
    scoring: ClassVar[str] = "madbench.suites.scoring:Scoring"
    """``module:class`` of the suite's :class:`madbench.suites.scoring.Scoring`, imported with pandas on first use."""
    reference: ClassVar[str] = ""
    """The module that runs the reference implementation for ``madbench bench training --peer``. Empty if none."""
    key: ClassVar[str] = ""
    """The suite's name in overrides, if it differs from ``name``."""
    abbreviation: ClassVar[str] = ""
    """The suite's short name in tables, if it differs from ``name``."""
    sort_order: ClassVar[int] = 100
    """The sort key of the suite among all suites, ascending."""
    measure: ClassVar[str] = "accuracy in percent"
    """The quantity that its tables show."""
    averages: ClassVar[Mapping[str, Average]] = MappingProxyType({})
    """The columns that are means over tasks, by name."""
    fidelities: ClassVar[tuple[Fidelity, ...]] = ("corrected",)
    budgets: ClassVar[tuple[Budget, ...]] = tuple(name for name, rule in BUDGETS.items() if not rule.chooses_steps)
    """The budgets under which the suite can train. If a budget chooses the number of steps, :meth:`plan` has to call
    :func:`madbench.suites.compute.with_steps`, and the schedule and the size have to use ``job.steps``."""
    logged: ClassVar[tuple[str, ...]] = ()
    """Columns that every row of a run's curve must have. A stored run without them is damaged."""
    data_package: ClassVar[str] = "madbench.tasks"
    """The package whose modules make the data of the suite's jobs."""
    keeps_weights: ClassVar[bool] = False
    """True if its runs keep their weights by default."""
    uses_all_cores: ClassVar[bool] = False
    """True if a run on the CPU uses all cores, False if it uses one core."""
    judged_by: ClassVar[tuple[str, str, str]] = ("accuracy", "acc {:.3f}", "{:.1%}")
    """The metric that is shown as a run's result, and its format strings with and without the metric's name."""
    profiles_note: ClassVar[str] = "runs: for one label and one seed"
    """The note below the list of its profiles."""
    not_inspected: ClassVar[str] = ""
    """The reason why madbench inspect cannot show its models; empty if it can."""
    file_key: ClassVar[str] = ""
    """A YAML key by which a profile file is recognized as one of this suite. If empty, the file has to name its suite.
    """
    claimed_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that claims use, whether or not a table shows them."""
    figures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The suite's own figures: ``module:value`` of a Drawing, by name."""

    @abc.abstractmethod
    def tasks(self) -> Sequence[str]:
        """The names of the suite's tasks, in the order of the columns of its table."""

    @abc.abstractmethod
    def plan(self, labels: Iterable[str], profile: AnyProfile, **options: Unpack[PlanOptions]) -> Plan:
        """Plan the jobs of labels without duplicates."""

    @abc.abstractmethod
    def canonical(self, job: Job) -> Job:
        """The canonical form of a job. Jobs train the same model, except for the seed, if their forms have the same id.

        The form is for comparison only: it may have values that no mixer accepts, and its seed is 0. The job itself
        keeps all values of its profile, even those without effect, because they are part of its id. Most suites call
        :func:`madbench.suites.overrides.canonical_job`.
        """

    @abc.abstractmethod
    def size(self, job: Job) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""

    def batch_sizes(self, job: Job) -> tuple[int, ...]:
        """The numbers of examples per optimizer step, summed over processes, without duplicates.

        A second number is the size of the last batch of an epoch, if that batch is smaller.
        """
        return (self.size(job).sequences_per_step,)

    def check_processes(self, job: Job, processes: int) -> None:
        """Raise ``ConfigError`` if a batch of the job has fewer examples than there are ``processes``."""
        fewest = min(self.batch_sizes(job))
        if fewest < processes:
            raise ConfigError(
                f"{job.task}: {processes} processes cannot share a batch of {fewest} "
                f"example{'s' if fewest > 1 else ''}; start at most {fewest}, or change training.batch_size"
            )

    def tasks_of_column(self, name: str) -> tuple[str, ...]:
        """The tasks whose runs a column of the table uses."""
        return self.averages[name].tasks if name in self.averages else (name,)

    def jobs(self, labels: Iterable[str], profile: AnyProfile, **options: Unpack[PlanOptions]) -> list[Job]:
        """The jobs of :meth:`plan`. Raises ``ConfigError`` as :meth:`madbench.suites.overrides.Plan.checked` does."""
        return self.plan(labels, profile, **options).checked()

    def schedule(self, job: Job) -> Schedule | None:
        """The learning-rate schedule of a job. None if the suite does not state it."""
        return None

    def schedule_warning(self, job: Job) -> str:
        """A warning about a job's learning-rate schedule, as a clause. Empty if there is nothing to warn of.

        An example is training that ends before the cosine does.
        """
        schedule = self.schedule(job)
        return schedule.warning if schedule else ""

    def usual_tasks(self) -> Sequence[str]:
        """The tasks that are trained by default."""
        return self.tasks()

    def labels_of(self, profile: AnyProfile, task: str) -> Sequence[str]:
        """The labels that a profile lists for a task. Empty if it lists no labels, so that any label can be trained."""
        return ()

    def about_task(self, task: str) -> str:
        """The description of a task in lists of tasks."""
        column = self.column(task)
        return column.words if column else self.title

    def about_profile(self, profile: AnyProfile) -> dict[str, Any]:
        """The row of a profile in ``madbench ls profiles``: heading to value."""
        return {"runs": int(self.check_profile(profile)[0].partition(" ")[0])}

    @property
    def address(self) -> str:
        """The suite's name in a profile's ``beside``, and in overrides if the suite is not the leading suite.

        :mod:`madbench.suites.addressing` defines the leading suite.
        """
        return self.key or self.name

    @property
    def prefix(self) -> str:
        """The prefix of the suite's overrides if the suite is not the leading suite, such as ``language_model.``."""
        return f"{self.address}."

    def fidelity_of(self, asked: Fidelity) -> Fidelity:
        """The fidelity of the suite's jobs: ``asked`` if the suite has it, otherwise the suite's default."""
        return asked if asked in self.fidelities else self.fidelities[0]

    @property
    def short(self) -> str:
        """The short name that precedes the suite's budgets and counts in a table of several suites."""
        return self.abbreviation or self.name

    @property
    def Trial(self) -> type[Trial]:
        """The suite's subclass of :class:`madbench.suites.trial.Trial`. Access imports torch.

        Raises ``ConfigError`` if the subclass lacks methods that every trial needs.
        """
        trial = pkgutil.resolve_name(self.trial)
        if lacking := sorted(getattr(trial, "__abstractmethods__", ())):
            raise ConfigError(f"suite {self.name!r}: its trial {self.trial} lacks {', '.join(lacking)}")
        return trial

    def column(self, name: str) -> Column | None:
        """The column of a task, an average or another quantity. None if the suite has no such column."""
        if average := self.averages.get(name):
            return replace(self.task_column(average.tasks[0]), name=name, heading=average.heading, title=average.title)
        return self.task_column(name) if name in self.tasks() else None

    def task_column(self, task: str) -> Column:
        """The column of a task."""
        return Column.accuracy(task, task.replace("_", " "))

    def columns(self, tasks: Iterable[str]) -> list[Column]:
        """The columns of the tasks, in their order. An average follows its last task if all its tasks are given."""
        names = list(tasks)
        for name, average in self.averages.items():
            if set(average.tasks) <= set(names):
                names.insert(1 + max(map(names.index, average.tasks)), name)
        return [column for name in names if (column := self.column(name))]

    def threshold_columns(self, thresholds: Iterable[float]) -> list[str]:
        """The names of the columns that count steps to thresholds. Empty if the suite has none."""
        return []

    def order(self) -> list[str]:
        """The names of the columns that do not depend on runs, in the order of the table."""
        return [column.name for column in self.columns(self.tasks())]

    def headline(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """The names of the columns by which rows of a grid are compared with the grid's baseline.

        The average over exactly these ``tasks``, if the suite has it. Otherwise the tasks, whose mean is then compared.
        """
        names = (name for name, average in self.averages.items() if set(average.tasks) == set(tasks))
        return tuple([name] if (name := next(names, None)) else tasks)

    @functools.cache  # noqa: B019  a suite lives as long as the process
    def shipped(self) -> dict[str, AnyProfile]:
        """The shipped profiles by name."""
        return {name: self.Profile.load(name) for name in self.Profile.names()}

    def nearest(self, job: Job, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[Override, ...]]:
        """The name of the shipped profile that trains the job with the fewest overrides, and these overrides.

        The precision does not count. If more than ``most_changes`` overrides are needed, the name is ``of its own`` and
        there are no overrides.
        """
        changes = {name: profile.changes(job) for name, profile in self.shipped().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return (OWN_PROFILE, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))

    def has_profile(self, name: str) -> bool:
        """True if ``name`` is the name of one of its profiles, or the path of a YAML file with one."""
        try:
            return bool(self.Profile.load(name))
        except ConfigError:
            return False

    def profile_of(self, job: Job, name: str, changes: Sequence[Override]) -> AnyProfile:
        """The profile under which a job was trained, from the result of :meth:`nearest`.

        Raises ``ConfigError`` if no shipped profile is near enough, so that the name is ``of its own``.
        """
        if name == OWN_PROFILE:
            raise ConfigError(
                f"run {job.id} of {job.label} follows no shipped {self.Profile.noun}; name its YAML file with --profile"
            )
        return self.Profile.load(name, changes)

    def shared_settings(self, job: Job) -> dict[str, Any]:
        """The settings of a job that all jobs of a table must share."""
        return self.settings_under(job, *self.nearest(job))

    def settings_under(self, job: Job, name: str, changes: Iterable[Override]) -> dict[str, Any]:
        """The settings of a job that all jobs of a table must share, if its profile is ``name`` with ``changes``.

        ``name`` and ``changes`` are the result of :meth:`nearest` for the job. If no shipped profile is near, the job's
        model and training settings take the place of the changes.
        """
        own = {"profile": name, "changes": tuple(map(str, changes))}
        own = {"model": job.model, "training": job.training} if name == OWN_PROFILE else own
        return own | {"fidelity": job.fidelity, "budget": job.budget, "precision": job.training.precision}

    def shared_without_rates(self, job: Job) -> dict[str, Any]:
        """:meth:`shared_settings` without the learning rates and weight decays, if the suite's profiles try several."""
        return self.shared_settings(job)

    def job_setting(self, job: Job) -> list[str]:
        """The words for a job's setting in a list of runs: the nearest shipped profile, then the overrides of it."""
        profile, changes = self.nearest(job, most_changes=math.inf)
        return [profile, *map(str, changes)]

    def difficulty(self, task: str) -> Mapping[str, Any] | None:
        """The baseline setting of a task, as a mapping of its fields. None if the task has only one setting."""
        return None

    def result(self, metrics: Mapping[str, float], in_list: bool = False) -> str:
        """The result of a run as text (``judged_by``). Empty if the metric is missing.

        With ``in_list``, the text includes the name of the metric.
        """
        name, named, alone = self.judged_by
        return (named if in_list else alone).format(metrics[name]) if metrics.get(name) is not None else ""

    def checks(self, label: Label) -> Iterable[Check]:
        """The checks of ``madbench verify`` on a label's mixer that use the suite's own tasks."""
        return ()

    def lacks_corpus(self, profile: AnyProfile) -> bool:
        """True if jobs of the profile need a corpus of text and the profile has no default corpus."""
        return False

    def corpus_for(self, profile: AnyProfile, source: CorpusSource) -> Corpus | None:
        """The corpus that jobs of the profile are trained on. None if the suite reads no text.

        Raises ``ConfigError`` if the profile cannot be trained on the corpus, or if a corpus is needed and not named.
        """
        return None

    def corpus_of(self, job: Job, details: Mapping[str, Any] = MappingProxyType({})) -> StoredCorpus | None:
        """The corpus of a job, as its record describes it. None if the suite reads no text."""
        return None

    def check_job(self, job: Job, where: str) -> None:  # noqa: B027  most suites take any
        """Raise ``ConfigError`` if a job's setting lacks a key that the suite reads.

        The message begins with ``where``.
        """

    def check_profile(self, profile: AnyProfile) -> tuple[str, set[int]]:
        """A description of a profile's runs, and the lengths of their inputs in tokens.

        Raises ``ConfigError`` if the profile has no runs.
        """
        jobs = self.plan(["S"], profile, seeds=(0,)).jobs
        return f"{len(jobs)} runs per label", {self.size(job).seq_len for job in jobs}
