"""Results, checkpoints and locks of jobs in a results folder, also with several processes and damaged files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from madbench.errors import StoreError
from madbench.jobs import KEEP, Record
from madbench.store.runs import Store, StoreBusyError
from stored_samples import FAILED, RECORD, make_job, run_tree, tree

DIVERGED = Record("diverged", error="loss was not finite")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


def test_an_absent_run_is_a_store_error(store):
    with pytest.raises(StoreError, match="holds no run 'abc'"):
        store.read("abc")


def test_the_first_result_stays(store):
    store.finish(make_job(), RECORD)
    store.finish(make_job(), Record("diverged", {"test_accuracy": 0.0}))
    store.finish(make_job(), FAILED)
    assert store.read(make_job().id).record == RECORD


@pytest.mark.parametrize("later", [RECORD, Record("diverged"), Record("failed", error="again")])
def test_a_failed_run_is_replaced_by_a_later_one(store, later):
    store.finish(make_job(), FAILED)
    assert (store.status(make_job()), store.has(make_job())) == ("failed", False)
    assert store.missing([make_job()]) == [make_job()]
    store.finish(make_job(), later)
    assert store.read(make_job().id).record == later
    assert store.status(make_job()) == later.status
    assert store.has(make_job()) == (later.status != "failed")
    assert tree(store) == [*run_tree(make_job()), "work"]


def test_files_that_a_run_did_not_write_are_problems_also_in_its_subfolders(store):
    with store.lock(make_job()) as work:
        (work / KEEP / "probes" / "deep").mkdir(parents=True)
        (work / KEEP / "probes" / "deep" / "a.npy").write_bytes(b"a")
        store.finish(make_job(), RECORD)
    folder = store.read(make_job().id).folder
    assert store.problems_of(make_job().id) == []
    (folder / "probes" / "deep" / "notes.txt").touch()
    (folder / "probes" / "b.npy").touch()
    (folder / "other").symlink_to(folder / "probes")
    strays = ("other", "probes/b.npy", "probes/deep/notes.txt")
    assert store.problems_of(make_job().id) == [f"{folder / name}: not of this run; delete it" for name in strays]
    (folder / "other").unlink()
    (folder / "probes").rename(folder / "elsewhere")
    (folder / "probes").symlink_to(folder / "elsewhere")  # whose files are not in the folder of the run
    assert [line for line in store.problems_of(make_job().id) if "not of this run" in line] == [
        f"{folder / name}: not of this run; delete it" for name in ("elsewhere", "probes")
    ]


def test_a_result_removes_the_checkpoint_and_a_failure_keeps_it(store):
    with store.lock(make_job()) as work:
        (work / "checkpoint.pt").write_bytes(b"state")
        store.finish(make_job(), FAILED)
    with store.lock(make_job()) as work:
        assert (work / "checkpoint.pt").read_bytes() == b"state"
        store.finish(make_job(), RECORD)
    assert tree(store) == [*run_tree(make_job()), "work"]


def test_a_lock_with_afresh_deletes_the_checkpoint(store):
    with store.lock(make_job()) as work:
        (work / "checkpoint.pt").write_bytes(b"state")
    with store.lock(make_job(), afresh=True) as work:
        assert not (work / "checkpoint.pt").exists()


def test_a_result_is_replaced_on_request_but_never_by_a_failure(store):
    store.finish(make_job(), RECORD)
    store.finish(make_job(), DIVERGED)
    assert store.read(make_job().id).record == RECORD
    store.finish(make_job(), FAILED, replace=True)
    assert store.read(make_job().id).record == RECORD
    store.finish(make_job(), DIVERGED, replace=True)
    assert store.status(make_job()) == "diverged"
    assert tree(store) == [*run_tree(make_job()), "work"]


def test_missing_returns_each_unstored_job_once_in_order(store):
    jobs = [make_job(seed) for seed in (3, 1, 2, 1, 3, 0)]
    store.finish(make_job(2), RECORD)
    assert store.missing(jobs) == [make_job(seed) for seed in (3, 1, 0)]


def test_looking_for_many_new_jobs_touches_the_disk_once(store, monkeypatch):
    calls = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: calls.append(path) or listdir(path))
    monkeypatch.setattr(os, "stat", lambda *_, **__: pytest.fail("a job without a folder was looked up"))
    jobs = [make_job(seed) for seed in range(1000)]
    assert store.missing(jobs) == jobs
    assert len(calls) == 1


def test_a_locked_job_is_busy_for_everyone_else_and_free_afterwards(store):
    other = Store(store.root)
    with store.lock(make_job()) as work:
        assert work.is_dir()
        for attempt in (other.lock(make_job()), store.lock(make_job())):
            with pytest.raises(StoreBusyError), attempt:
                pytest.fail("two owners")
        with pytest.raises(StoreBusyError):
            other.finish(make_job(), RECORD)
        with other.lock(make_job(1)):
            pass
        (work / "checkpoint.pt").write_bytes(b"state")
    with other.lock(make_job()) as work:
        assert (work / "checkpoint.pt").read_bytes() == b"state"


def test_a_lock_without_a_checkpoint_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError), store.lock(make_job()):
        raise ZeroDivisionError
    assert tree(store) == ["runs", "work"]


def test_a_lock_ends_with_its_process_and_its_leftovers_are_swept(store):
    code = (
        "import sys, time; from madbench.store.runs import Store\n"
        "with Store(sys.argv[1]).lock(sys.argv[2]) as work:\n"
        "    (work / 'run.tmp').mkdir(); (work / '.checkpoint.pt.1a.tmp').touch(); (work / 'checkpoint.pt').touch()\n"
        "    print('locked', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(store.root), make_job().id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(StoreBusyError), store.lock(make_job()):
            pytest.fail("two owners")
        process.kill()
    with store.lock(make_job()) as work:
        assert sorted(os.listdir(work)) == ["checkpoint.pt", "lock"]


@pytest.mark.slow
def test_a_lock_never_has_two_owners_while_work_folders_are_recreated(store):
    owners, overlaps = [], []

    def lock_often():
        mine = Store(store.root)
        locks = 0
        while locks < 30:
            try:
                with mine.lock(make_job()):
                    owners.append(1)
                    if len(owners) > 1:
                        overlaps.append(1)
                    time.sleep(0)
                    owners.pop()
                    locks += 1
            except StoreBusyError:
                pass

    threads = [threading.Thread(target=lock_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not overlaps
    assert tree(store) == ["runs", "work"]


def test_opening_a_store_deletes_only_work_folders_of_finished_runs(store):
    for seed, record in enumerate([RECORD, FAILED, None]):
        if record:
            store.finish(make_job(seed), record)
        (store.root / "work" / make_job(seed).id).mkdir(exist_ok=True)
        (store.root / "work" / make_job(seed).id / "checkpoint.pt").touch()
    Store.open(store.root)
    assert sorted(os.listdir(store.root / "work")) == sorted([make_job(1).id, make_job(2).id])


def test_opening_for_reading_needs_a_results_folder_and_writes_nothing(tmp_path):
    with pytest.raises(StoreError, match="no such results folder; madbench run G-cg-q-12o --results .* makes it$"):
        Store.open(tmp_path / "absent", create=False)
    with pytest.raises(StoreError, match="no folder 'runs'.; madbench run G-cg-q-12o --results"):
        Store.open(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []
    Store.open(tmp_path).finish(make_job(), RECORD)
    shutil.rmtree(tmp_path / "work")
    assert len(list(Store.open(tmp_path, create=False).runs())) == 1
    assert os.listdir(tmp_path) == ["runs"]


@pytest.mark.parametrize("inside", [".", "results"])
def test_opening_a_file_as_a_store_is_an_error(tmp_path, inside):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file: is a file, not a results folder"):
        Store.open(tmp_path / "file", create=False)
    with pytest.raises(StoreError, match="a file is where a folder should be"):
        Store.open(tmp_path / "file" / inside)
    for create in (True, False):
        with pytest.raises(StoreError):
            Store.open(tmp_path / "file", create=create)
