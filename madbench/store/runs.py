"""The store of runs: one folder per run, which appears complete or not at all.

``<root>/runs/<job id>/`` has ``job.json``, ``record.json`` and ``curve.csv`` of a finished, diverged or failed run. It
also has the files that the run left in ``<root>/work/<job id>/keep/``, such as its weights, and later measurements of
the run.

``<root>/work/<job id>/`` is the work folder of a run in progress. It has the file ``lock``, the checkpoint, and
temporary files ending in ``.tmp``. The folder belongs to the process that holds the lock, and only that process writes
the run. The kernel releases the lock of a killed process, and the next owner removes the temporary files. A work folder
is never a link, so nothing outside of it is deleted. ``<root>``, ``runs`` and ``work`` may be links.

No decision depends on the clock. ``<root>/index/`` caches the data that tables read from many runs. It can be deleted.
"""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from madbench.config import short_repr
from madbench.config.options import option
from madbench.details import Details
from madbench.errors import StoreError
from madbench.files import (
    explain_os_errors,
    file_digest,
    lock_folder,
    make_folder,
    may_exist,
    parse_json,
    read_file,
    refuse_link,
    remove,
    sync_folder,
    write_durably,
)
from madbench.jobs import KEEP, SCHEMA, WEIGHTS, Job, Record, Status
from madbench.store.columns import IndexEntry
from madbench.store.format import (
    MEASUREMENTS,
    NAMES,
    DamagedRunError,
    Measurement,
    OtherVersionError,
    add_measurement,
    damaged_measurements,
    encode,
    read_measurements,
    read_run,
)
from madbench.store.html import html_table
from madbench.store.index import Found, RunIndex, Track
from madbench.suites.code import RunCode, run_code

RESULTS = Path("results")
"""The default results folder."""
ResultsOption = Annotated[Path, option("Folder of the run store.")]

_REPLACED = "replaced.tmp"
_RESULTS = ("finished", "diverged")


class StoreBusyError(StoreError):
    """Raised if a job is already locked: another process, or this one, works on it."""


def no_results_folder(results: Path) -> StoreError:
    """The error of a results folder that does not exist, with a command that makes it."""
    return StoreError(f"{results}: there is no such results folder; {training_command(results)} makes it")


def command_on(results: Path, *words: str) -> str:
    """The shell command ``madbench WORDS`` on the results folder ``results``.

    It has the option ``--results``, unless this is the default folder.
    """
    where = [] if results == RESULTS else ["--results", str(results)]
    return shlex.join(["madbench", *words, *where])


def training_command(results: Path, *options: str, labels: Sequence[str] = ("G-cg-q-12o",)) -> str:
    """The ``madbench run`` command that trains ``labels``, by default an example, into the results folder."""
    return command_on(results, "run", *labels, *options)


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


