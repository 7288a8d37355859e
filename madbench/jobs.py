"""A job is all settings that affect the result of one training run. A record is the result of a job.

A job's ``id`` is a hash of its content, so two different jobs never share an id. The device, the computation path of
the operator and the time of day are not part of a job. They are stored with its result.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypedDict

from madbench.details import Details

SCHEMA = 4  # increased when a job would give other numbers than before, or is stored in another form

KEEP = "keep"  # folder in a job's work folder for files that are stored with the run, such as its weights
WEIGHTS = "weights.safetensors"  # file of the weights in that folder

NOT_AT_DEFAULT = {"in_id_at_default": False}
"""Metadata of a dataclass field that enters a job's id only if its value differs from the default.

Fields that are added later have it, so that the ids of earlier jobs stay the same.
"""

Fidelity = Literal["corrected", "published"]
Budget = Literal["strict", "paper", "flops", "state", "compute"]
MixedPrecision = Literal["float32", "bfloat16"]
"""The precisions of matrix products in a model whose parameters stay in float32. Most suites have these."""
Precision = Literal[MixedPrecision, "float64"]
ProfilePrecision = Literal["auto", MixedPrecision]
Status = Literal["finished", "diverged", "failed"]
Stream = Literal["init", "data", "order"]


@dataclass(frozen=True)
class NumberFormat:
    """The properties of a precision (:data:`Precision`), such as ``bfloat16``."""

    number_bytes: int
    """Bytes per number."""
    autocast: str = ""
    """The name of torch's dtype of matrix products under autocast. Empty if the precision needs no autocast."""


PRECISIONS: Mapping[Precision, NumberFormat] = {
    "float32": NumberFormat(4),
    "bfloat16": NumberFormat(2, autocast="bfloat16"),
    "float64": NumberFormat(8),
}


class Config(Protocol):
    """A configuration: any frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __hash__(self) -> int: ...


class ModelSettings(Config, Protocol):
    """The settings that every suite's model has. The model is the network around the mixers."""

    @property
    def n_head(self) -> int: ...


class BlocksSettings(ModelSettings, Protocol):
    """The settings of a model that is a stack of blocks, each with a mixer. Most suites have such models."""

    @property
    def d_model(self) -> int: ...
    @property
    def n_layer(self) -> int: ...


