"""The index of a store: a SQLite cache of jobs, statuses, metrics, details and errors of runs, but not of curves.

It also has columns as plain text, such as suite and profile (:mod:`madbench.store.columns`). The index is written when
a store is first read, and from then on whenever a run is stored.

The folders of the runs remain authoritative: ``<root>/index/runs.sqlite`` can be deleted at any time. If the index is
missing, damaged, locked, of another version or not a file of madbench, the files of the runs are read, and the index is
written again if possible.

A row is made from the files of a run after their checksums were verified. The row is valid as long as every file has
the same inode, size and times of change, to the nanosecond. Times are only compared for equality, so the clock may be
set back. Each row has a digest of its values and of the version of the code that wrote it. Values whose digest does not
match are never returned.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from madbench._version import __version__
from madbench.errors import MadbenchError, StoreError
from madbench.files import file_state, parse_json, remove
from madbench.jobs import SCHEMA, Job, Record, StoredJob
from madbench.store import columns
from madbench.store.checks import read_record
from madbench.store.columns import IndexEntry
from madbench.store.format import NAMES, make_job, plain_numbers

VERSION = f"7 {SCHEMA} {__version__}"
TIMEOUT = 5  # seconds for which a writer waits for another

Found = tuple[Job, Record] | StoreError | None
"""The job and the record in a run's folder, or the error of reading them. None if the folder no longer exists."""
Track = Callable[[Sequence[str]], Iterable[str]]
"""A function that returns the items of its argument and shows progress while they are iterated over, such as
``rich.progress.track``.
"""

_RUN = ("name", "signature", "shared", "content")
_COLUMNS = (*_RUN, *columns.NAMES, "digest")
_NO_DAMAGE = ("BUSY", "CANTOPEN", "FULL", "IOERR", "LOCKED", "PERM", "PROTOCOL", "READONLY")
"""The beginnings of SQLite's names for errors that do not mean that the file is damaged."""


