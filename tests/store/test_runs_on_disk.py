"""A store after kills at any step, and on full and read-only disks."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from madbench.errors import StoreError
from madbench.files import write_atomically
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.store import reading, runs
from madbench.store.format import NAMES
from madbench.store.runs import Store
from stored_samples import FAILED, RECORD, make_job, run_tree, tree


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


OTHER = Record("diverged", error="loss")
STEPS = ["fsync", "rename", "mkdir", "unlink", "rmdir"]


def in_child(action) -> int:
    """Run ``action`` in a fork of this process. Returns the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_call(monkeypatch, function: str, n: int, action) -> None:
    """Make the n-th call (from 0) of ``os.<function>`` run ``action`` instead."""
    original, calls = getattr(os, function), iter(range(10_000))

    def patched(*args, **kwargs):
        if next(calls) == n:
            action()
        return original(*args, **kwargs)

    monkeypatch.setattr(os, function, patched)


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [None, FAILED], ids=["new", "retry"])
@pytest.mark.parametrize("function", STEPS)
def test_a_kill_at_any_step_leaves_a_readable_store_that_can_continue(tmp_path, monkeypatch, function, earlier):
    for n in itertools.count():
        store = Store.open(tmp_path / str(n))
        store.finish(make_job(1), RECORD)
        if earlier:
            store.finish(make_job(), earlier)

        def finish(store=store, n=n):
            with store.lock(make_job()) as work:
                (work / "checkpoint.pt").write_bytes(b"state")
                at_call(monkeypatch, function, n, lambda: os.kill(os.getpid(), signal.SIGKILL))
                store.finish(make_job(), RECORD)

        was_killed = in_child(finish) == -signal.SIGKILL
        store = Store.open(store.root)
        records = {run.job.seed: run.record for run in store.runs()}
        assert store.problems == []
        assert records.pop(1) == RECORD
        assert records.get(0) in (None, earlier, RECORD)
        if not store.has(make_job()):
            with store.lock(make_job()) as work:
                assert (work / "checkpoint.pt").read_bytes() == b"state"
                store.finish(make_job(), RECORD)
        assert store.read(make_job().id).record == RECORD
        assert tree(store) == sorted([*run_tree(make_job()), *run_tree(make_job(1)), "work"])
        if not was_killed:
            break
    assert n >= 1


@pytest.mark.slow
def test_a_kill_while_a_result_is_replaced_leaves_one_or_the_other(tmp_path, monkeypatch):
    for n in itertools.count():
        store = Store.open(tmp_path / str(n))
        store.finish(make_job(), RECORD)

        def replace(store=store, n=n):
            at_call(monkeypatch, "rename", n, lambda: os.kill(os.getpid(), signal.SIGKILL))
            store.finish(make_job(), OTHER, replace=True)

        was_killed = in_child(replace) == -signal.SIGKILL
        store = Store.open(store.root)
        assert store.read(make_job().id).record == (RECORD if was_killed else OTHER)
        assert tree(store) == [*run_tree(make_job()), "work"]
        if not was_killed:
            break
    assert n >= 2


@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_a_disk_full_at_any_step_is_an_error_and_loses_nothing(tmp_path, monkeypatch, function):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    failures = 0
    for n in range(8):
        store = Store.open(tmp_path / str(n))
        store.finish(make_job(1), RECORD)
        with store.lock(make_job()) as work:
            (work / "checkpoint.pt").write_bytes(b"state")
            (work / "keep").mkdir()
            (work / "keep" / "weights").write_bytes(b"heavy")
            with monkeypatch.context() as patch:
                at_call(patch, function, n, fail)
                try:
                    store.finish(make_job(), RECORD)
                except StoreError as error:
                    failures += 1
                    assert f"runs/{make_job().id}: no space left" in str(error)
            store.finish(make_job(), RECORD)
        assert store.kept_file(make_job().id, "weights").read_bytes() == b"heavy"
        assert [run.record for run in store.runs()] == [RECORD, RECORD]
    assert failures >= 1


def with_weights(store, action) -> None:
    """Store a run with its weights, and run ``action`` before."""
    with store.lock(make_job()) as work:
        action(work)
        store.finish(make_job(), RECORD)


