"""The journals of a results folder, ``<results>/sweeps/<UTC start>-<8 hex>.jsonl``: what a sweep was to do and did.

The first line of a journal is the plan, with the command and the jobs; then follows a line an event, of progress about
one a second and job; the last is ``ended``. A journal is a log for people and for ``madbench status``: results are never
read from it, and where it cannot be written the sweep continues. Its writer holds a lock on it, which the kernel frees
when the process dies.

Lines have ``seconds`` since the sweep began, by a clock that cannot jump; ``time`` is the wall clock's, and only shown.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from madbench import __version__
from madbench.execute.base import Event
from madbench.execute.tally import Tally, flatten, weights
from madbench.jobs import Job

FOLDER = "sweeps"
PROGRESS_SECONDS = 1.0
"""Between two lines of progress of a job, at first; after hours up to ten times that, lest the file grow large."""


def command_line() -> str:
    """The command of this process, as a user would type it again."""
    program = "madbench"
    if "LOCAL_WORLD_SIZE" in os.environ:
        program = f"torchrun --nproc-per-node {os.environ['LOCAL_WORLD_SIZE']} -m madbench"
    return f"{program} {shlex.join(sys.argv[1:])}".rstrip()


class Journal:
    """Writes the journal of one sweep while the context is open; ``on_event`` takes an executor's events.

    ``warn`` is called once, with a sentence, where something cannot be written. A sweep that trained nothing leaves no
    journal.
    """

    def __init__(self, results: Path, jobs: Sequence[Job], title: str, command: str, warn: Callable[[str], None]):
        self.results, self.jobs, self.title, self.command, self.warn = Path(results), jobs, title, command, warn
        self.path: Path | None = None
        self._problem: OSError | None = None
        self._is_warned = self._has_trained = self._is_torn = False
        self._file = -1
        self._next: dict[str, float] = defaultdict(float)
        """When the next progress of a job is written."""
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        start = datetime.now(UTC)
        path = self.results / FOLDER / f"{start:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}.jsonl"
        hidden = path.with_name(f".{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._append(self._plan(start))
            hidden.rename(path)  # locked before anyone sees it: it never looks dead
            self.path = path
        except OSError as error:
            self._problem = error  # reported at the first event: a store that cannot be opened speaks for itself
            with suppress(OSError):
                os.close(self._file)
                hidden.unlink()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.path is None:
            return
        if kind is None:
            self._write({"event": "ended", "how": "finished"})
        elif issubclass(kind, KeyboardInterrupt):
            self._write({"event": "ended", "how": "interrupted"})
        else:
            self._write({"event": "ended", "how": "error", "error": f"{error}"})
        if not self._has_trained:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        os.close(self._file)

    def on_event(self, event: Event) -> None:
        """Appends the event."""
        if self._problem:
            self._warn(self._problem)
        if self.path is None:
            return
        self._has_trained |= event["event"] != "skipped"
        if event["event"] == "progress":
            elapsed = time.monotonic() - self._began
            if elapsed < self._next[event["job"].id]:
                return
            self._next[event["job"].id] = elapsed + PROGRESS_SECONDS * min(10, max(1, elapsed / 1000))
        self._write(flatten(event))

    def _plan(self, start: datetime) -> dict[str, Any]:
        tokens = weights(self.jobs)
        names = ("id", "label", "task", "seed")
        return {
            "event": "plan",
            "command": self.command,
            "title": self.title,
            "started": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "folder": os.getcwd(),
            "host": platform.node(),
            "pid": os.getpid(),
            "versions": {"madbench": __version__, "python": platform.python_version(), "torch": version("torch")},
            "jobs": [{name: getattr(job, name) for name in names} | {"weight": tokens[job.id]} for job in self.jobs],
        }

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._append(line)
        except OSError as error:
            self._warn(error)

    def _append(self, line: dict[str, Any]) -> None:
        now = {"seconds": round(time.monotonic() - self._began, 3), "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        content = b"\n" * self._is_torn + f"{json.dumps(line | now, default=str)}\n".encode()
        self._is_torn = os.write(self._file, content) < len(content)  # whole or not at all, but on a full disk
        if self._is_torn:
            raise OSError("no space left")

    def _warn(self, error: OSError) -> None:
        if not self._is_warned:
            self._is_warned = True
            reason = (error.strerror or str(error)).lower()
            self.warn(
                f"{self.results / FOLDER}: {reason}; madbench status will miss part of this sweep, which continues"
            )


class RecordedSweep:
    """One journal, read so far."""

    def __init__(self, path: Path):
        self.path = path
        self.plan: dict[str, Any] = {}
        """The first line, without the jobs."""
        self.jobs: dict[str, dict[str, Any]] = {}
        """Label, task, seed and weight by job id."""
        self.tally = Tally({})
        self.is_alive = False
        self.problem = ""
        """Why it cannot be read; empty where it can."""
        self.ended: dict[str, Any] | None = None
        """The last line, where the sweep had time to write it: how it ended."""
        self.silent_seconds = 0.0
        """Since the last line, by the wall clock."""
        self._offset = 0

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``interrupted``, ``error``, ``damaged``, or ``died`` where nothing else is known."""
        if self.problem:
            return "damaged"
        return "running" if self.is_alive else self.ended["how"] if self.ended else "died"

    def read(self) -> None:
        """Takes the lines that have come since the last time."""
        self.is_alive = _is_locked(self.path)
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                for line in file:
                    if line.endswith(b"\n"):
                        self._offset += len(line)
                        self._apply(line)
                self.silent_seconds = max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
            self.problem = "" if self.plan else f"{self.path}: damaged: its first line is not the plan of a sweep"
        except OSError as error:
            self.problem = f"{self.path}: {(error.strerror or str(error)).lower()}"
        if not self.is_alive:
            self.tally.running.clear()

    def _apply(self, text: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):  # a killed process and a full disk leave halves of lines
            line = json.loads(text)
            if line["event"] == "plan":
                self.jobs = {job["id"]: job for job in line["jobs"]}
                self.tally = Tally({key: float(job["weight"]) for key, job in self.jobs.items()})
                names = ("command", "title", "started", "folder", "host", "pid", "versions")
                self.plan = {name: line[name] for name in names}
            elif line["event"] == "ended":
                self.ended = {"how": str(line["how"])} | line
            else:
                self.tally.apply(line, float(line["seconds"]))


class RecordedSweeps:
    """The sweeps of a results folder; each look reads only what is new."""

    def __init__(self, results: Path):
        self.root = results / FOLDER
        self._known: dict[Path, RecordedSweep] = {}

    def read(self, ended: int) -> list[RecordedSweep]:
        """The sweeps that are alive and the last ``ended`` of the others, in the order of their beginning."""
        paths = sorted(self.root.glob("[!.]*.jsonl"))
        alive = {path for path in paths if _is_locked(path)}
        others = [path for path in paths if path not in alive]
        shown = sorted({*alive, *others[max(0, len(others) - ended) :]})
        self._known = {path: self._known.get(path) or RecordedSweep(path) for path in shown}
        for sweep in self._known.values():
            sweep.read()
        return list(self._known.values())


def _is_locked(path: Path) -> bool:
    """Whether the sweep's process is alive: asked with a shared lock, for a moment."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
