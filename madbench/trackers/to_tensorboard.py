"""Jobs as runs of TensorBoard, in ``<results>/tensorboard/<label>_<task>_seed_<seed>_<job id>/``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from madbench.jobs import JobBase, Record
from madbench.trackers.tracking import settings, title

FLUSH_SECONDS = 10


class TensorboardTracker:
    """A writer of event files a job."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.writers: dict[str, SummaryWriter] = {}

    def begin(self, job: JobBase) -> None:
        name = re.sub(r"[^A-Za-z0-9!.-]+", "_", title(job))
        self.writers[job.id] = SummaryWriter(str(self.folder / f"{name}_{job.id}"), flush_secs=FLUSH_SECONDS)

    def log(self, job: JobBase, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writers[job.id].add_scalar(name, value, step)

    def end(self, job: JobBase, record: Record | None, metrics: Mapping[str, float]) -> None:
        writer = self.writers.pop(job.id)
        if record is not None:
            writer.add_text("job", f"```\n{json.dumps(settings(job), indent=2)}\n```")
            writer.add_text("status", f"{record.status} {record.error}".strip())
            writer.add_hparams(_flat(settings(job)), dict(metrics), run_name=".")
        writer.close()

    def close(self) -> None:
        pass


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return flat


def open_tracker(results: Path) -> TensorboardTracker:
    return TensorboardTracker(results / "tensorboard")
