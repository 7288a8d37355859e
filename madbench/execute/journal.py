"""The journal of a sweep: a file with its plan and its progress, ``<results>/sweeps/<UTC start>-<8 hex>.json``.

A journal is for people and for ``madbench ls sweeps``. Results are never read from it, and the sweep continues if the
journal cannot be written. The whole file is replaced at most once per second. The sweep's process holds a lock on the
file, which the kernel releases when the process dies. So the journal of a dead sweep can be recognized.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from madbench._version import __version__
from madbench.execute.base import Event
from madbench.execute.sweep_state import SweepState, event_line
from madbench.files import check_json, check_regular, make_folder, names_in, seal, sync_folder, unseal
from madbench.jobs import Job
from madbench.store.checks import check_type
from madbench.store.format import plain

FOLDER = "sweeps"
WRITE_SECONDS = 1.0  # between two writes of a journal


def command_line() -> str:
    """The command line of this process, as a user would type it: ``madbench`` or ``torchrun`` with its arguments."""
    program = "madbench"
    if "LOCAL_WORLD_SIZE" in os.environ:
        processes = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ.get("WORLD_SIZE", processes)) // processes
        on_nodes = f" --nnodes {nodes}" if nodes > 1 else ""
        program = f"torchrun{on_nodes} --nproc-per-node {processes} -m madbench"
    return f"{program} {shlex.join(sys.argv[1:])}".rstrip()


class Journal:
    """A context manager that writes the journal of one sweep. Pass :meth:`on_event` to the executor.

    ``warn`` is called with a sentence, at most once, if the journal cannot be written. A sweep that trained no job
    leaves no journal.
    """

    def __init__(self, results: Path, jobs: Sequence[Job], title: str, command: str, warn: Callable[[str], None]):
        start = datetime.now(UTC)
        self.path = Path(results, FOLDER, f"{start:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}.json")
        self.warn = warn
        self.plan = {
            "command": command,
            "title": title,
            "started": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "folder": os.getcwd(),
            "host": platform.node(),
            "pid": os.getpid(),
            "versions": {"madbench": __version__, "python": platform.python_version(), "torch": version("torch")},
        }
        self.state = SweepState(jobs)
        self._began = self._written = time.monotonic()
        self._has_trained = self._is_warned = self._is_stale = False
        self._problem: OSError | None = None
        self._held = ExitStack()  # the open file with the lock
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._write_when_stale, daemon=True)

    def __enter__(self) -> Self:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._ended.set()
        self._thread.join()
        outcome = "finished" if kind is None else "interrupted" if issubclass(kind, KeyboardInterrupt) else "error"
        if self._has_trained:
            self.write(ended=outcome, error=str(error) if outcome == "error" else None)
            self._warn()
        else:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self._held.close()

    def on_event(self, event: Event) -> None:
        """Record an event. Write the journal if the last write was more than a second ago."""
        with self._lock:
            self._has_trained |= event["event"] != "skipped"
            self.state.apply(event_line(event), time.monotonic() - self._began)
            self._is_stale = True
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()
        self._warn()

    def _write_when_stale(self) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            if self._is_stale:
                self.write()

    def write(self, **ending: str | None) -> None:
        """Write the journal to a new file, lock it, and put it in the place of the old file.

        The new file is locked before it is visible, so the sweep never looks dead. ``ending`` has the fields ``ended``
        and ``error`` at the end of a sweep. If the file cannot be written, nothing is raised.
        """
        hidden = self.path.with_name(f".{self.path.name}")
        with self._lock:
            self._is_stale, self._written = False, time.monotonic()
            content = seal(plain({**self.plan, **self.state.content(), "open": sorted(self.state.open), **ending}))
            try:
                make_folder(self.path.parent)
                with ExitStack() as stack:
                    file = stack.enter_context(open(hidden, "w"))
                    fcntl.flock(file, fcntl.LOCK_EX)
                    json.dump(content, file)
                    file.flush()
                    os.fsync(file.fileno())
                    hidden.rename(self.path)
                    sync_folder(self.path.parent)
                    previous, self._held = self._held, stack.pop_all()
                previous.close()
            except OSError as error:
                self._problem = error
                with suppress(OSError):
                    hidden.unlink()

    def _warn(self) -> None:
        """Warn the user, once per sweep, if the journal could not be written.

        No warning is given before a job has started: a store that cannot be opened raises an error by then, and the
        warning would only repeat it.
        """
        if self._problem and self._has_trained and not self._is_warned:
            self._is_warned = True
            reason = (self._problem.strerror or str(self._problem)).lower()
            self.warn(f"{self.path.parent}: {reason}; madbench ls sweeps will miss part of this sweep, which continues")


def read_sweeps(results: Path, most_ended: int) -> list[dict[str, Any]]:
    """The journals of all running sweeps and of the last ``most_ended`` other sweeps, ordered by their start.

    Each journal is a dict with the fields of the file, ``name``, ``state``, and ``silent_seconds``, the time since its
    last write. The jobs that an ended sweep left open are looked up in the store: ``open`` has those without a stored
    run. Their number in ``counts`` is ``not done``, and the number of the others is ``stored since``. ``done`` counts
    all jobs except those that are not done.

    The state is ``running``, ``finished``, ``interrupted``, ``error``, ``died``, ``unknown`` or
    ``damaged``. It is ``unknown`` if no end is recorded and files cannot be locked here; the field ``error`` has the
    reason. A damaged journal has ``name``, ``state`` and ``error`` only.
    """
    names = [name for name in names_in(results / FOLDER) if name.endswith(".json")]
    sweeps = [_read(results / FOLDER / name) for name in names]
    others = [sweep for sweep in sweeps if sweep["state"] != "running"]
    hidden = {sweep["name"] for sweep in others[: max(0, len(others) - most_ended)]}
    shown = [sweep for sweep in sweeps if sweep["name"] not in hidden]
    stored = set(names_in(results / "runs"))
    for sweep in shown:
        if sweep["state"] not in ("running", "damaged"):
            _count_by_store(sweep, stored)
    return shown


def _count_by_store(sweep: dict[str, Any], stored: Collection[str]) -> None:
    """Count the open jobs of an ended sweep by ``stored``, the ids of the stored runs.

    The journal cannot tell which of them are done: the sweep may have died between a run's end and the next write, and
    a later sweep may have trained others.
    """
    left = [job_id for job_id in sweep["open"] if job_id not in stored]
    counts = {name: count for name, count in sweep["counts"].items() if name not in ("running", "waiting")}
    counts |= {"stored since": len(sweep["open"]) - len(left), "not done": len(left)}
    sweep |= {"open": left, "done": sweep["total"] - len(left)}
    sweep["counts"] = {name: count for name, count in counts.items() if count}


_NUMBER = (int, float)
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("command", "folder", "host", "started", "title"), str),
    **dict.fromkeys(("done", "pid", "total"), int),
    **dict.fromkeys(("fraction", "seconds"), _NUMBER),
    **dict.fromkeys(("failures", "open", "slots"), list),
    "counts": dict,
}
_SLOT_TYPES = {"fraction": _NUMBER, "seconds": _NUMBER}
_ENDINGS = ("finished", "interrupted", "error")


def _check(sweep: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a journal lacks a field that ``madbench ls sweeps`` shows, or has one of a wrong type."""
    check_json(sweep)  # also rejects text that cannot be printed
    _check_types(sweep, _TYPES, "")
    if sweep.get("ended") not in (None, *_ENDINGS):
        raise ValueError(f"ended: expected {', '.join(_ENDINGS)}")
    if sweep.get("error") is not None:
        check_type(sweep["error"], str, "error")
    for name in ("jobs_per_minute", "seconds_left"):
        if name not in sweep:
            raise ValueError(f"{name} is missing")
        if sweep[name] is not None:
            check_type(sweep[name], _NUMBER, name)
    for name, count in sweep["counts"].items():
        check_type(count, int, f"counts: {name}")
    for job_id in sweep["open"]:
        check_type(job_id, str, "open")
    for kind, types in (("slots", _SLOT_TYPES), ("failures", {"reason": str})):
        for item in sweep[kind]:
            check_type(item, dict, kind)
            _check_types(item, types, f"{kind}: ")
    for slot in sweep["slots"]:
        if "step" in slot:
            check_type(slot.get("total_steps"), _NUMBER, "slots: total_steps")


