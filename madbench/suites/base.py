"""What a suite is: a way to train a label and to judge it. Nothing above knows more of a suite than this."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from madbench.config import field_docs, from_mapping, key_of, overridden, read_yaml
from madbench.errors import BudgetError, ConfigError, did_you_mean
from madbench.jobs import Budget, Fidelity, Job, identifying
from madbench.labels import Label, family_of, label_identity, loaded_families, parse
from madbench.mixers import Family, label_traits, own_settings, solve, used_settings
from madbench.tasks import settings_class

if TYPE_CHECKING:
    from collections.abc import Hashable

    from madbench.suites.overrides import Plan
    from madbench.suites.protocol import Protocol
    from madbench.suites.scoring import Scoring
    from madbench.suites.trial import Trial
    from madbench.text.corpus import Corpus

MICRO_BATCH_TOKENS = 12_288
"""Tokens of text that go through a model at once where nothing else is asked for: 12 windows of 1,024, as nanoGPT's."""
MOST_JOBS = 100_000
"""Jobs of one experiment."""
MOST_CHANGES = 6
"""Beyond which a protocol is not called after a shipped profile."""
OWN = "of its own"
"""The profile of such a protocol."""
FILE_ONLY = ("description", "comparable_with_paper", "corpus", "suite", "beside")
"""Keys that say what a file is; they belong in it and cannot be overridden."""


LAST_EVALUATIONS = 5
"""Of a curve, whose mean is L5."""


def loss_l5(train_losses: Sequence[float]) -> float:
    """L5: the mean of the last five training-batch evaluations, of all where there are fewer; NaN for none."""
    last = train_losses[-LAST_EVALUATIONS:]
    return sum(last) / len(last) if last else math.nan


@dataclass(frozen=True)
class Column:
    """One quantity of every label, a column of its suite's table."""

    name: str
    heading: str
    digits: int  # decimal places that are printed; they decide nothing
    better: Literal["higher", "lower", ""] = ""  # empty for what is no result, and so has no interval and no best
    limits: tuple[float, float] = (-math.inf, math.inf)  # beyond which no value can be
    missing: str = ""  # what a cell without a number says
    resolution: float = 1e-6  # step in which values are counted: what is within it is equal, and has no variance
    title: str = ""  # in words; the heading where it is empty
    axis: str = ""  # what an axis of a figure says; the title where it is empty
    unit: str = "points"  # of a difference, for programs
    difference: str = "points"  # what a difference is, in words: ``nats per token of a loss``
    is_steps: bool = False  # whether values are steps of training to an event that a run may not reach
    is_compared: bool = True  # whether labels are compared in it
    is_attributed: bool = True  # whether it is a result of its own, for effects of factors and figures against cost
    legend: str = ""  # what a caption says of the column
    counts: str = ""  # what a caption says of ``[k/n]``, where a cell says how many seeds succeed
    has_thresholds: bool = False  # whether a user chooses what it counts to

    @property
    def words(self) -> str:
        return self.title or self.heading


