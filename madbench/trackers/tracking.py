"""What feeds trackers: an executor's events, in a thread of its own, for a network must not hold up a sweep."""

from __future__ import annotations

import importlib
import math
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from madbench.errors import ConfigError, MissingExtraError, did_you_mean
from madbench.execute.base import Event
from madbench.jobs import JobBase, Record

NAMES = ("tensorboard", "wandb", "trackio")
FLUSH_SECONDS = 60.0
"""How long the end of a sweep waits for its trackers."""
_LONGEST_QUEUE = 10_000  # events; beyond, progress is dropped


class Tracker(Protocol):
    """One service; any number of jobs at a time."""

    def begin(self, job: JobBase) -> None:
        """The job starts."""

    def log(self, job: JobBase, step: int, values: Mapping[str, float]) -> None:
        """Numbers at a step of the job; steps may go back."""

    def end(self, job: JobBase, record: Record | None, metrics: Mapping[str, float]) -> None:
        """The job is over; None for one that was interrupted."""

    def close(self) -> None:
        """No more jobs come."""


def open_trackers(names: Iterable[str], results: Path) -> dict[str, Tracker]:
    """The trackers by name. Raises ``ConfigError`` for an unknown one, ``MissingExtraError`` for one not installed."""
    trackers = {}
    for name in check_names(names):
        try:
            module = importlib.import_module(f"madbench.trackers.to_{name}")
        except ImportError as error:
            raise MissingExtraError(f"tracker {name}", name) from error
        trackers[name] = module.open_tracker(results)
    return trackers


def check_names(names: Iterable[str]) -> list[str]:
    """The names, each known and given once, or a ``ConfigError``."""
    names = list(names)
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"tracker {name!r} is not known{did_you_mean(name, NAMES)}")
        if names.count(name) > 1:
            raise ConfigError(f"tracker {name!r} is given twice; once is enough")
    return names


class Tracking:
    """Hands an executor's events to trackers while the context is open; ``warn`` gets a sentence where one fails."""

    def __init__(self, trackers: Mapping[str, Tracker], warn: Callable[[str], None]):
        self.trackers, self.warn = dict(trackers), warn
        self._jobs: dict[str, JobBase] = {}
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._last: dict[str, dict[str, float]] = {}
        self._thread = threading.Thread(target=self._work, name="madbench-trackers", daemon=True)

    def __enter__(self) -> Tracking:
        self._stdout = sys.stdout
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)
        self._thread.join(FLUSH_SECONDS)
        if self._thread.is_alive():
            sys.stdout = self._stdout  # a tracker may have put its own in the place
            waiting = ", ".join(self.trackers)
            self.warn(f"{waiting}: not done after {FLUSH_SECONDS:.0f} s; the end of the sweep may be missing there")

    def on_event(self, event: Event) -> None:
        """Takes the event and returns at once."""
        if self.trackers and not (event["event"] == "progress" and self._events.qsize() > _LONGEST_QUEUE):
            self._events.put(event)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._handle(event)
        for job in list(self._jobs.values()):
            self._tell("end", job, None, {})
        self._tell("close")

    def _handle(self, event: Event) -> None:
        job, kind = event["job"], event["event"]
        if kind == "skipped":
            return
        if job.id not in self._jobs:
            self._jobs[job.id] = job
            self._tell("begin", job)
        if kind == "progress":
            values = _numbers(event["progress"], "progress/", but=("step", "total_steps"))
            if values and values != self._last.get(job.id):  # reported several times between two evaluations
                self._last[job.id] = values
                self._tell("log", job, event["progress"]["step"], values)
        elif kind in ("finished", "failed"):
            record = event["record"]
            for row in record.curve:
                self._tell("log", job, int(row["step"]), _numbers(row, "curve/", but=("step",)))
            self._tell("end", job, record, _numbers(record.metrics, "final/"))
            del self._jobs[job.id]
            self._last.pop(job.id, None)

    def _tell(self, method: str, *arguments: Any) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                getattr(tracker, method)(*arguments)
            except (Exception, SystemExit) as error:
                del self.trackers[name]
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                self.warn(f"tracker {name} failed and gets nothing more of this sweep, which goes on: {reason}")


def _numbers(values: Mapping[str, Any], prefix: str, but: tuple[str, ...] = ()) -> dict[str, float]:
    return {
        prefix + name: value
        for name, value in values.items()
        if name not in but and isinstance(value, (int, float)) and math.isfinite(value)
    }


def title(job: JobBase) -> str:
    """What people call the job in a list of runs."""
    return f"{job.label} {job.task} seed {job.seed}"


def settings(job: JobBase) -> dict[str, Any]:
    """The job's content and id, nested as in ``job.json``."""
    return {"id": job.id, **job.to_dict()}
