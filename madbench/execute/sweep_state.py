"""The progress of a sweep, computed from an executor's events: counts, failures, running jobs, rate and time left.

The live screen and the journal (:mod:`madbench.execute.journal`) each have a :class:`SweepState`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict, cast

from madbench.execute.base import Event, EventKind, SkipReason, duration, reason
from madbench.jobs import Job, ShownValues, Status
from madbench.labels.names import typed_label
from madbench.suites import size_of

_HEADLINES = ("accuracy", "loss_l5", "mse")


class EventLine(ShownValues):
    """An executor's event as a flat dict."""

    event: EventKind
    job: str
    """The id of the job."""
    slot: NotRequired[int]
    reason: NotRequired[SkipReason]
    step: NotRequired[int]
    total_steps: NotRequired[int]
    status: NotRequired[Status]
    loss_l5: NotRequired[float]
    mse: NotRequired[float]
    error: NotRequired[str]
    """The last line of the error of a run that did not finish."""


class JobFields(TypedDict):
    """The displayed fields of a job."""

    id: str
    label: str
    """The label, or the name of the row of a grid."""
    task: str
    detail: NotRequired[str]
    """The settings that distinguish the job from others with the same label, task and seed."""
    seed: int


class RunningFields(JobFields, ShownValues):
    """The displayed fields of a job in training."""

    slot: int | None
    fraction: float
    """Share of the job's steps that are done."""
    seconds: float
    """Time since the job started."""
    step: NotRequired[int]
    """Missing before the first progress report."""
    total_steps: NotRequired[int]


class FailedFields(JobFields):
    """The displayed fields of a job that failed."""

    reason: str


class SweepContent(TypedDict):
    """The progress of a sweep, for the screen and the journal."""

    total: int
    done: int
    fraction: float
    """Share of the sweep's tokens that are done."""
    counts: dict[str, int]
    """Numbers of jobs by outcome, and of running and waiting jobs. Numbers that are 0 are missing."""
    jobs_per_minute: float | None
    seconds_left: float | None
    """Estimated time. None if it is not known yet."""
    seconds: float
    slots: list[RunningFields]
    """The running jobs."""
    failures: list[FailedFields]


