"""The progress screen of a training on the command line."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from madbench.cli.shared.printing import PLAIN, count_text, first_of, in_words, quantity
from madbench.execute.base import Event, Listener, Policy, Summary, duration
from madbench.execute.journal import Journal, command_line
from madbench.execute.options import RunOptions
from madbench.execute.sweep_state import JobFields, RunningFields, SweepContent, SweepState, event_line, job_name
from madbench.experiment import Experiment
from madbench.jobs import Job
from madbench.trackers.options import TrackOptions

WIDE = 110  # columns from which on bars are longer and speeds are shown
MOST_NAMED = 5  # the most partial runs that are named after Ctrl-C
NARROW = 60  # columns below which there are no bars
SKIPPED = {
    "stored": "already in the store",
    "failed before": "failed before and not retried",
    "busy": "left to another process",
}
"""The reasons why jobs were skipped, as printed after their counts."""


def sweep_view(sweep: SweepContent, width: int, height: int) -> RenderableType:
    """The text that shows the state of a sweep on a terminal, in at most ``height`` lines.

    ``sweep`` is the state (:meth:`madbench.execute.sweep_state.SweepState.content`).
    """
    room, slots = max(1, height - 1), sweep["slots"]
    slots_shown = slots if len(slots) <= room else slots[: room - 1]
    parts = [_overview(sweep, width)]
    if slots_shown:
        parts.append(_running_jobs(slots_shown, width))
    if hidden_count := len(slots) - len(slots_shown):
        parts.append(Text(f"... and {hidden_count} more running", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _overview(sweep: SweepContent, width: int) -> RenderableType:
    """One line with the numbers of ended and failed jobs, jobs per minute and the time left. ``sweep`` is the state."""
    words = [Text(f"{sweep['done']}/{sweep['total']} done", style="bold")]
    if failed := sweep["counts"].get("failed"):
        words.append(Text(f"{failed} failed", style="red"))
    if (rate := sweep["jobs_per_minute"]) is not None:
        words.append(Text(f"{rate:.1f} jobs/min"))
    if sweep["done"] < sweep["total"]:
        seconds_left = sweep["seconds_left"]
        words.append(Text("time left unknown" if seconds_left is None else f"{duration(seconds_left)} left"))
    text = Text("  ").join(words)
    text.no_wrap, text.overflow = True, "ellipsis"
    bar = min(24, width - text.cell_len - 1)
    if bar < 8:
        return text
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_row(ProgressBar(total=1.0, completed=sweep["fraction"], width=bar), text)
    return row


def _running_jobs(slots: Sequence[RunningFields], width: int) -> Table:
    """A table with one line per running job: its name and progress. If there is too little room, the name is cut.

    ``slots`` has the fields of each running job.
    """
    is_wide = width >= WIDE
    fixed = [Column(no_wrap=True) for _ in range(6 if is_wide else 4)]
    table = Table.grid("", *fixed, padding=(0, 1, 0, 0))
    for slot in slots:
        is_known, speed = "step" in slot, slot.get("tokens_per_second")
        values = [f"{key} {slot[key]:.3f}" for key in ("accuracy", "loss") if isinstance(slot.get(key), float)]
        cells = [f"{100 * slot['fraction']:3.0f}%" if is_known else "", "  ".join(values)]
        if is_wide:
            cells.append(f"step {slot['step']}/{slot['total_steps']}" if is_known else "")
            cells.append(f"{quantity(speed)} tokens/s" if isinstance(speed, float) else "")
        cells.append(duration(max(0.0, slot["seconds"])))
        bar = ProgressBar(total=1.0, completed=slot["fraction"], width=20 if is_wide else 8)
        name = Text(job_name(slot), no_wrap=True, overflow="ellipsis")
        table.add_row(name, bar if width >= NARROW else "", *map(Text, cells))
    return table


class RunScreen:
    """The progress of jobs on the screen, from the events of any executor. It is a context manager.

    Each job that ended is a printed line, and running jobs are a live display on a terminal. Skipped jobs are counted
    in one sentence. ``names`` maps ids of jobs to names, such as ``R-c  model.mix_rank=4``, that are shown in place of
    their labels.
    """

    def __init__(self, jobs: Sequence[Job], title: str, console: Console, names: Mapping[str, str] | None = None):
        self.title, self.console = title, console
        self.state = SweepState(jobs, names or {})
        self._count, self._began = len(jobs), time.monotonic()
        self._counts_printed: Counter[str] = Counter()
        self._is_announced = True  # False when the screen is on the console
        self._warnings: set[str] = set()  # printed once, as every progress event of a job repeats its warning
        self._lock = threading.Lock()  # a separate thread draws the live screen
        self._live = Live(
            get_renderable=self.render,
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> RunScreen:
        self._is_announced = False
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.announce()
        self._print_skipped()
        self._live.stop()

    def announce(self, slots: str = "") -> None:
        """Print the title of the training, unless it was printed before.

        ``slots`` are words for the number of parallel jobs. They are also printed, if there are any.
        """
        what = [] if self._is_announced else [f"{count_text(self._count, 'job')}, {self.title}"]
        self._is_announced = True
        if parts := [*what, *filter(None, [slots])]:
            self._print("; ".join(parts))

    def on_event(self, event: Event) -> None:
        """Show one event of an executor (:mod:`madbench.execute.base`)."""
        self.announce()
        line = event_line(event)
        now = time.monotonic() - self._began
        with self._lock:
            ending = self.state.report(line, now)
        if event["event"] == "skipped":
            return
        self._print_skipped()
        name = job_name(self.state.jobs[line["job"]])
        warning = f"{name}: {line.get('warning')}"
        if "warning" in line and warning not in self._warnings:
            self._warnings.add(warning)
            self._print(warning)
        if ending:
            self._print(ending)

    def render(self) -> RenderableType:
        """The live display of the running jobs. It leaves at least two lines of the terminal free."""
        with self._lock:
            self.state.advance_to(time.monotonic() - self._began)
            return sweep_view(self.state.content(), self.console.width, self.console.height - 2)

    def _print_skipped(self) -> None:
        for what, text in SKIPPED.items():
            if count := self.state.counts[what] - self._counts_printed[what]:
                self._print(f"{count} of {count_text(self._count, 'job')} {text}")
        self._counts_printed = self.state.counts.copy()

    def _print(self, text: str) -> None:
        self.console.print(in_words(text, self.console), **PLAIN)


def train_on_screen(
    experiment: Experiment,
    options: RunOptions,
    policy: Policy,
    console: Console,
    names: Mapping[str, str],
    tracking: TrackOptions = TrackOptions(),
) -> tuple[Summary, dict[str, str]]:
    """Train the missing jobs of an experiment. Return the summary, and the reasons of failed jobs by id.

    ``names`` has the name that the screen shows for each job, by id. The events of the executor also go to the journal
    in the results folder and to the services that ``tracking`` names. Under torchrun only the first process writes
    these. Raises ``MissingExtraError`` or ``ConfigError`` for a tracking service that cannot be used.
    """
    from madbench.training.processes import is_first

    def warn(text: str) -> None:
        console.print(in_words(f"warning: {text}", console), **PLAIN)

    jobs, title, results = experiment.jobs, experiment.title, experiment.results
    screen = RunScreen(jobs, title, console, names)
    try:
        with ExitStack() as stack:
            observers = [stack.enter_context(experiment.tracking(tracking, warn))]
            if is_first():
                observers.append(stack.enter_context(Journal(results, jobs, title, command_line(), warn)).on_event)
            observers.append(stack.enter_context(screen).on_event)

            def on_event(event: Event) -> None:
                screen.announce()
                for observer in observers:
                    observer(event)

            if options.executor:  # starting there takes a while
                screen.announce()
            listener = Listener(on_event, screen.announce)
            return experiment.execute(listener, options, policy), dict(screen.state.failures)
    except KeyboardInterrupt:
        what_remains = (
            "jobs that were not retrained keep their earlier results" if policy.redo else "the same command resumes"
        )
        console.print(f"stopped; finished runs are in {results}, {what_remains}", **PLAIN)
        if partial := _partial_runs(results, screen.state.jobs):
            console.print(in_words(partial, console), **PLAIN)
        raise


def _partial_runs(results: Path, jobs: Mapping[str, JobFields]) -> str:
    """A sentence that names the jobs that have a checkpoint. Empty if no job has one."""
    from madbench.training.checkpoints import NAME

    names_with_checkpoint = [
        job_name(job) for job_id, job in jobs.items() if (results / "work" / job_id / NAME).exists()
    ]
    names = first_of(names_with_checkpoint, MOST_NAMED, "and {:,} more")
    return (
        f"kept as {count_text(len(names_with_checkpoint), 'checkpoint')} in {results / 'work'}: {', '.join(names)}"
        if names_with_checkpoint
        else ""
    )
