"""A cache of what tables need of each run: job, status, metrics, details and error, but no curve.

The folders of runs are the truth. An entry was verified once, with its checksums, and holds for as long as all three
files of its run are the very ones that were read: same inode, size, and times of change to the nanosecond. Times are
compared for equality only, so the clock may jump. ``<root>/index/`` can be deleted at any time; whatever is wrong with it
(absent, damaged, of another version), the folders are read instead.

The file has lines that each stand alone: whoever stores a run appends one for it, and whoever finds that there are many
lines, or many runs that are in none, writes the file anew as one.

Values that runs share, such as settings and versions, are in a line once, and are one object in memory: do not change
them in place.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import marshal
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import madbench
from madbench.collector import no_collector
from madbench.errors import ConfigError, StoreError
from madbench.files import lock_folder, write_atomically
from madbench.jobs import NAMELESS, SCHEMA, Job, JobBase, Record
from madbench.language_jobs import TASK, LanguageJob
from madbench.store.format import NAMES

FORMAT = 3  # of the lines

WORTH_INDEXING = 200
"""Runs from which on looking them up here, or writing an index that knows them, costs less than reading them."""
MOST_LINES = 200
"""Lines from which on the file is worth writing anew."""

Found = tuple[JobBase, Record] | StoreError | None
"""What is in a run's folder, or why it cannot be read; None where the folder is gone by now."""


Track = Callable[[Sequence[str]], Iterable[str]]
"""What shows progress while it is iterated over, as ``rich.progress.track`` does."""


class Entry(NamedTuple):
    """A run as the index knows it; ``signature`` identifies the files it was read from."""

    signature: str
    job: JobBase
    record: Record