def event_line(event: Event) -> EventLine:
    """An executor's event as a flat dict, called a line. Values that are None, infinite or NaN are left out.

    It has the entries of the progress. From a record, it has the status, the main metrics, and if the run did not
    finish, the last line of the error.
    """
    line: dict[str, object] = {
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
    shown = {
        name: value
        for name, value in line.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
    return cast(EventLine, shown)


def job_name(job: Mapping[str, object]) -> str:
    """The name of a job, such as ``S-p compression lr 0.001 seed 0``.

    ``job`` has the values ``label``, ``task``, ``seed`` and, for settings that differ between the jobs, ``detail``.
    """
    what = f"{typed_label(str(job.get('label')))} {job.get('task')}"
    return " ".join([what, *([str(job["detail"])] if job.get("detail") else []), f"seed {job.get('seed')}"])


def _outcome(line: EventLine) -> str:
    if line["status"] != "finished":
        return f"{line['status']}: {line['error']}"
    formats: dict[Literal["loss_l5", "accuracy", "mse"], str]
    formats = {"loss_l5": "loss {:.3f}", "accuracy": "accuracy {:.3f}", "mse": "squared error {:.2g}"}
    return next((text.format(line[key]) for key, text in formats.items() if key in line), "finished")


def distinctions(jobs: Iterable[Job], names: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """A text per job, by job id: the settings that distinguish it from jobs with the same name, task and seed.

    An example is ``lr 0.001 wd 0.1``. The name of a job is ``names[job.id]``, or its label if it is not in ``names``.
    The text is empty if no other job has the same name, task and seed. To keep the text short, it leaves out a value
    that more than half of these jobs share. Learning rates and weight decays are never left out.
    """
    groups: dict[tuple[str, str, int], list[Job]] = defaultdict(list)
    for job in jobs:
        groups[names.get(job.id, job.label), job.task, job.seed].append(job)
    texts: dict[str, str] = {}
    for alike in groups.values():
        settings = [_settings(job) for job in alike] if len(alike) > 1 else []
        words: list[list[str]] = [[] for _ in alike]
        for name in dict.fromkeys(name for setting in settings for name in setting):
            values = [str(setting.get(name)) for setting in settings]
            counts = Counter(values)
            for value, words_of_job in zip(values, words):
                if len(counts) > 1 and (name in _RATES or 2 * counts[value] <= len(alike)):
                    words_of_job.append(f"{_RATES.get(name, name)} {value}")
        texts |= {job.id: " ".join(words_of_job) for job, words_of_job in zip(alike, words)}
    return texts


def _settings(job: Job) -> dict[str, Any]:
    """All settings of a job by name: of its task, mixer, model and training, and its fidelity and budget."""
    changes = {"fidelity": job.fidelity, "budget": job.budget}
    return {**job.setting, **job.mixer, **vars(job.model), **vars(job.training), **changes}


_RATES = {"learning_rate": "lr", "weight_decay": "wd"}


@dataclass
class RunningJob:
    """The state of a job in training that the live screen shows."""

    job: str
    slot: int | None
    since: float
    """Time at which the job started, in seconds of the sweep's clock."""
    line: EventLine | None = None
    """The last line (:func:`event_line`) with progress of the job. None before the first."""
    seconds: float = 0.0
    """The time of that line."""
    fraction: float = 0.0
    """Share of the job's steps that are done."""
    first: tuple[float, float] | None = None
    """The fraction and the time at the first progress report. Steps before this report were trained by earlier sweeps.
    """

    def update(self, line: EventLine, seconds: float) -> None:
        """Update the job from a line (:func:`event_line`) with progress.

        ``seconds`` is the present time of the sweep's clock.
        """
        self.line, self.seconds, self.slot = line, seconds, line.get("slot")
        self.fraction = line["step"] / line["total_steps"] if line.get("total_steps") else 0.0
        self.first = self.first or (self.fraction, seconds)

    @property
    def done_here(self) -> float:
        """The share of the job's steps, 0 to 1, that this sweep has trained. Steps of earlier sweeps do not count."""
        return self.fraction - self.first[0] if self.first else 0.0

    @property
    def seconds_left(self) -> float:
        """Estimated seconds until the job ends, from its speed in this sweep. 0 if the speed is not known yet."""
        if self.first is None or self.done_here <= 0:
            return 0.0
        seconds_here = self.seconds - self.first[1]
        return (1 - self.fraction) * seconds_here / self.done_here


def _job_fields(job: Job, label: str, detail: str) -> JobFields:
    if detail:
        return {"id": job.id, "label": label, "task": job.task, "detail": detail, "seed": job.seed}
    return {"id": job.id, "label": label, "task": job.task, "seed": job.seed}


class SweepState:
    """The progress of a sweep. Call :meth:`apply` with the line of each event to update it.

    ``jobs`` are the jobs of the sweep. ``names`` has names that are shown in place of labels, by job id.
    """

    def __init__(self, jobs: Sequence[Job], names: Mapping[str, str] = MappingProxyType({})):
        self.tokens_by_job = {job.id: float(size_of(job).trained_tokens) for job in jobs}
        """The largest number of tokens on which each job can train, by job id."""
        details = distinctions(jobs, names)
        self.jobs = {job.id: _job_fields(job, names.get(job.id, job.label), details[job.id]) for job in jobs}
        """The displayed fields of each job, by job id."""
        self.open = set(self.tokens_by_job)  # jobs that have not ended
        self.counts: Counter[str] = Counter()
        """The number of ended jobs by outcome: ``finished``, ``diverged``, ``failed``, and for jobs that were skipped
        ``stored``, ``failed before``, ``busy``.
        """
        self.failures: list[tuple[str, str]] = []
        self.running: dict[str, RunningJob] = {}  # running jobs by id
        self.seconds = 0.0
        self.first_start = math.inf
        self._done_here = 0.0

    @property
    def done(self) -> int:
        return len(self.tokens_by_job) - len(self.open)

    def apply(self, line: EventLine, seconds: float) -> None:
        """Update the state from a line (:func:`event_line`). ``seconds`` is the present time of the sweep's clock."""
        self.advance_to(seconds)
        kind, job = line["event"], line["job"]
        if kind in ("started", "progress"):
            if kind == "started" or job not in self.running:
                self.running[job] = RunningJob(job, line.get("slot"), seconds)
            if kind == "started":
                self.first_start = min(self.first_start, seconds)
            else:
                self.running[job].update(line, seconds)
            return
        running = self.running.pop(job, RunningJob(job, None, seconds))
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
        self._done_here += self.tokens_by_job[job] * (done - done_before)

    def report(self, line: EventLine, seconds: float) -> str:
        """Update the state as :meth:`apply` does. Return the line of a log on the job if it ended, otherwise "".

        An example is ``[3/6] S-p compression seed 0: accuracy 0.500 in 20 s``. Skipped jobs have no such line.
        """
        running = self.running.get(line["job"])
        self.apply(line, seconds)
        if line["event"] not in ("finished", "failed"):
            return ""
        took = f" in {duration(seconds - running.since)}" if running and "error" not in line else ""
        name = job_name(self.jobs[line["job"]])
        return f"[{self.done}/{len(self.jobs)}] {name}: {_outcome(line)}{took}"

    def advance_to(self, seconds: float) -> None:
        """Set the sweep's clock to ``seconds``, unless it shows a later time already."""
        self.seconds = max(self.seconds, seconds)

    @property
    def fraction(self) -> float:
        """The share of the sweep's tokens that are done, 0 to 1, including the steps that running jobs have done."""
        total = sum(self.tokens_by_job.values())
        return 1 - self._tokens()[0] / total if total else 1.0

    def _tokens(self) -> tuple[float, float]:
        """Two numbers of tokens: those that are left to train, and those on which this sweep has trained.

        For running jobs, the steps that they have done count as trained, and their other steps as left.
        """
        running = [(self.tokens_by_job[job], self.running[job]) for job in self.open.intersection(self.running)]
        tokens_left = sum(self.tokens_by_job[job] for job in self.open) - sum(
            weight * run.fraction for weight, run in running
        )
        return tokens_left, self._done_here + sum(weight * run.done_here for weight, run in running)

    def jobs_per_minute(self) -> float | None:
        """Jobs trained per minute since the first job started. None if no job has ended yet.

        Skipped jobs do not count.
        """
        trained = sum(self.counts[status] for status in ("finished", "diverged", "failed"))
        elapsed = self.seconds - self.first_start
        return 60 * trained / elapsed if trained and elapsed > 0 else None

    def seconds_left(self) -> float | None:
        """Estimated seconds until the sweep ends, from its tokens per second so far. None if these are not known yet.

        Skipped jobs, and steps of resumed jobs that earlier sweeps trained, do not count for the speed. 0 if all jobs
        ended.
        """
        tokens_left, tokens_done = self._tokens()
        elapsed = self.seconds - self.first_start
        if not self.open or tokens_done <= 0 or elapsed <= 0:
            return None if self.open else 0.0
        return max(
            tokens_left * elapsed / tokens_done, *(running.seconds_left for running in self.running.values()), 0.0
        )

    def content(self) -> SweepContent:
        """The state as a dict for the screen and the journal."""
        at_work = len(self.open.intersection(self.running))
        counts = self.counts | {"running": at_work, "waiting": len(self.open) - at_work}
        running = sorted(self.running.values(), key=lambda running: (running.slot is None, running.slot))
        return {
            "total": len(self.tokens_by_job),
            "done": self.done,
            "fraction": self.fraction,
            "counts": {what: count for what, count in counts.items() if count},
            "jobs_per_minute": self.jobs_per_minute(),
            "seconds_left": self.seconds_left(),
            "seconds": self.seconds,
            "slots": [self._running_fields(run) for run in running],
            "failures": [{**self.jobs[job], "reason": reason} for job, reason in self.failures],
        }

    def _running_fields(self, run: RunningJob) -> RunningFields:
        of_line = {name: value for name, value in (run.line or {}).items() if name not in ("event", "job")}
        now = {"slot": run.slot, "fraction": run.fraction, "seconds": self.seconds - run.since}
        return cast(RunningFields, {**of_line, **self.jobs[run.job], **now})