@dataclass(frozen=True)
class Average:
    """A column that is the mean over tasks, of the seeds that have all of them."""

    heading: str
    title: str
    tasks: tuple[str, ...]


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
        """Of all steps and evaluations; a backward pass counts as two forward passes."""
        return self.flops_per_token * (3 * self.trained_tokens + self.evaluated_tokens)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What every suite's profile has; labels, seeds, fidelity and budget come from the command line."""

    folder: ClassVar[Path]
    """Where the shipped profiles are."""
    noun: ClassVar[str]
    """What messages call it."""
    Model: ClassVar[type]
    """Configuration of the model around the mixer."""
    Training: ClassVar[type]
    """Configuration of an optimiser run."""
    Task: ClassVar[type]
    """How the profile sets up one task, where it has ``tasks``."""
    not_training: ClassVar[dict[str, str]] = {"precision": "precision"}
    """Training settings that are keys of the profile itself, and which."""
    stays_comparable: ClassVar[tuple[str, ...]] = ("precision",)
    """Keys that can be overridden without making the profile another one."""

    description: str
    """What the profile is for and how long it takes."""
    comparable_with_paper: bool
    """Whether its numbers may be set against the published ones."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of matrix products; auto is bfloat16 where the hardware has it."""
    model: dict[str, Any] = field(default_factory=dict)
    """Model around the mixer, and settings of mixers."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that all runs share."""
    suite: str = ""
    """The suite that the profile is of, where neither its folder nor its keys say so."""
    beside: dict[str, str] = field(default_factory=dict)
    """Profiles of other suites that are trained with this one where no task is named, such as language_model: tiny."""
    source: str = field(default="", metadata={"internal": True})
    """The name or path that it was loaded by."""
    overrides: tuple[str, ...] = field(default=(), metadata={"internal": True})
    """What it was loaded with, as KEY=VALUE."""

    def __post_init__(self):
        kinds = self._model_kinds()
        known = dict.fromkeys(name for kind in kinds for name in field_names(kind))
        for name in self.model:
            if name not in known:
                raise ConfigError(f"model: unknown key {name!r}{did_you_mean(name, known)}")
        for kind in kinds:
            self._part(kind)
        self.check_training(self.training, "training")

    def check_training(self, training: Mapping[str, Any], where: str) -> None:
        """Raises ``ConfigError`` for training settings that do not exist or belong elsewhere."""
        for key, instead in self.not_training.items():
            if key in training:
                raise ConfigError(f"{where}: {key!r} has no effect here; set the {self.noun}'s own {instead!r}")
        from_mapping(self.Training, training, where)

    def model_config(self) -> Any:
        """The model around the mixer."""
        return self._part(self.Model)

    def mixer_settings(self, label: str) -> dict[str, Any]:
        """The settings of its family that identify the label's jobs; one that came later only off its default.

        Raises ``ConfigError`` for an override that has no effect on the label.
        """
        for word in self.overrides:
            if why := self.why_unread(word, label):
                raise ConfigError(f"{key_of(word)} has no effect on {label!r}; {why}")
        return self.identifying_settings(label)

    def identifying_settings(self, label: str | Label) -> dict[str, Any]:
        """:meth:`mixer_settings`, whatever the overrides, of a label or its text."""
        settings = self._part(family_of(label).Settings)
        own = own_settings(label, settings)
        return {name: value for name, value in identifying(settings).items() if name in own}

    def changes(self, job: Job) -> list[str]:
        """The overrides with which this profile trains the job, but for a precision that depends on the machine."""
        usual = usual_settings(job.label)
        of_mixer = changed("model", usual | job.mixer, usual | self.mixer_settings(job.label))
        return [*self.model_changes(job), *of_mixer, *self.training_changes(job)]

    def model_changes(self, job: Job) -> list[str]:
        """Those of the model around the mixer."""
        return changed("model", vars(job.model), vars(self.model_config()))

    def training_changes(self, job: Job) -> list[str]:
        """Those of the optimiser run and of the task."""
        raise NotImplementedError

    def tried(self, job: Job) -> list[Any]:
        """The optimiser runs of the job's setting under this profile; the job's own where they are not known."""
        return [job.training]

    def job_words(self, job: Job) -> list[str]:
        """The overrides under which this profile trains the job alone of all that a label has of its task."""
        return []

    def trains_job(self, job: Job) -> bool:
        """Whether this profile trains the job; ``auto`` precision is either."""
        try:
            return self.precision in ("auto", job.training.precision) and not self.changes(job)
        except ConfigError:  # a setting that the job's family does not have
            return False

    def why_unread(self, override: str, label: str) -> str:
        """Why an override of a setting of mixers has no effect on those of the label; empty for any other."""
        section, _, name = key_of(override).partition(".")
        read = used_settings(label)
        if section != "model" or name in (*field_names(self.Model), *read):
            return ""
        return f"settings of its mixer: {', '.join(f'model.{known}' for known in read) or 'none'}"

    def under(self, overrides: Sequence[str]) -> Self:
        """The same profile with these overrides alone."""
        return type(self).load(self.source, overrides)

    def _part(self, kind: type) -> Any:
        names = field_names(kind)
        return from_mapping(kind, {key: value for key, value in self.model.items() if key in names}, "model")

    @classmethod
    def names(cls) -> list[str]:
        """Names of the shipped files."""
        return sorted(path.stem for path in cls.folder.glob("*.yaml"))

    @classmethod
    def load(cls, name: str, overrides: Iterable[str] = ()) -> Self:
        """The profile ``name``, shipped or a path to a YAML file, with ``overrides`` such as ``training.epochs=20``.

        An override of ``training.KEY`` or ``learning_rates`` holds for every task, also for one to which the profile
        gives a value of its own; one of ``tasks.TASK`` holds for that task, whatever the order. Any but those of
        ``stays_comparable`` makes it a profile of its own, not comparable with the paper. Raises ``ConfigError`` for an
        unknown profile, key or type, and for an override without effect.
        """
        overrides = sorted(overrides, key=lambda override: key_of(override).split(".")[0] == "tasks")
        path = Path(name) if name.endswith((".yaml", ".yml")) else cls.folder / f"{name}.yaml"
        if not path.is_file():
            choices = [*cls.names(), *([f"{name}.yaml"] if Path(f"{name}.yaml").is_file() else [])]
            raise ConfigError(f"{cls.noun} {name!r}: no such {cls.noun} or file{did_you_mean(name, choices)}")
        mapping = read_yaml(path)
        from_mapping(cls, mapping, str(path))
        keys, known = tuple(map(key_of, overrides)), cls.docs()
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(f"override {key!r} is given twice; only one value can hold")
            if key in FILE_ONLY:
                raise ConfigError(f"override {key!r} has no effect on a run; it belongs in the {cls.noun}'s file")
            whole = [name for name in known if name.endswith(f".{key}")]
            if whole and key not in known:
                raise ConfigError(f"override {key!r}: unknown key; did you mean {whole[0]!r}?")
        for override in overrides:
            mapping = _changed(mapping, override)
        if set(keys) - set(cls.stays_comparable):
            mapping = {**mapping, "comparable_with_paper": False}
        where = f"override {', '.join(repr(word[:99]) for word in overrides)}" if overrides else str(path)
        return dataclasses.replace(from_mapping(cls, mapping, where), source=name, overrides=tuple(overrides))

    @classmethod
    def docs(cls) -> dict[str, str]:
        """Every dotted key that can be overridden, with its sentence of documentation."""
        docs = {}
        for name, sentence in field_docs(cls).items():
            if name == "model":
                for kind in cls._model_kinds():
                    docs |= {f"model.{key}": text for key, text in field_docs(kind).items()}
            elif name == "training":
                of_training = field_docs(cls.Training).items()
                docs |= {f"training.{key}": text for key, text in of_training if key not in cls.not_training}
            elif name == "tasks":
                ends = {one.name: ".KEY" * (one.default_factory is dict) for one in dataclasses.fields(cls.Task)}
                docs |= {f"tasks.TASK.{key}{ends[key]}": text for key, text in field_docs(cls.Task).items()}
            elif name not in (*FILE_ONLY, "source", "overrides"):
                docs[name] = sentence
        return docs

    @classmethod
    def _model_kinds(cls) -> list[type]:
        """What ``model`` has the settings of: the model, and every family that can be loaded and is trained here."""
        return [cls.Model, *(family.Settings for family in loaded_families().values() if cls.trains(family))]

    @staticmethod
    def trains(family: Family) -> bool:
        """Whether labels of the family can be trained in this suite."""
        return True


