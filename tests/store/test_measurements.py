"""Measurements made after training stay with their run, are read back unchanged, and never change the record."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.errors import StoreError
from madbench.jobs import Record
from madbench.store import index as run_index
from madbench.store import reading
from madbench.store.format import DamagedRunError, Measurement
from madbench.store.runs import Store
from stored_samples import RECORD, comparable_content, letters, make_job, names, numbers, records

ID = make_job().id


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(tmp_path / "results")
    for seed in range(3):
        store.finish(make_job(seed), RECORD)
    return store


def files(store: Store, job_id: str = ID) -> list:
    return sorted((store.root / "runs" / job_id / "measurements").iterdir())


@pytest.mark.slow
@settings(max_examples=25)
@given(record=records, values=st.dictionaries(names, numbers, max_size=3), name=st.text(letters, max_size=5))
def test_a_measurement_is_read_as_it_was_written(record, values, name):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        store.finish(make_job(), record)
        store.measure(ID, name, values, record.details, record.details)
        (found,) = store.measurements(ID)
        assert repr(found) == repr(Measurement(name, values, record.details, record.details))
        assert comparable_content(store.read(ID).record) == comparable_content(record)


def test_the_newest_measurement_of_a_name_and_settings_is_returned(store):
    for n, (name, seq_len) in enumerate([("evaluation", 64), ("evaluation", 128), ("probe", 64), ("evaluation", 64)]):
        store.measure(ID, name, {"loss": n}, {"device": "cpu"}, {"seq_len": seq_len})
    found = {(one.name, one.settings["seq_len"]): one.values["loss"] for one in store.measurements(ID)}
    assert found == {("evaluation", 64): 3, ("evaluation", 128): 1, ("probe", 64): 2}
    assert len(files(store)) == 4


def test_only_a_stored_run_can_be_measured_and_only_by_numbers(store):
    with pytest.raises(StoreError, match="holds no run"):
        store.measure("0123456789abcdef", "x", {})
    with pytest.raises(StoreError, match="holds no run"):
        store.measurements("0123456789abcdef")
    with pytest.raises(TypeError, match="expected a number"):
        store.measure(ID, "x", {"loss": "low"})
    assert store.measurements(ID) == [] and store.all_measurements([ID, "0123456789abcdef"]) == {}


def test_replacing_a_run_deletes_its_measurements(store):
    store.measure(ID, "x", {"loss": 1})
    store.finish(make_job(), RECORD)
    assert len(store.measurements(ID)) == 1
    store.finish(make_job(), Record("finished", {"test_loss": 0.5}), replace=True)
    assert store.measurements(ID) == []


def test_measuring_a_run_keeps_its_index_entry_valid(store, monkeypatch):
    monkeypatch.setattr(run_index, "present_tick", lambda folder: folder.mkdir(exist_ok=True) or "")
    expected = list(store.runs(with_curves=False))
    store.measure(ID, "x", {"loss": 1})
    monkeypatch.setattr(reading, "read_run", None)
    assert list(store.runs(with_curves=False)) == expected


DAMAGES = {
    "altered": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2")),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_measurement_is_named_and_the_run_stays(store, damage):
    other = make_job(1).id
    for job_id in (ID, other):
        store.measure(job_id, "x", {"loss": 1})
    (path,) = files(store)
    damage(path)
    with pytest.raises(DamagedRunError, match="delete it and measure again"):
        store.measurements(ID)
    assert set(store.all_measurements([ID, other])) == {other}
    assert len(store.problems) == 1 and str(path) in store.problems[0]
    assert store.has(make_job())


def test_a_measurement_of_another_run_is_damage(store):
    store.measure(ID, "x", {"loss": 1})
    (path,) = files(store)
    shutil.copytree(path.parent, store.root / "runs" / make_job(1).id / "measurements")
    with pytest.raises(DamagedRunError, match="of another run"):
        store.measurements(make_job(1).id)


def test_an_unfinished_file_is_not_read_as_a_measurement(store):
    store.measure(ID, "x", {"loss": 1})
    (path,) = files(store)
    path.with_name(f".{path.name}.0123.tmp").write_bytes(b"{")
    assert len(store.measurements(ID)) == 1


@pytest.mark.slow
def test_concurrent_measurements_are_all_kept(store):
    children = []
    for i in range(4):
        children.append(os.fork())
        if not children[-1]:
            for n in range(10):
                Store(store.root).measure(ID, "x", {"loss": n}, settings={"process": i, "n": n})
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(store.measurements(ID)) == 40


def test_measurements_of_many_runs_are_read_together(store):
    jobs = [make_job(seed).id for seed in range(3)]
    for job_id in jobs[1:]:
        store.measure(job_id, "x", {"loss": 1})
    assert store.all_measurements(jobs) == {job_id: store.measurements(job_id) for job_id in jobs[1:]}
