"""Sweep progress, and its journal ``<results>/sweeps/<UTC start>-<8 hex>.json``: what a sweep was to do and did so far.

A :class:`Tally` of an executor's events has counts, failures, running jobs, rate and time left; the live screen and the
journal each feed one. A journal is for people and for ``madbench status``: results are never read from it, and where it cannot be written the
sweep continues. It is replaced as a whole, at most once a second. Its writer holds a lock on it, which the kernel frees
when the process dies.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from madbench import __version__
from madbench.execute.base import Event, reason
from madbench.files import LARGEST_TEXT, open_file, seal, unseal
from madbench.jobs import Job
from madbench.suites import size_of

FOLDER = "sweeps"
WRITE_SECONDS = 1.0  # between two times that a journal is written


_HEADLINES = ("accuracy", "loss_l5", "mse")


def flatten(event: Event) -> dict[str, Any]:
    """An executor's event as one flat line; of a record only its status, its reason and its headline."""
    line = {"event": event["event"], "slot": event.get("slot"), "job": event["job"].id, "reason": event.get("reason")}
    line |= event.get("progress", {})
    if record := event.get("record"):
        line |= {"status": record.status, **{name: record.metrics.get(name) for name in _HEADLINES}}
        if record.status != "finished":
            line["error"] = reason(record)
    return {
        name: value
        for name, value in line.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def weights(jobs: Iterable[Job]) -> dict[str, float]:
    """Tokens that each job trains on at most, by its id."""
    return {job.id: float(size_of(job).trained_tokens) for job in jobs}


@dataclass
class Running:
    job: str
    slot: int | None
    since: float  # seconds of the sweep's clock at which it started
    line: dict[str, Any] = field(default_factory=dict)  # its last progress
    fraction: float = 0.0  # how much of it is done
    first: tuple[float, float] | None = None
    """Its fraction at the first progress, which an earlier sweep did, and when that was."""

    def update(self, line: Mapping[str, Any], seconds: float) -> None:
        self.line, self.slot = dict(line), line.get("slot")
        self.fraction = line["step"] / line["total_steps"] if line.get("total_steps") else 0.0
        self.first = self.first or (self.fraction, seconds)

    @property
    def done_here(self) -> float:
        """Fraction of the job done since it started."""
        return self.fraction - self.first[0] if self.first else 0.0

    @property
    def seconds_left(self) -> float:
        """At the speed that it had up to its last progress; 0 where that is not known yet."""
        seconds = self.line.get("seconds", 0.0) - self.first[1] if self.first else 0.0
        return (1 - self.fraction) * seconds / self.done_here if self.done_here > 0 else 0.0


class Tally:
    """The state of a sweep after the lines it was given. ``weights`` has a number for every job, by id."""

    def __init__(self, weights: Mapping[str, float], jobs: Iterable[Job] = ()):
        self.weights = weights
        self.jobs = {job.id: {name: getattr(job, name) for name in ("id", "label", "task", "seed")} for job in jobs}
        """Which job an id is."""
        self.open = set(weights)  # jobs that have not ended
        self.counts: Counter[str] = Counter()
        """Ended jobs by outcome: finished, diverged, failed; of those not trained here stored, failed before, busy."""
        self.failures: list[tuple[str, str]] = []
        self.running: dict[str, Running] = {}  # by job
        self.seconds = 0.0
        self.first_start = math.inf
        self._done_here = 0.0

    @property
    def done(self) -> int:
        return len(self.weights) - len(self.open)

    def apply(self, line: Mapping[str, Any], seconds: float) -> None:
        """Takes one line of :func:`flatten`, of this second of the sweep's clock."""
        self.tick(seconds)
        kind, job = line["event"], line["job"]
        if kind in ("started", "progress"):
            if kind == "started" or job not in self.running:
                self.running[job] = Running(job, line.get("slot"), seconds)
            if kind == "started":
                self.first_start = min(self.first_start, seconds)
            else:
                self.running[job].update({**line, "seconds": seconds}, seconds)
            return
        running = self.running.pop(job, None)
        if job not in self.open:
            return
        self.open.discard(job)
        if kind == "skipped":
            self.counts["failed before" if line["reason"] == "failed" else line["reason"]] += 1
            return
        self.counts[line["status"]] += 1
        done_before = running.first[0] if running and running.first else 0.0
        if kind == "failed":
            self.failures.append((job, line["error"]))
        done = (running.fraction if running else 0.0) if kind == "failed" else 1
        self._done_here += self.weights[job] * (done - done_before)

    def tick(self, seconds: float) -> None:
        """Sets the sweep's clock, which never runs backwards."""
        self.seconds = max(self.seconds, seconds)

    @property
    def fraction(self) -> float:
        """Of all tokens, those of ended jobs and of running ones so far."""
        total = sum(self.weights.values())
        return 1 - self._tokens()[0] / total if total else 1.0

    def _tokens(self) -> tuple[float, float]:
        """Tokens that are left, and tokens trained on in this sweep."""
        running = [(self.weights[job], self.running[job]) for job in self.open.intersection(self.running)]
        left = sum(map(self.weights.get, self.open)) - sum(weight * one.fraction for weight, one in running)
        return left, self._done_here + sum(weight * one.done_here for weight, one in running)

    def jobs_per_minute(self) -> float | None:
        """Jobs trained a minute since the first one started; None while there is none."""
        trained = sum(self.counts[status] for status in ("finished", "diverged", "failed"))
        elapsed = self.seconds - self.first_start
        return 60 * trained / elapsed if trained and elapsed > 0 else None

    def seconds_left(self) -> float | None:
        """From the tokens trained on so far in this sweep; None where that is not known yet.

        Jobs that were skipped, and what resumed jobs had done before, count neither as work nor as time.
        """
        left, done = self._tokens()
        elapsed = self.seconds - self.first_start
        if not self.open or done <= 0 or elapsed <= 0:
            return None if self.open else 0.0
        return max(left * elapsed / done, *(running.seconds_left for running in self.running.values()), 0.0)

    def content(self) -> dict[str, Any]:
        """All that is shown of it, as JSON has it."""
        at_work = len(self.open.intersection(self.running))
        counts = self.counts | {"running": at_work, "waiting": len(self.open) - at_work}
        running = sorted(self.running.values(), key=lambda running: (running.slot is None, running.slot))
        return {
            "total": len(self.weights),
            "done": self.done,
            "fraction": self.fraction,
            "counts": {what: count for what, count in counts.items() if count},
            "jobs_per_minute": self.jobs_per_minute(),
            "seconds_left": self.seconds_left(),
            "seconds": self.seconds,
            "slots": [
                {key: value for key, value in one.line.items() if key not in ("event", "job")}
                | self.jobs.get(one.job, {})
                | {"slot": one.slot, "fraction": one.fraction, "seconds": self.seconds - one.since}
                for one in running
            ],
            "failures": [self.jobs.get(job, {}) | {"reason": reason} for job, reason in self.failures],
        }


def command_line() -> str:
    """The command of this process, as a user would type it again."""
    program = "madbench"
    if "LOCAL_WORLD_SIZE" in os.environ:
        program = f"torchrun --nproc-per-node {os.environ['LOCAL_WORLD_SIZE']} -m madbench"
    return f"{program} {shlex.join(sys.argv[1:])}".rstrip()


class Journal:
    """Writes the journal of one sweep while the context is open; ``on_event`` takes an executor's events.

    ``warn`` is called once, with a sentence, where it cannot be written. A sweep that trained nothing leaves no journal.
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
        self.tally = Tally(weights(jobs), jobs)
        self._began = self._written = time.monotonic()
        self._has_trained = self._is_warned = self._is_stale = False
        self._problem: OSError | None = None
        self._held = ExitStack()  # the open file with the lock
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._write_when_stale, daemon=True)

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._ended.set()
        self._thread.join()
        how = "finished" if kind is None else "interrupted" if issubclass(kind, KeyboardInterrupt) else "error"
        if self._has_trained:
            self._write(ended=how, error=str(error) if how == "error" else None)
            self._warn()
        else:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self._held.close()

    def on_event(self, event: Event) -> None:
        """Takes the event to the journal."""
        with self._lock:
            self._has_trained |= event["event"] != "skipped"
            self.tally.apply(flatten(event), time.monotonic() - self._began)
            self._is_stale = True
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self._write()
        self._warn()

    def _write_when_stale(self) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            if self._is_stale:
                self._write()

    def _write(self, **ending: str | None) -> None:
        """Replaces the journal by one that is locked before anyone sees it: it never looks dead."""
        hidden = self.path.with_name(f".{self.path.name}")
        with self._lock:
            self._is_stale, self._written = False, time.monotonic()
            content = seal({**self.plan, **self.tally.content(), "open": sorted(self.tally.open), **ending})
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with ExitStack() as stack:
                    file = stack.enter_context(open(hidden, "w"))
                    fcntl.flock(file, fcntl.LOCK_EX)
                    json.dump(content, file)
                    file.flush()
                    hidden.rename(self.path)
                    previous, self._held = self._held, stack.pop_all()
                previous.close()
            except OSError as error:
                self._problem = error
                with suppress(OSError):
                    hidden.unlink()

    def _warn(self) -> None:
        """Says at an event why nothing is written: a store that cannot be opened speaks for itself before."""
        if self._problem and not self._is_warned:
            self._is_warned = True
            why = (self._problem.strerror or str(self._problem)).lower()
            self.warn(f"{self.path.parent}: {why}; madbench status will miss part of this sweep, which continues")


def read_sweeps(results: Path, ended: int) -> list[dict[str, Any]]:
    """The journals of the sweeps that are alive and the last ``ended`` of the others, in the order of their beginning.

    With its ``name`` and ``state`` each: ``running``, ``finished``, ``interrupted``, ``error``, ``died``, or ``damaged``,
    with the problem as ``error`` and nothing else.
    """
    sweeps = [_read(path) for path in sorted((results / FOLDER).glob("[!.]*.json"))]
    others = [sweep for sweep in sweeps if sweep["state"] != "running"]
    hidden = {sweep["name"] for sweep in others[: max(0, len(others) - ended)]}
    return [sweep for sweep in sweeps if sweep["name"] not in hidden]


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_file(path) as file:
            is_alive = False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                is_alive = True
            if not is_alive and not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return _read(path)  # it was replaced at this moment
            sweep = unseal(file.read(LARGEST_TEXT))
            silent = max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
        missing = {"command", "folder", "host", "pid", "started", "title", "open", "counts", "slots"} - sweep.keys()
        if missing:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
    except OSError as error:
        return {"name": path.stem, "state": "damaged", "error": f"{path}: {(error.strerror or str(error)).lower()}"}
    except ValueError as error:
        problem = f"{path}: not the journal of a sweep: {error}; delete it: results are not read from it"
        return {"name": path.stem, "state": "damaged", "error": problem}
    if not is_alive:
        counts = sweep["counts"]
        if left := counts.pop("running", 0) + counts.pop("waiting", 0):
            counts["not done"] = left
        sweep |= {"slots": [], "seconds_left": None}
    state = "running" if is_alive else sweep.pop("ended", "died")
    return {"name": path.stem, "state": state, "silent_seconds": silent, **sweep}
