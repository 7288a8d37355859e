"""The progress of a sweep: counts, failures, running jobs, rate and time left, computed from an executor's events.

The live screen and the journal (:mod:`madbench.execute.journal`) each feed a :class:`SweepState`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from madbench.execute.base import Event, reason
from madbench.jobs import Job
from madbench.suites import size_of

_HEADLINES = ("accuracy", "loss_l5", "mse")


def flatten(event: Event) -> dict[str, Any]:
    """An executor's event as a flat mapping. It has only the status, the reason and the main metrics of a record."""
    line: dict[str, Any] = {
        "event": event["event"],
        "slot": event.get("slot"),
        "job": event["job"].id,
        "reason": event.get("reason"),
    }
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
    """The largest number of tokens that each job can train on, by the id of the job."""
    return {job.id: float(size_of(job).trained_tokens) for job in jobs}


def distinctions(jobs: Iterable[Job], names: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The settings that distinguish jobs of equal name, task and seed, such as ``lr 0.001 wd 0.1``, by id of the job.

    The name of a job is its entry in ``names``, by id, or else its label. The text is empty for a job that is unique by
    name, task and seed. A setting with the value of most jobs is left out, except rates and decays.
    """
    groups: dict[tuple[str, str, int], list[Job]] = defaultdict(list)
    for job in jobs:
        groups[names.get(job.id, job.label), job.task, job.seed].append(job)
    texts: dict[str, str] = {}
    for alike in groups.values():
        settings = [_settings(job) for job in alike] if len(alike) > 1 else []
        words: list[list[str]] = [[] for _ in alike]
        for name in dict.fromkeys(name for each in settings for name in each):
            values = [str(each.get(name)) for each in settings]
            counts = Counter(values)
            for value, own in zip(values, words):
                if len(counts) > 1 and (name in _RATES or 2 * counts[value] <= len(alike)):
                    own.append(f"{_RATES.get(name, name)} {value}")
        texts |= {job.id: " ".join(own) for job, own in zip(alike, words)}
    return texts


def _settings(job: Job) -> dict[str, Any]:
    """All settings of a job by name."""
    own = {"fidelity": job.fidelity, "budget": job.budget}
    return {**job.setting, **job.mixer, **vars(job.model), **vars(job.training), **own}


_RATES = {"learning_rate": "lr", "weight_decay": "wd"}


@dataclass
class Running:
    """A job in training."""

    job: str
    slot: int | None
    since: float  # seconds of the sweep's clock at which it started
    line: dict[str, Any] = field(default_factory=dict)  # its last progress
    fraction: float = 0.0  # share of its steps that are done
    first: tuple[float, float] | None = None
    """Its fraction at the first progress, done by an earlier sweep, and the time of that progress."""

    def update(self, line: Mapping[str, Any], seconds: float) -> None:
        """Apply a line of progress at this second of the sweep's clock."""
        self.line, self.slot = {**line, "seconds": seconds}, line.get("slot")
        self.fraction = line["step"] / line["total_steps"] if line.get("total_steps") else 0.0
        self.first = self.first or (self.fraction, seconds)

    @property
    def done_here(self) -> float:
        """The fraction of the job done since it started here."""
        return self.fraction - self.first[0] if self.first else 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the job ends, at its speed so far; 0 if that is not known yet."""
        if self.first is None or self.done_here <= 0:
            return 0.0
        return (1 - self.fraction) * (self.line["seconds"] - self.first[1]) / self.done_here


class SweepState:
    """The state of a sweep after the lines it was given.

    ``weights`` has the number of tokens of every job, by id. ``names``, by id, are shown in place of labels.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        jobs: Sequence[Job] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ):
        self.weights = weights
        details = distinctions(jobs, names)
        self.jobs: dict[str, dict[str, Any]] = {
            job.id: {"id": job.id, "label": names.get(job.id, job.label), "task": job.task}
            | ({"detail": details[job.id]} if details[job.id] else {})
            | {"seed": job.seed}
            for job in jobs
        }
        """The displayed fields of each job, by its id."""
        self.open = set(weights)  # jobs that have not ended
        self.counts: Counter[str] = Counter()
        """Ended jobs by outcome: finished, diverged, failed; for jobs not trained here: stored, failed before, busy."""
        self.failures: list[tuple[str, str]] = []
        self.running: dict[str, Running] = {}  # running jobs by id
        self.seconds = 0.0
        self.first_start = math.inf
        self._done_here = 0.0

    @property
    def done(self) -> int:
        return len(self.weights) - len(self.open)

    def apply(self, line: Mapping[str, Any], seconds: float) -> None:
        """Apply one line of :func:`flatten` at this second of the sweep's clock."""
        self.tick(seconds)
        kind, job = line["event"], line["job"]
        if kind in ("started", "progress"):
            if kind == "started" or job not in self.running:
                self.running[job] = Running(job, line.get("slot"), seconds)
            if kind == "started":
                self.first_start = min(self.first_start, seconds)
            else:
                self.running[job].update(line, seconds)
            return
        running = self.running.pop(job, Running(job, None, seconds))
        if job not in self.open:
            return
        self.open.discard(job)
        if kind == "skipped":
            self.counts["failed before" if line["reason"] == "failed" else line["reason"]] += 1
            return
        self.counts[line["status"]] += 1
        done_before, done = running.first[0] if running.first else 0.0, 1.0
        if kind == "failed":
            self.failures.append((job, line["error"]))
            done = running.fraction
        self._done_here += self.weights[job] * (done - done_before)

    def tick(self, seconds: float) -> None:
        """Set the sweep's clock, which never runs backward."""
        self.seconds = max(self.seconds, seconds)

    @property
    def fraction(self) -> float:
        """The share of all tokens done: tokens of ended jobs, and of running jobs so far."""
        total = sum(self.weights.values())
        return 1 - self._tokens()[0] / total if total else 1.0

    def _tokens(self) -> tuple[float, float]:
        """The number of remaining tokens, and of tokens trained in this sweep."""
        running = [(self.weights[job], self.running[job]) for job in self.open.intersection(self.running)]
        left = sum(self.weights[job] for job in self.open) - sum(weight * run.fraction for weight, run in running)
        return left, self._done_here + sum(weight * run.done_here for weight, run in running)

    def jobs_per_minute(self) -> float | None:
        """Jobs trained per minute since the first start; None if no job has ended."""
        trained = sum(self.counts[status] for status in ("finished", "diverged", "failed"))
        elapsed = self.seconds - self.first_start
        return 60 * trained / elapsed if trained and elapsed > 0 else None

    def seconds_left(self) -> float | None:
        """Seconds until the sweep ends, at the tokens per second so far; None if that is not known yet.

        Skipped jobs and earlier parts of resumed jobs count neither as work nor as time.
        """
        left, done = self._tokens()
        elapsed = self.seconds - self.first_start
        if not self.open or done <= 0 or elapsed <= 0:
            return None if self.open else 0.0
        return max(left * elapsed / done, *(running.seconds_left for running in self.running.values()), 0.0)

    def content(self) -> dict[str, Any]:
        """The state as the screen and JSON show it."""
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
                {key: value for key, value in run.line.items() if key not in ("event", "job")}
                | self.jobs.get(run.job, {})
                | {"slot": run.slot, "fraction": run.fraction, "seconds": self.seconds - run.since}
                for run in running
            ],
            "failures": [self.jobs.get(job, {}) | {"reason": reason} for job, reason in self.failures],
        }