class RunIndex:
    """The index of the store in the results folder ``root``. The constructor touches no file."""

    def __init__(self, root: Path):
        self.runs = root / "runs"
        self.path = root / "index" / "runs.sqlite"
        self.entries: dict[str, IndexEntry] = {}
        """The entries of the runs that were looked up or added, by job id."""
        self._unsettled: list[str] = []
        """Names of runs that this process stored and that are not in the index yet.

        Their files were written within the present tick of the file system's clock. So a change of a file now would not
        change its time, and the index would not notice it. They are added to the index at the next :meth:`add`.
        """

    def look_up(self, names: Sequence[str], read: Callable[[str], Found], track: Track = iter) -> dict[str, Found]:
        """Return the job and the record of each of the runs ``names``, or the error of reading them, by name.

        Runs with a valid row come from the index. Every other run is read by ``read``, a function of its name, and is
        added to the index. ``track`` shows the progress of reading.
        """
        self._forget_entries(names)
        signatures = {name: signature(f"{self.runs}/{name}") for name in names}
        runs = self._valid_runs(signatures)
        unknown = [name for name in names if name not in runs]
        runs |= {name: read(name) for name in (track(unknown) if unknown else ())}
        self._add({name: run for name in unknown if isinstance(run := runs[name], tuple)}, signatures)
        return {name: runs[name] for name in names}

    def add(self, name: str, read: Callable[[str], Found]) -> None:
        """Add a run that was just stored to the index. Do nothing if the store has no index yet.

        ``read`` is a function that reads the run with a given name.

        If the file system's clock has not advanced since the run's files were written, the run is added at the next
        call instead. Until the clock advances, a change of a file would not change its time.
        """
        if self.path.is_file():
            names = [*self._unsettled, name]
            self._forget_entries(names)
            signatures = {run_name: signature(f"{self.runs}/{run_name}") for run_name in names}
            runs = {run_name: run for run_name in names if isinstance(run := read(run_name), tuple)}
            settled_names = self._add(runs, signatures)
            self._unsettled = [run_name for run_name in runs if run_name not in settled_names]

    def _forget_entries(self, names: Iterable[str]) -> None:
        """Remove runs from :attr:`entries` before they are read again, because their records may have been replaced."""
        for name in names:
            self.entries.pop(name, None)

    def _add(self, runs: Mapping[str, tuple[Job, Record]], signatures: Mapping[str, str]) -> list[str]:
        """Compute the entries of runs, and write their rows to the index. Return the names of the runs with rows.

        ``signatures`` has the :func:`signature` of each run from before it was read. No row is written for a run whose
        files have changed since, or whose files changed within the present tick of the file system's clock.
        """
        self.entries |= {name: columns.entry_of(*run) for name, run in runs.items()}
        readable = [name for name in runs if signatures[name]]
        with suppress(OSError):
            # The tick is read before the second signatures: after a later tick, a change made now would look unchanged.
            tick = present_tick(self.path.parent) if readable else ""
            unchanged_names = [name for name in readable if signature(f"{self.runs}/{name}") == signatures[name]]
            settled_names = [name for name in unchanged_names if tick not in signatures[name].split()]
            version = index_version() if settled_names else ""
            self._write(
                [_row(version, name, signatures[name], *runs[name], self.entries[name]) for name in settled_names]
            )
            return settled_names
        return []

    def problems(self, names: Collection[str]) -> list[str]:
        """Sentences about damage in the index or in its rows of the runs ``names``, with remedies.

        Empty if there is none.
        """
        try:
            rows = self._rows(names)
        except (sqlite3.Error, OSError) as error:
            problem = getattr(error, "strerror", None) or error
            return [f"{self.path}: {problem}; delete {self.path.parent}: it is made again"]
        version = index_version()
        sound = sum(row[-1] == row_digest(version, row[:-1]) for row in rows)
        if 0 < sound < len(rows):  # if no row is sound, another version wrote the index
            return [f"{self.path}: {len(rows) - sound} damaged rows; delete {self.path.parent}: it is made again"]
        return []

    def _rows(self, names: Collection[str]) -> list[tuple[Any, ...]]:
        """The rows of the runs ``names`` in the SQLite file. Empty if there is no file, or one of another version.

        The values can have any type, because anyone may have written the file. Raises ``sqlite3.Error`` if it is
        damaged.
        """
        if not names or not self.path.exists():
            return []
        if not self.path.is_file():  # SQLite would wait for a FIFO
            raise sqlite3.DatabaseError("not a regular file")
        # An immutable file is read without locks, also in a folder that cannot be written; digests find what changes.
        address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as index:
            found = {name for _, name, *_ in index.execute("PRAGMA table_info(runs)")}
            if {*_RUN, "digest"} <= found != {*_COLUMNS}:  # of another version, which has other columns
                return []
            wanted = "SELECT value FROM json_each(?)"
            rows = index.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE name IN ({wanted})", [json.dumps([*names])]
            )
            return rows.fetchall()

    def _valid_runs(self, signatures: Mapping[str, str]) -> dict[str, Found]:
        """The job and the record of each run whose index row is intact and up to date, by name.

        ``signatures`` maps the name of each run to the present :func:`signature` of its files. A row is up to date if
        it has this signature. The entries of these runs are added to :attr:`entries`.
        """
        rows: list[tuple[Any, ...]] = []
        runs: dict[str, Found] = {}
        with suppress(sqlite3.Error, OSError):
            rows = self._rows(signatures)
        version = index_version() if rows else ""
        rows = [row for row in rows if row[1] and signatures.get(row[0]) == row[1]]
        for name, _, shared, content, *plain, _ in (row for row in rows if row[-1] == row_digest(version, row[:-1])):
            with suppress(MadbenchError, TypeError, ValueError):  # not installed here, or not written by madbench
                label, seed, *gave = parse_json(content)
                fields = dict(zip(("status", "metrics", "details", "error"), gave, strict=True))
                record, _ = read_record({**fields, "files": {}}, [])
                entry = columns.read_entry(plain)
                make = functools.partial(make_job, shared, label, seed, name)
                job = StoredJob.from_values(name, _values(shared), label, seed, make) if entry.is_known else make()
                runs[name], self.entries[name] = (job, record), entry
        return runs

    def _write(self, rows: Sequence[Sequence[str | int]]) -> None:
        """Write ``rows`` to the SQLite file. A file that is damaged or not SQLite is replaced by a new one.

        If the file cannot be written for another reason, such as a lock or a full disk, nothing is written or raised.
        """
        for _ in range(2 if rows else 0):
            self.path.parent.mkdir(exist_ok=True)
            if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
                remove(self.path)  # removes a link but not its target, which may be another database
            try:
                with closing(sqlite3.connect(self.path, timeout=TIMEOUT)) as index, index:
                    index.execute("PRAGMA journal_mode = WAL")
                    names = ", ".join(_COLUMNS)
                    index.execute(f"CREATE TABLE IF NOT EXISTS runs ({names.replace(',', ' PRIMARY KEY,', 1)})")
                    values = ", ".join("?" * len(_COLUMNS))
                    index.executemany(f"INSERT OR REPLACE INTO runs ({names}) VALUES ({values})", rows)
                return
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").startswith(_NO_DAMAGE):
                    return
                for ending in ("", "-wal", "-shm", "-journal"):
                    self.path.with_name(f"{self.path.name}{ending}").unlink(missing_ok=True)


def present_tick(folder: Path) -> str:
    """The time of change that the file system of ``folder`` gives to a file that changes now, in nanoseconds, as text.

    Changes within one tick of the file system's clock get the same time. The folder is made if it is missing.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        return str(os.fstat(probe.fileno()).st_ctime_ns)


def signature(folder: str) -> str:
    """A text of the inodes, sizes and times of change of the files in a run's folder. Empty if a file is missing.

    Every change of a file changes the text, unless it follows another change within one tick of the file system's
    clock.
    """
    try:
        stats = [os.stat(f"{folder}/{name}") for name in NAMES]
    except OSError:
        return ""
    return " ".join(map(file_state, stats))


def index_version() -> str:
    """A text that changes with the index format, with madbench's version, and with the code that computes columns."""
    return f"{VERSION} {columns.stamp()}"


@functools.cache
def _values(shared: str) -> dict[str, Any]:
    """The fields that many jobs share, parsed from the JSON object in ``shared``. Cached, because they recur."""
    values: dict[str, Any] = parse_json(shared)
    return values


def _row(
    version: str, name: str, run_signature: str, job: Job, record: Record, entry: IndexEntry
) -> tuple[str | int, ...]:
    fields = job.to_dict()
    label, seed = fields.pop("label"), fields.pop("seed")
    content = json.dumps([label, seed, record.status, plain_numbers(record.metrics), record.details, record.error])
    row = (name, run_signature, json.dumps(fields), content, *vars(entry).values())
    return *row, row_digest(version, row)


def row_digest(version: str, row: Sequence[str | int]) -> str:
    return hashlib.sha256("\n".join([version, *map(str, row)]).encode()).hexdigest()