def left_by_worker(work) -> None:
    (work / KEEP).mkdir()
    write_atomically(work / KEEP / WEIGHTS, b"weights")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_a_driver_killed_while_it_stores_a_run_loses_no_weights(tmp_path, monkeypatch, function):
    for n in itertools.count():
        store = Store.open(tmp_path / str(n))

        def storing(store=store, n=n):
            def then(work):
                left_by_worker(work)
                at_call(monkeypatch, function, n, lambda: os.kill(os.getpid(), signal.SIGKILL))

            with_weights(store, then)

        was_killed = in_child(storing) != 0
        if not store.has(make_job()):  # the worker does not train again
            with_weights(store, lambda work: None)
        assert store.kept_file(make_job().id, WEIGHTS).read_bytes() == b"weights"
        assert store.problems_of(make_job().id) == []
        if not was_killed:
            break
    assert n > 1


@pytest.mark.parametrize("n", range(3))
def test_an_interrupt_while_a_run_is_stored_loses_no_weights(store, monkeypatch, n):
    rename, calls = os.rename, iter(range(100))

    def interrupted(*args):
        rename(*args)
        if next(calls) == n:
            raise KeyboardInterrupt

    with store.lock(make_job()) as work:
        left_by_worker(work)
        monkeypatch.setattr(os, "rename", interrupted)
        with suppress(KeyboardInterrupt):
            store.finish(make_job(), RECORD)
        store.finish(make_job(), RECORD)
    assert store.kept_file(make_job().id, WEIGHTS).read_bytes() == b"weights"


def test_a_file_that_a_killed_worker_has_half_written_is_not_stored_with_the_run(store):
    with store.lock(make_job()) as work:
        (work / KEEP).mkdir()
        in_child(lambda: write_atomically(work / KEEP / WEIGHTS, lambda file: os.kill(os.getpid(), signal.SIGKILL)))
        assert os.listdir(work / KEEP)
        write_atomically(work / KEEP / WEIGHTS, b"weights")
        store.finish(make_job(), RECORD)
    assert sorted(os.listdir(store.root / "runs" / make_job().id)) == sorted([*NAMES, WEIGHTS])
    assert store.problems_of(make_job().id) == []


def test_files_are_synced_before_the_run_is_renamed_and_the_checkpoint_deleted(store, monkeypatch):
    def name_of(descriptor):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    log = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink
    monkeypatch.setattr(os, "fsync", lambda fd: (log.append(name_of(fd)), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda *paths: (rename(*paths), log.append("rename")))
    monkeypatch.setattr(os, "unlink", lambda path: (unlink(path), log.append(f"remove {Path(path).name}")))
    with store.lock(make_job()) as work:
        (work / "checkpoint.pt").touch()
        store.finish(make_job(), RECORD)
        assert os.listdir(work) == ["lock"]
    files = ["job.json", "record.json", "curve.csv"]
    assert log == [*files, "keep", "rename", "runs", "remove checkpoint.pt", "remove lock"]


@pytest.mark.parametrize(
    ("code", "says"), [(errno.EACCES, "permission denied"), (errno.EROFS, "read-only"), (errno.ENOSPC, "no space left")]
)
def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, code, says):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(runs.tempfile, "TemporaryFile", fail)
    with pytest.raises(StoreError, match=f"{tmp_path}: {says}"):
        Store.open(tmp_path)


def test_a_read_only_or_full_disk_is_refused_for_writing_and_fine_for_reading(tmp_path):
    def mount(*options):
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(tmp_path)]
        return os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0

    if not mount("-o", "size=64k"):
        pytest.skip("mounting a small file system needs root and the mount capability")
    try:
        store = Store.open(tmp_path)
        store.finish(make_job(), RECORD)
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "filler").write_bytes(bytes(100_000))
        with pytest.raises(StoreError, match="no space left"):
            Store.open(tmp_path)
        with pytest.raises(StoreError, match="no space left"):
            store.finish(make_job(1), RECORD)
        assert [run.record for run in Store.open(tmp_path, create=False).runs()] == [RECORD]
        (tmp_path / "filler").unlink()
        store.finish(make_job(1), RECORD)
        assert mount("-o", "remount,ro")
        with pytest.raises(StoreError, match="read-only file system"):
            Store.open(tmp_path)
        with pytest.raises(StoreError, match="read-only file system"):
            store.finish(make_job(2), RECORD)
        assert len(list(Store.open(tmp_path, create=False).runs())) == 2
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_checking_a_run_reads_its_files_once(tmp_path, monkeypatch):
    store = Store.open(tmp_path)
    store.finish(make_job(), RECORD)
    reads, read = [], reading.read_run
    monkeypatch.setattr(reading, "read_run", lambda *args: reads.append(args) or read(*args))
    run, problems = store.check(make_job().id)
    assert run.record == RECORD and not problems and len(reads) == 1
