"""What a suite is: a way to train a label and to judge it. Nothing above knows more of a suite than this."""

from __future__ import annotations

import abc
import functools
import math
import pkgutil
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels import Label
from madbench.mixers import Check
from madbench.suites.columns import ACCURACY, Average, Column
from madbench.suites.corpora import CorpusSource, StoredCorpus
from madbench.suites.overrides import Plan
from madbench.suites.profile import Profile

if TYPE_CHECKING:
    from madbench.suites.trial import Trial
    from madbench.text.corpus import Corpus

MICRO_BATCH_TOKENS = 12_288
"""Tokens of text that go through a model at once where nothing else is asked for: 12 windows of 1,024, as nanoGPT's."""
MOST_CHANGES = 6
"""Beyond which a protocol is not called after a shipped profile."""
OWN_PROFILE = "of its own"
"""The profile of such a protocol."""


@dataclass(frozen=True)
class Size:
    """What training a job takes, early stopping not counted; known without building anything."""

    parameters: int  # trainable parameters of the whole model
    steps: int  # optimiser steps
    seq_len: int  # tokens of an input
    sequences_per_step: int
    flops_per_token: float  # forward floating-point operations per token, two for each multiply-add
    trained_tokens: int
    evaluated_tokens: int

    @property
    def flops(self) -> float:
        """FLOPs of all steps and evaluations; a backward pass counts as two forward passes."""
        return self.flops_per_token * (3 * self.trained_tokens + self.evaluated_tokens)


