"""Reading of the runs in a results folder, which :mod:`madbench.store.runs` describes."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from madbench.config import short_repr
from madbench.details import Details
from madbench.errors import StoreError
from madbench.files import (
    explain_os_errors,
    file_digest,
    parse_json,
    read_file,
)
from madbench.jobs import SCHEMA, WEIGHTS, Job, Record, Status
from madbench.store.columns import IndexEntry
from madbench.store.format import (
    MEASUREMENTS,
    NAMES,
    DamagedRunError,
    Measurement,
    OtherVersionError,
    damaged_measurements,
    read_measurements,
    read_run,
)
from madbench.store.html import html_table
from madbench.store.index import Found, RunIndex, Track
from madbench.store.results_folder import no_results_folder, training_command
from madbench.suites.code import RunCode, run_code

RESULT_STATUSES = ("finished", "diverged")
"""The statuses of runs that have a result."""


@dataclass(frozen=True)
class Run:
    """A stored run: its job and its record."""

    job: Job
    record: Record
    runs: Path
    """The folder ``runs`` of the store, which has the folders of all runs."""

    @property
    def folder(self) -> Path:
        return self.runs / self.job.id

    def _repr_html_(self) -> str:
        job, record = self.job, self.record
        row = {"label": job.label, "task": job.task, "seed": job.seed, "status": record.status, **record.metrics}
        return html_table([row], f"run {job.id} in {self.runs}{f': {record.error}' if record.error else ''}")


class StoredRuns:
    """The runs in the results folder ``root``, for reading. :meth:`open` makes it and checks the folder.

    The constructor touches no file. Any number of processes may use one folder at the same time, but each object
    belongs to one thread.
    """

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self.problems: list[str] = []  # one line per folder skipped by the last :meth:`runs`, with the reason
        self.track: Track = iter  # shows progress while many folders are read
        self._runs = self.root / "runs"

    @classmethod
    def open(cls, root: Path | str) -> Self:
        """Open the results folder ``root`` for reading.

        Raises ``StoreError`` if the folder cannot be read, does not exist or has no folder ``runs``, and
        ``OtherVersionError`` if its first few runs all have another format.
        """
        store = cls(root)
        if not store.root.exists():
            raise no_results_folder(store.root)
        if not store.root.is_dir():
            raise StoreError(f"{store.root}: is a file, not a results folder")
        if not store._runs.is_dir():
            raise StoreError(f"{store.root}: no runs yet (no folder 'runs'); {training_command(store.root)} makes some")
        store._check_version()
        return store

    def status(self, job: Job | str) -> Status | None:
        """The status of the run of a job, which is given as a job or as its id.

        None if the run is missing or damaged.
        """
        record = _record(self._try(job if isinstance(job, str) else job.id))
        return record.status if record else None

    def has(self, job: Job) -> bool:
        """True if the job has a finished or diverged run.

        False for a failed run, because the job can be trained again.
        """
        return self.status(job) in RESULT_STATUSES

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have no finished or diverged run, in order and without duplicates.

        Faster than :meth:`has` for each job, because the folder of runs is listed once.
        """
        unique = {job.id: job for job in jobs}
        records = self.records(unique)
        return [job for job_id, job in unique.items() if job_id not in records or records[job_id].status == "failed"]

    def read(self, job_id: str) -> Run:
        """Read a run with its curve.

        Raises ``StoreError`` if it is missing, and ``DamagedRunError`` if it is damaged.
        """
        return Run(*self._read(job_id)[:2], self._runs)

    def runs(self, with_curves: bool = True, suite: str | None = None) -> Iterator[Run]:
        """Yield every readable run, or every readable run of the suite named ``suite``, ordered by id.

        If ``with_curves`` is False, every ``record.curve`` is empty, and runs are read from the index, which is faster.
        After the iteration, ``problems`` has one line per folder of a run, of any suite, that could not be read.
        Folders in another format share one line per format.
        """
        for job, record in self._readable(with_curves):
            if suite in (None, job.suite):
                yield Run(job, record, self._runs)

    def job_ids(self) -> list[str]:
        """The ids of all stored runs, sorted, including damaged runs. They are the names of the folders in ``runs``."""
        with explain_os_errors(self._runs):
            return sorted(name for name in os.listdir(self._runs) if not name.startswith("."))

    def jobs(self) -> dict[str, Job]:
        """The job of every readable run, by id. Sets ``problems`` to one line per run that could not be read."""
        return {job.id: job for job, _ in self._readable(with_curves=False)}

    def time_written(self, job_id: str) -> str:
        """The time, in UTC, at which the record of a run was written, such as ``2026-01-31 12:00:00``.

        Raises ``FileNotFoundError`` if the run is missing.
        """
        seconds = (self._runs / job_id / "record.json").stat().st_mtime
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"

    def records(self, job_ids: Iterable[str]) -> dict[str, Record]:
        """The records of the runs with these ids, by id, with empty curves. Missing and damaged runs are left out.

        Raises ``StoreError`` if a file exists but cannot be read.
        """
        stored_ids = set(self.job_ids())
        runs = self._look_up([job_id for job_id in job_ids if job_id in stored_ids])
        return {job_id: record for job_id, run in runs.items() if (record := _record(run))}

    def damaged(self, job_ids: Iterable[str]) -> list[DamagedRunError]:
        """One error for each of the runs ``job_ids`` that is stored but damaged. It says what is damaged.

        A damaged run counts as missing, so its job is trained again.
        """
        stored_ids = set(self.job_ids())
        runs = self._look_up([job_id for job_id in job_ids if job_id in stored_ids])
        return [run for run in runs.values() if isinstance(run, DamagedRunError)]

    def has_weights(self, job_id: str) -> bool:
        """True if a run has a file of weights. Its content is not verified. Use :meth:`kept_file` for that."""
        return (self._runs / job_id / WEIGHTS).is_file()

    def kept_files(self, job_id: str) -> dict[str, str]:
        """The SHA-256 digests of the files that a run kept besides its record, such as weights, by file name.

        Raises ``StoreError`` if the run is missing, and ``DamagedRunError`` if it is damaged.
        """
        return self._read(job_id)[2]

    def kept_file(self, job_id: str, name: str) -> Path:
        """The path of a file that a run kept, such as ``weights.safetensors``. Its digest is verified first.

        Raises ``StoreError`` if the run has no such file, and ``DamagedRunError`` if the file's content has changed.
        """
        digest, path = self._read(job_id)[2].get(name), self._runs / job_id / name
        if digest is None:
            raise StoreError(f"{path.parent}: the run left no file {short_repr(name)}")
        with explain_os_errors(path):
            if not path.is_file() or file_digest(path) != digest:
                raise DamagedRunError(f"{path}: differs from what the run wrote; train it again with --force")
        return path

    def problems_of(self, job_id: str) -> list[str]:
        """One line per problem in the folder of a run that was unpacked from an archive (:meth:`check`).

        Empty if the folder is sound.
        """
        return self.check(job_id, is_of_archive=True)[1]

    def check(self, job_id: str, is_of_archive: bool = False) -> tuple[Run | None, list[str]]:
        """Read and verify every file in a run's folder. Return the run, and one line per problem, with a remedy.

        The run is None if its job or record cannot be read. The index of the store is not used. If ``is_of_archive`` is
        true, the line for a run that cannot be read has no remedy, because the remedy only works in a store.
        """
        folder = self._runs / job_id
        try:
            job, record, digests = self._read(job_id)
        except StoreError as error:
            return None, [str(error) if is_of_archive else _with_remedy(error, folder)]
        problems = damaged_measurements(folder)
        for name in digests:
            try:
                self.kept_file(job_id, name)
            except StoreError as error:
                problems.append(str(error))
        problems += [f"{folder / name}: not of this run; delete it" for name in _strays(folder, digests)]
        return Run(job, record, self._runs), problems

    def measurements(self, job_id: str) -> list[Measurement]:
        """The measurements of a run. Of measurements with the same name and settings, only the newest.

        Raises ``StoreError`` if the run or a measurement cannot be read.
        """
        self._read(job_id)
        return read_measurements(self._runs / job_id)

    def all_measurements(self, job_ids: Iterable[str]) -> dict[str, list[Measurement]]:
        """The measurements of several runs, by id of the run. Runs without measurements are left out.

        Runs whose measurements cannot be read are also left out, and ``problems`` gets one more line for each of them.
        """
        measurements_by_run = {}
        for job_id in job_ids:
            try:
                if measurements := read_measurements(self._runs / job_id):
                    measurements_by_run[job_id] = measurements
            except StoreError as error:
                self.problems.append(str(error))
        return measurements_by_run

    def _readable(self, with_curves: bool) -> Iterator[tuple[Job, Record]]:
        self.problems = []
        names = self.job_ids()
        runs = (self._try(name, True) for name in names) if with_curves else self._look_up(names).values()
        others: Counter[int | None] = Counter()
        for name, run in zip(names, runs):
            if isinstance(run, tuple):
                yield run
            elif isinstance(run, OtherVersionError):
                others[run.schema] += 1
            elif run:
                self.problems.append(_with_remedy(run, self._runs / name))
        self.problems += [str(OtherVersionError(f"{self._runs}: {n} runs", schema)) for schema, n in others.items()]

    @property
    def index_entries(self) -> Mapping[str, IndexEntry]:
        """The index entries (:mod:`madbench.store.columns`) of runs, by id.

        Only runs that :meth:`jobs`, :meth:`records` or another method read from the index before have an entry.
        """
        return self._index.entries

    def run_code(self, job: Job, details: Details) -> RunCode:
        """The state of the code that trained a run, compared with the installed code.

        ``details`` are the details of the run's record. They are only used if the index does not have the state.
        """
        entry = self.index_entries.get(job.id)
        return (entry and entry.run_code) or run_code(job, details)

    @functools.cached_property
    def _index(self) -> RunIndex:
        return RunIndex(self.root)

    def _look_up(self, names: Sequence[str]) -> Mapping[str, Found]:
        return self._index.look_up(names, self._try, self.track)

    def _try(self, name: str, with_curve: bool = False) -> Found:
        try:
            return self._read(name, with_curve)[:2]
        except StoreError as error:
            return error if (self._runs / name).exists() else None

    def _read(self, job_id: str, with_curve: bool = True) -> tuple[Job, Record, dict[str, str]]:
        folder = self._runs / job_id
        if not folder.exists():
            raise StoreError(f"{self.root}: holds no run {short_repr(job_id)}")
        try:
            return read_run(folder, with_curve)
        except DamagedRunError:  # perhaps another process replaced the run while it was read: try again
            return read_run(folder, with_curve)

    def _check_version(self) -> None:
        """Raise ``OtherVersionError`` if the first few runs all have another format."""
        with explain_os_errors(self._runs), os.scandir(self._runs) as entries:
            first = list(itertools.islice((entry.name for entry in entries if not entry.name.startswith(".")), 3))
        if not any(_has_present_schema(self._runs / name) for name in first):
            runs = [self._try(name) for name in first]
            others = [run for run in runs if isinstance(run, OtherVersionError)]
            if others and len(others) == len(runs):  # if only some are, they may be damaged
                raise OtherVersionError(self.root, others[0].schema)


