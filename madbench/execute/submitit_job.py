"""The worker side of :mod:`madbench.execute.submitit`: what a Slurm job runs, and the notes that it and the driver leave
each other in the work folders.

The driver's note bears the ticket of the one Slurm job that may train there. A Slurm job that another driver has
replaced, because it could not know of it or was told to begin afresh, stops.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.worker import Outcome, Packed, batched, work_remotely
from madbench.files import write_atomically

NOTE, NEWS = "slurm.json", "slurm_progress.json"
"""Files that the driver writes into every work folder of a group, and its Slurm job into the first."""
REPORT_SECONDS = 5.0
TICKET_SECONDS = 60.0
"""How long a job waits for its ticket to show; a network disk may lag behind the driver."""


@dataclass
class SlurmCall:
    """What a Slurm job runs."""

    packed: Packed
    folders: Sequence[Path]
    ticket: str
    needs_gpu: bool
    is_requeued: bool = False

    def __call__(self) -> Outcome:
        deadline = time.monotonic() + TICKET_SECONDS
        while self.noted_tickets() != {self.ticket}:
            if time.monotonic() >= deadline:
                return Outcome(broken=self.replaced)
            time.sleep(1)
        start = f"{os.environ.get('SLURM_JOB_ID', '')}-{os.getpid()}-{time.time()}"

        def tell(progress: dict[str, dict[str, Any]]) -> None:
            if self.noted_tickets() - {self.ticket, None}:  # a note that cannot be read now ends nothing
                raise StoreError(self.replaced)
            self.tell(start=start, progress=progress)

        self.tell(start=start)
        outcome = work_remotely(self.packed, batched(REPORT_SECONDS, tell), self.needs_gpu)
        if self.is_requeued:  # submitit's exit on the signal, which a run takes for one of its own
            sys.exit(-1)
        return outcome

    @property
    def replaced(self) -> str:
        return f"{self.folders[0]}: {NOTE} is missing or names another Slurm job, which trains there now"

    def noted_tickets(self) -> set[str | None]:
        return {read_note(folder / NOTE).get("ticket") for folder in self.folders}

    def tell(self, **news: Any) -> None:
        from submitit import JobEnvironment

        with suppress(StoreError):
            write_note(self.folders[0] / NEWS, ticket=self.ticket, slurm_job=JobEnvironment().job_id, **news)

    def checkpoint(self) -> Any:
        """Called by submitit on Slurm's signal, before it has the job queued again."""
        from submitit.helpers import DelayedSubmission

        self.is_requeued = True
        self.tell()
        return DelayedSubmission(replace(self, is_requeued=False))


def read_note(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is none."""
    with suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def write_note(path: Path, **content: Any) -> None:
    write_atomically(path, json.dumps(content).encode())
