"""A job, records of it and the files of a store, for tests."""

from __future__ import annotations

from madbench.jobs import Job, Record
from madbench.store.runs import Store

RECORD = Record(
    "finished",
    metrics={"test_accuracy": 0.75, "test_loss": 0.1},
    curve=[{"epoch": 1, "train_loss": 2.5}, {"epoch": 2, "train_loss": 1.25, "validation_loss": 3.0}],
    details={"ranks": {"qk_rank": 8}, "device": "cpu"},
)
FAILED = Record("failed", error="out of memory")


def make_job(seed: int = 0) -> Job:
    return Job("G-cg-q-12o", "compression", {"vocab_size": 16, "seq_len": 32}, seed=seed)


def tree(store: Store) -> list[str]:
    """Every file and empty folder of the store, but for its cache."""
    paths = sorted(path for path in store.root.rglob("*") if "index" not in path.parts)
    return [str(path.relative_to(store.root)) for path in paths if path.is_file() or not any(path.iterdir())]


def run_tree(job: Job) -> list[str]:
    return [f"runs/{job.id}/{name}" for name in ("curve.csv", "job.json", "record.json")]