def _check_types(values: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    for name, expected in types.items():
        if name not in values:
            raise ValueError(f"{where}{name} is missing")
        check_type(values[name], expected, f"{where}{name}")


def _read(path: Path) -> dict[str, Any]:
    try:
        check_regular(path)
        with open(path, "rb") as file:
            is_alive, unlockable = False, None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                is_alive = True
            except OSError as error:
                unlockable = (error.strerror or str(error)).lower()
            if not is_alive and not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return _read(path)  # it was replaced in the meantime
            sweep = unseal(file.read())
            silent = max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
        _check(sweep)
    except OSError as error:
        return {"name": path.stem, "state": "damaged", "error": f"{path}: {(error.strerror or str(error)).lower()}"}
    except ValueError as error:
        problem = f"{path}: not the journal of a sweep: {error}; delete it: results are not read from it"
        return {"name": path.stem, "state": "damaged", "error": problem}
    if not is_alive:
        sweep |= {"slots": [], "seconds_left": None}
    state = "running" if is_alive else sweep.pop("ended", "unknown" if unlockable else "died")
    if state == "unknown":
        sweep["error"] = f"whether it runs is not known, as {path} cannot be locked: {unlockable}"
    return {"name": path.stem, "state": state, "silent_seconds": silent, **sweep}
