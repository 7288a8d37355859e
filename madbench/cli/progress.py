"""Progress of a sweep that this process runs: a line a slot on a terminal, a line a job elsewhere."""

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
from madbench.execute.tally import Tally, flatten, weights
from madbench.jobs import Job

if TYPE_CHECKING:
    from madbench.execute.base import Event

_SKIPPED = {
    "stored": "already in the store",
    "failed": "stored as failed; not retried",
    "busy": "left to another process that is training them",
}
_REFRESHES_PER_SECOND = 4


class RunScreen:
    """The progress of jobs, fed by any executor's events; jobs that are skipped share a sentence."""

    def __init__(self, jobs: Sequence[Job], title: str, console: Console):
        self.jobs = {job.id: job for job in jobs}
        self.title, self.console = title, console
        self.tally = Tally(weights(jobs))
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
        self._print(f"{count_of_jobs(len(self.jobs))}, {self.title}")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._print_skipped()
        self._live.stop()

    @property
    def failures(self) -> list[tuple[Job, str]]:
        """Jobs that failed, each with the last line of its error."""
        return [(self.jobs[job_id], reason) for job_id, reason in self.tally.failures]

    def on_event(self, event: Event) -> None:
        """Shows one event of an executor (:mod:`madbench.execute.base`)."""
        line = flatten(event)
        now = time.monotonic() - self._began
        with self._lock:
            running = self.tally.running.get(line["job"])
            self.tally.apply(line, now)
        if event["event"] == "skipped":
            self._skipped[event["reason"]] += 1
            return
        self._print_skipped()
        if event["event"] in ("finished", "failed"):
            outcome = _outcome(line, now - running.since if running else None)
            self._print(f"[{self.tally.done}/{self.tally.total}] {name(event['job'])}: {outcome}")

    def render(self) -> RenderableType:
        """The live part of the screen, never higher than the terminal."""
        with self._lock:
            self.tally.tick(time.monotonic() - self._began)
            size = self.console.size
            return view(self.tally, lambda job_id: name(self.jobs[job_id]), size.width, size.height - 2)

    def _print_skipped(self) -> None:
        for reason, text in _SKIPPED.items():
            if count := self._skipped.pop(reason, 0):
                self._print(f"{count} of {count_of_jobs(len(self.jobs))} {text}")

    def _print(self, text: str) -> None:
        self.console.print(text, **PLAIN)


def name(job: Job) -> str:
    return f"{job.label} {job.task} seed {job.seed}"


def _outcome(line: dict[str, Any], seconds: float | None) -> str:
    if line["status"] != "finished":
        return f"{line['status']}: {line['error']}"
    shown = {"loss_l5": "loss", "accuracy": "accuracy"}
    values = [f"{word} {line[key]:.3f}" for key, word in shown.items() if key in line]
    outcome = values[0] if values else "finished"
    return outcome if seconds is None else f"{outcome} in {duration(seconds)}"
