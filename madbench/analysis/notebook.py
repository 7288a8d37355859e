"""The progress of training in the output of a notebook cell, as HTML without widgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any, Self

from madbench.execute.base import Event
from madbench.execute.sweep_state import SweepState, event_line
from madbench.jobs import Job
from madbench.labels.names import typed_label

SECONDS = 0.5  # seconds between two updates


class NotebookProgress:
    """A context that shows the progress of ``jobs`` in a notebook cell.

    The cell shows a progress bar, the number of finished jobs, the time left, and one line per running job. Within the
    context, call :meth:`on_event` with each event of the executor.
    """

    def __init__(self, jobs: Sequence[Job]):
        self.state, self._began, self._shown = SweepState(jobs), time.monotonic(), -SECONDS
        self._handle: Any = None

    def __enter__(self) -> Self:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(self.html()), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update(self._html(self.html()))

    def on_event(self, event: Event) -> None:
        """Record an event of an executor. The output is updated at most once per :data:`SECONDS`."""
        now = time.monotonic() - self._began
        self.state.apply(event_line(event), now)
        if now - self._shown >= SECONDS:
            self._shown = now
            self._handle.update(self._html(self.html()))

    def html(self) -> str:
        """The progress until now as HTML."""
        self.state.advance_to(time.monotonic() - self._began)
        content = self.state.content()
        words = [f"{content['done']}/{content['total']} jobs done"]
        if failed := content["counts"].get("failed"):
            words.append(f"{failed} failed")
        if content["done"] < content["total"] and (seconds_left := content["seconds_left"]) is not None:
            words.append(f"{_duration(seconds_left)} left")
        words.append(f"{_duration(content['seconds'])} so far")
        lines = [f'<progress value="{content["fraction"]:.3f}" max="1"></progress> {", ".join(words)}']
        for slot in content["slots"]:
            name = f"{typed_label(str(slot.get('label')))} {slot.get('task')} seed {slot.get('seed')}"
            numbers = [f"{key} {slot[key]:.3f}" for key in ("accuracy", "loss") if isinstance(slot.get(key), float)]
            lines.append(escape(" ".join([f"{100 * slot['fraction']:.0f}%", name, *numbers])))
        return "<br>".join(lines)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
