"""A cache of what tables need of many runs: jobs, statuses, metrics, details and errors, but no curves.

The folders of runs are the truth. ``<root>/index/runs.txt`` can be deleted at any time; where it is absent, damaged or of
another version the files are read, and it is written anew, whole, where that is possible.

A row was read from the files of its run, with their checksums verified, and holds for as long as all of them are the
very ones that were read: same inode, size, and times of change to the nanosecond. Times are compared for equality only, so
the clock may jump. The first line is a digest of all that
follows; a line is a run.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import madbench
from madbench.errors import MadbenchError, StoreError
from madbench.files import write_atomically
from madbench.jobs import SCHEMA, Job, Record
from madbench.store.format import NAMES, make_job

WORTH_INDEXING = 200
"""Runs from which on looking them up here costs less than reading their files."""
VERSION = f"2 {SCHEMA} {madbench.__version__}"

Found = tuple[Job, Record] | StoreError | None
"""What is in a run's folder, or why it cannot be read; None where the folder is gone by now."""
Track = Callable[[Sequence[str]], Iterable[str]]
"""What shows progress while it is iterated over, as ``rich.progress.track`` does."""


class RunIndex:
    """The index of the results folder ``root``."""

    def __init__(self, root: Path):
        self.runs = root / "runs"
        self.path = root / "index" / "runs.txt"
        self._texts: dict[str, int] = {}
        """Fields of jobs as JSON, without label and seed, in the order of their numbers."""
        self._rows: dict[str, str] = {}
        """By the name of a run: its signature, a tab, and the rest of it as JSON."""

    def look_up(self, names: Sequence[str], read: Callable[[str], Found], track: Track = iter) -> dict[str, Found]:
        """What is in the folders ``names``: from the index where that holds, else as ``read`` gives it.

        Where that is for many, they are read one after the other as ``track`` gives them.
        """
        if len(names) < WORTH_INDEXING:
            return {name: read(name) for name in names}
        signatures = {name: signature(f"{self.runs}/{name}") for name in names}
        gc.disable()  # all of these many objects stay
        try:
            found = self._known(signatures)
        finally:
            gc.enable()
        unknown = [name for name in names if name not in found]
        found |= {name: read(name) for name in (track(unknown) if len(unknown) >= WORTH_INDEXING else unknown)}
        with suppress(OSError, StoreError):
            if settled := self._settled(signatures, found, unknown):
                self._rows |= {name: f"{signatures[name]}\t{self._to_json(*found[name])}" for name in settled}
                self._write()
        return {name: found[name] for name in names}

    def _known(self, signatures: Mapping[str, str]) -> dict[str, Found]:
        """The runs that the index holds with these signatures."""
        with suppress(OSError):
            digest, _, content = self.path.read_bytes().partition(b"\n")
            if _digest(content) == digest:
                texts, *lines = content.decode().split("\n")
                self._texts = {text: number for number, text in enumerate(json.loads(texts))}
                self._rows = dict(line.split("\t", 1) for line in lines)
        parts = ((name, self._rows.get(name, "\t").split("\t")) for name in signatures)
        rows = {name: row for name, (signed, row) in parts if row and signed == signatures[name]}
        texts, known = list(self._texts), {}
        for name, row in zip(rows, json.loads(f"[{','.join(rows.values())}]"), strict=True):
            number, label, seed, status, metrics, details, error = row
            with suppress(MadbenchError):  # of a suite or family that is not installed here
                job = make_job(texts[number], label, seed, name)
                vars(job)["id"] = name  # its cached property: known since the row was written
                known[name] = job, Record(status, metrics, [], details, error)
        return known

    def _to_json(self, job: Job, record: Record) -> str:
        fields = job.to_dict()
        label, seed = fields.pop("label"), fields.pop("seed")
        number = self._texts.setdefault(json.dumps(fields), len(self._texts))
        return json.dumps([number, label, seed, record.status, record.metrics, record.details, record.error])

    def _write(self) -> None:
        for path in self.path.parent.glob(f".{self.path.name}.*.tmp"):  # of a writer that was killed, or is slower
            path.unlink(missing_ok=True)
        lines = [json.dumps(list(self._texts)), *(f"{name}\t{row}" for name, row in self._rows.items())]
        content = "\n".join(lines).encode()
        write_atomically(self.path, _digest(content) + b"\n" + content)

    def _settled(self, signatures: Mapping[str, str], found: Mapping[str, Found], names: Iterable[str]) -> list[str]:
        """The readable runs among ``names`` whose files are those of ``signatures`` and cannot change unnoticed."""
        names = [name for name in names if signatures[name] and isinstance(found[name], tuple)]
        tick = present_tick(self.path.parent) if names else ""
        unchanged = [name for name in names if signature(f"{self.runs}/{name}") == signatures[name]]
        return [name for name in unchanged if tick not in signatures[name].split()]


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


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(VERSION.encode() + content).hexdigest().encode()
