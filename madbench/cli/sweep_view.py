"""A sweep on the terminal: a line for all of it and one for every running job, cut to the width and height there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from madbench.cli.text import duration, quantity

if TYPE_CHECKING:
    from madbench.execute.tally import Running, Tally

WIDE = 110  # columns from which bars are longer and speeds are shown
LEAST_NAME = 12  # columns of a job's name, below which the bar gives way


def view(tally: Tally, name: Callable[[str], str], width: int, height: int) -> RenderableType:
    """The whole sweep in at most ``height`` lines; ``name`` says which job an id is."""
    parts: list[RenderableType] = [_overview(tally, width)]
    running = sorted(tally.running.values(), key=lambda running: (running.slot is None, running.slot))
    room = max(1, height - 1)
    shown = running if len(running) <= room else running[: room - 1]
    if shown:
        parts.append(_running_jobs(tally, shown, name, width))
    if left := len(running) - len(shown):
        parts.append(Text(f"... and {left} more running", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _overview(tally: Tally, width: int) -> RenderableType:
    """Jobs done, failures, rate and time left, in a line."""
    words = [Text(f"{tally.done}/{tally.total} done", style="bold")]
    if tally.counts["failed"]:
        words.append(Text(f"{tally.counts['failed']} failed", style="red"))
    if (rate := tally.jobs_per_minute()) is not None:
        words.append(Text(f"{rate:.1f} jobs/min"))
    if tally.open:
        left = tally.seconds_left()
        words.append(Text("time left unknown" if left is None else f"{duration(left)} left"))
    text = Text("  ").join(words)
    text.no_wrap, text.overflow = True, "ellipsis"
    bar = min(24, width - text.cell_len - 1)
    if bar < 8:
        return text
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=bar)
    row.add_column(no_wrap=True)
    row.add_row(ProgressBar(total=1.0, completed=tally.fraction, width=bar), text)
    return row


def _running_jobs(tally: Tally, shown: list[Running], name: Callable[[str], str], width: int) -> Table:
    bar = 20 if width >= WIDE else 8
    cells = [_cells(running, tally.seconds, width >= WIDE) for running in shown]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    names = [name(running.job) for running in shown]
    longest = max(map(len, names))
    room = width - sum(size + 1 for size in widths if size)
    if room - bar - 1 < min(LEAST_NAME, longest):
        bar = 0
    room -= bar + 1 if bar else 0
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=max(1, min(longest, room - 1)), no_wrap=True, overflow="ellipsis")
    for size in filter(None, [bar, *widths]):
        table.add_column(width=size, no_wrap=True)
    for running, text, values in zip(shown, names, cells, strict=True):
        row: list[Any] = [Text(text)]
        if bar:
            row.append(ProgressBar(total=1.0, completed=running.fraction, width=bar))
        table.add_row(*row, *(Text(value) for value, size in zip(values, widths, strict=True) if size))
    return table


def _cells(running: Running, now: float, is_wide: bool) -> tuple[str, ...]:
    """Percent, loss or accuracy, steps, speed and time of one job; empty where nothing is known or there is no room."""
    line = running.line
    percent = f"{100 * running.fraction:3.0f}%" if line else ""
    values = [f"{key} {line[key]:.3f}" for key in ("accuracy", "loss") if isinstance(line.get(key), float)]
    steps = speed = ""
    if is_wide and line:
        steps = f"step {line['step']}/{line['total_steps']}"
        if isinstance(line.get("tokens_per_second"), float):
            speed = f"{quantity(line['tokens_per_second'])} tokens/s"
    return percent, "  ".join(values), steps, speed, duration(max(0.0, now - running.since))