class Suite(abc.ABC):
    """A way to train and judge labels; a suite is an instance of a subclass, which says what its values are.

    What is written here holds for any suite whose tasks have one column each, an accuracy in percent.
    """

    name: ClassVar[str]
    """In every job; also what its overrides begin with where another suite leads, unless ``key`` says otherwise."""
    title: ClassVar[str]
    """In words, such as ``MAD tasks``."""
    Profile: ClassVar[type[Profile]]
    """What a YAML file of the suite holds."""
    default: ClassVar[str]
    """The profile that is trained where none is named."""
    trial: ClassVar[str]
    """``module:class`` of its :class:`madbench.suites.trial.Trial`, loaded with torch when it is needed."""
    scoring: ClassVar[str] = "madbench.suites.scoring:Scoring"
    """``module:class`` that reads its records, loaded with pandas when it is needed."""
    reference: ClassVar[str] = ""
    """Module with the reference code of its protocol, which ``madbench bench training --peer`` times beside ours."""
    synthetic: ClassVar[str] = ""
    """``module:function`` of a made-up record of a job, for the benchmark of large stores."""
    key: ClassVar[str] = ""
    abbreviation: ClassVar[str] = ""
    place: ClassVar[int] = 100
    """Where it stands among the suites, ascending."""
    measure: ClassVar[str] = "accuracy in percent"
    """What the numbers of its tables are."""
    averages: ClassVar[Mapping[str, Average]] = MappingProxyType({})
    """Columns that are means over tasks, by name."""
    fidelities: ClassVar[tuple[Fidelity, ...]] = ("corrected",)
    budgets: ClassVar[tuple[Budget, ...]] = ("strict", "paper")
    logged: ClassVar[tuple[str, ...]] = ()
    """Columns that every row of a run's curve has, without which a stored run is damaged."""
    data_package: ClassVar[str] = "madbench.tasks"
    """The room of this package that makes the data of its jobs."""
    keeps_weights: ClassVar[bool] = False
    """True if weights stay with its runs unasked."""
    uses_all_cores: ClassVar[bool] = False
    """True if a run on the CPU takes all its cores, or one."""
    judged_by: ClassVar[tuple[str, str, str]] = ("accuracy", "acc {:.3f}", "{:.1%}")
    """The metric that a run is judged by, and as text, named and alone."""
    profiles_note: ClassVar[str] = "runs: for one label and one seed"
    """What stands below the list of its profiles."""
    not_inspected: ClassVar[str] = ""
    """Why madbench inspect has nothing to say of its models; empty if it has."""
    file_key: ClassVar[str] = ""
    """A key that tells its profiles' files from those of the suites after it; without one, a file names the suite."""
    had_unequal_shares: ClassVar[bool] = False
    """True if runs on several processes weighed the examples of a step unequally before ``equal_shares`` was stored."""
    claimed_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that a table need not have and that claims are about."""
    figures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Figures of its own beside those of every suite: ``module:value`` of a Drawing, by name."""

    @abc.abstractmethod
    def tasks(self) -> Sequence[str]:
        """Names of its tasks, in the order of its table."""

    @abc.abstractmethod
    def plan(self, labels: Iterable[str], profile: Profile, **options: Any) -> Plan:
        """The jobs of labels, none twice. ``options``: seeds, tasks, fidelity, budget, precision and corpus."""

    @abc.abstractmethod
    def trained(self, job: Job) -> Hashable:
        """What a job trains but for the seed, however its settings spell it."""

    @abc.abstractmethod
    def size(self, job: Job) -> Size:
        """What training a job takes."""

    def batch_sizes(self, job: Job) -> tuple[int, ...]:
        """Examples per optimiser step, over all processes. Two numbers if the last batch of an epoch is smaller."""
        return (self.size(job).sequences_per_step,)

    def check_processes(self, job: Job, processes: int) -> None:
        """Raise ``ConfigError`` for a job with a batch of fewer examples than ``processes`` that train together."""
        fewest = min(self.batch_sizes(job))
        if fewest < processes:
            raise ConfigError(
                f"{job.task}: {processes} processes cannot share a batch of {fewest} "
                f"example{'s' if fewest > 1 else ''}; start at most {fewest}, or change training.batch_size"
            )

    def weighs_unequally(self, job: Job, details: Mapping[str, Any]) -> bool:
        """True if the examples of a batch had unequal weights in a stored run with these details.

        Earlier versions averaged the means of processes, also if these had unequal numbers of examples.
        """
        processes = details.get("world_size", 1)
        if not self.had_unequal_shares or details.get("equal_shares") or not processes > 1:
            return False
        return any(size % processes for size in self.batch_sizes(job))

    def tasks_of_column(self, name: str) -> tuple[str, ...]:
        """The tasks whose runs a column of the table rests on."""
        return self.averages[name].tasks if name in self.averages else (name,)

    def jobs(self, labels: Iterable[str], profile: Profile, **options: Any) -> list[Job]:
        """The jobs of :meth:`plan`; ``ConfigError`` for an override that decides nothing about any of them."""
        return self.plan(labels, profile, **options).checked()

    def unreached(self, job: Job) -> str:
        """What is odd in a job's schedule of learning rates, such as an end it does not reach, as a clause."""
        return ""

    def usual_tasks(self) -> Sequence[str]:
        """The tasks that are trained where none are named."""
        return self.tasks()

    def labels_of(self, profile: Profile, task: str) -> Sequence[str]:
        """The labels that a profile trains on a task where none are named; none for a suite of any labels."""
        return ()

    def about_task(self, task: str) -> str:
        """What a task asks, for a list."""
        return self.column(task).words if self.column(task) else self.title

    def about_profile(self, profile: Profile) -> dict[str, Any]:
        """What a list of profiles says of one, by heading."""
        return {"runs": int(self.check_profile(profile)[0].partition(" ")[0])}

    @property
    def address(self) -> str:
        """The suite's name in overrides and in a profile's ``beside`` where another suite leads."""
        return self.key or self.name

    @property
    def prefix(self) -> str:
        """The beginning of its overrides where another suite leads, such as ``language_model.``."""
        return f"{self.address}."

    def fidelity_of(self, asked: Fidelity) -> Fidelity:
        """The fidelity of its jobs beside a suite that may have others: the one asked for, or its own usual one."""
        return asked if asked in self.fidelities else self.fidelities[0]

    @property
    def short(self) -> str:
        """The suite's name before budgets and counts beside those of another suite."""
        return self.abbreviation or self.name

    @property
    def Trial(self) -> type[Trial]:
        """The class that makes a job ready to train."""
        return pkgutil.resolve_name(self.trial)

    def column(self, name: str) -> Column | None:
        """The column of a task, an average or another quantity of the suite; None for none of it."""
        if average := self.averages.get(name):
            return replace(self.task_column(average.tasks[0]), name=name, heading=average.heading, title=average.title)
        return self.task_column(name) if name in self.tasks() else None

    def task_column(self, task: str) -> Column:
        """The column of a task."""
        heading = task.replace("_", " ")
        return Column(task, heading, 1, "higher", (0.0, 100.0), "-", 0.1, **ACCURACY)

    def columns(self, tasks: Iterable[str]) -> list[Column]:
        """The columns of tasks, each average behind the last of its own."""
        names = list(tasks)
        for name, average in self.averages.items():
            if set(average.tasks) <= set(names):
                names.insert(1 + max(map(names.index, average.tasks)), name)
        return [column for name in names if (column := self.column(name))]

    def threshold_columns(self, thresholds: Iterable[float]) -> list[str]:
        """The names of the columns that count steps to values, where the suite has such."""
        return []

    def order(self) -> list[str]:
        """The names of columns in the order of the table, as far as they are known beforehand."""
        return [column.name for column in self.columns(self.tasks())]

    def headline(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """The columns by which rows of a grid are compared with its baseline: one, or tasks whose mean is taken."""
        names = (name for name, average in self.averages.items() if set(average.tasks) == set(tasks))
        return tuple([name] if (name := next(names, None)) else tasks)

    @functools.cache  # noqa: B019  a suite lives as long as the process
    def shipped(self) -> dict[str, Profile]:
        """The shipped profiles by name."""
        return {name: self.Profile.load(name) for name in self.Profile.names()}

    def nearest(self, job: Job, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[str, ...]]:
        """The shipped profile nearest to what the job trains, and the changes that make it so, but for the precision.

        The profile is ``of its own`` where there are more changes than a name should have.
        """
        changes = {name: profile.changes(job) for name, profile in self.shipped().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return (OWN_PROFILE, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))

    def has_profile(self, name: str) -> bool:
        """True if a name, or a YAML file, is one of its profiles."""
        try:
            return bool(self.Profile.load(name))
        except ConfigError:
            return False

    def profile_of(self, job: Job, name: str, changes: Sequence[str]) -> Profile:
        """The profile under which a job was trained, given what :meth:`nearest` says of it."""
        if name == OWN_PROFILE:
            raise ConfigError(
                f"run {job.id} of {job.label} follows no shipped {self.Profile.noun}; name its YAML file with --profile"
            )
        return self.Profile.load(name, changes)

    def shared(self, job: Job) -> dict[str, Any]:
        """What must be equal within a table, from the job alone."""
        name, changes = self.nearest(job)
        own = {"profile": name, "changes": changes}
        own = {"model": job.model, "training": job.training} if name == OWN_PROFILE else own
        return own | {"fidelity": job.fidelity, "budget": job.budget, "precision": job.training.precision}

    def shared_but_rates(self, job: Job) -> dict[str, Any]:
        """:meth:`shared` without the rates and decays, if profiles of the suite try several of them."""
        return self.shared(job)

    def job_setting(self, job: Job) -> list[str]:
        """What a line in a list of runs says of a job: the nearest shipped profile and the changes that make it so."""
        profile, changes = self.nearest(job, most_changes=math.inf)
        return [profile, *changes]

    def difficulty(self, task: str) -> Mapping[str, Any] | None:
        """The setting that others of the task are changes of; None where settings are not told apart."""
        return None

    def result(self, metrics: Mapping[str, float], in_list: bool = False) -> str:
        """The number that a run is judged by, as text, in a list of runs of all suites with its name; else empty."""
        name, named, alone = self.judged_by
        return (named if in_list else alone).format(metrics[name]) if metrics.get(name) is not None else ""

    def checks(self, label: Label) -> Iterable[Check]:
        """What ``madbench verify`` measures of a label's mixer on the suite's own tasks."""
        return ()

    def lacks_corpus(self, profile: Profile) -> bool:
        """True if jobs of the profile need a corpus of text and the profile names none."""
        return False

    def corpus_for(self, profile: Profile, source: CorpusSource) -> Corpus | None:
        """The corpus that jobs of the profile are trained on. None if the tasks of the suite need none.

        Raises ``ConfigError`` for a corpus on which the profile cannot be trained, and if one is needed and not named.
        """
        return None

    def corpus_of(self, job: Job, details: Mapping[str, Any] = MappingProxyType({})) -> StoredCorpus | None:
        """The corpus of a job, as its record describes it. None if the tasks of the suite need none."""
        return None

    def check_job(self, job: Job, where: str) -> None:  # noqa: B027  most suites take any
        """Raises ``ConfigError``, opened by ``where``, for a job whose setting lacks what the suite reads of it."""

    def check_profile(self, profile: Profile) -> tuple[str, set[int]]:
        """What a profile trains, in words, and its lengths; raises ``ConfigError`` for one that trains nothing."""
        jobs = self.plan(["S"], profile, seeds=(0,)).jobs
        return f"{len(jobs)} runs a label", {self.size(job).seq_len for job in jobs}