def changed(section: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The overrides that make the settings ``theirs`` of a section ``ours``."""
    return [f"{section}.{name}={value}" for name, value in ours.items() if theirs.get(name) != value]


@functools.cache
def usual_settings(label: str) -> dict[str, Any]:
    """The settings of the label's family at their defaults."""
    return dataclasses.asdict(family_of(label).Settings())


def _changed(mapping: Mapping[str, Any], override: str) -> dict[str, Any]:
    """``mapping`` with one override, instead of which no task has a value of its own."""
    changed, key = overridden(mapping, override), key_of(override)
    is_rate = key in ("learning_rates", "training.learning_rate")
    if is_rate or key.startswith("training."):
        for plan in changed.get("tasks", {}).values():
            plan.get("training", {}).pop(key.removeprefix("training."), None)
            if is_rate:
                plan.pop("learning_rates", None)
    return changed


def check_tasks_of(overrides: Iterable[str], tasks: Sequence[str]) -> None:
    """Raises ``ConfigError`` for an override of a task that is none of ``tasks``."""
    for override in overrides:
        section, *names = key_of(override).split(".")
        if section == "tasks" and names and names[0] not in tasks:
            raise ConfigError(f"override {override!r} has no effect: the tasks are {', '.join(tasks)}")


@functools.cache
def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a settings dataclass."""
    return tuple(one.name for one in dataclasses.fields(kind))


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
    takes_corpus: ClassVar[bool] = False
    """Whether its jobs are trained on a corpus of text. No profile decides that, so its protocols are recognised from
    what is stored, where those of other suites are planned from a profile."""
    keeps_weights: ClassVar[bool] = False
    """Whether weights stay with its runs unasked."""
    uses_all_cores: ClassVar[bool] = False
    """Whether a run on the CPU takes all its cores, or one."""
    judged_by: ClassVar[tuple[str, str, str]] = ("accuracy", "acc {:.3f}", "{:.1%}")
    """The metric that a run is judged by, and as text, named and alone."""
    profiles_note: ClassVar[str] = "runs: for one label and one seed"
    """What stands below the list of its profiles."""
    not_inspected: ClassVar[str] = ""
    """Why madbench inspect has nothing to say of its models; empty where it has."""
    file_key: ClassVar[str] = ""
    """A key that tells its profiles' files from those of the suites after it; without one, a file names the suite."""
    claimed_columns: ClassVar[tuple[str, ...]] = ()
    """Columns that a table need not have and that claims are about."""
    figures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Figures of its own beside those of every suite: ``module:value`` of a Drawing, by name."""

    @abc.abstractmethod
    def tasks(self) -> Sequence[str]:
        """Names of its tasks, in the order of its table."""

    @abc.abstractmethod
    def plan(self, labels: Iterable[str], profile: Profile, **how: Any) -> Plan:
        """The jobs of labels, none twice. ``how``: seeds, tasks, fidelity, budget, precision and corpus."""

    @abc.abstractmethod
    def trained(self, job: Job) -> Hashable:
        """What a job trains but for the seed, however its settings spell it."""

    @abc.abstractmethod
    def size(self, job: Job) -> Size:
        """What training a job takes."""

    def jobs(self, labels: Iterable[str], profile: Profile, **how: Any) -> list[Job]:
        """The jobs of :meth:`plan`; ``ConfigError`` for an override that decides nothing about any of them."""
        return self.plan(labels, profile, **how).checked()

    def usual_tasks(self) -> Sequence[str]:
        """The tasks that are trained where none are named."""
        return self.tasks()

    def about_task(self, task: str) -> str:
        """What a task asks, for a list."""
        return self.column(task).words if self.column(task) else self.title

    def about_profile(self, profile: Profile) -> dict[str, Any]:
        """What a list of profiles says of one, by heading."""
        return {"runs": int(self.check_profile(profile)[0].partition(" ")[0])}

    @property
    def listing(self) -> str:
        """What ``madbench ls`` calls the list of its profiles."""
        return self.name

    @property
    def address(self) -> str:
        """What it is called in overrides and in a profile's ``beside`` where another suite leads."""
        return self.key or self.name

    @property
    def prefix(self) -> str:
        """What its overrides begin with where another suite leads, such as ``language_model.``."""
        return f"{self.address}."

    def fidelity_of(self, asked: Fidelity) -> Fidelity:
        """The fidelity of its jobs beside a suite that may have others: the one asked for, or its own usual one."""
        return asked if asked in self.fidelities else self.fidelities[0]

    @property
    def short(self) -> str:
        """What its budgets and counts are called beside those of another suite."""
        return self.abbreviation or self.name

    @property
    def Trial(self) -> type[Trial]:
        """The class that makes a job ready to train."""
        return pkgutil.resolve_name(self.trial)

    @functools.cached_property
    def scores(self) -> Scoring:
        """What reads its records."""
        return pkgutil.resolve_name(self.scoring)(self)

    def column(self, name: str) -> Column | None:
        """The column of a task, an average or another quantity of the suite; None for none of it."""
        if average := self.averages.get(name):
            return replace(self.task_column(average.tasks[0]), name=name, heading=average.heading, title=average.title)
        return self.task_column(name) if name in self.tasks() else None

    def task_column(self, task: str) -> Column:
        """The column of a task."""
        heading = task.replace("_", " ")
        return Column(task, heading, 1, "higher", (0.0, 100.0), "-", 0.1, counts=SOLVED, **ACCURACY)

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
        """Its profiles by name."""
        return {name: self.Profile.load(name) for name in self.Profile.names()}

    def nearest(self, job: Job, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[str, ...]]:
        """The shipped profile nearest to what the job trains, and the changes that make it so, but for the precision.

        The profile is ``of its own`` where there are more changes than a name should have.
        """
        changes = {name: profile.changes(job) for name, profile in self.shipped().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return (OWN, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))

    def has_profile(self, name: str) -> bool:
        """Whether a name, or a YAML file, is one of its profiles."""
        try:
            return bool(self.Profile.load(name))
        except ConfigError:
            return False

    def profile_of(self, job: Job, name: str, changes: Sequence[str]) -> Profile:
        """The profile under which a job was trained, given what :meth:`nearest` says of it."""
        if name == OWN:
            raise ConfigError(
                f"run {job.id} of {job.label} follows no shipped {self.Profile.noun}; name its YAML file with --profile"
            )
        return self.Profile.load(name, changes)

    def shared(self, job: Job) -> dict[str, Any]:
        """What must be equal within a table, from the job alone."""
        name, changes = self.nearest(job)
        own = {"model": job.model, "training": job.training} if name == OWN else {"profile": name, "changes": changes}
        names = ("fidelity", "budget")
        return own | {one: getattr(job, one) for one in names} | {"precision": job.training.precision}

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

    def sentences(self, protocol: Protocol) -> list[str]:
        """Profile, sizes, fidelity and budget, for the notes of a table."""
        changes = f" with {', '.join(protocol.overrides)}" if protocol.overrides else ""
        noun, name = protocol.profile.noun.capitalize(), protocol.profile_name
        fidelity = f"Fidelity {protocol.fidelity}; budget" if len(self.fidelities) > 1 else "Budget"
        return [
            f"{noun} {name}{changes}: {sizes_text(protocol.profile.model_config())}, {protocol.precision}.",
            f"{fidelity} {protocol.budget}.",
        ]

    def check_corpus(self, corpus: Corpus, profile: Profile) -> None:  # noqa: B027  most suites take any
        """Raises ``ConfigError`` for a corpus on which a profile cannot be trained."""

    def check_profile(self, profile: Profile) -> tuple[str, set[int]]:
        """What a profile trains, in words, and its lengths; raises ``ConfigError`` for one that trains nothing."""
        jobs = self.plan(["S"], profile, seeds=(0,)).jobs
        return f"{len(jobs)} runs a label", {self.size(job).seq_len for job in jobs}


ACCURACY = {"axis": "accuracy, %", "difference": "percentage points of accuracy"}
SOLVED = "[k/n]: k of n seeds solve the task"


def sizes_text(model: Any) -> str:
    """``d_model 64, 2 blocks, 2 heads`` of a model's configuration, as far as it has these."""
    names = {"d_model": "d_model {}", "n_layer": "{} blocks", "n_head": "{} heads"}
    return ", ".join(text.format(getattr(model, name)) for name, text in names.items() if hasattr(model, name))


def plan_jobs(
    suite: str,
    labels: Iterable[str],
    profile: Profile,
    runs: Sequence[tuple[str, dict[str, Any], int, Any, str]],
    budget: Budget,
    fidelity: Fidelity = "corrected",
) -> list[Job]:
    """The jobs of every label in ``runs``, which are task, setting, longest sequence, training, source of the task.

    They are of seed 0. Raises ``BudgetError``, naming the task, where a label has no ranks at this size and length.
    """
    labels = list(map(parse, labels))
    check_count(len(labels) * len(runs))
    model, tasks = profile.model_config(), {task for task, *_ in runs}
    task_of_length = {length: task for task, _, length, *_ in reversed(runs)}
    found = []
    for label in labels:
        mixer = profile.identifying_settings(label)
        families = {task: mixer_identity(str(label), task, fidelity) for task in tasks}
        for length, task in task_of_length.items():
            try:
                solve(label, model.d_model, model.n_head, length, budget, **mixer)
            except BudgetError as error:
                raise BudgetError(f"{task} at seq_len {length}: {error}") from None
        found += [
            Job(suite, task, str(label), families[task], setting, model, mixer, training, 0, fidelity, budget, source)
            for task, setting, _, training, source in runs
        ]
    return unique(found)


def check_count(count: int) -> None:
    """Raises ``ConfigError`` for more jobs than one experiment may have."""
    if count > MOST_JOBS:
        raise ConfigError(f"{count:,} jobs; at most {MOST_JOBS:,} are allowed: fewer labels, seeds or learning rates")


def mixer_identity(label: str, task: str, fidelity: Fidelity = "corrected") -> str:
    """What a job says of the mixer's family: its identity, and what the published fidelity does not draw anew.

    So the runs in which it did draw that are other ones.
    """
    identity = label_identity(label)
    if fidelity == "published" and settings_class(task).model == "language_model":
        if kept := label_traits(parse(label)).own_start:
            return f"{identity}, {' and '.join(kept)} as the mixer draws them"
    return identity


def unique(jobs: Iterable[Job]) -> list[Job]:
    """The jobs in their order, each id once."""
    return list({job.id: job for job in jobs}.values())
