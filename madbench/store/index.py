"""A cache of what tables need of many runs: jobs, statuses, metrics, details and errors, but no curves.

The folders of runs are the truth. ``<root>/index/runs.sqlite`` can be deleted at any time; where it is absent, damaged,
locked, foreign or of another version, the files are read, and it is written anew where that is possible.

A row was read from the files of its run, with their checksums verified, and holds for as long as all of them are the
very ones that were read: same inode, size, and times of change to the nanosecond. Times are compared for equality only, so
the clock may jump. A digest over the whole row and the version of its writer covers every value that is given back.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import madbench
from madbench.errors import MadbenchError, StoreError
from madbench.jobs import SCHEMA, Job, Record
from madbench.store.format import NAMES, make_job

WORTH_INDEXING = 200
"""Runs from which on looking them up here costs less than reading their files."""
VERSION = f"1 {SCHEMA} {madbench.__version__}"
"""Of the rows; a row of another version is none."""
TIMEOUT = 5
"""Seconds for which a writer waits for another."""

Found = tuple[Job, Record] | StoreError | None
"""What is in a run's folder, or why it cannot be read; None where the folder is gone by now."""
Track = Callable[[Sequence[str]], Iterable[str]]
"""What shows progress while it is iterated over, as ``rich.progress.track`` does."""
T = TypeVar("T")

_TABLES = (  # job, nested: digests of texts that many runs share, the fields of their jobs and values in their details
    "CREATE TABLE IF NOT EXISTS runs (name PRIMARY KEY, signature, job, nested, content, digest)",
    "CREATE TABLE IF NOT EXISTS texts (digest PRIMARY KEY, content)",
)
_DAMAGES = {"rw": (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), "ro&immutable=1": ()}
_DAMAGES["rwc"] = (*_DAMAGES["rw"], sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR)
"""Errors that mean a damaged or foreign file, by the mode in which it is open; ``immutable`` pays no heed to writers."""


class RunIndex:
    """The index of the results folder ``root``."""

    def __init__(self, root: Path):
        self.runs = root / "runs"
        self.path = root / "index" / "runs.sqlite"

    def look_up(self, names: Sequence[str], read: Callable[[str], Found], track: Track = iter) -> dict[str, Found]:
        """What is in the folders ``names``: from the index where that holds, else as ``read`` gives it.

        Where that is for many, they are read one after the other as ``track`` gives them.
        """
        if len(names) < WORTH_INDEXING:
            return {name: read(name) for name in names}
        signatures = {name: signature(f"{self.runs}/{name}") for name in names}
        found = self._known(signatures)
        unknown = [name for name in names if name not in found]
        found |= {name: read(name) for name in (track(unknown) if len(unknown) >= WORTH_INDEXING else unknown)}
        with suppress(OSError):
            self._note({name: (signatures[name], *found[name]) for name in self._settled(signatures, found, unknown)})
        return {name: found[name] for name in names}

    def _known(self, signatures: Mapping[str, str]) -> dict[str, Found]:
        """The runs that the index holds with these signatures."""
        rows = self._select("SELECT name, signature, job, nested, content, digest FROM runs WHERE name", signatures)
        rows = [row[:-1] for row in rows if _digest(row[:-1]) == row[-1]]
        shared = {digest for row in rows for digest in row[2:4]}
        texts = self._select("SELECT digest, content FROM texts WHERE digest", shared)
        texts = {digest: text for digest, text in texts if isinstance(text, str) and _digest(text) == digest}
        rows = [row for row in rows if signatures.get(row[0]) == row[1] and row[2] in texts and row[3] in texts]
        contents = json.loads(f"[{','.join(row[4] for row in rows)}]")
        nested = functools.cache(json.loads)
        known: dict[str, Found] = {}
        for row, (label, seed, status, metrics, details, error) in zip(rows, contents, strict=True):
            try:
                job = make_job(texts[row[2]], label, seed, row[0])
            except MadbenchError:  # of a suite or family that is not installed here
                continue
            vars(job)["id"] = row[0]  # its cached property: known since the row was written
            known[row[0]] = job, Record(status, metrics, [], details | nested(texts[row[3]]), error)
        return known

    def _note(self, runs: Mapping[str, tuple[str, Job, Record]]) -> None:
        """Keeps the runs, each with its signature, as far as that is possible."""
        rows, texts = [], set()
        for name, (written, job, record) in runs.items():
            fields, details = job.to_dict(), record.details
            label, seed = fields.pop("label"), fields.pop("seed")
            nested = {key: value for key, value in details.items() if isinstance(value, (dict, list))}
            shared = [json.dumps(fields), json.dumps(nested)]
            texts.update(shared)
            content = [label, seed, record.status, record.metrics, details | dict.fromkeys(nested), record.error]
            row = [name, written, *map(_digest, shared), json.dumps(content)]
            rows.append((*row, _digest(row)))

        def write(index: sqlite3.Connection) -> None:
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF", "BEGIN IMMEDIATE", *_TABLES):
                index.execute(statement)
            index.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", [(_digest(text), text) for text in texts])
            index.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", rows)
            index.execute("COMMIT")

        if rows:
            self._query(write, ["rwc", "rwc"])  # once more where a damaged one was in its place

    def _settled(self, signatures: Mapping[str, str], found: Mapping[str, Found], names: Iterable[str]) -> list[str]:
        """The readable runs among ``names`` whose files are those of ``signatures`` and cannot change unnoticed."""
        names = [name for name in names if signatures[name] and isinstance(found[name], tuple)]
        tick = present_tick(self.path.parent) if names else ""
        unchanged = [name for name in names if signature(f"{self.runs}/{name}") == signatures[name]]
        return [name for name in unchanged if tick not in signatures[name].split()]

    def _select(self, query: str, keys: Iterable[str]) -> list[tuple[Any, ...]]:
        query += " IN (SELECT value FROM json_each(?))"
        return self._query(lambda index: index.execute(query, [json.dumps(list(keys))]).fetchall()) or []

    def _query(
        self, query: Callable[[sqlite3.Connection], T], modes: Iterable[str] = ("rw", "ro&immutable=1")
    ) -> T | None:
        """What ``query`` gives of the index opened in the first of ``modes`` that works; None where none does.

        An index that is found damaged is deleted.
        """
        for mode in modes:
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            try:
                with closing(sqlite3.connect(address, TIMEOUT, isolation_level=None, uri=True)) as index:
                    return query(index)
            except (sqlite3.Error, UnicodeError) as error:  # a message quotes what is damaged
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _DAMAGES[mode]:
                    for path in self.path.parent.glob(f"{self.path.name}*"):
                        with suppress(OSError):
                            path.unlink()
        return None


def present_tick(folder: Path) -> str:
    """The time that the file system would now give a change; a file can change twice in it and look the same."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        return str(os.fstat(probe.fileno()).st_ctime_ns)


def signature(folder: str) -> str:
    """What changes whenever a file of the run does, other than within one tick of the file system's clock.

    Empty where a file is missing.
    """
    try:
        found = [os.stat(f"{folder}/{name}") for name in NAMES]
    except OSError:
        return ""
    return " ".join(f"{one.st_ino} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}" for one in found)


def _digest(content: str | Sequence[Any]) -> str:
    """SHA-256 of a text, or of a row with the version of its writer."""
    text = content if isinstance(content, str) else repr((VERSION, *content))
    return hashlib.sha256(text.encode()).hexdigest()
