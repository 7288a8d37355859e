"""A run is read back as it was written, and files with other content are refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from madbench.errors import StoreError
from madbench.jobs import SCHEMA, Job, Record
from madbench.store import format as run_format
from madbench.store.format import NAMES, DamagedRunError, encode
from madbench.store.runs import Store
from stored_samples import RECORD, comparable_content, make_job, records


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.mark.slow
@settings(max_examples=40)
@given(record=records)
def test_a_record_is_read_as_it_was_written(record):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        store.finish(make_job(), record)
        (run,) = store.runs()
        assert run.job == make_job()
        assert comparable_content(run.record) == comparable_content(record)
        assert comparable_content(store.read(make_job().id).record) == comparable_content(record)
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


def test_numpy_scalars_are_stored_as_numbers_and_paths_as_text(store):
    import numpy as np

    details = {"path": Path("/a"), "sizes": (1, 2), "n": np.int64(3), "array": np.arange(2)}
    store.finish(make_job(), Record("finished", {"x": np.float32(0.5)}, [{"x": np.float64(1.5)}], details))
    record = store.read(make_job().id).record
    assert (record.metrics, record.curve) == ({"x": 0.5}, [{"x": 1.5}])
    assert record.details == {"path": "/a", "sizes": [1, 2], "n": 3, "array": [0, 1]}


def test_a_metric_that_is_not_a_number_is_refused_before_a_file_is_written(store):
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


@pytest.mark.parametrize("name", NAMES)
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


@pytest.fixture
def write_as_version(store, monkeypatch):
    def write(schema, job):
        with monkeypatch.context() as patch:
            patch.setattr(run_format, "SCHEMA", schema)
            store.finish(job, RECORD)

    return write


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        (SCHEMA - 1, "train again into a new results folder, or read it with madbench 0.1"),
        (SCHEMA + 1, "read it with the madbench that wrote it"),
    ],
)
def test_a_store_of_another_version_is_refused_with_advice(store, write_as_version, schema, remedy):
    write_as_version(schema, make_job())
    for create in (True, False):
        with pytest.raises(StoreError) as error:
            Store.open(store.root, create)
        assert str(error.value) == (
            f"{store.root}: has format {schema}, and this madbench reads format {SCHEMA}; {remedy}"
        )


def test_runs_of_another_version_among_others_are_one_problem(store, write_as_version):
    for seed in range(3):
        write_as_version(2, make_job(seed))
    store.finish(make_job(3), RECORD)
    for with_curves in (True, False):
        assert [run.job.seed for run in store.runs(with_curves)] == [3]
        (problem,) = store.problems
        assert "3 runs" in problem and "train again" in problem


def test_kept_files_of_a_run_are_verified_before_use(store):
    with store.lock(make_job()) as work:
        (work / "keep" / "more").mkdir(parents=True)
        (work / "keep" / "weights.safetensors").write_bytes(b"heavy")
        (work / "keep" / "more" / "notes").write_bytes(b"")
        store.finish(make_job(), RECORD)
    path = store.kept_file(make_job().id, "weights.safetensors")
    assert path.read_bytes() == b"heavy" and store.kept_file(make_job().id, "more/notes").is_file()
    with pytest.raises(StoreError, match="the run left no file 'other'"):
        store.kept_file(make_job().id, "other")
    for damage in (lambda: path.write_bytes(b"heavx"), path.unlink):
        damage()
        with pytest.raises(DamagedRunError, match="weights.safetensors: differs from what the run wrote"):
            store.kept_file(make_job().id, "weights.safetensors")
    assert store.has(make_job())


def test_a_kept_file_never_stands_in_for_a_file_of_the_run(store):
    with store.lock(make_job()) as work:
        (work / "keep").mkdir()
        (work / "keep" / "record.json").write_text("{}")
        store.finish(make_job(), RECORD)
    assert store.read(make_job().id).record == RECORD and store.problems_of(make_job().id) == []


def test_jobs_with_equal_settings_share_one_object(store):
    for seed in range(3):
        store.finish(make_job(seed, ["S", "R-c", "R-c"][seed]), RECORD)
    jobs = list(store.jobs().values())
    assert {(job.label, job.seed) for job in jobs} == {("S", 0), ("R-c", 1), ("R-c", 2)}
    assert len({id(job.setting) for job in jobs}) == len({id(job.model) for job in jobs}) == 1


@pytest.mark.parametrize(
    "change", [{"label": 3}, {"seed": "1"}, {"seed": True}, {"suite": "x"}, {"model": {}, "more": 1}, {"budget": "x"}]
)
def test_a_run_with_an_invalid_job_is_damaged_even_if_its_checksum_is_right(store, change):
    class Changed(Job):
        def to_dict(self):
            return super().to_dict() | change

    store.finish(make_job(1), RECORD)
    job = make_job()
    folder = store.root / "runs" / job.id
    folder.mkdir()
    for name, content in encode(Changed(**vars(make_job())), RECORD).items():
        (folder / name).write_bytes(content)
    with pytest.raises(DamagedRunError, match="job.json"):
        store.read(job.id)


def test_a_stray_file_is_a_problem_and_a_hidden_one_is_not(store):
    (store.root / "runs" / "notes.txt").write_text("x")
    (store.root / "runs" / ".DS_Store").write_text("x")
    assert list(store.runs()) == []
    assert len(store.problems) == 1
