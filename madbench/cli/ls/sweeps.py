"""``madbench ls sweeps``: the progress of the sweeps in a results folder, from another terminal or machine."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from madbench.cli.ls.listings import MOST_ENDED
from madbench.cli.shared.printing import count_text, first_of, print_json
from madbench.cli.shared.progress import SKIPPED, sweep_view
from madbench.errors import no_effect
from madbench.execute.base import duration
from madbench.execute.journal import read_sweeps
from madbench.execute.sweep_state import SweepContent, job_name
from madbench.store.results_folder import command_on, no_results_folder

FAILURES = 10  # the most failures that are shown of one sweep
SILENT = 60.0  # seconds without an event after which a sweep is shown as silent
_COUNTS = (
    "finished", "diverged", "failed", "stored", "failed before", "busy", "running", "waiting", "stored since",
    "not done",
)  # fmt: skip
_COUNTED = SKIPPED | {"stored since": "in the store by now"}  # the text after a count
_ENDINGS = {"died": "it died", "error": "not all was done", "interrupted": "it was interrupted"}
_ENDINGS |= {"unknown": "if it has died"}


def print_sweeps(results: Path, watch: bool, as_json: bool) -> None:
    """Print running sweeps and the last finished ones. With ``watch``, refresh every second until no sweep runs.

    Raises ``StoreError`` if the results folder does not exist.
    """
    console = Console(highlight=False)
    if watch and as_json:
        raise no_effect("--watch", "with -f json; give one of the two")
    if watch and not console.is_terminal:
        raise no_effect("--watch", "where the output is no terminal")
    if not results.exists():
        raise no_results_folder(results)
    sweeps = read_sweeps(results, MOST_ENDED)
    if as_json:
        hidden = ("open", "silent_seconds")
        public = [{key: value for key, value in sweep.items() if key not in hidden} for sweep in sweeps]
        print_json(public)
    elif watch:
        with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(Group(*_parts(sweeps, results, console.width, console.height - 1)), refresh=True)
                if all(sweep["state"] != "running" for sweep in sweeps):
                    return
                time.sleep(1)
                sweeps = read_sweeps(results, MOST_ENDED)
    else:
        for part in _parts(sweeps, results, console.width, height=None):
            console.print(part, soft_wrap=isinstance(part, str), markup=False)


def _parts(sweeps: list[dict[str, Any]], results: Path, width: int, height: int | None) -> list[RenderableType]:
    """The parts of the screen that show the sweeps, each at most ``width`` characters wide.

    ``height`` is the number of lines of the screen. Running sweeps then come first and share these lines. None if the
    sweeps are printed once: they keep their order and take as many lines as they need.
    """
    if not sweeps:
        return [f"{results}: no sweep is recorded here; madbench run, lm and sweep record theirs"]
    room = None
    if height is not None:
        sweeps = sorted(sweeps, key=lambda sweep: sweep["state"] != "running")
        room = max(4, height // max(1, sum(sweep["state"] == "running" for sweep in sweeps)) - 5)
    parts = [part for sweep in sweeps for part in ["", *_sweep_parts(sweep, results, width, room)]][1:]
    if height is None:
        return parts
    return [Text(part, no_wrap=True, overflow="ellipsis") if isinstance(part, str) else part for part in parts]


def _sweep_parts(sweep: dict[str, Any], results: Path, width: int, room: int | None) -> list[RenderableType]:
    state = sweep["state"]
    if state == "damaged":
        return [f"damaged  {sweep['error']}"]
    parts: list[RenderableType] = [
        f"{state:<11} {sweep['command']}",
        (
            f"{count_text(sweep['total'], 'job')}, {sweep['title']}; "
            f"since {sweep['started']}, {sweep['host']} {sweep['pid']}"
        ),
    ]
    if state == "running":
        parts.append(sweep_view(cast(SweepContent, sweep), width, room or len(sweep["slots"]) + 1))
        if sweep["silent_seconds"] > SILENT:
            parts.append(f"no event for {duration(sweep['silent_seconds'])}")
    counts = sweep["counts"]
    parts.append(", ".join(f"{counts[what]} {_COUNTED.get(what, what)}" for what in _COUNTS if what in counts))
    if state == "error":
        parts.append(f"it ended with an error: {sweep['error']}")
    if state == "unknown":
        parts.append(sweep["error"])
    if state in _ENDINGS:
        if open_count := len(sweep["open"]):
            parts.append(f"{_ENDINGS[state]}, {count_text(open_count, 'job')} left: the same command resumes")
            parts.append(f"  cd {sweep['folder']} && {sweep['command']}")
        else:
            parts.append("all its jobs are in the store by now")
    lines = [f"  failed: {job_name(failure)}: {failure['reason']}" for failure in sweep["failures"]]
    shown_lines = first_of(lines, FAILURES, "  and {:,} more failed")
    if len(lines) > FAILURES:
        shown_lines[-1] += f"; {command_on(results, 'ls', 'sweeps', '-f', 'json')} has them all"
    return parts + shown_lines
