"""The folder of a Slurm job, through which the Slurm job and its driver exchange text files.

``<results>/slurm/<id>/`` belongs to the Slurm job with this id, such as ``1000``, or ``1000_3`` in a job array:

- ``call.json``: the jobs to train and the training settings. The driver writes it as soon as Slurm has given the id.
  Slurm keeps its own copy of the job's script, which contains the SHA-256 of this file. If someone else changed the
  file, the Slurm job does not use it.
- ``news.json``: the progress, replaced every few seconds.
- ``runs/<id of a job>/``: the record of a job that has ended, in the format of the store.
- ``outcome.json``: the ids of the ended jobs, and an error that is empty if every job has a record. Written last.

A driver reads these files as data only. It unpickles nothing, and imports nothing that the files name.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import operator
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from madbench._version import __version__
from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError
from madbench.execute.base import Policy, Train
from madbench.execute.messages import WorkerResult
from madbench.execute.worker import Assignment
from madbench.files import (
    explain_os_errors,
    parse_json,
    read_file,
    remove,
    seal,
    sync_folder,
    unseal,
    write_atomically,
    write_durably,
)
from madbench.jobs import Job, Record
from madbench.store.format import DamagedRunError, encode, read_run
from madbench.suites import job_from_dict
from madbench.text.manifest import Manifest
from madbench.training.options import LoopOptions

_ID = re.compile("[0-9]+(_[0-9]+)?")


class SlurmFolder:
    """The folder ``<results>/slurm/<id>`` of one Slurm job. The constructor touches no file."""

    def __init__(self, parent: Path, slurm_id: str):
        self.slurm_id = slurm_id
        self.path = parent / slurm_id
        self.call = self.path / "call.json"
        self.news = self.path / "news.json"
        self.runs = self.path / "runs"
        self.outcome = self.path / "outcome.json"

    def write_call(self, content: bytes) -> None:
        """Make the folder and write ``call.json``, for which the Slurm job waits."""
        with explain_os_errors(self.path):
            self.runs.mkdir(parents=True, exist_ok=True)
        write_atomically(self.call, content)

    def write_news(self, news: Mapping[str, Any]) -> None:
        """Write the progress of the Slurm job to ``news.json``. Errors of the disk are ignored."""
        with suppress(StoreError):
            write_atomically(self.news, json.dumps(news).encode())

    def read_news(self) -> dict[str, Any]:
        """The last progress of the Slurm job, from ``news.json``. Empty if it has not reported any."""
        return read_object(self.news) or {}

    def write_record(self, job: Job, record: Record) -> None:
        """Write the record of a job that has ended. Do nothing if the job has a record already.

        Other files of the run, such as weights, stay in its work folder. Raises ``StoreError`` if the record cannot be
        written, and ``TypeError`` if it has values that cannot be stored (:func:`madbench.store.format.encode`).
        """
        target, half = self.runs / job.id, self.runs / f".{job.id}.{os.urandom(4).hex()}.tmp"
        if target.exists():  # written before this Slurm job was queued again
            return
        with explain_os_errors(target):
            half.mkdir()
            for name, content in encode(job, record).items():
                write_durably(half / name, content)
            sync_folder(half)
            half.rename(target)

    def read_record(self, job: Job) -> Record | None:
        """The record that the Slurm job wrote for ``job``. None if it is missing, damaged or unreadable."""
        try:
            return read_run(self.runs / job.id)[1]
        except StoreError:
            return None

    def write_outcome(self, jobs: Sequence[Job], outcome: WorkerResult) -> None:
        """Write the records in ``outcome`` that are not written yet, and then ``outcome.json``.

        ``jobs`` are the jobs that the Slurm job trains, in the order of ``outcome.records``.
        """
        ended_jobs = [(job, record) for job, record in zip(jobs, outcome.records) if record]
        for job, record in ended_jobs:
            self.write_record(job, record)
        content = {"ended": [job.id for job, _ in ended_jobs], "error": outcome.error, "broken": outcome.broken}
        write_atomically(self.outcome, json.dumps(seal(content)).encode())

    def read_outcome(self, jobs: Sequence[Job]) -> WorkerResult:
        """The outcome of the Slurm job, with one record or None per job in ``jobs``, in their order.

        None stands for a job that has not ended. Raises ``DamagedRunError`` if a file is damaged, and ``StoreError`` if
        ``outcome.json`` cannot be read.
        """
        with explain_os_errors(self.outcome):
            content = read_file(self.outcome)
        try:
            outcome = unseal(content)
            ended_ids, error, broken = outcome["ended"], str(outcome["error"]), str(outcome["broken"])
            records = [self.read_record(job) if job.id in ended_ids else None for job in jobs]
        except (KeyError, RecursionError, TypeError, ValueError) as problem:
            raise DamagedRunError(f"{self.outcome}: {problem}") from problem
        for job, record in zip(jobs, records):
            if record is None and job.id in ended_ids:
                raise DamagedRunError(f"{self.runs / job.id}: damaged or missing")
        return WorkerResult(records, [{}] * len(records), error, broken)

    def remove(self) -> None:
        with suppress(OSError):
            remove(self.path)


def slurm_folders(parent: Path) -> list[SlurmFolder]:
    """The folders of all Slurm jobs in ``parent``, which is ``<results>/slurm``. Empty if ``parent`` cannot be read."""
    with suppress(OSError):
        return [SlurmFolder(parent, name) for name in sorted(os.listdir(parent)) if _ID.fullmatch(name)]
    return []


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file. None if the file cannot be read or does not contain a JSON object."""
    try:
        content = parse_json(read_file(path), any_text=True)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encode_call(assignment: Assignment, needs_gpu: bool, sbatch_options: Mapping[str, Any], name: str) -> bytes:
    """The content of ``call.json``: the assignment, and the name and options with which Slurm queues the job.

    ``sbatch_options`` are the options of sbatch. A driver that takes over the Slurm job compares them with its own. If
    ``needs_gpu`` is true, the Slurm job refuses to train on a machine without a GPU.
    """
    call = {**training_of(assignment), "needs_gpu": needs_gpu, "asked": sbatch_options, "name": name}
    return json.dumps(call, allow_nan=False).encode()


