"""A sweep on the terminal: a line for all of it and one for every running job, cut to the width and height there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from madbench.cli.text import duration, quantity

WIDE = 110  # columns from which bars are longer and speeds are shown
NARROW = 60  # columns below which there are no bars


def view(sweep: Mapping[str, Any], width: int, height: int) -> RenderableType:
    """The whole sweep (:meth:`madbench.execute.tally.Tally.content`) in at most ``height`` lines."""
    room, slots = max(1, height - 1), sweep["slots"]
    shown = slots if len(slots) <= room else slots[: room - 1]
    parts = [_overview(sweep, width)]
    if shown:
        parts.append(_running_jobs(shown, width))
    if left := len(slots) - len(shown):
        parts.append(Text(f"... and {left} more running", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def job_name(job: Mapping[str, Any]) -> str:
    return f"{job.get('label')} {job.get('task')} seed {job.get('seed')}"


def _overview(sweep: Mapping[str, Any], width: int) -> RenderableType:
    """Jobs done, failures, rate and time left, in a line."""
    words = [Text(f"{sweep['done']}/{sweep['total']} done", style="bold")]
    if failed := sweep["counts"].get("failed"):
        words.append(Text(f"{failed} failed", style="red"))
    if (rate := sweep["jobs_per_minute"]) is not None:
        words.append(Text(f"{rate:.1f} jobs/min"))
    if sweep["done"] < sweep["total"]:
        left = sweep["seconds_left"]
        words.append(Text("time left unknown" if left is None else f"{duration(left)} left"))
    text = Text("  ").join(words)
    text.no_wrap, text.overflow = True, "ellipsis"
    bar = min(24, width - text.cell_len - 1)
    if bar < 8:
        return text
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_row(ProgressBar(total=1.0, completed=sweep["fraction"], width=bar), text)
    return row


def _running_jobs(slots: list[Mapping[str, Any]], width: int) -> Table:
    """A line a job; its name gives way first where there is no room."""
    cells = [_cells(slot, width >= WIDE) for slot in slots]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column()
    for _ in [*cells[0], ""]:
        table.add_column(no_wrap=True)
    for slot, texts in zip(slots, cells, strict=True):
        bar = ProgressBar(total=1.0, completed=slot["fraction"], width=20 if width >= WIDE else 8)
        name = Text(job_name(slot), no_wrap=True, overflow="ellipsis")
        table.add_row(name, bar if width >= NARROW else "", *map(Text, texts))
    return table


def _cells(slot: Mapping[str, Any], is_wide: bool) -> list[str]:
    """Percent, loss or accuracy, steps, speed and time of one job, as far as they are known and there is room."""
    is_known = "step" in slot
    values = [f"{key} {slot[key]:.3f}" for key in ("accuracy", "loss") if isinstance(slot.get(key), float)]
    cells = [f"{100 * slot['fraction']:3.0f}%" if is_known else "", "  ".join(values)]
    if is_wide:
        speed = slot.get("tokens_per_second")
        cells.append(f"step {slot['step']}/{slot['total_steps']}" if is_known else "")
        cells.append(f"{quantity(speed)} tokens/s" if isinstance(speed, float) else "")
    return [*cells, duration(max(0.0, slot["seconds"]))]
