"""A job, records of its run, random records, and the files of a store, for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from madbench.jobs import Job, Record
from madbench.models.shapes import ModelConfig
from madbench.store.checks import _DETAILS
from madbench.store.runs import Store
from madbench.suites.tokens import TrainingConfig

RECORD = Record(
    "finished",
    metrics={"test_accuracy": 0.75, "test_loss": 0.1},
    curve=[{"epoch": 1, "train_loss": 2.5}, {"epoch": 2, "train_loss": 1.25, "validation_loss": 3.0}],
    details={"ranks": {"qk_rank": 8}, "device": "cpu"},
)
FAILED = Record("failed", error="out of memory")


def make_job(seed: int = 0, label: str = "G-cg-q-12o") -> Job:
    setting = {"vocab_size": 16, "seq_len": 32, "ratio": 1.0}
    return Job("mad", "compression", label, "srg 1", setting, ModelConfig(), {"mix_rank": 8}, TrainingConfig(), seed)


def tree(store: Store) -> list[str]:
    """The paths of all files and empty folders of the store, relative to its folder. The index is left out."""
    paths = sorted(path for path in store.root.rglob("*") if "index" not in path.parts)
    return [str(path.relative_to(store.root)) for path in paths if path.is_file() or not any(path.iterdir())]


def run_tree(job: Job) -> list[str]:
    return [f"runs/{job.id}/{name}" for name in ("curve.csv", "job.json", "record.json")]


letters = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")
"""Printable characters and the space. When a record is read, other characters are replaced."""
names = st.text(letters, min_size=1, max_size=8)
numbers = st.floats() | st.integers(-(2**60), 2**60)
records = st.builds(
    Record,
    status=st.sampled_from(["finished", "diverged", "failed"]),
    metrics=st.dictionaries(names, numbers, max_size=5),
    curve=st.lists(st.dictionaries(names, numbers, min_size=1, max_size=4), max_size=5),
    details=st.dictionaries(
        names.filter(lambda name: name not in _DETAILS),  # which have types of their own
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(letters),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
            max_leaves=6,
        ),
        max_size=3,
    ),
    error=st.text(letters, max_size=20),
)


def comparable_content(record: Record) -> tuple[object, ...]:
    """The content of a record for comparisons in which NaN equals NaN, and 1 does not equal 1.0."""
    rows = [{name: repr(value) for name, value in row.items()} for row in [record.metrics, *record.curve]]
    return record.status, rows, repr(record.details), record.error
