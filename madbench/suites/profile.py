"""The base class of profiles: the training settings of a suite, read from a YAML file and changed by overrides."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from madbench.config import Override, apply_override, cached_by_class, field_docs, from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, LabelError, did_you_mean, is_close_name, no_effect, suggestion
from madbench.jobs import (
    Job,
    M,
    ModelSettings,
    Precision,
    ProfilePrecision,
    TrainingSettings,
    identifying_fields,
    mapping_text,
)
from madbench.labels import Label, expand, family_of, loadable_families, loaded_families, reading_problem
from madbench.mixers import LoadedFamily, own_settings, used_settings
from madbench.plugins.paper_folders import files_of_papers

FILE_ONLY = (
    "description",
    "comparable_with_paper",
    "corpus",
    "vocab_size",
    "suite",
    "beside",
    "chosen_on",
    "sort_order",
)
"""Keys of a profile's file that overrides cannot change, because they have no effect on a run."""
P = TypeVar("P", bound="Profile[Any]")
LIKE = "like"
"""Key of a profile file that names a shipped profile. The file inherits every setting that it does not have itself."""


class ProfileFacts(Protocol):
    """The facts about a profile that tables of stored runs show.

    :class:`Profile` and a profile's entry in the index of a store both have them.
    """

    @property
    def noun(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def precision(self) -> Literal["auto"] | Precision: ...
    @property
    def comparable_with_paper(self) -> bool: ...
    @property
    def chosen_on(self) -> str: ...
    @property
    def overrides(self) -> tuple[Override, ...]: ...
    @property
    def is_shipped(self) -> bool: ...

    @property
    def loaded(self) -> Profile:
        """The whole profile. It is read from its file if necessary."""


@dataclass(frozen=True, kw_only=True)
class Profile(abc.ABC, Generic[M]):
    """The base class of the profiles of all suites. Each suite has a subclass.

    A profile sets the model's size, the schedule and the task settings. Labels, seeds, fidelity and budget are not part
    of it. ``Profile[M]`` is a profile of a suite whose ``Model`` is ``M``.
    """

    folder: ClassVar[Path]
    """The folder of the shipped profiles."""
    suite_name: ClassVar[str] = ""
    """The name of the suite, if papers may add profiles in ``profiles/SUITE_NAME/``. Subclasses do not inherit it."""
    noun: ClassVar[str]
    """The word for a profile of the suite in messages, such as ``signal profile``."""
    Model: ClassVar[type[ModelSettings]]
    """The configuration class of the model around the mixer. If it has the fields ``d_model``, ``n_head``, ``n_layer``
    (the number of blocks) and ``seq_len``, notes, reports and estimates use them."""
    Training: ClassVar[type[TrainingSettings]]
    """The class of the training settings of a job, which are the keys of ``training``."""
    Task: ClassVar[type]
    """The class of a profile's settings for one task: the values in the field ``tasks``, if the profile has it."""
    not_training: ClassVar[dict[str, str]] = {"precision": "precision"}
    """Training settings that ``training`` may not have, each with the key of the profile that sets it instead."""
    stays_comparable: ClassVar[tuple[str, ...]] = ("precision",)
    """Keys that an override may change while the profile stays comparable with the paper."""

    description: str
    """The purpose of the profile, and its duration."""
    comparable_with_paper: bool = False
    """True if its numbers are comparable with published numbers that name no profile."""
    precision: ProfilePrecision = "auto"
    """Arithmetic of matrix products; auto is bfloat16 where the hardware has it."""
    model: dict[str, Any] = field(default_factory=dict)
    """Settings of the model around the mixer, and of mixers."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that all runs share."""
    suite: str = ""
    """The suite of the profile, needed if neither its folder nor its keys determine it."""
    beside: dict[str, str] = field(default_factory=dict)
    """Profiles of other suites that are trained with this one by default, such as language_model: tiny."""
    chosen_on: str = ""
    """The set of labels on whose results its settings were chosen, such as choosing; empty if there is none."""
    sort_order: int = 1000
    """The place of a shipped profile in the order of its suite. It decides the name of a stored run to which several
    profiles are equally near: the lowest number counts.

    A file without a number comes last. A new profile takes the next free number or none, so that stored runs keep their
    names.
    """
    source: str = field(default="", metadata={"internal": True})
    """The name or path from which it was loaded."""
    overrides: tuple[Override, ...] = field(default=(), metadata={"internal": True})
    """The overrides with which it was loaded."""

    def __post_init__(self) -> None:
        kinds = [self.Model]
        families = loadable_families() if set(self.model) - set(field_names(self.Model)) else ()
        for family in families:  # ends as soon as all settings are known, so that no further family is loaded
            if self.can_train(family):
                kinds.append(family.Settings)
            if set(self.model) <= {name for kind in kinds for name in field_names(kind)}:
                break
        names = dict.fromkeys(name for kind in kinds for name in field_names(kind))
        for name in self.model:
            if name not in names:
                own, close = suggestion(name, field_names(self.Model)), suggestion(name, names)
                hint = own or did_you_mean(name, names)
                if own and close and own != close:  # the setting of a mixer is closer
                    hint = f"{own.removesuffix('?')} or {close.partition('mean ')[2]}"
                raise ConfigError(f"model: unknown key {short_repr(name)}{hint}")
        for kind in kinds:
            self._part(kind)
        self.check_training(self.training, "training")
        try:
            self.chosen_labels()
        except LabelError as error:
            raise ConfigError(f"chosen_on: {error}") from error

    def chosen_labels(self) -> frozenset[str]:
        """The labels on whose results the profile's settings were chosen. Empty if there are none.

        Results of these labels under the profile are biased.
        """
        return frozenset(map(str, expand([f"@{self.chosen_on}"]))) if self.chosen_on else frozenset()

    def check_training(self, training: Mapping[str, Any], where: str) -> None:
        """Raise ``ConfigError`` for a key of ``training`` that is unknown, invalid, or set elsewhere in the profile.

        The message begins with ``where``.
        """
        for key, instead in self.not_training.items():
            if key in training:
                raise no_effect(f"{where}: {short_repr(key)}", f"here; set the {self.noun}'s own {instead!r}")
        allowed = [name for name in field_names(self.Training) if name not in self.not_training]
        for key in training:
            if key not in allowed:
                raise ConfigError(f"{where}: unknown key {short_repr(key)}{self._training_hint(key, allowed)}")
        from_mapping(self.Training, training, where)

    def _training_hint(self, key: str, allowed: Sequence[str]) -> str:
        """The end of the message about an unknown ``key`` of ``training``, whose keys are ``allowed``.

        It suggests a key of ``training`` or of the profile itself, or lists both.
        """
        elsewhere = [*dict.fromkeys(self.not_training.values())]
        close = suggestion(key, [*allowed, *elsewhere])
        if not close:
            of_profile = f"; the {self.noun} itself has {', '.join(elsewhere)}" if elsewhere else ""
            return f"{did_you_mean(key, allowed)}{of_profile}"
        own = [name for name in elsewhere if suggestion(key, [name]) == close]
        return f"; set the {self.noun}'s own {own[0]!r}" if own else close

    def check_spelling(self, where: str) -> None:
        """Raise ``ConfigError`` for a setting of the profile's file whose value is not canonical.

        The canonical value trains the same models. The message begins with ``where``. Overrides are not checked here
        but by :class:`madbench.suites.overrides.Plan`.
        """

    def model_config(self) -> M:
        """The configuration of the model around the mixer."""
        return self._model_config

    @functools.cached_property
    def _model_config(self) -> M:
        model: M = self._part(self.Model)
        return model

    def mixer_settings(self, label: str) -> dict[str, Any]:
        """The settings of the label's family that enter the ids of the label's jobs: name to value.

        A setting that the family did not have from the start is included only if the label uses it and it is not at its
        default. Raises ``ConfigError`` if an override of a mixer setting has no effect on the label.
        """
        for override in self.overrides:
            if reason := self.why_unread(override, label):
                raise no_effect(override.user_path, f"on {short_repr(label)}; {reason}")
        return self.identifying_settings(label)

    def identifying_settings(self, label: str | Label) -> dict[str, Any]:
        """The settings that :meth:`mixer_settings` returns for a label. Overrides are not checked."""
        settings = self._part(family_of(label).Settings)
        own = own_settings(label, settings)
        return {name: value for name, value in identifying_fields(settings).items() if name in own}

    def changes(self, job: Job[M]) -> list[Override]:
        """The overrides that this profile needs in order to train ``job``. Empty if it needs none.

        The precision is left out, because it depends on the machine.
        """
        setting, mixer = mapping_text(job.setting), mapping_text(job.mixer)
        own, shared = (job.label, mixer), (job.task, setting, job.model, job.training)
        if own not in self._changes:
            self._changes[own] = self.mixer_changes(job)
        if shared not in self._changes:
            self._changes[shared] = self.training_changes(job)
        return [*self.model_changes(job), *self._changes[own], *self._changes[shared]]

    @functools.cached_property
    def _changes(self) -> dict[tuple[Any, ...], list[Override]]:
        """A cache for :meth:`changes`, because many stored jobs have the same settings."""
        return {}

    def mixer_changes(self, job: Job) -> list[Override]:
        """The overrides of mixer settings that this profile needs in order to train ``job``.

        Empty if the label's family is not installed, because its settings are then unknown.
        """
        if not has_settings(job.label):
            return []
        usual = usual_settings(job.label)
        return changed_overrides("model", usual | job.mixer, usual | self.mixer_settings(job.label))

    def model_changes(self, job: Job[M]) -> list[Override]:
        """The overrides of the model around the mixer that this profile needs in order to train ``job``."""
        return changed_overrides("model", vars(job.model), vars(self.model_config()))

    @abc.abstractmethod
    def training_changes(self, job: Job[M]) -> list[Override]:
        """The overrides of training and task settings that this profile needs in order to train ``job``."""

    def trainings_of(self, job: Job[M]) -> Sequence[TrainingSettings]:
        """The training settings that this profile tries on the job's task setting, such as one per learning rate.

        By default, only the training settings of ``job``.
        """
        return [job.training]

    def jobs_like(self, job: Job[M]) -> Sequence[Job[M]]:
        """The jobs of this profile that have the same label, code, task and seed as ``job``.

        A table compares them with the stored runs to count missing runs. By default the result is empty; a table then
        counts stored runs only.
        """
        return []

    def job_changes(self, job: Job[M]) -> list[Override]:
        """The overrides with which this profile trains only one job per label, task and seed.

        The profile that is loaded with these overrides may still train another job than ``job``. The overrides that are
        then missing are the result of its method :meth:`changes`. Empty if the profile trains one job per label, task
        and seed anyway.
        """
        return []

    def trains_job(self, job: Job[M]) -> bool:
        """True if this profile trains the job. A profile with the precision ``auto`` trains jobs of any precision."""
        try:
            return self.precision in ("auto", job.training.precision) and not self.changes(job)
        except ConfigError:  # the job's family does not have the setting
            return False

    @property
    def loaded(self) -> Self:
        """The profile itself, as :class:`ProfileFacts` requires."""
        return self

    @property
    def is_shipped(self) -> bool:
        """True if this is a shipped profile without overrides."""
        return not self.overrides and not self.source.endswith((".yaml", ".yml"))

    def why_unread(self, override: Override, label: str) -> str:
        """The reason why an override of a mixer setting has no effect on the label.

        Empty if it has an effect, or if it is not an override of a mixer setting.
        """
        section, _, name = override.key.partition(".")
        read = used_settings(label)
        if section != "model" or name in (*field_names(self.Model), *read):
            return ""
        return f"settings of its mixer: {', '.join(f'model.{setting}' for setting in read) or 'none'}"

    def under(self, overrides: Sequence[Override]) -> Self:
        """This profile, loaded with ``overrides`` instead of its own overrides."""
        key = tuple(overrides)
        if key not in self._under:
            self._under[key] = type(self).load(self.source, overrides)
        return self._under[key]

    @functools.cached_property
    def _under(self) -> dict[tuple[Override, ...], Self]:
        """A cache for :meth:`under`. It is called with the same overrides for many labels."""
        return {}

    def _part(self, kind: type) -> Any:
        names = field_names(kind)
        return from_mapping(kind, {key: value for key, value in self.model.items() if key in names}, "model")

    @classmethod
    def files(cls) -> dict[str, Path]:
        """The files of the shipped profiles, by profile name, from the folders of the suite and of papers."""
        suite_name = vars(cls).get("suite_name", "")
        files_by_name = files_of_papers(f"profiles/{suite_name}") if suite_name else {}
        return dict(sorted((files_by_name | {path.stem: path for path in cls.folder.glob("*.yaml")}).items()))

    @classmethod
    def names(cls) -> list[str]:
        """The names of the shipped profiles, in alphabetical order."""
        return list(cls.files())

    @classmethod
    def load(cls, name: str, overrides: Iterable[Override | str] = ()) -> Self:
        """Load the profile ``name`` and apply ``overrides``, which may be texts such as ``training.epochs=20``.

        ``name`` is the name of a shipped profile, or the path of a YAML file. An override of ``training.KEY`` or
        ``learning_rates`` applies to every task, even if the profile has another value for a single task. An override
        of ``tasks.TASK`` applies to that task and takes precedence; the order of the overrides does not matter. The
        profile is no longer comparable with the paper if an override changes a key outside ``stays_comparable``.

        Raises ``ConfigError`` for an unknown profile or key, for an invalid value, for two overrides of one key, and
        for an override without effect on any run.
        """
        parsed_overrides = [
            override if isinstance(override, Override) else Override.parse(override) for override in overrides
        ]
        changes = sorted(parsed_overrides, key=lambda change: change.path.split(".")[0] == "tasks")
        path = Path(name) if name.endswith((".yaml", ".yml")) else cls.files().get(name, Path())
        if not os.path.isfile(path):  # also handles names that no file can have
            if os.path.isfile(name):
                raise ConfigError(f"{cls.noun} {short_repr(name)}: expected a file whose name ends in .yaml")
            choices = [*cls.names(), *([f"{name}.yaml"] if os.path.isfile(f"{name}.yaml") else [])]
            raise ConfigError(f"{cls.noun} {short_repr(name)}: no such {cls.noun} or file{did_you_mean(name, choices)}")
        return cls._from_content(name, path, cls.read(path), tuple(changes))

    @classmethod
    def _from_content(cls, name: str, path: Path, mapping: Mapping[str, Any], changes: tuple[Override, ...]) -> Self:
        """Make the profile ``name`` from the content ``mapping`` of its file ``path``, and apply ``changes`` to it."""
        unknown = next((key for key in mapping if key not in (LIKE, *field_names(cls))), None)
        if isinstance(unknown, str) and "." in (nearest := cls.nearest_key(unknown)):
            section, _, key = nearest.rpartition(".")
            raise ConfigError(f"{path}: unknown key {short_repr(unknown)}; did you mean {key!r} under {section!r}?")
        from_mapping(cls, mapping, str(path), (LIKE,)).check_spelling(str(path))
        keys = tuple(change.path for change in changes)
        docs = cls.docs() if keys else {}
        fields = [field for field in dataclasses.fields(cls) if not field.metadata.get("internal")]
        sections = [field.name for field in fields if field.name not in FILE_ONLY]
        for key, change in zip(keys, changes):
            what = f"override {short_repr(change.user_path)}"
            if keys.count(key) > 1:
                raise ConfigError(f"{what} is given twice; only one value can hold")
            section = key.partition(".")[0]
            if section in FILE_ONLY and section in field_names(cls):
                raise no_effect(what, f"on a run; it belongs in the {cls.noun}'s file")
            full_names = [name for name in docs if name.endswith(f".{key}")]
            if full_names and key not in docs:
                raise ConfigError(f"{what}: unknown key; did you mean {change.prefix + full_names[0]!r}?")
            if section not in sections:
                what = f"override {change.user_word[:99]!r}"
                nearest = cls.nearest_key(section)
                hint = f"; did you mean {change.prefix + nearest!r}?" if nearest else did_you_mean(section, sections)
                raise ConfigError(f"{what}: unknown key {short_repr(section)}{hint}")
        for change in changes:
            mapping = _apply_override(mapping, change)
        if set(keys) - set(cls.stays_comparable):
            mapping = {**mapping, "comparable_with_paper": False}
        where = f"override {', '.join(repr(change.user_word[:99]) for change in changes)}" if changes else str(path)
        return dataclasses.replace(from_mapping(cls, mapping, where), source=name, overrides=changes)

    @classmethod
    def read(cls, path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """Read a profile's file and merge it over the profile that its key ``like`` names, if it has this key.

        Settings of the file for all tasks replace settings of that profile for single tasks, as overrides do
        (:meth:`load`). The result is comparable with the paper only if the file itself says so, and its ``sort_order``
        is not inherited.

        ``above`` has the names of the profiles that lead to this file by ``like``. Raises ``ConfigError`` if ``like``
        names no shipped profile or one of ``above``.
        """
        mapping = dict(read_yaml(path))
        if LIKE not in mapping:
            return mapping
        base = mapping.pop(LIKE)
        if not isinstance(base, str):
            expected = f"expected the name of one shipped {cls.noun}, such as {LIKE}: {cls.names()[0]}"
            raise ConfigError(f"{path}: {LIKE}: {expected}, got {short_repr(base)}")
        if base in above or base not in cls.names():
            what = "two profiles cannot be like each other" if base in above else f"no such {cls.noun}"
            if base.endswith((".yaml", ".yml")):
                what += f"; {LIKE} takes the name of a shipped {cls.noun}, not a file"
            raise ConfigError(f"{path}: {LIKE}: {short_repr(base)}: {what}{did_you_mean(base, cls.names())}")
        inherited = cls.read(cls.files()[base], (*above, base))
        inherited.pop("sort_order", None)
        training = mapping.get("training")
        for key in (*mapping, *(f"training.{name}" for name in (training if isinstance(training, Mapping) else ()))):
            inherited = _without_task_values(inherited, key)
        return _merge({**inherited, "comparable_with_paper": False}, mapping)

    @classmethod
    def docs(cls) -> dict[str, str]:
        """The documentation of every setting that can be overridden, by dotted key."""
        docs: dict[str, str] = {}
        for name, sentence in field_docs(cls).items():
            if name == "model":
                for kind in cls._model_kinds():
                    docs |= {f"model.{key}": text for key, text in field_docs(kind).items()}
            elif name == "training":
                of_training = field_docs(cls.Training).items()
                docs |= {f"training.{key}": text for key, text in of_training if key not in cls.not_training}
            elif name == "tasks":
                ends = {
                    field.name: ".KEY" if field.default_factory is dict else ""
                    for field in dataclasses.fields(cls.Task)
                }
                docs |= {f"tasks.TASK.{key}{ends[key]}": text for key, text in field_docs(cls.Task).items()}
            elif name not in (*FILE_ONLY, "source", "overrides"):
                docs[name] = sentence
        return docs

    @classmethod
    def nearest_key(cls, word: str) -> str:
        """The dotted key of the setting that the user may have meant by ``word``. Empty if no name is close.

        ``word`` may be the key, the key without its section, or an abbreviation: ``lr`` is ``learning_rates``, or
        ``training.learning_rate`` in a profile that has one rate.
        """
        keys = [key for key in cls.docs() if not key.startswith("tasks.")]
        by_name = {key.rpartition(".")[2]: key for key in reversed(keys)}
        if word in by_name:
            return by_name[word]
        names = [key for key in keys if "." not in key]
        names += [name for name in by_name if name not in names and is_close_name(word, name)]
        name = suggestion(word, names).removeprefix("; did you mean '").removesuffix("'?")
        return by_name.get(name, "")

    @classmethod
    def _model_kinds(cls) -> list[type]:
        """The classes whose fields are the keys of ``model``: the suite's ``Model``, and the settings of families.

        Only families that the suite can train are included.
        """
        return [cls.Model, *(family.Settings for family in loaded_families().values() if cls.can_train(family))]

    @staticmethod
    def can_train(family: LoadedFamily) -> bool:
        """True if the suite of this profile can train labels of the family."""
        return True


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping ``base``, updated by ``changes``. Mappings within it are merged key by key."""
    merged = dict(base)
    for key, value in changes.items():
        ours = merged.get(key)
        merged[key] = _merge(ours, value) if isinstance(ours, Mapping) and isinstance(value, Mapping) else value
    return merged


def changed_overrides(section: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Override]:
    """The overrides that change the settings in a section, such as ``training``, from ``theirs`` to ``ours``."""
    return [Override.of(f"{section}.{name}", value) for name, value in ours.items() if theirs.get(name) != value]


def is_rate_change(override: Override) -> bool:
    """True if an override sets the list of learning rates or weight decays that a profile tries on every task."""
    return override.key in ("learning_rates", "weight_decays")


@functools.cache
def has_settings(label: str) -> bool:
    """True if the label can be parsed and its family is installed. Only then are its mixer settings known."""
    return not reading_problem(label)


@functools.cache
def usual_settings(label: str) -> dict[str, Any]:
    """The default settings of the label's family: name to value."""
    return dataclasses.asdict(family_of(label).Settings())


def _apply_override(mapping: Mapping[str, Any], override: Override) -> dict[str, Any]:
    """Return the profile ``mapping`` with an override applied."""
    return apply_override(_without_task_values(mapping, override.key), override)


def _without_task_values(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the profile ``mapping`` without the values of single tasks that would take precedence over ``key``.

    There can be such values if ``key`` is ``learning_rates`` or a key of ``training``. The result is then a copy.
    Otherwise it is ``mapping`` itself.
    """
    is_rate = key in ("learning_rates", "training.learning_rate")
    if not is_rate and not key.startswith("training."):
        return mapping
    copied = copy.deepcopy(dict(mapping))
    for plan in copied.get("tasks", {}).values():
        plan.get("training", {}).pop(key.removeprefix("training."), None)
        if is_rate:
            plan.pop("learning_rates", None)
    return copied


def check_task(task: str, tasks: Sequence[str], where: str = "") -> None:
    """Raise ``ConfigError`` if ``task`` is not among the ``tasks`` of a suite. The message begins with ``where``."""
    if task not in tasks:
        raise ConfigError(f"{where}unknown task {task!r}{did_you_mean(task, tasks)}")


def check_tasks_of(overrides: Iterable[Override], tasks: Sequence[str]) -> None:
    """Raise ``ConfigError`` for an override of ``tasks.TASK...`` whose task is not in ``tasks``."""
    for override in overrides:
        section, *names = override.key.split(".")
        if section == "tasks" and names and names[0] not in tasks:
            raise no_effect(f"override {override.user_word!r}", because=f"the tasks are {', '.join(tasks)}")


@cached_by_class
def field_names(kind: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass of settings."""
    return tuple(field.name for field in dataclasses.fields(kind))
