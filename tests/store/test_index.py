"""The index agrees with the run folders, whatever happens to either."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.files import remove
from madbench.jobs import Record
from madbench.store import index as run_index
from madbench.store import reading
from madbench.store.columns import entry_of, stamp
from madbench.store.format import NAMES, encode
from madbench.store.index import RunIndex
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from stored_samples import comparable_content, make_job, records

JOBS = [make_job(seed) for seed in range(4)]
RECORDS = [
    Record("finished", {"accuracy": 0.5 + 0.01 * n}, [{"epoch": 1}], {"path": "sdpa", "versions": {"torch": "2"}})
    for n in range(10)
]


@pytest.fixture
def store(tmp_path) -> Store:
    """A store without an index, as after its runs were written."""
    store = Store.open(tmp_path / "results")
    for job in JOBS:
        store.finish(job, RECORDS[0])
    next_tick(store.root)
    return store


def next_tick(folder: Path) -> None:
    """Wait until the clock of the file system has advanced."""
    path = folder / "clock"
    path.touch()
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        path.touch()
    path.unlink()


def answers(store: Store) -> tuple:
    """Everything that a table reads from the store."""
    listed = [(run.folder, run.job, repr(run.record)) for run in store.runs(with_curves=False)]
    problems = list(store.problems)
    return listed, problems, store.missing(JOBS), sorted(store.records([job.id for job in JOBS]))


def answers_of_files(store: Store) -> tuple:
    """Everything that a table reads, from the files alone: the index is put aside."""
    folder, aside = index_of(store).parent, store.root / "aside"
    if folder.exists():
        folder.rename(aside)
    found = answers(store)
    remove(folder)
    if aside.exists():
        aside.rename(folder)
    return found


def index_of(store: Store) -> Path:
    return store.root / "index" / "runs.sqlite"


def indexed_names(store: Store) -> set[str]:
    """The names of the runs in the index."""
    with closing(sqlite3.connect(index_of(store))) as index:  # a writer whose connection is the last one ends the log
        return {name for (name,) in index.execute("SELECT name FROM runs")}


def watch_reads(monkeypatch) -> list[str]:
    """The names of the folders that are read from now on."""
    names = []
    read = reading.read_run
    monkeypatch.setattr(reading, "read_run", lambda folder, *words: names.append(folder.name) or read(folder, *words))
    return names


def test_runs_are_read_once_and_then_only_looked_up(store, monkeypatch):
    first = answers(store)
    assert first == answers_of_files(store)
    names = watch_reads(monkeypatch)
    assert answers(Store(store.root)) == first and names == []


@pytest.mark.slow
@settings(max_examples=20)
@given(runs=st.lists(records, max_size=4))
def test_an_indexed_record_is_the_stored_one_to_the_type(runs):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_index, "present_tick", lambda path: path.mkdir(exist_ok=True) or "")
        store = Store.open(folder)
        for seed, record in enumerate(runs):
            store.finish(make_job(seed), record)
        stored = [(run.job, comparable_content(run.record)) for run in store.runs(with_curves=False)]
        names = watch_reads(patch)
        looked_up = [(run.job, comparable_content(run.record)) for run in store.runs(with_curves=False)]
        assert looked_up == stored and names == []
        assert [job.id for job, _ in looked_up] == sorted(make_job(seed).id for seed in range(len(runs)))


def test_a_run_joins_the_index_when_it_is_stored(store, monkeypatch):
    """The run enters an existing index with its columns, once its files can no longer change unnoticed."""
    new = make_job(7)
    answers(store)
    with monkeypatch.context() as patch:
        patch.setattr(run_index, "present_tick", lambda folder: str(curve_of(store, new).stat().st_ctime_ns))
        store.finish(new, RECORDS[1])
        assert new.id not in indexed_names(store)
    with monkeypatch.context() as patch:
        patch.setattr(run_index, "present_tick", lambda folder: "")
        store.finish(make_job(8), RECORDS[1])
    assert {new.id, make_job(8).id} < indexed_names(store)
    monkeypatch.setattr(run_index, "present_tick", lambda folder: "")
    store.finish(new, RECORDS[2], replace=True)
    names = watch_reads(monkeypatch)
    found = {run.job.id: run.record for run in Store(store.root).runs(with_curves=False)}
    assert names == [] and found[new.id].metrics == RECORDS[2].metrics


def curve_of(store: Store, job) -> Path:
    return store.root / "runs" / job.id / "curve.csv"


def test_a_run_written_in_the_current_clock_tick_is_not_yet_indexed(store, monkeypatch):
    last = store.root / "runs" / JOBS[-1].id / "curve.csv"
    with monkeypatch.context() as patch:
        index_of(store).parent.mkdir()
        patch.setattr(run_index, "present_tick", lambda folder: str(last.stat().st_ctime_ns))
        answers(store)
    assert indexed_names(store) == {job.id for job in JOBS[:-1]}
    answers(store)
    assert indexed_names(store) == {job.id for job in JOBS}


def edit_in_place(path: Path) -> None:
    """Edit a file but keep its size and times.

    Only the change time of its inode differs, from the next clock tick on.
    """
    next_tick(path.parent)
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7").replace(b"32", b"33"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "edited": edit_in_place,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "deleted": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "swapped for another run's": lambda path: shutil.copy(path.parent.parent / JOBS[0].id / path.name, path),
    "of another time": lambda path: os.utime(path, (0, 0)),
    "of the far future": lambda path: os.utime(path, (2**33, 2**33)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_any_file_is_noticed(store, monkeypatch, name, change):
    answers(store)
    change(store.root / "runs" / JOBS[1].id / name)
    assert answers(store) == answers_of_files(store)


actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "replace", "fail", "delete", "edited", "cut", "look", "drop index", "damage index", "copy"]
        ),
        st.sampled_from(range(len(JOBS))),
        st.sampled_from(range(len(RECORDS))),
        st.sampled_from(NAMES),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=15)
@given(actions=actions)
def test_the_index_agrees_with_the_files_after_any_changes(actions):
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        for action, i, n, name in actions:
            run, job = store.root / "runs" / JOBS[i].id, JOBS[i]
            if action == "write":
                store.finish(job, RECORDS[n])
            elif action == "replace":
                store.finish(job, RECORDS[n], replace=True)
            elif action == "fail":
                store.finish(job, Record("failed", error=f"crash {n}"))
            elif action == "delete":
                remove(run)
            elif action == "look":
                answers(store)
            elif action == "drop index":
                remove(store.root / "index")
            elif action == "damage index" and index_of(store).is_file():
                content = bytearray(index_of(store).read_bytes())
                content[97 * n % len(content)] ^= 1
                index_of(store).write_bytes(content)
            elif action == "copy" and run.is_dir() and i:
                remove(store.root / "runs" / JOBS[0].id)
                shutil.copytree(run, store.root / "runs" / JOBS[0].id)
            elif action in ("edited", "cut") and (run / name).is_file():
                CHANGES[action](run / name)
            assert answers(Store(folder)) == answers_of_files(store)


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = code
    return error


def refuse_with(error: Exception):
    def refuse(*_, **__):
        raise error

    return refuse


def sqlite_file(path: Path, *statements: str) -> bytes:
    with closing(sqlite3.connect(path)) as index, index:
        for statement in statements:
            index.execute(statement)
    return path.read_bytes()


GARBAGE = {
    "empty": lambda path: b"",
    "text": lambda path: b"[]\n" * 5000,
    "half": lambda path: path.read_bytes()[: path.stat().st_size // 2],
    "another's": lambda path: sqlite_file(path.with_name("x"), "CREATE TABLE other (x)"),
    "of other columns": lambda path: sqlite_file(
        path.with_name("x"), "CREATE TABLE runs (x)", "CREATE TABLE texts (y)"
    ),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_in_the_place_of_the_index_is_written_over(store, monkeypatch, garbage):
    answers(store)
    index_of(store).write_bytes(garbage(index_of(store)))
    store.records([job.id for job in JOBS])
    assert indexed_names(store) == {job.id for job in JOBS}, "by the first that reads it"
    assert answers(store) == answers_of_files(store)


@pytest.mark.slow
def test_no_flipped_bit_of_the_index_is_read_as_another_result(store, monkeypatch):
    expected = answers(store)
    content, generator = index_of(store).read_bytes(), random.Random(0)
    for _ in range(50):
        changed = bytearray(content)
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        index_of(store).write_bytes(changed)
        assert answers(store) == expected


def test_altered_rows_of_the_index_are_not_used(store):
    expected = answers(store)
    with closing(sqlite3.connect(index_of(store))) as index, index:
        index.execute("UPDATE runs SET content = replace(content, '0.5', '0.9')")
        index.execute("UPDATE runs SET shared = replace(shared, '32', '64')")
    assert answers(store) == expected


@pytest.mark.parametrize("column", ["shared", "content", "seed"])
@pytest.mark.parametrize("value", ["[" * 200_000, "[]", "3", '["S", 0, "finished", {}, null, ""]', 7, None, b"[]"])
def test_malformed_rows_with_a_right_digest_are_not_used(store, monkeypatch, column, value):
    expected = answers(store)
    with closing(sqlite3.connect(index_of(store))) as index, index:
        columns = run_index._COLUMNS[:-1]
        row = list(index.execute(f"SELECT {', '.join(columns)} FROM runs WHERE name = ?", [JOBS[0].id]).fetchone())
        row[columns.index(column)] = value
        new = [value, run_index.row_digest(run_index.index_version(), row), JOBS[0].id]
        index.execute(f"UPDATE runs SET {column} = ?, digest = ? WHERE name = ?", new)
    assert answers(Store(store.root)) == expected


def test_other_programs_can_read_the_columns_of_the_index(tmp_path):
    """Tested also for a run with overrides, and for a run whose family is not installed."""
    store = Store.open(tmp_path / "results")
    quick = MAD.Profile.load("quick")
    (usual,) = MAD.jobs(["S"], quick, tasks=["compression"], seeds=[3])
    (changed,) = MAD.jobs(["R-c"], MAD.Profile.load("quick", ["training.epochs=7"]), tasks=["compression"])
    absent = replace(changed, label="gone:x", family="1")
    for job in (usual, changed, absent):
        store.finish(job, RECORDS[0])
    next_tick(store.root)
    answers(store)
    wanted = ["label", "seed", "suite", "task", "profile", "changes", "budget", "precision", "corpus"]
    with closing(sqlite3.connect(index_of(store))) as index, index:
        rows = {row[0]: row[1:] for row in index.execute(f"SELECT {', '.join(wanted)} FROM runs")}
    place, rest = ("mad", "compression"), ("strict", "float32", "")
    assert rows["S"] == (3, *place, "quick", "", *rest)
    assert rows["R-c"] == (0, *place, "quick", "training.epochs=7", *rest)
    assert rows["gone:x"] == (0, *place, "", "", *rest)
    snapshot = Snapshot.open(store.root)
    entries = [snapshot.jobs() and snapshot.index_entries[job.id] for job in (usual, absent)]
    assert entries == [entry_of(job, RECORDS[0]) for job in (usual, absent)]
    assert [(entry.is_known, entry.run_code is None) for entry in entries] == [(1, False), (0, True)]


@pytest.mark.parametrize("columns", ["", "suite, task, profile, changes, "])
def test_an_index_of_an_earlier_version_is_rebuilt(store, monkeypatch, columns):
    expected = answers_of_files(store)
    answers(store)
    with closing(sqlite3.connect(index_of(store))) as index, index:
        index.execute(f"CREATE TABLE earlier AS SELECT name, signature, shared, content, {columns}digest FROM runs")
        index.execute("DROP TABLE runs")
        index.execute("ALTER TABLE earlier RENAME TO runs")
    assert RunIndex(store.root).problems({job.id for job in JOBS}) == []
    assert answers(store) == expected
    names = watch_reads(monkeypatch)
    assert answers(store) == expected and names == []


def test_columns_are_out_of_date_after_a_file_of_the_package_changed(tmp_path, monkeypatch):
    """Tested also if the change keeps the size and the modification time of the file."""
    published = tmp_path / "published.csv"
    published.write_text("S,0.5,32")
    monkeypatch.setattr("madbench.store.columns.TASKS", tmp_path)
    before = stamp()
    assert stamp() == before
    edit_in_place(published)
    assert stamp() != before


def test_index_columns_are_rebuilt_if_profiles_change(store, monkeypatch):
    answers(store)
    monkeypatch.setattr("madbench.store.columns.stamp", lambda: "of other profiles")
    names = watch_reads(monkeypatch)
    answers(store)
    assert set(names) == {job.id for job in JOBS}


def test_rows_of_another_version_are_not_used(store, monkeypatch):
    answers(store)
    monkeypatch.setattr(run_index, "VERSION", "99")
    names = watch_reads(monkeypatch)
    answers(store)
    assert set(names) == {job.id for job in JOBS}
    names.clear()
    answers(store)
    assert names == []


@pytest.mark.parametrize("obstacle", ["a file", "a folder", "a pipe", "locked", "no locks", "no probe"])
def test_files_are_read_if_the_index_cannot_be_written(store, monkeypatch, obstacle):
    expected = answers_of_files(store)
    folder = store.root / "index"
    monkeypatch.setattr(run_index, "TIMEOUT", 0.01)
    if obstacle == "a file":
        folder.write_text("x")
    elif obstacle == "a folder":
        index_of(store).mkdir(parents=True)
    elif obstacle == "a pipe":
        folder.mkdir()
        os.mkfifo(index_of(store))  # to read it would wait for ever
    elif obstacle == "locked":
        folder.mkdir()
        with closing(sqlite3.connect(index_of(store))) as index, index:
            index.execute("BEGIN EXCLUSIVE")
            assert answers(store) == expected
    elif obstacle == "no locks":
        monkeypatch.setattr(sqlite3, "connect", refuse_with(sqlite_error(sqlite3.SQLITE_PROTOCOL)))
    else:
        monkeypatch.setattr(run_index.tempfile, "TemporaryFile", refuse_with(PermissionError()))
    assert answers(store) == expected
    assert index_of(store).is_file() == (obstacle in ("a folder", "a pipe", "locked"))  # which is a cache: made anew


def test_a_reader_without_the_right_to_write_uses_the_index(store, monkeypatch):
    expected = answers(store)
    connect = sqlite3.connect

    def read_only(address, *words, **more):
        if "immutable" not in address:
            raise sqlite_error(sqlite3.SQLITE_CANTOPEN)
        return connect(address, *words, **more)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    names = watch_reads(monkeypatch)
    assert answers(store) == expected and names == []


@pytest.mark.slow
def test_killing_an_index_writer_at_any_time_loses_nothing(store, monkeypatch):
    expected = answers(store)
    for n in range(8):
        pid = os.fork()
        if pid == 0:
            while True:
                remove(store.root / "index") if n % 2 else None
                monkeypatch.setattr(run_index, "VERSION", str(time.time_ns()))
                answers(store)
        time.sleep(0.002 + 0.006 * n)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert answers(store) == expected
        assert answers(store) == expected


@pytest.mark.slow
def test_processes_that_write_the_index_at_once_leave_a_sound_one(store, monkeypatch):
    expected = answers_of_files(store)
    children = []
    for i in range(4):
        children.append(os.fork())
        if not children[-1]:
            for _ in range(8):
                if i < 2:
                    remove(index_of(store))
                if answers(store) != expected:
                    os._exit(1)
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    for _ in range(3):
        assert answers(store) == expected
    assert indexed_names(store) == {job.id for job in JOBS}


def test_a_moved_store_keeps_its_index_and_a_copied_one_does_not_trust_it(store, monkeypatch):
    first = answers(store)
    moved = Store(store.root.rename(store.root.with_name("moved")))
    names = watch_reads(monkeypatch)
    assert [job for _, job, _ in answers(moved)[0]] == [job for _, job, _ in first[0]]
    assert names == []
    copied = Store(shutil.copytree(moved.root, moved.root.with_name("copied")))
    answers(copied)
    assert len(names) >= len(JOBS)


def test_jobs_from_the_index_equal_the_stored_ones(store, monkeypatch):
    """Model and training settings of the job are made only when needed, also in another process."""
    answers(store)
    names = watch_reads(monkeypatch)
    indexed_jobs = Snapshot.open(store.root).jobs()
    assert names == [] and not any("model" in vars(job) for job in indexed_jobs.values())
    assert [indexed_jobs[job.id].rates for job in JOBS] == [job.rates for job in JOBS]
    for job in JOBS:
        other = pickle.loads(pickle.dumps(indexed_jobs[job.id]))
        assert other == indexed_jobs[job.id] == job
        assert replace(other, seed=9).id == replace(job, seed=9).id


def test_the_state_of_the_code_comes_from_the_newest_record(store, monkeypatch):
    answers(store)
    job, digests = JOBS[0], {"package_code": {"family": "0" * 16}}
    changed = replace(RECORDS[1], details=digests)
    for patch in (lambda folder: "", lambda folder: str(curve_of(store, job).stat().st_ctime_ns)):
        monkeypatch.setattr(run_index, "present_tick", patch)
        store.finish(job, changed, replace=True)
        found = Store(store.root)
        records = {run.job.id: run.record for run in found.runs(with_curves=False)}
        states = [found.run_code(each, records[each.id].details).state for each in JOBS]
        assert states == ["other", *["same"] * (len(JOBS) - 1)]
        changed = replace(changed, metrics={"accuracy": 0.1})


def test_a_run_that_can_no_longer_be_read_has_no_entry(store):
    job, *others = (job.id for job in JOBS)
    for damage in (lambda path: None, lambda path: path.write_text("{")):
        damage(store.root / "runs" / job / "record.json")
        assert store.records([job, *others]).keys() == store.index_entries.keys()
    assert store.index_entries.keys() == {*others}


def test_runs_have_an_entry_if_the_index_cannot_be_written(store):
    (store.root / "index").write_text("a file")
    snapshot = Snapshot.open(store.root)
    assert snapshot.jobs().keys() == snapshot.index_entries.keys() == {job.id for job in JOBS}


def test_files_and_folders_that_are_not_runs_are_named_with_and_without_the_index(store):
    (store.root / "runs" / "notes.txt").write_text("x")
    files = encode(JOBS[0], RECORDS[0])
    (store.root / "runs" / "0123456789abcdef").mkdir()
    for name, content in files.items():
        (store.root / "runs" / "0123456789abcdef" / name).write_bytes(content)
    for _ in range(2):
        assert len(list(store.runs(with_curves=False))) == len(JOBS)
        assert len(store.problems) == 2
