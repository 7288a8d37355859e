from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench import run_format, runs
from madbench.errors import StoreError
from madbench.jobs import Job, Record
from madbench.run_format import encode
from madbench.runs import DamagedRunError, Store, StoreBusyError

RECORD = Record(
    "finished",
    metrics={"test_accuracy": 0.75, "test_loss": 0.1},
    curve=[{"epoch": 1, "train_loss": 2.5}, {"epoch": 2, "train_loss": 1.25, "validation_loss": 3.0}],
    details={"ranks": {"qk_rank": 8}, "device": "cpu"},
)
FAILED = Record("failed", error="out of memory")
DIVERGED = Record("diverged", error="loss was not finite")


def make_job(seed: int = 0) -> Job:
    return Job("G-cg-q-12o", "compression", {"vocab_size": 16, "seq_len": 32}, seed=seed)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


def tree(store: Store) -> list[str]:
    """Every file and empty folder of the store."""
    paths = sorted(store.root.rglob("*"))
    return [str(path.relative_to(store.root)) for path in paths if path.is_file() or not any(path.iterdir())]


def run_tree(job: Job) -> list[str]:
    return [f"runs/{job.id}/{name}" for name in ("curve.csv", "job.json", "record.json")]


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
    assert tree(store) == ["runs", "work"]


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


def test_a_result_removes_the_checkpoint_and_a_failure_keeps_it(store):
    with store.claim(make_job()) as work:
        (work / "checkpoint.pt").write_bytes(b"state")
        store.finish(make_job(), FAILED)
    with store.claim(make_job()) as work:
        assert (work / "checkpoint.pt").read_bytes() == b"state"
        store.finish(make_job(), RECORD)
    assert tree(store) == [*run_tree(make_job()), "work"]


def test_a_claim_afresh_begins_without_the_checkpoint(store):
    with store.claim(make_job()) as work:
        (work / "checkpoint.pt").write_bytes(b"state")
    with store.claim(make_job(), afresh=True) as work:
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


def test_missing_keeps_the_order_and_names_each_job_once(store):
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


def test_a_claimed_job_is_busy_for_everyone_else_and_free_afterwards(store):
    other = Store(store.root)
    with store.claim(make_job()) as work:
        assert work.is_dir()
        for attempt in (other.claim(make_job()), store.claim(make_job())):
            with pytest.raises(StoreBusyError), attempt:
                pytest.fail("two owners")
        with pytest.raises(StoreBusyError):
            other.finish(make_job(), RECORD)
        with other.claim(make_job(1)):
            pass
        (work / "checkpoint.pt").write_bytes(b"state")
    with other.claim(make_job()) as work:
        assert (work / "checkpoint.pt").read_bytes() == b"state"


def test_a_claim_without_a_checkpoint_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError), store.claim(make_job()):
        raise ZeroDivisionError
    assert tree(store) == ["runs", "work"]


