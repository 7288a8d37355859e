"""Progress of a sweep that this process runs: a line a slot on a terminal, a line a job elsewhere; and who else observes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live

from madbench.cli.sweep_view import job_name, view
from madbench.cli.tables import PLAIN
from madbench.cli.text import count_of_jobs, duration
from madbench.execute.tally import Tally, flatten, weights
from madbench.jobs import Job

if TYPE_CHECKING:
    from madbench.execute.base import Event, OnEvent

_SKIPPED = {
    "stored": "already in the store",
    "failed": "stored as failed; not retried",
    "busy": "left to another process that is training them",
}


class RunScreen:
    """The progress of jobs, fed by any executor's events; jobs that are skipped share a sentence."""

    def __init__(self, jobs: Sequence[Job], title: str, console: Console):
        self.jobs = {job.id: job for job in jobs}
        self.title, self.console = title, console
        self.tally = Tally(weights(jobs), jobs)
        self._skipped: Counter[str] = Counter()
        self._began = time.monotonic()
        self._lock = threading.Lock()  # the live screen is drawn by a thread of its own
        how = {"refresh_per_second": 4, "transient": True, "redirect_stdout": False}
        self._live = Live(get_renderable=self.render, console=console, **how)

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
            self._print(f"[{self.tally.done}/{len(self.jobs)}] {job_name(vars(event['job']))}: {outcome}")

    def render(self) -> RenderableType:
        """The live part of the screen, never higher than the terminal."""
        with self._lock:
            self.tally.tick(time.monotonic() - self._began)
            return view(self.tally.content(), self.console.width, self.console.height - 2)

    def _print_skipped(self) -> None:
        for reason, text in _SKIPPED.items():
            if count := self._skipped.pop(reason, 0):
                self._print(f"{count} of {count_of_jobs(len(self.jobs))} {text}")

    def _print(self, text: str) -> None:
        self.console.print(text, **PLAIN)


def _outcome(line: dict[str, Any], seconds: float | None) -> str:
    if line["status"] != "finished":
        return f"{line['status']}: {line['error']}"
    shown = {"loss_l5": "loss", "accuracy": "accuracy"}
    values = [f"{word} {line[key]:.3f}" for key, word in shown.items() if key in line]
    outcome = values[0] if values else "finished"
    return outcome if seconds is None else f"{outcome} in {duration(seconds)}"


@contextmanager
def observed(
    jobs: Sequence[Job], title: str, results: Path, console: Console, track: Sequence[str] = ()
) -> Iterator[tuple[OnEvent, RunScreen]]:
    """Gives an ``on_event`` for any executor, which feeds screen, journal and trackers, and the screen.

    Under torchrun only the first process keeps a journal and tracks. Raises ``MissingExtraError`` and ``ConfigError``
    for a tracker that cannot be used.
    """
    from madbench.execute.journal import Journal, command_line
    from madbench.training.distributed import is_first

    def warn(text: str) -> None:
        console.print(f"warning: {text}", **PLAIN)

    observers: list[Callable[[Event], None]] = []
    with ExitStack() as stack:
        if is_first():
            if track:
                from madbench.trackers import Tracking, open_trackers

                tracking = Tracking(open_trackers(track, results), warn)
                observers.append(stack.enter_context(tracking).on_event)
            journal = Journal(results, jobs, title, command_line(), warn)
            observers.append(stack.enter_context(journal).on_event)
        screen = stack.enter_context(RunScreen(jobs, title, console))
        observers.append(screen.on_event)

        def on_event(event: Event) -> None:
            for observe in observers:
                observe(event)

        yield on_event, screen
