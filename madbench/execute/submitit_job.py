"""The worker side of :mod:`madbench.execute.submitit`: what a Slurm job runs, and what it and the driver tell each
other in files of the job's work folder.

The driver's note bears the ticket of the one Slurm job that may train there. A job that another driver has replaced,
because it could not know of it or was told to begin afresh, stops.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.remote_worker import Outcome, Packed, at_most_every, work
from madbench.files import write_atomically

NOTE, NEWS = "slurm.json", "slurm_progress.json"
"""Files that the driver writes, and its Slurm job."""
REPORT_SECONDS = 5.0
TICKET_SECONDS = 60.0
"""How long a job waits for its ticket to show; a network disk may lag behind the driver."""


class SlurmCall:
    """What a Slurm job runs."""

    def __init__(self, packed: Packed, folder: Path, ticket: str, needs_gpu: bool):
        self.packed, self.folder, self.ticket, self.needs_gpu = packed, folder, ticket, needs_gpu
        self.is_requeued = False

    def __call__(self) -> Outcome:
        deadline = time.monotonic() + TICKET_SECONDS
        while (ticket := self.noted_ticket()) != self.ticket and time.monotonic() < deadline:
            time.sleep(1)
        if ticket != self.ticket:
            return Outcome(broken=self.replaced)
        start = f"{os.environ.get('SLURM_JOB_ID', '')}-{os.getpid()}-{time.time()}"

        def report(progress: dict[str, Any]) -> None:
            if self.noted_ticket() not in (self.ticket, None):  # a note that cannot be read now ends nothing
                raise StoreError(self.replaced)
            self.tell(start=start, progress=progress)

        self.tell(start=start)
        outcome = work(self.packed, at_most_every(REPORT_SECONDS, report), self.needs_gpu)
        if self.is_requeued:  # submitit's exit on the signal, which a run takes for one of its own
            sys.exit(-1)
        return outcome

    @property
    def replaced(self) -> str:
        return f"{self.folder}: {NOTE} is missing or names another Slurm job, which trains there now"

    def noted_ticket(self) -> str | None:
        return read_note(self.folder / NOTE).get("ticket")

    def tell(self, **news: Any) -> None:
        from submitit import JobEnvironment

        with suppress(StoreError):
            write_note(self.folder / NEWS, ticket=self.ticket, slurm_job=JobEnvironment().job_id, **news)

    def checkpoint(self) -> Any:
        """Called by submitit on Slurm's signal, before it has the job queued again."""
        from submitit.helpers import DelayedSubmission

        self.is_requeued = True
        self.tell()
        return DelayedSubmission(SlurmCall(self.packed, self.folder, self.ticket, self.needs_gpu))


def read_note(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is none."""
    with suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def write_note(path: Path, **content: Any) -> None:
    write_atomically(path, json.dumps(content).encode())