class RunIndex:
    """The index of the results folder ``root``."""

    def __init__(self, root: Path):
        self.runs = root / "runs"
        self.path = root / "index" / "runs.jsonl"

    def look_up(
        self, names: Sequence[str], read: Callable[[str], Found], track: Track = iter
    ) -> Iterator[tuple[str, Found]]:
        """The ``names`` of folders with what ``read`` gives of each, which is called where the index does not hold.

        Where that is for many, they are read one after the other as ``track`` gives them.
        """
        if len(names) < WORTH_INDEXING:
            yield from ((name, read(name)) for name in names)
            return
        index = load(self.path)
        entries = index.entries
        signatures = {name: self._signature(name) for name in names}
        known = {name for name in names if name in entries and entries[name].signature == signatures[name]}
        unknown = {name: signatures[name] for name in names if name not in known}
        found: dict[str, Found] = {}
        if len(unknown) >= WORTH_INDEXING or index.lines >= MOST_LINES:
            found = self._rewrite(index, unknown, read, track)
            if unknown and not found:  # it could not be kept
                found = {name: read(name) for name in track(list(unknown))}
        for name in names:
            if name in known:
                yield name, entries[name][1:]
            else:
                yield name, found[name] if name in found else read(name)

    def append(self, name: str, read: Callable[[str], Found]) -> None:
        """Notes a run that this process has just stored, as far as that is possible.

        Its files must bear times finer than the file system's clock, so that another change within the present tick
        of that shows.
        """
        signature, found = self._signature(name), read(name)
        if signature and isinstance(found, tuple):
            with suppress(OSError):
                self.path.parent.mkdir(exist_ok=True)
                with open(self.path, "ab", buffering=0) as file:
                    file.write(encode({name: Entry(signature, *found)}))

    def _signature(self, name: str) -> str:
        return signature(f"{self.runs}/{name}")

    def _rewrite(
        self,
        index: Index,
        unknown: Mapping[str, str],
        read: Callable[[str], Found],
        track: Track,
    ) -> dict[str, Found]:
        """What ``read`` gives of each folder in ``unknown``; the file then has these runs as well as ``index``.

        Nothing where it cannot be written, or another process is about to. A run is left out of it if it was written in
        the present tick of the file system's clock: within that it could change unnoticed. Lines that are appended
        meanwhile may be lost.
        """
        found: dict[str, Found] = {}
        with suppress(OSError, StoreError), _locked(self.path.parent):
            for leftover in self.path.parent.glob(".*.tmp"):
                leftover.unlink()
            tick = present_tick(self.path.parent)
            added = {}
            for name in track(list(unknown)):
                signature = unknown[name]
                found[name] = run = read(name)
                is_settled = signature and tick not in signature and self._signature(name) == signature
                if isinstance(run, tuple) and is_settled:
                    added[name] = Entry(signature, *run)
            if added or index.lines >= MOST_LINES:
                stored = set(os.listdir(self.runs))
                kept = {name: entry for name, entry in {**index.entries, **added}.items() if name in stored}
                write_atomically(self.path, encode(kept))
        return found


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = lock_folder(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def signature(folder: str) -> str:
    """What changes whenever a file of the run does, other than within one tick of the file system's clock.

    Empty where a file is missing.
    """
    parts = []
    for name in NAMES:
        try:
            found = os.stat(f"{folder}/{name}")
        except OSError:
            return ""
        parts.append(f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}")
    return " ".join(parts)


def present_tick(folder: Path) -> str:
    """The time that the file system would now give a change, as :func:`signature` has it."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return str(os.fstat(probe.fileno()).st_ctime_ns)


class Index(NamedTuple):
    """What is in the index file: the entries by run id, and in how many lines."""

    entries: Mapping[str, Entry]
    lines: int


def load(path: Path) -> Index:
    """The index file as far as it can be used."""
    try:
        found = os.stat(path)
        return _load(str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        return Index({}, 0)


@functools.lru_cache(maxsize=1)
def _load(path: str, *identity: int) -> Index:
    """``identity`` is that of the file, so that a verb reads it once."""
    with open(path, "rb") as file:
        content = file.read()
    gc.collect()
    with no_collector():
        index = decode(content)
        gc.freeze()  # the collector would search these hundreds of thousands of objects again and again
    return index


def encode(entries: Mapping[str, Entry]) -> bytes:
    """A line: the checksum of the rest, and the entries, which are by the ids of their jobs."""
    jobs, shapes, shared = _Numbered(), _Numbered(), _Numbered()
    likes: dict[tuple[int, ...], int] = {}  # by the very objects that jobs share, to look at each once
    runs = {}
    for name, (signature, job, record) in entries.items():
        key = tuple([id(getattr(job, field)) for field in _ALIKE[type(job)]])
        if (like := likes.get(key)) is None:
            like = likes[key] = jobs.number(job.to_dict() | NAMELESS)
        rows = [_pack(mapping, shapes, shared) for mapping in (record.metrics, record.details)]
        runs[name] = [signature, like, job.label, job.seed, record.status, record.error, *rows]
    content = {"jobs": jobs.values, "shapes": shapes.values, "shared": shared.values, "runs": runs}
    body = json.dumps(content | {"version": _version()}).encode()
    return _digest(body) + b" " + body + b"\n"


def decode(content: bytes) -> Index:
    """What :func:`encode` made the lines of ``content`` of, without those that anything is wrong with."""
    entries: dict[str, Entry] = {}
    lines = content.splitlines()
    job_of = functools.lru_cache(maxsize=None)(lambda key: _job(marshal.loads(key)))
    shared_of: dict[bytes, Any] = {}
    for line in lines:
        digest, _, body = line.partition(b" ")
        with suppress(AttributeError, ConfigError, LookupError, RecursionError, TypeError, ValueError):
            if digest == _digest(body) and (index := json.loads(body))["version"] == _version():
                entries |= _entries(index, job_of, shared_of)
    return Index(entries, len(lines))


def _entries(
    index: dict[str, Any], job_of: Callable[[bytes], JobBase], shared_of: dict[bytes, Any]
) -> dict[str, Entry]:
    """Those of a line. Of equal jobs and shared values of several lines there is one object."""
    jobs = [job_of(marshal.dumps(mapping, 2)) for mapping in index["jobs"]]
    shared = [shared_of.setdefault(marshal.dumps(value, 2), value) for value in index["shared"]]
    shapes = index["shapes"]

    def unpack(row: list[Any]) -> dict[str, Any]:
        names, places = shapes[row[0]]
        for place in places:
            row[place] = shared[row[place]]
        return dict(zip(names, row[1:]))

    return {
        name: Entry(
            signature,
            jobs[like].copy(label, seed, id=name),
            Record(status, unpack(metrics), [], unpack(details), error),
        )
        for name, (signature, like, label, seed, status, error, metrics, details) in index["runs"].items()
    }


def _version() -> list[Any]:
    return [FORMAT, SCHEMA, madbench.__version__]


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


class _Numbered:
    """Distinct JSON values, numbered from 0; 1, 1.0 and true are three."""

    def __init__(self):
        self.values: list[Any] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, value: Any) -> int:
        number = self._numbers.setdefault(
            marshal.dumps(value, 2), len(self.values)
        )  # a version of equal bytes for equals
        if number == len(self.values):
            self.values.append(value)
        return number


def _pack(mapping: Mapping[str, Any], shapes: _Numbered, shared: _Numbered) -> list[Any]:
    """The number of its shape, then its values; lists and mappings among them by their number in ``shared``."""
    is_shared = [isinstance(value, (dict, list)) for value in mapping.values()]
    shape = shapes.number([list(mapping), [i for i, one in enumerate(is_shared, 1) if one]])
    return [shape, *(shared.number(value) if one else value for value, one in zip(mapping.values(), is_shared))]


def _job(mapping: dict[str, Any]) -> JobBase:
    """The job that :meth:`JobBase.to_dict` made ``mapping`` of."""
    kind = LanguageJob if mapping["task"] == TASK else Job
    configs = {name: config(**mapping[name]) for name, config in _CONFIGS[kind].items()}
    return kind(**mapping | configs)


_ALIKE = {kind: [field.name for field in fields(kind) if field.name not in NAMELESS] for kind in (Job, LanguageJob)}
_CONFIGS = {
    kind: {field.name: type(field.default) for field in fields(kind) if is_dataclass(field.default)}
    for kind in (Job, LanguageJob)
}
