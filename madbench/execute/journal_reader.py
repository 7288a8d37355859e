"""Reading the journals of a results folder: which sweeps are alive, how far they are, and what became of the others."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.journal import FOLDER
from madbench.execute.tally import Tally
from madbench.files import explain_os_errors

_PROGRESS = b'{"event": "progress"'
_PLAN = ("command", "title", "started", "folder", "host", "pid", "versions")


class DamagedJournalError(StoreError):
    """A journal whose plan cannot be read."""


class Sweep:
    """One journal, read so far."""

    def __init__(self, folder: Path):
        """Raises ``DamagedJournalError`` where the plan cannot be read."""
        self.folder = folder
        try:
            plan = json.loads((folder / "plan.json").read_bytes())
            self.jobs: dict[str, dict[str, Any]] = {job["id"]: job for job in plan["jobs"]}
            """Label, task, seed and weight by job id."""
            self.tally = Tally({key: float(job["weight"]) for key, job in self.jobs.items()})
            self.plan = {name: plan[name] for name in _PLAN}
        except OSError as error:
            raise DamagedJournalError(f"{folder}/plan.json: {(error.strerror or str(error)).lower()}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedJournalError(f"{folder}/plan.json: damaged ({type(error).__name__}: {error})") from error
        self.is_alive = False
        self.ended: dict[str, Any] | None = None
        """The last line, where the sweep had time to write it: how it ended."""
        self.silent_seconds = 0.0
        """Since the last line, by the wall clock."""
        self._offset = 0
        self._seen: set[bytes] = set()

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``interrupted``, ``error``, or ``died`` without a word."""
        return "running" if self.is_alive else self.ended["how"] if self.ended else "died"

    def read(self, is_alive: bool) -> None:
        """Takes the lines that have come since the last time."""
        self.is_alive = is_alive
        with explain_os_errors(self.folder), open(self.folder / "events.jsonl", "rb") as file:
            file.seek(self._offset)
            content = file.read()
            self.silent_seconds = max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in _parse(self._telling(whole.split(b"\n"))):
            self._apply(line)
        if not is_alive:
            self.tally.running.clear()

    def _telling(self, lines: list[bytes]) -> list[bytes]:
        """The lines without the progress of a job between its first and its last, which say everything."""
        kept: list[bytes] = []
        latest: dict[bytes, int] = {}
        for line in lines:
            if line.startswith(_PROGRESS):
                key = b",".join(line.split(b",", 3)[1:3])  # slot and job
                if key in latest:
                    kept[latest[key]] = b""
                if key in self._seen:
                    latest[key] = len(kept)
                self._seen.add(key)
            kept.append(line)
        return [line for line in kept if line]

    def _apply(self, line: Any) -> None:
        try:
            if line["event"] == "ended":
                self.ended = {"how": str(line["how"])} | line
            else:
                self.tally.apply(line, float(line["seconds"]))
        except (ValueError, KeyError, TypeError):
            pass


class Sweeps:
    """The sweeps of a results folder; each look reads only what is new."""

    def __init__(self, results: Path):
        self.root = results / FOLDER
        self._known: dict[str, Sweep] = {}

    def read(self, ended: int) -> Iterator[Sweep | DamagedJournalError]:
        """The sweeps that are alive and the last ``ended`` of the others, in the order of their beginning."""
        if not self.root.is_dir():
            return
        with explain_os_errors(self.root):
            names = sorted(name for name in os.listdir(self.root) if not name.startswith("."))
        alive = {name for name in names if _is_locked(self.root / name / "lock")}
        others = [name for name in names if name not in alive]
        for name in sorted({*alive, *others[max(0, len(others) - ended) :]}):
            try:
                if name not in self._known:
                    self._known[name] = Sweep(self.root / name)
                self._known[name].read(name in alive)
                yield self._known[name]
            except StoreError as error:
                if (self.root / name).exists():
                    yield DamagedJournalError(str(error))


def _is_locked(path: Path) -> bool:
    """Whether the sweep's process is alive: asked with a shared lock, for a moment."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _parse(lines: list[bytes]) -> list[Any]:
    """The lines that can be read: a killed process and a full disk leave halves of lines."""
    try:
        parsed = json.loads(b"[" + b",".join(lines) + b"]")  # many times as fast as one by one
        if len(parsed) == len(lines):
            return parsed
    except ValueError:
        pass
    parsed = []
    for line in lines:
        with suppress(ValueError):
            parsed.append(json.loads(line))
    return parsed
