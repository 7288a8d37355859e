"""The journal of a sweep: what it was to do and what happened, in ``<results>/sweeps/<UTC start>-<8 hex>/``.

``plan.json`` has the command and the jobs, ``events.jsonl`` a line an event, of progress about one a second and slot,
and ``ended`` last. A journal is a log for people and for ``madbench status``: results are never read from it, and where
it cannot be written the sweep goes on. ``lock`` is held while the sweep is alive; the kernel frees it when the process
dies.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from madbench import __version__
from madbench.execute.base import Event
from madbench.execute.tally import flatten, weight
from madbench.files import remove
from madbench.jobs import JobBase

FOLDER = "sweeps"
PROGRESS_SECONDS = 1.0
"""Between two lines of progress of a slot, at first; after hours up to ten times that, lest the file grow large."""


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

    def __init__(self, results: Path, jobs: Sequence[JobBase], title: str, command: str, warn: Callable[[str], None]):
        self.results, self.jobs, self.title, self.command, self.warn = Path(results), jobs, title, command, warn
        self.folder: Path | None = None
        self.problem: OSError | None = None
        self._is_warned = False
        self._has_trained = False
        self._is_torn = False
        self._file = self._lock = -1
        self._shown: dict[int | None, float] = {}
        self._began = time.monotonic()

    def __enter__(self) -> Journal:
        try:
            self._open()
        except OSError as error:
            self.problem = error  # told at the first event: a store that cannot be opened speaks for itself
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.folder is None:
            return
        ended = {"event": "ended", "how": "finished"}
        if kind is not None:
            is_stopped = issubclass(kind, KeyboardInterrupt)
            ended |= {"how": "interrupted"} if is_stopped else {"how": "error", "error": f"{error}"}
        self._write(ended)
        os.close(self._file)
        if not self._has_trained:
            with suppress(OSError):
                remove(self.folder)
                self.folder.parent.rmdir()
        os.close(self._lock)

    def on_event(self, event: Event) -> None:
        """Appends the event."""
        if self.problem:
            self._complain(self.problem)
        if self.folder is None:
            return
        kind, slot = event["event"], event.get("slot")
        self._has_trained |= kind != "skipped"
        if kind == "progress":
            elapsed = time.monotonic() - self._began
            if elapsed - self._shown.get(slot, 0.0) < PROGRESS_SECONDS * min(10, max(1, elapsed / 1000)):
                return
            self._shown[slot] = elapsed
        self._write(flatten(event))

    def _open(self) -> None:
        start = datetime.now(UTC)
        name = f"{start:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
        sweeps = self.results / FOLDER
        staged = sweeps / f".{name}"
        sweeps.mkdir(parents=True, exist_ok=True)
        try:
            staged.mkdir()
            self._lock = os.open(staged / "lock", os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            (staged / "plan.json").write_text(json.dumps(self._plan(start)))
            self._file = os.open(staged / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            staged.rename(sweeps / name)  # locked before anyone sees it: it never looks dead
        except OSError:
            for descriptor in (self._lock, self._file):
                if descriptor >= 0:
                    os.close(descriptor)
            with suppress(OSError):
                remove(staged)
            raise
        self.folder = sweeps / name

    def _plan(self, start: datetime) -> dict[str, Any]:
        jobs = {job.id: job for job in self.jobs}
        return {
            "command": self.command,
            "title": self.title,
            "started": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "folder": os.getcwd(),
            "host": platform.node(),
            "pid": os.getpid(),
            "versions": {"madbench": __version__, "python": platform.python_version(), "torch": _version("torch")},
            "jobs": [
                {"id": key, "label": job.label, "task": job.task, "seed": job.seed, "weight": weight(job)}
                for key, job in jobs.items()
            ],
        }

    def _write(self, line: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        seconds = round(time.monotonic() - self._began, 3)
        text = json.dumps(line | {"seconds": seconds, "time": f"{now:%Y-%m-%dT%H:%M:%SZ}"}, default=str)
        content = b"\n" * self._is_torn + text.encode() + b"\n"
        try:
            self._is_torn = os.write(self._file, content) != len(content)  # whole or not at all, but on a full disk
        except OSError as error:
            self._complain(error)
        else:
            if self._is_torn:
                self._complain(OSError("no space left"))

    def _complain(self, error: OSError) -> None:
        if not self._is_warned:
            self._is_warned = True
            reason = (error.strerror or str(error)).lower()
            self.warn(
                f"{self.results / FOLDER}: {reason}; madbench status will not see all of this sweep, which goes on"
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