def training_of(assignment: Assignment) -> dict[str, Any]:
    """The content of an assignment as JSON: jobs, work folders, version, time limit and training function.

    Two assignments train the same jobs in the same way if the results are equal.
    """
    jobs, works = assignment.jobs, assignment.works or ()
    training = {
        "version": __version__,
        "jobs": {job.id: job.to_dict() for job in jobs},
        "works": {job.id: str(work) for job, work in zip(jobs, works)},
        "time_limit": assignment.policy.time_limit,
        "train": _encode_train(assignment.train),
        "importable": assignment.importable_labels,
    }
    return as_json(training)


def as_json(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """``mapping`` as it would be after writing it as JSON and reading it back.

    Tuples become lists, and objects that JSON does not have become text. Raises ``ValueError`` for NaN and infinities.
    """
    plain: dict[str, Any] = json.loads(json.dumps(mapping, default=str, allow_nan=False))
    return plain


def assignment_of(call: Mapping[str, Any]) -> Assignment:
    """The assignment that a ``call.json`` with this content describes. The training function is imported.

    Call it only on the machine that trains, and only after the file's digest was verified. Raises ``ImportError`` or
    ``MadbenchError`` if this machine lacks a package or has another version of it.
    """
    jobs = [job_from_dict(job, f"job {job_id}") for job_id, job in call["jobs"].items()]
    if [job.id for job in jobs] != list(call["jobs"]):
        raise StoreError("a job has another id than on the driver's machine; install the same packages on both")
    works = [Path(call["works"][job.id]) for job in jobs]
    policy = Policy(time_limit=call["time_limit"])
    return Assignment(jobs, _decode_train(call["train"]), policy, works, call["importable"])


def _encode_train(train: Train) -> dict[str, Any]:
    """A training function as JSON: its import name, and the keyword arguments that a partial binds to it."""
    function, settings = (train.func, train.keywords) if isinstance(train, functools.partial) else (train, {})
    return {
        "function": f"{function.__module__}:{function.__qualname__}",
        "settings": {name: _encode_setting(name, value) for name, value in settings.items()},
    }


def _decode_train(encoded: Mapping[str, Any]) -> Train:
    module, _, name = encoded["function"].partition(":")
    function = operator.attrgetter(name)(importlib.import_module(module))
    return functools.partial(function, **{name: _decode_setting(value) for name, value in encoded["settings"].items()})


def _encode_setting(name: str, value: Any) -> Any:
    """One keyword argument of the training function as JSON. Text, numbers, booleans and None are unchanged.

    Paths, corpora, mappings and the options of the training loop become JSON objects. Raises ``ConfigError``, which
    mentions ``name``, for other values.
    """
    from madbench.text.corpus import Corpus

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, Corpus):
        cache = None if value.cache is None else str(value.cache)
        return {"corpus": asdict(value.manifest), "folder": str(value.folder), "cache": cache}
    if isinstance(value, LoopOptions):
        return {"options": {key: _encode_setting(key, item) for key, item in vars(value).items()}}
    if isinstance(value, Mapping):
        return {"mapping": {key: _encode_setting(name, item) for key, item in value.items()}}
    problem = f"{name} is an object of {type(value).__name__}, which Slurm jobs cannot be told"
    raise ConfigError(f"{problem}; expected numbers, text, paths, corpora, LoopOptions and mappings of these")


def _decode_setting(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "path" in value:
        return Path(value["path"])
    if "corpus" in value:
        from madbench.text.corpus import Corpus

        cache = None if value["cache"] is None else Path(value["cache"])
        return Corpus(Path(value["folder"]), from_mapping(Manifest, value["corpus"], "the corpus"), cache)
    if "options" in value:
        return LoopOptions(**{key: _decode_setting(item) for key, item in value["options"].items()})
    return {key: _decode_setting(item) for key, item in value["mapping"].items()}
