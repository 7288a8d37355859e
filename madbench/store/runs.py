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

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from madbench.errors import StoreError
from madbench.files import (
    explain_os_errors,
    file_digest,
    lock_folder,
    make_folder,
    may_exist,
    refuse_link,
    remove,
    sync_folder,
    write_durably,
)
from madbench.jobs import KEEP, Job, Record
from madbench.store.format import (
    NAMES,
    Measurement,
    add_measurement,
    encode,
)
from madbench.store.reading import RESULT_STATUSES, Run, StoredRuns

_REPLACED = "replaced.tmp"


class StoreBusyError(StoreError):
    """Raised if a job is already locked: another process, or this one, works on it."""


class Store(StoredRuns):
    """The store of runs in the results folder ``root``, for reading and writing.

    Create it with :meth:`open`, which checks the folder. The constructor touches no file.
    """

    def __init__(self, root: Path | str):
        super().__init__(root)
        self._locked: set[str] = set()
        self._work = self.root / "work"

    @classmethod
    def open(cls, root: Path | str, create: bool = True) -> Self:
        """Open the store in the folder ``root``. Make missing folders, and clean up after killed processes.

        If ``create`` is False, nothing is made or cleaned up, as for :meth:`StoredRuns.open`. Raises ``StoreError`` if
        the folder cannot be read or written, for example on a full disk, and ``OtherVersionError`` if its first few
        runs all have another format.
        """
        if not create:
            return super().open(root)
        store = cls(root)
        with explain_os_errors(store.root):
            make_folder(store._runs)
            make_folder(store._work)
            with tempfile.TemporaryFile(dir=store._work) as probe:
                probe.write(bytes(4096))
                probe.flush()
                os.fsync(probe.fileno())
        store._check_version()
        store._drop_stale_work()
        return store

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
                if may_exist(path / _REPLACED) or self.status(path.name) in RESULT_STATUSES:
                    with self.lock(path.name), explain_os_errors(path):
                        if self.status(path.name) in RESULT_STATUSES:
                            _empty(path)


def _empty(work: Path, ending: str = "") -> None:
    for name in os.listdir(work):
        if name != "lock" and name.endswith(ending):
            remove(work / name)
