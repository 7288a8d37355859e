"""The observers of a sweep: the screen, the journal, and the trackers that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.cli.progress import RunScreen
from madbench.cli.tables import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.execute.base import Event, OnEvent
    from madbench.jobs import Job


@contextmanager
def observed(
    jobs: Sequence[Job], title: str, results: Path, console: Console, track: Sequence[str] = ()
) -> Iterator[tuple[OnEvent, RunScreen]]:
    """Gives an ``on_event`` for any executor, and the screen that it feeds.

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
