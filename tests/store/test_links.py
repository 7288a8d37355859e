"""Links in a store: its folders may be links, but nothing is deleted or moved through one that is planted in it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from madbench.errors import StoreError
from madbench.jobs import Record
from madbench.store.runs import Store
from stored_samples import FAILED, RECORD, make_job

JOB = make_job()
NAMES = ("checkpoint.pt", "half.tmp", "record.json", "job.json", "weights.safetensors", "sub/deep.txt")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.fixture
def elsewhere(tmp_path):
    """A foreign folder and its content."""
    folder = tmp_path / "elsewhere"
    (folder / "sub").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(name)
    return folder


def content(folder) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def is_untouched(folder) -> bool:
    return content(folder) == {name: name for name in NAMES}


@pytest.mark.parametrize("inside", ["", "keep", "lock"])
@pytest.mark.parametrize("use", ["lock", "lock afresh", "finish", "replace", "fail"])
def test_a_link_in_the_place_of_a_work_folder_is_refused_and_not_followed(store, elsewhere, inside, use):
    path = store.root / "work" / JOB.id / inside
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(elsewhere / "record.json" if inside == "lock" else elsewhere)
    with pytest.raises(StoreError, match=f"{JOB.id}.*: is a link; .* delete the link"):
        if use.startswith("lock"):
            with store.lock(JOB, afresh=use == "lock afresh"):
                pass
        else:
            store.finish(JOB, FAILED if use == "fail" else RECORD, replace=use == "replace")
    assert is_untouched(elsewhere) and path.is_symlink() and not (store.root / "runs" / JOB.id).exists()
    path.unlink()
    store.finish(JOB, RECORD)
    assert store.read(JOB.id).record == RECORD


def test_a_dangling_link_is_refused_and_its_target_is_not_made(store, tmp_path):
    (store.root / "work" / JOB.id).symlink_to(tmp_path / "gone")
    with pytest.raises(StoreError, match="a link"), store.lock(JOB):
        pass
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("record", [RECORD, FAILED])
def test_opening_a_store_follows_no_link_in_place_of_a_work_folder(store, elsewhere, record):
    store.finish(JOB, record)
    work = store.root / "work" / JOB.id
    if work.exists():
        work.rmdir()
    work.symlink_to(elsewhere)
    Store.open(store.root)
    assert is_untouched(elsewhere) and work.is_symlink()


def test_replacing_a_linked_run_leaves_the_target_of_the_link(store, tmp_path):
    store.finish(JOB, RECORD)
    os.rename(store.root / "runs" / JOB.id, tmp_path / JOB.id)
    (store.root / "runs" / JOB.id).symlink_to(tmp_path / JOB.id)
    before = content(tmp_path / JOB.id)
    assert store.read(JOB.id).record == RECORD
    store.finish(JOB, Record("finished", {"accuracy": 0.0}), replace=True)
    assert store.read(JOB.id).record.metrics == {"accuracy": 0.0}
    assert content(tmp_path / JOB.id) == before and os.listdir(store.root / "work") == []


@pytest.mark.parametrize("names", [["results"], ["results/runs", "results/work"], ["results/work"]])
def test_the_folders_of_a_store_may_be_links(tmp_path, names):
    for number, name in enumerate(names):
        (tmp_path / f"disk{number}").mkdir()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / f"disk{number}")
    store = Store.open(tmp_path / "results")
    with store.lock(JOB) as work:
        (work / "checkpoint.pt").touch()
        store.finish(JOB, FAILED)
    with store.lock(JOB, afresh=True) as work:
        assert os.listdir(work) == ["lock"]
        store.finish(JOB, RECORD)
    assert Store.open(tmp_path / "results").read(JOB.id).record == RECORD
    assert os.listdir(tmp_path / "results" / "work") == []


def test_an_index_that_is_a_link_leaves_the_other_database_alone(store, tmp_path, monkeypatch):
    store.finish(JOB, RECORD)
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE mine (value)")
    before = other.read_bytes()
    (store.root / "index").mkdir()
    (store.root / "index" / "runs.sqlite").symlink_to(other)
    (store.root / "index" / "runs.sqlite.backup").write_text("mine")
    assert store.records([JOB.id]).keys() == {JOB.id}
    assert other.read_bytes() == before and sorted(path.name for path in tmp_path.glob("other*")) == ["other.sqlite"]
    (store.root / "index" / "runs.sqlite").unlink()
    (store.root / "index" / "runs.sqlite").write_text("damaged" * 500)
    assert store.records([JOB.id]).keys() == {JOB.id}
    assert (store.root / "index" / "runs.sqlite.backup").read_text() == "mine"
