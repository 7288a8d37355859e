"""What a sweep shows while it works: a line a slot on a terminal, a line a job elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live

from madbench.cli.sweep_view import view
from madbench.cli.tables import PLAIN
from madbench.cli.text import count_of_jobs, duration
from madbench.execute.tally import Tally, flatten, weight
from madbench.jobs import JobBase

if TYPE_CHECKING:
    from madbench.execute.base import Event

_SKIPPED = {
    "stored": "already in the store",
    "failed": "stored as failed, and not tried again",
    "busy": "left to another process that is at work on them",
}
_REFRESHES_PER_SECOND = 4


class RunScreen:
    """How far the jobs are, fed by any executor's events; jobs that are skipped share a sentence."""

    def __init__(self, jobs: Sequence[JobBase], title: str, console: Console):
        self.jobs = {job.id: job for job in jobs}
        self.title, self.console = title, console
        self.tally = Tally({job_id: weight(job) for job_id, job in self.jobs.items()})
        self._skipped: Counter[str] = Counter()
        self._began = time.monotonic()
        self._lock = threading.Lock()  # the live screen is drawn by a thread of its own
        self._live = Live(
            get_renderable=self.render,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> RunScreen:
        self._say(f"{count_of_jobs(len(self.jobs))}, {self.title}")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell_skipped()
        self._live.stop()

    @property
    def failures(self) -> list[tuple[JobBase, str]]:
        """Jobs that failed, each with the last line of its error."""
        return [(self.jobs[job_id], reason) for job_id, reason in self.tally.failures]

    def on_event(self, event: Event) -> None:
        """Shows one event of an executor (:mod:`madbench.execute.base`)."""
        line = flatten(event)
        now = time.monotonic() - self._began
        with self._lock:
            running = self.tally.running.get(event.get("slot"))
            self.tally.apply(line, now)
        if event["event"] == "skipped":
            self._skipped[event["reason"]] += 1
            return
        self._tell_skipped()
        if event["event"] in ("finished", "failed"):
            seconds = now - running.since if running and running.job == line["job"] else None
            self._say(f"[{self.tally.done}/{self.tally.total}] {name(event['job'])}: {_outcome(line, seconds)}")

    def render(self) -> RenderableType:
        """The live part of the screen, never higher than the terminal."""
        with self._lock:
            self.tally.tick(time.monotonic() - self._began)
            size = self.console.size
            return view(self.tally, lambda job_id: name(self.jobs[job_id]), size.width, size.height - 2)

    def _tell_skipped(self) -> None:
        for reason, text in _SKIPPED.items():
            if count := self._skipped.pop(reason, 0):
                self._say(f"{count} of {count_of_jobs(len(self.jobs))} {text}")

    def _say(self, text: str) -> None:
        self.console.print(text, **PLAIN)


def name(job: JobBase) -> str:
    return f"{job.label} {job.task} seed {job.seed}"


def _outcome(line: dict[str, Any], seconds: float | None) -> str:
    if line["status"] != "finished":
        return f"{line['status']}: {line['error']}"
    kind = "loss" if "loss_l5" in line else "accuracy"
    value = line.get("loss_l5", line.get("accuracy"))
    outcome = "finished" if value is None else f"{kind} {value:.3f}"
    return outcome if seconds is None else f"{outcome} in {duration(seconds)}"
