"""Sweep progress, from its executor's events as flat lines: counts, failures, running jobs, rate and time left.

The live screen and the journal, which ``madbench status`` reads, each feed a :class:`Tally` as events come.
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
    fraction: float = 0.0
    """How much of it is done."""
    resumed_at: float = 0.0
    """Its fraction at the first progress."""
    seconds_left: float = 0.0
    """At its own speed; 0 where that is not known yet."""
    _first: float | None = None

    def update(self, line: Mapping[str, Any], seconds: float) -> None:
        self.line, self.slot = dict(line), line.get("slot")
        self.fraction = line["step"] / line["total_steps"] if line.get("total_steps") else 0.0
        if self._first is None:
            self._first, self.resumed_at = seconds, self.fraction
        if self.done_here > 0:
            self.seconds_left = (1 - self.fraction) * (seconds - self._first) / self.done_here

    @property
    def done_here(self) -> float:
        """Fraction of the job done since it started, without what an earlier sweep did."""
        return self.fraction - self.resumed_at


class Tally:
    """The state of a sweep after the lines it was given. ``weights`` has a number for every job, by id."""

    def __init__(self, weights: Mapping[str, float], jobs: Iterable[Job] = ()):
        self.weights = weights
        self.jobs = {job.id: {name: getattr(job, name) for name in ("id", "label", "task", "seed")} for job in jobs}
        """Which job an id is."""
        self.open = set(weights)
        """Jobs that have not ended."""
        self.counts: Counter[str] = Counter()
        """Ended jobs by outcome: finished, diverged, failed; of those not trained here stored, failed before, busy."""
        self.failures: list[tuple[str, str]] = []
        self.running: dict[str, Running] = {}
        """By job."""
        self.seconds = 0.0
        self.first_start: float | None = None
        self._open_weight = sum(weights.values())
        self._done_here = 0.0

    @property
    def done(self) -> int:
        """Jobs that have ended, in whatever way."""
        return len(self.weights) - len(self.open)

    def content(self) -> dict[str, Any]:
        """All that is shown of it, as JSON has it."""
        at_work = len(self.open.intersection(self.running))
        rest = {"running": at_work, "waiting": len(self.open) - at_work}
        running = sorted(self.running.values(), key=lambda running: (running.slot is None, running.slot))
        return {
            "total": len(self.weights),
            "done": self.done,
            "fraction": self.fraction,
            "counts": {what: count for what, count in (self.counts | rest).items() if count},
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

    def apply(self, line: Mapping[str, Any], seconds: float) -> None:
        """Takes one line of :func:`flatten`, of this second of the sweep's clock."""
        self.tick(seconds)
        kind, job = line["event"], line["job"]
        if kind == "started":
            self.running[job] = Running(job, line.get("slot"), seconds)
            self.first_start = seconds if self.first_start is None else self.first_start
        elif kind == "progress":
            self.running.setdefault(job, Running(job, line.get("slot"), seconds)).update(line, seconds)
        elif kind in ("finished", "failed", "skipped"):
            running = self.running.pop(job, None) or Running(job, None, seconds)
            if job in self.open:
                self._end(line, running)

    def _end(self, line: Mapping[str, Any], running: Running) -> None:
        job, kind = line["job"], line["event"]
        self.open.discard(job)
        self._open_weight -= self.weights[job]
        if kind == "skipped":
            self.counts["failed before" if line["reason"] == "failed" else line["reason"]] += 1
            return
        self.counts[line["status"]] += 1
        if kind == "failed":
            self.failures.append((job, line["error"]))
        self._done_here += self.weights[job] * (running.done_here if kind == "failed" else 1 - running.resumed_at)

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
        left, done = self._open_weight, self._done_here
        for job, running in self.running.items():
            if job in self.open:
                left -= self.weights[job] * running.fraction
                done += self.weights[job] * running.done_here
        return left, done

    @property
    def _elapsed(self) -> float:
        """Seconds since the first job started."""
        return 0.0 if self.first_start is None else self.seconds - self.first_start

    def jobs_per_minute(self) -> float | None:
        """Jobs trained a minute since the first one started; None while there is none."""
        trained = sum(self.counts[status] for status in ("finished", "diverged", "failed"))
        return 60 * trained / self._elapsed if trained and self._elapsed > 0 else None

    def seconds_left(self) -> float | None:
        """From the tokens trained on so far in this sweep; None where that is not known yet.

        Jobs that were skipped, and what resumed jobs had done before, count neither as work nor as time.
        """
        left, done = self._tokens()
        if not self.open or done <= 0 or self._elapsed <= 0:
            return None if self.open else 0.0
        return max(left * self._elapsed / done, *(running.seconds_left for running in self.running.values()), 0.0)