def test_a_claim_ends_with_its_process_and_its_leftovers_are_swept(store):
    code = (
        "import sys, time; from madbench.runs import *; from madbench.jobs import *\n"
        "with Store(sys.argv[1]).claim(Job.from_dict(eval(sys.argv[2]))) as work:\n"
        "    (work / 'run.tmp').mkdir(); (work / '.checkpoint.pt.1a.tmp').touch(); (work / 'checkpoint.pt').touch()\n"
        "    print('claimed', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(store.root), repr(make_job().to_dict())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        with pytest.raises(StoreBusyError), store.claim(make_job()):
            pytest.fail("two owners")
        process.kill()
    with store.claim(make_job()) as work:
        assert sorted(os.listdir(work)) == ["checkpoint.pt", "lock"]


def test_never_two_owners_while_work_folders_come_and_go(store):
    owners, overlaps = [], []

    def claim_often():
        mine = Store(store.root)
        claims = 0
        while claims < 30:
            try:
                with mine.claim(make_job()):
                    owners.append(1)
                    if len(owners) > 1:
                        overlaps.append(1)
                    time.sleep(0)
                    owners.pop()
                    claims += 1
            except StoreBusyError:
                pass

    threads = [threading.Thread(target=claim_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not overlaps
    assert tree(store) == ["runs", "work"]


STEPS = ["fsync", "rename", "mkdir", "unlink", "rmdir"]


def in_child(action) -> int:
    """Runs ``action`` in a fork of this process; the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_call(monkeypatch, function: str, n: int, action) -> None:
    """Lets the n-th call (from 0) of ``os.<function>`` do ``action`` instead."""
    original, calls = getattr(os, function), iter(range(10_000))

    def patched(*args, **kwargs):
        if next(calls) == n:
            action()
        return original(*args, **kwargs)

    monkeypatch.setattr(os, function, patched)


@pytest.mark.parametrize("earlier", [None, FAILED], ids=["new", "retry"])
@pytest.mark.parametrize("function", STEPS)
def test_a_kill_at_any_step_leaves_a_store_that_loads_and_can_go_on(tmp_path, monkeypatch, function, earlier):
    for n in itertools.count():
        store = Store.open(tmp_path / str(n))
        store.finish(make_job(1), RECORD)
        if earlier:
            store.finish(make_job(), earlier)

        def finish(store=store, n=n):
            with store.claim(make_job()) as work:
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
            with store.claim(make_job()) as work:
                assert (work / "checkpoint.pt").read_bytes() == b"state"
                store.finish(make_job(), RECORD)
        assert store.read(make_job().id).record == RECORD
        assert tree(store) == sorted([*run_tree(make_job()), *run_tree(make_job(1)), "work"])
        if not was_killed:
            break
    assert n >= 1


@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_a_disk_full_at_any_step_is_an_error_and_loses_nothing(tmp_path, monkeypatch, function):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    failures = 0
    for n in range(8):
        store = Store.open(tmp_path / str(n))
        store.finish(make_job(1), RECORD)
        with store.claim(make_job()) as work:
            (work / "checkpoint.pt").write_bytes(b"state")
            with monkeypatch.context() as patch:
                at_call(patch, function, n, fail)
                try:
                    store.finish(make_job(), RECORD)
                except StoreError as error:
                    failures += 1
                    assert f"runs/{make_job().id}: no space left for" in str(error)
            assert not (work / "run.tmp").exists()
            store.finish(make_job(), RECORD)
        assert [run.record for run in store.runs()] == [RECORD, RECORD]
    assert failures >= 1


def test_all_files_are_on_disk_before_the_run_has_its_name_and_that_before_the_checkpoint_goes(store, monkeypatch):
    def name_of(descriptor):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    log = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (log.append(name_of(fd)), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda *paths: (rename(*paths), log.append("rename")))
    monkeypatch.setattr(runs, "_remove_content", lambda work: log.append(f"remove {sorted(os.listdir(work))}"))
    with store.claim(make_job()) as work:
        (work / "checkpoint.pt").touch()
        store.finish(make_job(), RECORD)
    files = ["job.json", "record.json", "curve.csv"]
    assert log == [*files, "run.tmp", "rename", "runs", "remove ['checkpoint.pt', 'lock']"]


def test_opening_drops_the_work_of_a_stored_run_and_keeps_all_other(store):
    for seed, record in enumerate([RECORD, FAILED, None]):
        if record:
            store.finish(make_job(seed), record)
        (store.root / "work" / make_job(seed).id).mkdir(exist_ok=True)
        (store.root / "work" / make_job(seed).id / "checkpoint.pt").touch()
    Store.open(store.root)
    assert sorted(os.listdir(store.root / "work")) == sorted([make_job(1).id, make_job(2).id])


def test_opening_for_reading_needs_a_results_folder_and_writes_nothing(tmp_path):
    with pytest.raises(StoreError, match="there is no such results folder"):
        Store.open(tmp_path / "absent", create=False)
    with pytest.raises(StoreError, match="holds no folder 'runs'"):
        Store.open(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []
    Store.open(tmp_path).finish(make_job(), RECORD)
    shutil.rmtree(tmp_path / "work")
    assert len(list(Store.open(tmp_path, create=False).runs())) == 1
    assert os.listdir(tmp_path) == ["runs"]


@pytest.mark.parametrize("inside", [".", "results"])
def test_a_file_in_the_place_of_the_folder_is_a_store_error(tmp_path, inside):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="a file is where a folder should be"):
        Store.open(tmp_path / "file" / inside)
    for create in (True, False):
        with pytest.raises(StoreError):
            Store.open(tmp_path / "file", create=create)


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
        return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0

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