class TrainingSettings(Config, Protocol):
    """The training settings that every suite has."""

    @property
    def optimizer(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def betas(self) -> tuple[float, float]: ...
    @property
    def precision(self) -> Precision: ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a default is in typing from Python 3.13 on

    M = TypeVar("M", bound=ModelSettings, default=ModelSettings, covariant=True)
    T = TypeVar("T", bound=TrainingSettings, default=TrainingSettings, covariant=True)
    J = TypeVar("J", bound="Job", default="Job")
else:
    from typing import TypeVar

    M, T, J = map(TypeVar, "MTJ")


@dataclass(frozen=True, eq=False)
class Job(Generic[M, T]):
    """One training run of one label. Jobs with the same id are equal.

    ``M`` and ``T`` are the classes of the fields ``model`` and ``training``, which each suite defines. ``Job`` without
    parameters is a job of any suite.
    """

    suite: str
    """Suite that trains the job, such as ``mad`` or ``language``."""
    task: str
    """Name of the task in its suite, such as ``memorization`` or ``language_model``."""
    label: str
    """Canonical label of the mixer."""
    family: str
    """Identity of the label's family: its version and, if installed, a hash of its source."""
    setting: dict[str, Any]
    """The data of the job: the fields of its task setting, or the digest and the vocabulary size of its corpus."""
    model: M
    """Settings of the model around the mixer: the suite's class ``Model``."""
    mixer: dict[str, Any]
    """Settings of the mixer: the fields of its family's ``Settings``."""
    training: T
    """Settings of the training: the suite's class ``Training``."""
    seed: int = 0
    """Seed of initialization, data and order, each with its own random stream."""
    fidelity: Fidelity = "corrected"
    """Protocol: ours, or the reference implementation's with its quirks."""
    budget: Budget = "strict"
    """The quantity in which the mixer matches softmax attention, and the way it is counted, such as ``strict``."""
    task_source: str = ""
    """Hash of the task's source if an installed package defines the task."""
    steps: int = 0
    """Optimizer steps that the budget chose; 0 if the training settings say how many."""

    @functools.cached_property
    def id(self) -> str:
        """A hash of the job's content: 16 hexadecimal digits, the same on every machine."""
        own: tuple[Any, ...]
        own = (self.suite, self.task, self.label, self.family, self.seed, self.fidelity, self.budget, self.task_source)
        own = (*own, self.steps) if self.steps else own  # jobs without steps keep their ids of earlier versions
        shared = (mapping_text(self.setting), _config_text(self.model), mapping_text(self.mixer))
        return text_id("\n".join([f"{SCHEMA} {own}", *shared, _config_text(self.training)]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @functools.cached_property
    def precision(self) -> Precision:
        """The precision of matrix products."""
        return self.training.precision

    @functools.cached_property
    def rates(self) -> tuple[float, float]:
        """The learning rate and the weight decay. A rate that the suite's training settings do not have is 0."""
        return getattr(self.training, "learning_rate", 0.0), getattr(self.training, "weight_decay", 0.0)

    @property
    def has_outside_mixer(self) -> bool:
        """True if an installed package defines the mixer. The job's id then depends on code outside of madbench."""
        return "+" in self.family

    @property
    def has_outside_code(self) -> bool:
        """True if an installed package defines the mixer or the task.

        The job's id then depends on code outside of madbench.
        """
        return self.has_outside_mixer or bool(self.task_source)

    def to_dict(self) -> dict[str, Any]:
        """The fields of the job as JSON values. :func:`madbench.suites.job_from_dict` restores the job.

        ``training`` has the fields that a record contains (:func:`recorded_fields`). ``steps`` is left out if it is 0.
        """
        fields = dataclasses.asdict(self) | {"training": recorded_fields(self.training)}
        return fields if self.steps else {name: value for name, value in fields.items() if name != "steps"}

    def derived_seed(self, stream: Stream) -> int:
        """The seed of one of the job's random streams (:func:`derived_seed`)."""
        return derived_seed(self.seed, stream)


@dataclass(frozen=True)
class DeferredJob:
    """A job that is made on first use, given as the function that makes it."""

    make: Callable[[], Job]

    @functools.cached_property
    def made(self) -> Job:
        return self.make()


class StoredJob(Job):
    """A job read from a store's index, which holds the fields of the job as plain values.

    The constructor takes the fields of a job. ``model`` and ``training`` may be given as a ``DeferredJob``, from which
    they are read on first use. Until then no code of the job's suite runs.
    """

    _model: ModelSettings | DeferredJob
    _training: TrainingSettings | DeferredJob

    @property
    def model(self) -> ModelSettings:
        return self._model.made.model if isinstance(self._model, DeferredJob) else self._model

    @model.setter
    def model(self, value: ModelSettings | DeferredJob) -> None:
        self._model = value

    @property
    def training(self) -> TrainingSettings:
        return self._training.made.training if isinstance(self._training, DeferredJob) else self._training

    @training.setter
    def training(self, value: TrainingSettings | DeferredJob) -> None:
        self._training = value

    @classmethod
    def from_values(
        cls, job_id: str, values: Mapping[str, Any], label: object, seed: object, make: Callable[[], Job]
    ) -> StoredJob:
        """Return a job made of plain values from a store's index. No code of its suite runs.

        ``job_id`` is the job's ``id``, which is not computed again. ``values`` has the fields of the job except
        ``label`` and ``seed``, as in :meth:`Job.to_dict`. ``make`` returns an equal ``Job`` with the objects ``model``
        and ``training``. It is called when one of these is first read.

        Raises ``TypeError`` if a field other than ``steps`` is missing, if a field is unknown, or if the label, the
        seed or ``values["training"]`` has a wrong type.
        """
        names = {field.name for field in dataclasses.fields(Job)} - {"label", "seed"}
        if not isinstance(values, dict) or not names - {"steps"} <= values.keys() <= names:
            raise TypeError("not the fields of a job")
        training = values["training"]
        if type(training) is not dict or "precision" not in training:
            raise TypeError("not the optimizer run of a job")
        if type(label) is not str or type(seed) is not int:
            raise TypeError("not the label and the seed of a job")
        deferred = DeferredJob(make)
        job = cls(**{**values, "label": label, "seed": seed, "model": deferred, "training": deferred})
        job.id, job.precision = job_id, training["precision"]  # fills cached properties, which are then not computed
        if {"learning_rate", "weight_decay"} <= training.keys():
            job.rates = float(training["learning_rate"]), float(training["weight_decay"])
        return job


def derived_seed(seed: int, stream: Stream) -> int:
    """A 63-bit seed for the random stream ``stream``. The streams of one ``seed`` are independent of each other."""
    digest = hashlib.sha256(f"{stream}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def identifying_fields(config: Config) -> dict[str, Any]:
    """The fields of a configuration that enter a job's id: name to value.

    A field with the metadata ``NOT_AT_DEFAULT`` is left out if its value is the default.
    """
    return {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default or field.metadata.get("in_id_at_default", True)
    }


def recorded_fields(config: Config) -> dict[str, Any]:
    """The fields of a configuration that a record contains: name to value.

    The class of the configuration may have an attribute ``recorded``: the names of the fields that every record
    contains, in order. Its other fields are recorded only if they differ from their defaults, so that a new field does
    not change earlier records. Without this attribute, all fields are recorded.
    """
    values = dataclasses.asdict(config)
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    names = getattr(config, "recorded", tuple(values))
    others = [name for name, value in values.items() if name not in names and value != usual[name]]
    return {name: values[name] for name in (*names, *others)}


_CANONICAL = json.JSONEncoder(sort_keys=True, allow_nan=False, default=identifying_fields)


def content_id(mapping: dict[str, Any]) -> str:
    """A hash of the mapping and of the version ``SCHEMA`` of the format: 16 hexadecimal digits.

    Values of the mapping may be dataclasses of settings.
    """
    return text_id(_CANONICAL.encode({"schema": SCHEMA, **mapping}))


def text_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def mapping_text(mapping: dict[str, Any]) -> str:
    """The JSON of ``mapping`` with sorted keys, from a cache, because many jobs share a mapping."""
    key = repr(mapping)
    if key not in _TEXTS:
        _TEXTS[key] = _CANONICAL.encode(mapping)
    return _TEXTS[key]


_TEXTS: dict[str, str] = {}


@functools.cache
def _config_text(config: Config) -> str:
    return _CANONICAL.encode(config)


@dataclass(frozen=True)
class Record:
    """The record of a job: its status, and its result if it has one.

    A job whose loss became NaN or Inf has a result, with the status ``diverged``. A job that ended by a crash or for
    lack of memory has the status ``failed`` and no result.
    """

    status: Status
    metrics: dict[str, float] = field(default_factory=dict)
    """Final numbers by name: accuracy, test_loss, ..."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """One row per evaluation or logged step: step, train_loss, validation_loss, ..."""
    details: Details = field(default_factory=Details)
    """Ranks, parameter counts, computation path, device, versions, git state, seeds by source, timings, ..."""
    error: str = ""
    """Reason why a job failed, or step at which it diverged."""

    def difference(self, other: Record) -> float:
        """The largest absolute difference between a metric of this record and the same metric of ``other``.

        0 if all metrics are equal, where NaN equals NaN. Infinite if the statuses or the names of the metrics differ,
        or if a metric is NaN in only one of the records.
        """
        if self.status != other.status or self.metrics.keys() != other.metrics.keys():
            return math.inf
        pairs = [(self.metrics[name], other.metrics[name]) for name in self.metrics]
        differences = [abs(a - b) for a, b in pairs if a != b and not (math.isnan(a) and math.isnan(b))]
        # NaN here is a metric that is NaN in one record; ``max`` would keep or drop it by its position
        return max((math.inf if math.isnan(each) else each for each in differences), default=0.0)


class ShownValues(TypedDict, total=False):
    """The values of a progress report that the screen shows if they are given. A suite may report further numbers."""

    accuracy: float
    loss: float
    tokens_per_second: float
    warning: str


class Progress(ShownValues):
    """A report on the progress of a job in training. It is a plain dict, which workers can send as JSON."""

    step: int
    total_steps: int
    """The largest number of steps."""


class StopTraining(BaseException):
    """Raised by a progress callback to stop a run without a result.

    The run saves its state and raises the exception again. Like ``KeyboardInterrupt`` it is not an ``Exception``, so
    ``except Exception`` does not catch it.
    """


@dataclass(frozen=True)
class TrainingCallbacks:
    """The functions that training calls to report progress and results. Training gets them as one object, ``report``.

    ``report(job, progress)`` calls the function in the field ``progress`` with the job and its progress. This function
    may raise ``StopTraining``.
    """

    progress: Callable[[Job, Progress], None]
    ended: Callable[[Job, Record], None]
    """Called with a job and its record if it ends before the others of its group."""

    def __call__(self, job: Job, progress: Progress) -> None:
        self.progress(job, progress)