class Snapshot(StoredRuns):
    """Stored runs whose list of runs is read once, on first use, and never changes after that.

    Single runs, curves and measurements are read from the files each time.
    """

    @functools.cached_property
    def _runs_by_name(self) -> Mapping[str, Found]:
        return super()._look_up(super().job_ids())

    def job_ids(self) -> list[str]:
        return list(self._runs_by_name)

    def _look_up(self, names: Sequence[str]) -> Mapping[str, Found]:
        return {name: self._runs_by_name[name] for name in names}


def _has_present_schema(folder: Path) -> bool:
    """True if ``folder`` has a ``job.json`` in the format that this version reads. No other file is read."""
    with suppress(OSError, ValueError):
        fields = parse_json(read_file(folder / NAMES[0]))
        return isinstance(fields, dict) and fields.get("schema") == SCHEMA
    return False


def _strays(folder: Path, file_names: Iterable[str], prefix: str = "") -> Iterator[str]:
    """Yield the paths, inside a run's folder, of files and folders that do not belong to the run.

    ``file_names`` are the paths of the files that the run kept. ``folder`` is the run's folder or a folder in it, and
    ``prefix`` is the path of ``folder`` inside the run's folder.
    """
    expected = {*file_names, *(NAMES if not prefix else ())}
    folders = {name[: i + 1] for name in file_names for i, letter in enumerate(name) if letter == "/"}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = f"{prefix}{entry.name}"
        if f"{name}/" in folders and entry.is_dir(follow_symlinks=False):
            yield from _strays(Path(entry.path), file_names, f"{name}/")
        elif name not in expected and name != MEASUREMENTS:  # files in this folder are verified by their names
            yield name


def _with_remedy(error: StoreError, folder: Path) -> str:
    """The message of an error of reading the run in ``folder``, with a remedy if the run is damaged."""
    remedy = f"; repeat the command that trained it, or delete {folder}" if type(error) is DamagedRunError else ""
    return f"{error}{remedy}"


def _record(run: Found) -> Record | None:
    """The record in the result of reading a run. None if the run is missing or damaged.

    Raises the ``StoreError`` in ``run`` if the run could not be read for another reason.
    """
    if isinstance(run, StoreError) and not isinstance(run, DamagedRunError):
        raise run
    return run[1] if isinstance(run, tuple) else None
