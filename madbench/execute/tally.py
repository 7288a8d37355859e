"""Sweep progress, from its executor's events as flat lines: counts, failures, running jobs, rate and time left.

The live screen feeds a :class:`Tally` as events come, ``madbench status`` from the lines of a journal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from madbench.execute.base import Event
from madbench.execute.failure import reason
from madbench.jobs import Job
from madbench.suites import suite_of

_HEADLINES = ("accuracy", "loss_l5")


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
    """Tokens that each job trains on at most, by its id; worked out once for jobs that differ in label and seed."""
    found: dict[str, float] = {}
    known: dict[tuple, float] = {}
    for job in jobs:
        alike = (job.suite, job.task, str(job.setting), job.model, job.training)
        if alike not in known:
            known[alike] = float(suite_of(job).size(job).trained_tokens)
        found[job.id] = known[alike]
    return found


@dataclass
class Running:
    """A job that is training."""

    job: str
    slot: int | None
    since: float
    """Seconds of the sweep's clock at which it started."""
    line: dict[str, Any] = field(default_factory=dict)
    """Its last progress."""
    first: tuple[float, float] | None = None
    """Seconds and fraction of its first progress; a job that resumes does not begin at 0."""
    last: tuple[float, float] = (0.0, 0.0)
    """Seconds and fraction of its last progress."""

    def update(self, line: Mapping[str, Any], seconds: float) -> None:
        self.line, self.slot = dict(line), line.get("slot")
        self.last = (seconds, line["step"] / line["total_steps"] if line.get("total_steps") else 0.0)
        self.first = self.first or self.last

    @property
    def fraction(self) -> float:
        return self.last[1]

    @property
    def done_here(self) -> float:
        """Fraction of the job done since it started, without what an earlier sweep did."""
        return self.last[1] - self.first[1] if self.first else 0.0

    @property
    def seconds_left(self) -> float:
        """At its own speed; 0 where that is not known yet."""
        if self.done_here <= 0:
            return 0.0
        return (1 - self.last[1]) * (self.last[0] - self.first[0]) / self.done_here


class Tally:
    """The state of a sweep after the lines it was given. ``weights`` has a number for every job, by id."""

    def __init__(self, weights: Mapping[str, float]):
        self.weights = weights
        self.open = set(weights)
        """Jobs that have not ended."""
        self.counts: Counter[str] = Counter()
        """Ended jobs by outcome: finished, diverged, failed; of those not trained here stored, failed before, busy."""
        self.failures: list[tuple[str, str]] = []
        self.running: dict[str, Running] = {}
        """By job."""
        self.seconds = 0.0
        self.first_start: float | None = None
        self._total_weight = self._open_weight = sum(weights.values())
        self._done_here = 0.0

    @property
    def total(self) -> int:
        return len(self.weights)

    @property
    def done(self) -> int:
        """Jobs that have ended, in whatever way."""
        return self.total - len(self.open)

    @property
    def trained(self) -> int:
        """Jobs that this sweep brought to an end itself."""
        return sum(self.counts[status] for status in ("finished", "diverged", "failed"))

    def apply(self, line: Mapping[str, Any], seconds: float) -> None:
        """Takes one line of :func:`flatten`, of this second of the sweep's clock."""
        self.tick(seconds)
        kind, job = line["event"], line["job"]
        if kind == "started":
            self.running[job] = Running(job, line.get("slot"), seconds)
            if self.first_start is None:
                self.first_start = seconds
        elif kind == "progress":
            self.running.setdefault(job, Running(job, line.get("slot"), seconds)).update(line, seconds)
        elif kind in ("finished", "failed", "skipped"):
            running = self.running.pop(job, None)
            if job in self.open:
                self._end(line, running)

    def _end(self, line: Mapping[str, Any], running: Running | None) -> None:
        job = line["job"]
        self.open.discard(job)
        self._open_weight -= self.weights[job]
        if line["event"] == "skipped":
            self.counts["failed before" if line["reason"] == "failed" else line["reason"]] += 1
            return
        self.counts[line["status"]] += 1
        if line["status"] == "failed":
            self.failures.append((job, line["error"]))
            self._done_here += self.weights[job] * (running.done_here if running else 0.0)
        else:
            self._done_here += self.weights[job] * (1 - (running.first[1] if running and running.first else 0.0))

    def tick(self, seconds: float) -> None:
        """Sets the sweep's clock, which never runs backwards."""
        self.seconds = max(self.seconds, seconds)

    @property
    def fraction(self) -> float:
        """Of all tokens, those of ended jobs and of running ones so far."""
        return 1 - self._tokens_left() / self._total_weight if self._total_weight else 1.0

    def _open_running(self) -> list[tuple[float, Running]]:
        return [(self.weights[job], running) for job, running in self.running.items() if job in self.open]

    def _tokens_left(self) -> float:
        return self._open_weight - sum(tokens * running.fraction for tokens, running in self._open_running())

    def jobs_per_minute(self) -> float | None:
        """Jobs trained a minute since the first one started; None while there is none."""
        elapsed = self.seconds - self.first_start if self.first_start is not None else 0.0
        return 60 * self.trained / elapsed if self.trained and elapsed > 0 else None

    def seconds_left(self) -> float | None:
        """From the tokens trained on so far in this sweep; None where that is not known yet.

        Jobs that were skipped, and what resumed jobs had done before, count neither as work nor as time.
        """
        if not self.open:
            return 0.0
        done = self._done_here + sum(tokens * running.done_here for tokens, running in self._open_running())
        if self.first_start is None or done <= 0 or self.seconds <= self.first_start:
            return None
        together = self._tokens_left() * (self.seconds - self.first_start) / done
        return max(together, *(running.seconds_left for running in self.running.values()), 0.0)
