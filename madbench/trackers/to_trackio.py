"""Jobs as runs of trackio's project ``madbench``, grouped by label; where they are kept ``TRACKIO_DIR`` says."""

from __future__ import annotations

import contextvars
import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

import trackio

from madbench.jobs import JobBase, Record
from madbench.trackers.tracking import settings, title


class TrackioTracker:
    """A run a job. What trackio prints is dropped: standard output is for tables."""

    def __init__(self):
        self.runs: dict[str, trackio.Run] = {}

    def begin(self, job: JobBase) -> None:
        # In a context of its own, where init finds no earlier run that it would end: slots train at the same time.
        context = contextvars.copy_context()
        with redirect_stdout(io.StringIO()):
            self.runs[job.id] = context.run(
                trackio.init,
                project="madbench",
                name=f"{title(job)} {job.id}",
                group=job.label,
                config=settings(job),
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, job: JobBase, step: int, values: Mapping[str, float]) -> None:
        self.runs[job.id].log(dict(values), step=step)

    def end(self, job: JobBase, record: Record | None, metrics: Mapping[str, float]) -> None:
        run = self.runs.pop(job.id)
        with redirect_stdout(io.StringIO()):
            if metrics:
                run.log(dict(metrics))
            run.finish()

    def close(self) -> None:
        pass


def open_tracker(results: Path) -> TrackioTracker:
    return TrackioTracker()