class Store:
    """The store of runs in the results folder ``root``. Create it with :meth:`open`, which checks the folder.

    The constructor touches no file. Any number of processes may use one store at the same time, but each object belongs
    to one thread.
    """

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self.problems: list[str] = []  # one line per folder skipped by the last :meth:`runs`, with the reason
        self.track: Track = iter  # shows progress while many folders are read
        self._locked: set[str] = set()
        self._runs = self.root / "runs"
        self._work = self.root / "work"

    @classmethod
    def open(cls, root: Path | str, create: bool = True) -> Self:
        """Open the store in the folder ``root``.

        If ``create`` is True, make missing folders and clean up after killed processes. Raises ``StoreError`` if the
        folder cannot be read or written, for example on a full disk.

        If ``create`` is False, the store is only read. Raises ``StoreError`` if the folder cannot be read, does not
        exist or has no folder ``runs``.

        In both cases, raises ``OtherVersionError`` if the first few runs all have another format.
        """
        store = cls(root)
        if create:
            with explain_os_errors(store.root):
                make_folder(store._runs)
                make_folder(store._work)
                with tempfile.TemporaryFile(dir=store._work) as probe:
                    probe.write(bytes(4096))
                    probe.flush()
                    os.fsync(probe.fileno())
        elif not store.root.exists():
            raise no_results_folder(store.root)
        elif not store.root.is_dir():
            raise StoreError(f"{store.root}: is a file, not a results folder")
        elif not store._runs.is_dir():
            raise StoreError(f"{store.root}: no runs yet (no folder 'runs'); {training_command(store.root)} makes some")
        with explain_os_errors(store._runs), os.scandir(store._runs) as entries:
            first = list(itertools.islice((entry.name for entry in entries if not entry.name.startswith(".")), 3))
        if not any(_has_present_schema(store._runs / name) for name in first):
            runs = [store._try(name) for name in first]
            others = [run for run in runs if isinstance(run, OtherVersionError)]
            if others and len(others) == len(runs):  # if only some are, they may be damaged
                raise OtherVersionError(store.root, others[0].schema)
        if create:
            store._drop_stale_work()
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
        return self.status(job) in _RESULTS

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

    def measure(
        self,
        job_id: str,
        name: str,
        values: Mapping[str, float],
        details: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Add a :class:`Measurement` to a stored run. It becomes the newest with this name and these settings.

        Hold the :meth:`lock` of the job from reading the run until after this call if another process may replace the
        run. Raises ``StoreError`` if the run is missing or damaged, and ``TypeError`` if a value is not a number.
        """
        self._read(job_id)
        measurement = Measurement(name, dict(values), dict(details or {}), dict(settings or {}))
        add_measurement(self._runs / job_id, measurement)

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

    @contextmanager
    def lock(self, job: Job | str, afresh: bool = False) -> Iterator[Path]:
        """Lock a job within a ``with`` block, and yield its work folder. No other process can lock the job meanwhile.

        If ``afresh`` is true, the work folder is emptied first. Otherwise a checkpoint in it stays, and only temporary
        files of a killed process are removed. Raises ``StoreBusyError`` if the job is already locked, also by this
        process, and ``StoreError`` if the folder or a file in it is a link.
        """
        job_id = job if isinstance(job, str) else job.id
        work = self._work / job_id
        with explain_os_errors(work):
            for path in (work, work / "lock", work / KEEP):
                refuse_link(path)
            try:
                lock = lock_folder(work)
            except BlockingIOError:
                raise StoreBusyError(f"{work}: another process is at work on this run") from None
        self._locked.add(job_id)
        try:
            with explain_os_errors(work):
                self._end_replacement(job_id)
                _empty(work, "" if afresh else ".tmp")
            yield work
        finally:
            self._locked.discard(job_id)
            with suppress(OSError):  # the next owner may already be in the folder, or it is gone
                if os.listdir(work) == ["lock"]:
                    (work / "lock").unlink()
                    work.rmdir()
            os.close(lock)

    def finish(self, job: Job, record: Record, replace: bool = False) -> None:
        """Store the run of a job: ``record``, and the files in the folder ``keep`` of the job's work folder.

        If the store already has a finished or diverged run of the job, this run is kept and ``record`` is dropped,
        unless ``replace`` is true and the new run has not failed. A failed or damaged run is always replaced. At the
        end the work folder is emptied, but a failed run keeps its checkpoint. The job is locked meanwhile, if the
        caller has not locked it.
        """
        if job.id not in self._locked:
            with self.lock(job):
                self.finish(job, record, replace)
            return
        is_wanted = (replace and record.status != "failed") or not self.has(job)
        if is_wanted:
            self._install(job, record)
            self._index.add(job.id, self._try)
        if not is_wanted or record.status != "failed":
            with explain_os_errors(self._work / job.id):
                _empty(self._work / job.id)

    def adopt(self, run: Run) -> None:
        """Move a run from another store to this store, unless this store has a finished or diverged run of the job.

        Both stores must be on the same file system.
        """
        with self.lock(run.job) as work, explain_os_errors(work):
            if not self.has(run.job):
                remove(work / KEEP)
                os.rename(run.folder, work / KEEP)
                try:
                    self._place(run.job.id)
                finally:
                    self._end_replacement(run.job.id)
            _empty(work)

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

    def _install(self, job: Job, record: Record) -> None:
        """Write the files of a run to the folder ``keep`` in its work folder, and move ``keep`` to the stored runs."""
        target, kept_files = self._runs / job.id, self._work / job.id / KEEP
        try:
            with explain_os_errors(target):
                kept_files.mkdir(exist_ok=True)
                for path in [*(kept_files / name for name in NAMES), *kept_files.rglob("*.tmp")]:
                    remove(path)  # an earlier try was killed
                others = [path for path in kept_files.rglob("*") if path.is_file()]
                files = encode(job, record, {str(path.relative_to(kept_files)): file_digest(path) for path in others})
                for name, content in files.items():
                    write_durably(kept_files / name, content)
                self._place(job.id)
        finally:
            with explain_os_errors(target):
                for name in NAMES:
                    remove(kept_files / name)  # half written on a full disk
                self._end_replacement(job.id)

    def _place(self, job_id: str) -> None:
        """Rename ``<root>/work/<job id>/keep`` to ``<root>/runs/<job id>``, so that the run appears at once.

        The folder of an earlier run of the job is first moved into the work folder.
        """
        target, kept_files = self._runs / job_id, self._work / job_id / KEEP
        sync_folder(kept_files)
        with suppress(FileNotFoundError):
            os.rename(target, self._work / job_id / _REPLACED)
        os.rename(kept_files, target)
        sync_folder(self._runs)

    def _end_replacement(self, job_id: str) -> None:
        """Move the earlier run back that :meth:`_place` moved away, if no new run replaced it. Otherwise delete it."""
        replaced_run = self._work / job_id / _REPLACED
        if replaced_run.exists() and not (self._runs / job_id).exists():
            os.rename(replaced_run, self._runs / job_id)
        remove(replaced_run)

    def _drop_stale_work(self) -> None:
        """Clean up after processes that were killed while they stored a run.

        Empty the work folders of jobs that have a finished or diverged run. Move earlier runs back that :meth:`_place`
        had moved away. A folder that cannot be removed, such as a folder of another user, stays; it does no harm.
        """
        with explain_os_errors(self._work):
            work_folders = [path for path in self._work.iterdir() if path.is_dir() and not path.is_symlink()]
        for path in work_folders:
            with suppress(StoreError):
                if may_exist(path / _REPLACED) or self.status(path.name) in _RESULTS:
                    with self.lock(path.name), explain_os_errors(path):
                        if self.status(path.name) in _RESULTS:
                            _empty(path)


class Snapshot(Store):
    """A read-only store whose list of runs is read once, on first use, and never changes after that.

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


def _empty(work: Path, ending: str = "") -> None:
    for name in os.listdir(work):
        if name != "lock" and name.endswith(ending):
            remove(work / name)
