"""Runs with right checksums and unusual content, such as another program may write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from madbench.jobs import SCHEMA, Job
from madbench.store import format as run_format
from stored_samples import make_job

LANGUAGE_DETAILS = {"corpus": {"name": "c", "folder": "/c", "digest": "0" * 16}, "evaluation": {"windows": 4}}
DETAILS = LANGUAGE_DETAILS | {"git": {"commit": "a", "dirty": False}, "versions": {"torch": "2"}, "seconds": 1.5}
FIELDS = {
    "status": "finished",
    "metrics": {"accuracy": 0.5, "test_loss": "nan"},
    "details": DETAILS,
    "error": "",
    "files": {"weights.safetensors": "0" * 64},
}
CURVE = b"step,train_loss\n1,2.5\n2,\n"
DEEP = "[" * 200_000 + "]" * 200_000


def write_run(root: Path, record: Any = FIELDS, curve: bytes = CURVE, job: Job | None = None, text: str = "") -> Path:
    """Write a run with right checksums into the store at ``root``, and return the folder of the run.

    ``record`` has the fields of ``record.json``, which may be of any type, and ``curve`` is the content of
    ``curve.csv``. If ``text`` is not empty, it is the whole content of ``record.json``.
    """
    job = job or make_job()
    folder = root / "runs" / job.id
    folder.mkdir(parents=True, exist_ok=True)
    job_file = run_format.json_bytes({"schema": SCHEMA, **job.to_dict()})
    if not text:
        checksum = run_format.run_checksum(job_file, record, curve)
        text = json.dumps({**record, "checksum": checksum} if isinstance(record, dict) else record)
    for name, content in zip(run_format.NAMES, (job_file, text.encode(), curve), strict=True):
        (folder / name).write_bytes(content)
    return folder
