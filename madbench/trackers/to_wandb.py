"""Jobs as runs of Weights & Biases, grouped by label; files in ``<results>/wandb``.

The project is ``madbench`` or ``WANDB_PROJECT``; the other variables of wandb hold too, such as ``WANDB_MODE=offline``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import wandb

from madbench.errors import ConfigError
from madbench.jobs import JobBase, Record
from madbench.trackers.tracking import settings, title


class WandbTracker:
    """A run a job."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.runs: dict[str, wandb.Run] = {}

    def begin(self, job: JobBase) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)  # in place of a missing one wandb takes another
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "madbench"),
            name=title(job),
            group=job.label,
            job_type=job.task,
            config=settings(job),
            dir=str(self.folder),
            reinit="create_new",  # slots train at the same time
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric(
            "*", step_metric="step"
        )  # the curve comes after the progress, and wandb's own step only rises
        self.runs[job.id] = run

    def log(self, job: JobBase, step: int, values: Mapping[str, float]) -> None:
        self.runs[job.id].log({"step": step, **values})

    def end(self, job: JobBase, record: Record | None, metrics: Mapping[str, float]) -> None:
        run = self.runs.pop(job.id)
        run.summary.update({**metrics, "status": record.status if record else "interrupted"})
        if record is not None and record.error:
            run.summary["error"] = record.error
        run.finish(exit_code=0 if record and record.status == "finished" else 1)

    def close(self) -> None:
        pass


def open_tracker(results: Path) -> WandbTracker:
    """Raises ``ConfigError`` where wandb would ask for a key: nobody may be there to answer."""
    mode = wandb.setup().settings.mode
    if mode not in ("offline", "disabled", "dryrun") and not wandb.api.api_key:
        raise ConfigError("tracker wandb: no API key; run wandb login, or set WANDB_MODE=offline")
    return WandbTracker(results)
