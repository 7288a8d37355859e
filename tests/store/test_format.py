"""What is read back is what was written, and nothing else is."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_samples import RECORD, make_job

from madbench.jobs import Record
from madbench.store import format as run_format
from madbench.store.format import encode
from madbench.store.runs import DamagedRunError, Store


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
numbers = st.floats() | st.integers(-(2**60), 2**60)
records = st.builds(
    Record,
    status=st.sampled_from(["finished", "diverged", "failed"]),
    metrics=st.dictionaries(names, numbers, max_size=5),
    curve=st.lists(st.dictionaries(names, numbers, min_size=1, max_size=4), max_size=5),
    details=st.dictionaries(
        names,
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
            max_leaves=6,
        ),
        max_size=3,
    ),
    error=st.text(max_size=20),
)


def exactly(record: Record) -> tuple:
    """The record with NaN equal to NaN, and 1 not equal to 1.0."""
    rows = [{name: repr(value) for name, value in row.items()} for row in [record.metrics, *record.curve]]
    return record.status, rows, repr(record.details), record.error


@settings(max_examples=40, deadline=None)
@given(record=records)
def test_a_record_is_read_as_it_was_written(record):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        store.finish(make_job(), record)
        (run,) = store.runs()
        assert run.job == make_job()
        assert exactly(run.record) == exactly(record)
        assert exactly(store.read(make_job().id).record) == exactly(record)
        assert store.problems == []


def test_nan_and_inf_are_valid_json_and_come_back(store):
    values = {"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": 0.5}
    store.finish(make_job(), Record("diverged", metrics=values, curve=[values], details={"loss": float("nan")}))
    text = (store.root / "runs" / make_job().id / "record.json").read_text()
    written = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert written["metrics"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 0.5}
    record = store.read(make_job().id).record
    assert repr(record.metrics) == repr(record.curve[0]) == repr(values)
    assert record.details == {"loss": "nan"}


def test_array_scalars_are_stored_as_numbers_and_paths_as_text(store):
    import numpy as np

    details = {"path": Path("/a"), "sizes": (1, 2), "n": np.int64(3), "array": np.arange(2)}
    store.finish(make_job(), Record("finished", {"x": np.float32(0.5)}, [{"x": np.float64(1.5)}], details))
    record = store.read(make_job().id).record
    assert (record.metrics, record.curve) == ({"x": 0.5}, [{"x": 1.5}])
    assert record.details == {"path": "/a", "sizes": [1, 2], "n": 3, "array": [0, 1]}


def test_a_metric_that_is_no_number_is_refused_before_anything_is_written(store):
    with pytest.raises(TypeError, match="expected a number, got None"):
        store.finish(make_job(), Record("finished", {"x": None}))
    assert os.listdir(store.root / "runs") == []


def test_runs_can_be_read_without_their_curves(store):
    store.finish(make_job(), RECORD)
    (run,) = store.runs(with_curves=False)
    assert run.record.curve == []
    assert run.record.metrics == RECORD.metrics


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
    "altered digit": lambda path: path.write_bytes(path.read_bytes().replace(b"2", b"3")),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\0"),
    "other JSON": lambda path: path.write_bytes(b"[]"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("name", ["job.json", "record.json", "curve.csv"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_run_is_a_named_problem_and_the_others_are_read(store, name, damage):
    record = Record("finished", {"test_loss": 0.2}, RECORD.curve)
    for seed in range(3):
        store.finish(make_job(seed), record)
    damaged = make_job(1)
    damage(store.root / "runs" / damaged.id / name)
    assert {run.job.seed for run in store.runs()} == {0, 2}
    (problem,) = store.problems
    assert damaged.id in problem
    assert not store.has(damaged)
    assert store.missing([make_job(seed) for seed in range(3)]) == [damaged]
    with pytest.raises(DamagedRunError, match=damaged.id):
        store.read(damaged.id)
    store.finish(damaged, record)
    assert {run.job.seed for run in store.runs()} == {0, 1, 2}
    assert store.problems == []


def test_no_changed_byte_is_read_as_another_result():
    job, generator = make_job(), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        target = Path(folder, "runs", job.id)
        target.mkdir(parents=True)
        files = encode(job, RECORD)
        for name, content in files.items():
            for _ in range(40):
                for other, whole in files.items():
                    (target / other).write_bytes(whole)
                changed = bytearray(content)
                changed[generator.randrange(len(changed))] = generator.randrange(256)
                (target / name).write_bytes(changed)
                read = [(run.job, run.record) for run in store.runs()]
                assert read in ([], [(job, RECORD)])
                assert len(read) + len(store.problems) == 1


def test_a_run_under_the_name_of_another_is_a_problem(store):
    store.finish(make_job(0), RECORD)
    shutil.copytree(store.root / "runs" / make_job(0).id, store.root / "runs" / make_job(1).id)
    assert [run.job.seed for run in store.runs()] == [0]
    assert make_job(1).id in store.problems[0]


def test_a_run_of_another_protocol_version_is_a_problem_that_says_so(store, monkeypatch):
    monkeypatch.setattr(run_format, "SCHEMA", 99)
    store.finish(make_job(), RECORD)
    monkeypatch.undo()
    assert list(store.runs()) == []
    assert "protocol version 99" in store.problems[0]


def test_a_stray_file_is_a_problem_and_a_hidden_one_is_not(store):
    (store.root / "runs" / "notes.txt").write_text("x")
    (store.root / "runs" / ".DS_Store").write_text("x")
    assert list(store.runs()) == []
    assert len(store.problems) == 1
