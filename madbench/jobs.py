"""Job: everything that decides a number of a MAD task, and nothing else. Record: what a job gave.

A job's ``id`` is a hash of its content. Two different jobs never share an id; the device, the path that computed the
operator and the time of day are not part of a job, and are recorded with its result instead.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from madbench.config import from_mapping
from madbench.errors import ConfigError

SCHEMA = 2  # raised when the same job would give other numbers than before

_CANONICAL = json.JSONEncoder(sort_keys=True, allow_nan=False, default=vars)

Fidelity = Literal["corrected", "published"]
Counting = Literal["strict", "published"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the model around the mixer; the defaults are MAD's."""

    d_model: int = 128
    """Width of the residual stream."""
    n_head: int = 2
    """Heads of every mixer, the softmax baseline included."""
    n_layer: int = 2
    """Blocks; a block is one mixer and one SwiGLU."""
    mix_rank: int = 16
    """Rank r of R(1) and R(2) before the budget is solved; strict counting may lower it."""
    rank_multiple: int = 1
    """Coarsens the per-head widths the budget solver may choose."""
    rope: Literal["rotation", "published"] = "rotation"
    """A true rotation, or the published code's pairing, in which scores depend on absolute positions."""

    def __post_init__(self):
        for name in ("d_model", "n_head", "n_layer", "mix_rank", "rank_multiple"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingConfig:
    """One optimiser run: AdamW, batches reshuffled every epoch."""

    learning_rate: float = 5e-4
    """AdamW step size at the start."""
    weight_decay: float = 0.0
    """Decoupled weight decay on linear maps; biases, norm gains and the diagonals p of R(1), R(2) do not decay."""
    epochs: int = 200
    """Passes over the training examples, unless accuracy stops the run earlier."""
    batch_size: int = 128
    """Examples per optimiser step; the last, smaller batch of an epoch is used too."""
    min_learning_rate: float = 1e-6
    """Where the cosine schedule ends; the published fidelity keeps the rate constant and ignores it."""
    stop_accuracy: float = 0.999
    """Ends the run once an evaluation reaches this accuracy."""
    precision: Precision = "float32"
    """Arithmetic of matrix products; parameters and optimiser stay in float32."""

    def __post_init__(self):
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "weight_decay", "min_learning_rate", "stop_accuracy"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be a number of at least 0, got {getattr(self, name)}")
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are one job


class JobBase:
    """What jobs of every kind share: a frozen dataclass whose content is its identity."""

    seed: int

    def to_dict(self) -> dict[str, Any]:
        """What ``dataclasses.asdict`` gives, in a fifth of the time."""
        return {name: _plain_copy(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, mapping: dict[str, Any], where: str = "job"):
        return from_mapping(cls, mapping, where)

    @functools.cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same on every machine."""
        return content_id({name: getattr(self, name) for name in self.__dataclass_fields__})

    def copy(self, label: str, seed: int, id: str = "") -> Self:
        """This job with another label and seed, and so with another id, which is worked out unless it is known.

        Many copies of one job cost little.
        """
        job = object.__new__(type(self))  # nothing that the constructor checks has changed
        if not id:
            start, middle, end = self._text_around
            id = _digest(f"{start}{_scalar_text(label)}{middle}{_scalar_text(seed)}{end}")
        vars(job).update(self._fields, label=label, seed=seed, id=id)
        return job

    @functools.cached_property
    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @functools.cached_property
    def _text_around(self) -> list[str]:
        """The text that is hashed, before, between and after label and seed."""
        gap = os.urandom(16).hex()
        return _canonical_text(self._fields | {"label": gap, "seed": gap}).split(f'"{gap}"')

    def derived_seed(self, stream: Literal["init", "data", "order"]) -> int:
        """A 63-bit seed for one source of randomness; streams of one job seed are independent of each other."""
        digest = hashlib.sha256(f"{stream}:{self.seed}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def _plain_copy(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {key: _plain_copy(item) for key, item in value.items()}
    return copy.deepcopy(value)


_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Job(JobBase):
    """One training run of one label on one task setting."""

    label: str
    """Canonical label of the mixer."""
    task: str
    """MAD task."""
    setting: dict[str, Any]
    """Parameters of the task: the fields of its settings class."""
    model: ModelConfig = ModelConfig()
    """Model around the mixer."""
    training: TrainingConfig = TrainingConfig()
    """Optimiser run."""
    seed: int = 0
    """Decides initialisation, data and order, each through a stream of its own."""
    fidelity: Fidelity = "corrected"
    """Protocol: ours, or the reference implementation's with its quirks."""
    counting: Counting = "strict"
    """What the parameter budget counts."""


NAMELESS = {"label": "", "seed": 0}
"""In place of what :meth:`JobBase.copy` changes."""


def content_id(mapping: dict[str, Any]) -> str:
    """The id of the job with these fields; configurations may be mappings, as in :meth:`Job.to_dict`, or objects."""
    return _digest(_canonical_text(mapping))


def _canonical_text(mapping: dict[str, Any]) -> str:
    return _CANONICAL.encode({"schema": SCHEMA, **mapping})


@functools.lru_cache(typed=True)
def _scalar_text(value: str | int) -> str:
    return _CANONICAL.encode(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


Status = Literal["finished", "diverged", "failed"]


@dataclass(frozen=True)
class Record:
    """What a job gave. ``diverged`` (NaN or Inf) is a result; ``failed`` (crash, out of memory) is not."""

    status: Status
    metrics: dict[str, float] = field(default_factory=dict)
    """Final numbers by name: test_accuracy, validation_accuracy, test_loss, ..."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """One row an evaluation: epoch, step, train_loss, validation_loss, ..."""
    details: dict[str, Any] = field(default_factory=dict)
    """Ranks, both parameter counts, path, device, versions, git state, seeds by source, timings."""
    error: str = ""
    """Why a failed job failed, or when a diverged one diverged."""


class StopTraining(BaseException):
    """Raised by a progress report to end a run without a result: the run saves its state and lets this pass.

    Not an ``Exception``, as ``KeyboardInterrupt`` is none: no handler of failures may take it for one.
    """
