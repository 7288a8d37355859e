"""The store of runs. Files are the truth: one folder a run, written once, atomically.

``<root>/runs/<job id>/`` holds ``job.json``, ``record.json`` and ``curve.csv`` of a finished, diverged or failed run, and
the files that it left in ``<root>/work/<job id>/keep/``, such as its weights.
``<root>/work/<job id>/`` holds what is in progress: ``lock``, the checkpoint, and names ending in ``.tmp`` that mean
nothing once their writer is gone. A folder of ``work`` belongs to the process holding its lock, and only that process
writes the run; the kernel frees the lock of a killed process, and the next owner sweeps up what it left.

The content of the three files is :mod:`madbench.store.format`'s. Nothing depends on the clock. Of a store with many runs
``<root>/index/`` caches what tables need (:mod:`madbench.store.index`); it can be deleted at any time.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from madbench.errors import StoreError
from madbench.files import explain_os_errors, lock_folder, remove, sync_folder, write_atomically
from madbench.jobs import JobBase, Record, Status
from madbench.store.format import DamagedRunError, RunFiles, encode
from madbench.store.index import Found, RunIndex, Track

KEEP = "keep"  # a work folder's files for the run's own folder

__all__ = ["DamagedRunError", "Run", "Snapshot", "Store", "StoreBusyError", "write_atomically"]


class StoreBusyError(StoreError):
    """Another live process is working on this job."""


@dataclass(frozen=True)
class Run:
    """A stored job, what it gave, and the folder that says so."""

    job: JobBase
    record: Record
    folder: Path


class Store:
    """The results folder ``root``. Use :meth:`open`, which checks it; the constructor touches no file.

    Any number of processes may use one store at a time. An object belongs to one thread.
    """

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self.problems: list[str] = []
        """Why :meth:`runs` skipped a folder, one line each, since it last began."""
        self.track: Track = iter
        """Shows progress while many folders are read."""
        self._claimed: set[str] = set()

    @classmethod
    def open(cls, root: Path | str, create: bool = True) -> Self:
        """The store in ``root``, proven writable; with ``create=False`` for reading only, and it must exist.

        Raises ``StoreError`` where ``root`` is a file, cannot be written or read, or is on a full disk.
        """
        store = cls(root)
        if not create:
            if not store.root.exists():
                raise StoreError(f"{store.root}: there is no such results folder")
            if not store._runs.is_dir():
                raise StoreError(f"{store.root}: not a results folder: it holds no folder 'runs'")
            with explain_os_errors(store._runs):
                os.listdir(store._runs)
            return store
        with explain_os_errors(store.root):
            store._runs.mkdir(parents=True, exist_ok=True)
            store._work.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=store._work) as probe:
                probe.write(bytes(4096))
                probe.flush()
                os.fsync(probe.fileno())
        store._drop_stale_work()
        return store

    @property
    def _runs(self) -> Path:
        return self.root / "runs"

    @property
    def _work(self) -> Path:
        return self.root / "work"

    def status(self, job: JobBase) -> Status | None:
        """Status of the job's stored run; None where there is none, or a damaged one that must be done again."""
        return self._status(job.id)

    def has(self, job: JobBase) -> bool:
        """Whether the job has a result, finished or diverged. A failed run is none: it may be tried again."""
        return self.status(job) in ("finished", "diverged")

    def missing(self, jobs: Iterable[JobBase]) -> list[JobBase]:
        """The jobs without a result, in their order, each id once. The folder is listed once."""
        unique = {job.id: job for job in jobs}
        results = {job_id for job_id, record in self.records(unique).items() if record.status != "failed"}
        return [job for job_id, job in unique.items() if job_id not in results]

    def read(self, job_id: str) -> Run:
        """One run. Raises ``StoreError`` where there is none and ``DamagedRunError`` where it cannot be trusted."""
        folder = self._runs / job_id
        if not folder.is_dir():
            raise StoreError(f"{self.root}: holds no run {job_id!r}")
        return self._read(job_id, with_curve=True)

    def runs(self, with_curves: bool = True, kind: type[JobBase] = JobBase) -> Iterator[Run]:
        """Every readable run with a job of this ``kind``, by id; the folders that are none are named in ``problems``.

        With ``with_curves=False`` every ``record.curve`` is empty, and many runs are looked up in the index.
        """
        folder = self._runs
        for name, (job, record) in self._readable(with_curves):
            if isinstance(job, kind):
                yield Run(job, record, folder / name)

    def jobs(self) -> dict[str, JobBase]:
        """The job of every readable run, by id; the folders that are none are named in ``problems``."""
        return {name: job for name, (job, _) in self._readable(with_curves=False)}

    def _readable(self, with_curves: bool) -> Iterator[tuple[str, tuple[JobBase, Record]]]:
        self.problems = []
        names = self._listed()
        tries = (
            ((name, self._try(name, with_curve=True)) for name in names) if with_curves else self._without_curves(names)
        )
        for name, found in tries:
            if isinstance(found, tuple):
                yield name, found
            elif found:
                self.problems.append(str(found))

    def records(self, job_ids: Iterable[str]) -> dict[str, Record]:
        """What the runs asked for gave, by id and without curves; those absent or damaged are left out.

        The folder is listed once. Raises ``StoreError`` where a run cannot be read.
        """
        listed = set(self._listed())
        records = {}
        for job_id, found in self._without_curves([job_id for job_id in job_ids if job_id in listed]):
            if isinstance(found, StoreError) and not isinstance(found, DamagedRunError):
                raise found
            if isinstance(found, tuple):
                records[job_id] = found[1]
        return records

    @contextmanager
    def claim(self, job: JobBase, afresh: bool = False, is_shared: bool = False) -> Iterator[Path]:
        """Makes this process the only one at work on ``job``; gives its work folder, with any earlier checkpoint.

        With ``afresh`` the folder is emptied first. With ``is_shared`` a worker that was started under an earlier claim
        may be writing in it still, so that files it has begun are left. Raises ``StoreBusyError`` where another
        process, or another claim of this one, has it.
        """
        with self._claim(job.id, is_shared) as work:
            if afresh:
                with explain_os_errors(work):
                    _remove_content(work)
            yield work

    def finish(self, job: JobBase, record: Record, replace: bool = False) -> None:
        """Stores ``record`` and the files in ``keep`` of the work folder, under this store's claim of ``job`` or one
        taken here.

        An existing result stays and ``record`` is dropped: the first writer wins, unless ``replace`` is given and the
        new run has not failed. A failed or damaged run is replaced. The work folder goes, but a failed run keeps its
        checkpoint for the next try.
        """
        if job.id not in self._claimed:
            with self.claim(job):
                return self.finish(job, record, replace)
        if (replace and record.status != "failed") or not self.has(job):
            self._install(job.id, encode(job, record))
            RunIndex(self.root).append(job.id, self._try)
            if record.status == "failed":
                return
        with explain_os_errors(self._work / job.id):
            _remove_content(self._work / job.id)

    def _listed(self) -> list[str]:
        with explain_os_errors(self._runs):
            return sorted(name for name in os.listdir(self._runs) if not name.startswith("."))

    def _status(self, job_id: str) -> Status | None:
        if not (self._runs / job_id).exists():
            return None
        try:
            return self._read(job_id, with_curve=False).record.status
        except DamagedRunError:
            return None

    def _try(self, name: str, with_curve: bool = False) -> Found:
        try:
            return self._files(name).decode(with_curve)
        except StoreError as error:
            return error if (self._runs / name).exists() else None

    def _without_curves(self, names: Sequence[str]) -> Iterator[tuple[str, Found]]:
        """The names with what there is, from the index as far as that holds."""
        return RunIndex(self.root).look_up(names, self._try, self.track)

    def _read(self, job_id: str, with_curve: bool) -> Run:
        files = self._files(job_id)
        return Run(*files.decode(with_curve), files.folder)

    def _files(self, job_id: str) -> RunFiles:
        folder = self._runs / job_id
        try:
            return RunFiles.read(folder)
        except DamagedRunError:  # or replaced by another process between two of its files
            return RunFiles.read(folder)

    @contextmanager
    def _claim(self, job_id: str, is_shared: bool = False) -> Iterator[Path]:
        work = self._work / job_id
        with explain_os_errors(work):
            lock = _lock(work)
        self._claimed.add(job_id)
        try:
            with explain_os_errors(work):
                for leftover in () if is_shared else work.glob("*.tmp"):
                    remove(leftover)
            yield work
        finally:
            self._claimed.discard(job_id)
            try:
                with explain_os_errors(work):
                    _remove_if_empty(work)
            finally:
                os.close(lock)

    def _install(self, job_id: str, files: dict[str, bytes]) -> None:
        target = self._runs / job_id
        staged = self._work / job_id / "run.tmp"
        size = sum(map(len, files.values()))
        with explain_os_errors(target, size):
            remove(staged)
            try:
                staged.mkdir()
                for name, content in files.items():
                    with open(staged / name, "xb") as file:
                        file.write(content)
                        file.flush()
                        os.utime(file.fileno(), ns=(now := time.time_ns(), now))  # see RunIndex.append
                        os.fsync(file.fileno())
                kept = self._work / job_id / KEEP
                for path in kept.iterdir() if kept.is_dir() else ():
                    os.rename(path, staged / path.name)
                sync_folder(staged)
                self._move_away(job_id)
                os.rename(staged, target)
                sync_folder(self._runs)
            except BaseException:
                remove(staged)
                raise

    def _move_away(self, job_id: str) -> None:
        replaced = self._work / job_id / "replaced.tmp"
        with suppress(FileNotFoundError):
            os.rename(self._runs / job_id, replaced)
            sync_folder(self._runs)
        remove(replaced)

    def _drop_stale_work(self) -> None:
        """Removes the work folders whose owner was killed after storing its run."""
        with explain_os_errors(self._work):
            in_progress = [entry.name for entry in os.scandir(self._work) if entry.is_dir()]
        for job_id in in_progress:
            if self._status(job_id) in ("finished", "diverged"):
                with suppress(StoreBusyError), self._claim(job_id) as work:
                    _remove_content(work)


class Snapshot(Store):
    """A store for reading, as it was at the first question: every folder is looked up once for any number of them.

    Only curves are read anew each time.
    """

    @functools.cached_property
    def _found(self) -> dict[str, Found]:
        return dict(super()._without_curves(super()._listed()))

    def _listed(self) -> list[str]:
        return list(self._found)

    def _without_curves(self, names: Sequence[str]) -> Iterator[tuple[str, Found]]:
        return ((name, self._found[name]) for name in names)


def _lock(work: Path) -> int:
    try:
        return lock_folder(work)
    except BlockingIOError:
        raise StoreBusyError(f"{work}: another process is at work on this run") from None


def _remove_content(work: Path) -> None:
    for name in os.listdir(work):
        if name != "lock":
            remove(work / name)


def _remove_if_empty(work: Path) -> None:
    """Removes a claimed work folder that holds nothing but its lock."""
    with suppress(FileNotFoundError):
        if os.listdir(work) == ["lock"]:
            (work / "lock").unlink()
            with suppress(OSError):  # the next owner may already be in the folder
                work.rmdir()
