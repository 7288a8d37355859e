"""Job: everything that decides a number of one training run, and nothing else. Record: what a job gave.

A job's ``id`` is a hash of its content. Two different jobs never share an id; the device, the path that computed the
operator and the time of day are not part of a job, and are recorded with its result instead.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = 4  # raised when the same job would give other numbers than before, or be stored in another form

KEEP = "keep"  # folder in a job's work folder for files that stay with the stored run, such as its weights
WEIGHTS = "weights.safetensors"  # the file of the weights there

NOT_AT_DEFAULT = {"in_id_at_default": False}
"""Metadata of a configuration's field that changes no id as long as it has its default: ids outlive new settings."""

Fidelity = Literal["corrected", "published"]
Budget = Literal["strict", "paper"]
LEAST_MATCHED = 0.9
"""Parameters over softmax attention's below which a mixer is not called matched to it."""
LEAST_SEEDS = 3
"""Seeds of each label that a test or a mark in a table needs."""
Precision = Literal["float32", "bfloat16"]
Status = Literal["finished", "diverged", "failed"]


@dataclass(frozen=True)
class Job:
    """One training run of one label."""

    suite: str  # suite that trains it: ``mad``, ``language`` or ``interactions``
    task: str  # MAD task, world of agents, or ``language_model``
    label: str  # canonical label of the mixer
    family: str  # identity of the label's family: its version, and of an installed one a hash of its source
    setting: dict[str, Any]
    """What is learned: the fields of a task's setting, or the digest of a corpus and its number of token ids."""
    model: Any  # model around the mixer: the suite's ``Model``
    mixer: dict[str, Any]  # settings of the mixer: the fields of its family's ``Settings``
    training: Any  # optimiser run: the suite's ``Training``
    seed: int = 0  # decides initialisation, data and order, each through a stream of its own
    fidelity: Fidelity = "corrected"  # protocol: ours, or the reference implementation's with its quirks
    budget: Budget = "strict"  # what the parameter budget counts
    task_source: str = ""  # of a task of an installed package, a hash of its source

    @functools.cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same on every machine."""
        own = (self.suite, self.task, self.label, self.family, self.seed, self.fidelity, self.budget, self.task_source)
        shared = (mapping_text(self.setting), _config_text(self.model), mapping_text(self.mixer))
        return _id_of("\n".join([f"{SCHEMA} {own}", *shared, _config_text(self.training)]))

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them; :func:`madbench.suites.job_from_dict` gives the job back."""
        return dataclasses.asdict(self)

    def derived_seed(self, stream: Literal["init", "data", "order"]) -> int:
        """A 63-bit seed for one source of randomness; streams of one job seed are independent of each other."""
        digest = hashlib.sha256(f"{stream}:{self.seed}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def identifying(config: Any) -> dict[str, Any]:
    """The fields of a configuration that say what it is."""
    return {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default or field.metadata.get("in_id_at_default", True)
    }


_CANONICAL = json.JSONEncoder(sort_keys=True, allow_nan=False, default=identifying)


def content_id(mapping: dict[str, Any]) -> str:
    """16 hexadecimal digits of a mapping's content; configurations in it may be mappings or dataclasses."""
    return _id_of(_CANONICAL.encode({"schema": SCHEMA, **mapping}))


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def mapping_text(mapping: dict[str, Any]) -> str:
    """The JSON of a mapping with sorted keys, made once for all jobs that share it."""
    key = repr(mapping)
    if key not in _TEXTS:
        _TEXTS[key] = _CANONICAL.encode(mapping)
    return _TEXTS[key]


_TEXTS: dict[str, str] = {}


@functools.cache
def _config_text(config: Any) -> str:
    return _CANONICAL.encode(config)


@dataclass(frozen=True)
class Record:
    """What a job gave. ``diverged`` (NaN or Inf) is a result; ``failed`` (crash, out of memory) is not."""

    status: Status
    metrics: dict[str, float] = field(default_factory=dict)  # final numbers by name: accuracy, test_loss, ...
    curve: list[dict[str, float]] = field(default_factory=list)
    """One row an evaluation or logged step: step, train_loss, validation_loss, ..."""
    details: dict[str, Any] = field(default_factory=dict)
    """Ranks, parameter counts, path, device, versions, git state, seeds by source, timings."""
    error: str = ""  # why a failed job failed, or when a diverged one diverged

    def difference(self, other: Record) -> float:
        """The largest difference of a metric; 0 where all are equal to the last bit, infinite where one is missing."""
        if self.status != other.status or self.metrics.keys() != other.metrics.keys():
            return math.inf
        pairs = [(self.metrics[name], other.metrics[name]) for name in self.metrics]
        return max((abs(a - b) for a, b in pairs if a != b and not (math.isnan(a) and math.isnan(b))), default=0.0)


class StopTraining(BaseException):
    """Raised by a progress report to end a run without a result: the run saves its state and lets this pass.

    Not an ``Exception``, as ``KeyboardInterrupt`` is none: no handler of failures may take it for one.
    """


@dataclass(frozen=True)
class Report:
    """What a training run tells while it runs; called with a job and its progress, which may raise ``StopTraining``."""

    progress: Callable[[Job, dict[str, Any]], None]
    ended: Callable[[Job, Record], None]  # takes the record of a job that ends before the others of its group

    def __call__(self, job: Job, progress: dict[str, Any]) -> None:
        self.progress(job, progress)
