"""The index answers as the folders do, whatever becomes of either."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madbench.errors import StoreError
from madbench.files import remove
from madbench.jobs import Job, Record
from madbench.store import index as run_index
from madbench.store.format import NAMES, encode
from madbench.store.runs import Store

JOBS = [Job("S", "compression", {"vocab_size": 16, "seq_len": 32, "ratio": 1.0}, seed=seed) for seed in range(4)]
RECORDS = [Record("finished", {"accuracy": 0.5 + 0.01 * n}, [{"epoch": 1}], {"path": "sdpa"}) for n in range(10)]


@pytest.fixture(autouse=True)
def index_everything(monkeypatch):
    """A store of one run is worth an index, and every run in it was written before the present tick."""
    monkeypatch.setattr(run_index, "WORTH_INDEXING", 1)


@pytest.fixture
def written(tmp_path) -> Store:
    """A store with the index that its writer leaves."""
    store = Store.open(tmp_path / "results")
    for job in JOBS:
        store.finish(job, RECORDS[0])
    return store


@pytest.fixture
def store(written) -> Store:
    """A store without an index, as a copied one is."""
    shutil.rmtree(written.root / "index")
    next_tick(written.root)
    return written


def next_tick(folder: Path) -> None:
    """Waits until the file system's clock shows another time than it shows now."""
    path = folder / "clock"
    path.touch()
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        path.touch()
    path.unlink()


def answers(store: Store) -> tuple:
    """Everything that a table reads of the store."""
    listed = [(run.folder, run.job, repr(run.record)) for run in store.runs(with_curves=False)]
    problems = list(store.problems)
    return listed, problems, store.missing(JOBS), sorted(store.records([job.id for job in JOBS]))


def answers_of_files(store: Store, monkeypatch) -> tuple:
    with monkeypatch.context() as patch:
        patch.setattr(run_index, "WORTH_INDEXING", 10**9)
        return answers(store)


def index_of(store: Store) -> Path:
    return store.root / "index" / "runs.jsonl"


def reads(monkeypatch) -> list[str]:
    """The names of the folders that are read from now on."""
    names = []
    files = Store._files
    monkeypatch.setattr(Store, "_files", lambda self, name: names.append(name) or files(self, name))
    return names


def test_runs_are_read_once_and_then_only_looked_up(store, monkeypatch):
    first = answers(store)
    names = reads(monkeypatch)
    assert answers(Store.open(store.root, create=False)) == first == answers_of_files(store, monkeypatch)
    assert len(names) == 3 * len(JOBS)  # those that the files were asked for


def test_the_writer_leaves_an_index_of_its_runs(written, monkeypatch):
    names = reads(monkeypatch)
    first = answers(written)
    assert names == []
    assert first == answers_of_files(written, monkeypatch)


def test_many_lines_are_made_one_and_a_torn_one_costs_only_itself(written, monkeypatch):
    index = index_of(written)
    first, *lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(first[:-5] + b"".join(lines))
    assert run_index.load(index) == run_index.Index({job.id: ANY for job in JOBS[2:]}, len(JOBS) - 1)
    monkeypatch.setattr(run_index, "WORTH_INDEXING", 2)
    answers(written)
    assert run_index.load(index) == run_index.Index({job.id: ANY for job in JOBS}, 1)
    for n in range(1, 4):
        written.finish(JOBS[0], RECORDS[n], replace=True)
    monkeypatch.setattr(run_index, "MOST_LINES", 4)
    remove(written.root / "runs" / JOBS[3].id)
    assert answers(written) == answers_of_files(written, monkeypatch)
    entries, lines = run_index.load(index)
    assert lines == 1 and set(entries) == {job.id for job in JOBS[:3]}
    assert entries[JOBS[0].id].record.metrics == RECORDS[3].metrics


def test_many_lines_are_made_one_beside_a_damaged_run(written, monkeypatch):
    (written.root / "runs" / JOBS[0].id / "curve.csv").unlink()
    monkeypatch.setattr(run_index, "MOST_LINES", len(JOBS))
    assert answers(written) == answers_of_files(written, monkeypatch)
    assert run_index.load(index_of(written)).lines == 1


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_in_the_tick_of_the_writing_is_noticed(written, monkeypatch, name):
    for n in range(20):
        written.finish(JOBS[0], RECORDS[n % 10], replace=True)
        path = written.root / "runs" / JOBS[0].id / name
        path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7").replace(b"32", b"33").replace(b"epoch", b"epoxy"))
        assert answers(Store(written.root)) == answers_of_files(written, monkeypatch)


def test_a_run_written_in_the_present_tick_is_not_yet_trusted(store, monkeypatch):
    last = store.root / "runs" / JOBS[-1].id / "curve.csv"
    with monkeypatch.context() as patch:
        patch.setattr(run_index, "present_tick", lambda folder: str(last.stat().st_ctime_ns))
        answers(store)
    assert set(run_index.load(index_of(store)).entries) == {job.id for job in JOBS[:-1]}
    answers(store)
    assert set(run_index.load(index_of(store)).entries) == {job.id for job in JOBS}


def edit_in_place(path: Path) -> None:
    """The same size, and the times set back: only the time of the inode's change tells, from the next tick on."""
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
    assert answers(store) == answers_of_files(store, monkeypatch)


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


@settings(max_examples=25, deadline=None)
@given(actions=actions)
def test_the_index_answers_as_the_files_do_whatever_happens(actions):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_index, "WORTH_INDEXING", 1)
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
            assert answers(Store(folder)) == answers_of_files(store, patch)


@pytest.mark.parametrize("content", [b"", b"{}", b"\n", b"[]\n[]", b"\xff\xfe\0", b"{" * 100_000, b"null\n{}"])
def test_garbage_in_the_index_is_no_index(store, monkeypatch, content):
    answers(store)
    index_of(store).write_bytes(content)
    assert answers(store) == answers_of_files(store, monkeypatch)
    assert run_index.load(index_of(store)).entries


@pytest.mark.parametrize("name", ["FORMAT", "SCHEMA"])
def test_an_index_of_another_version_is_not_used(store, monkeypatch, name):
    answers(store)
    monkeypatch.setattr(run_index, name, 99)
    assert run_index.decode(index_of(store).read_bytes()).entries == {}


def refuse_with(error: Exception):
    def refuse(*_):
        raise error

    return refuse


@pytest.mark.parametrize("obstacle", ["a file", "a folder in its place", "busy", "forbidden", "full"])
def test_where_the_index_cannot_be_written_the_files_are_read(store, monkeypatch, obstacle):
    expected = answers_of_files(store, monkeypatch)
    folder = store.root / "index"
    if obstacle == "a file":
        folder.write_text("x")
    elif obstacle == "a folder in its place":
        index_of(store).mkdir(parents=True)
    elif obstacle == "busy":
        with run_index._locked(folder):
            assert answers(store) == expected
    elif obstacle == "forbidden":
        monkeypatch.setattr(run_index, "lock_folder", refuse_with(PermissionError()))
    else:
        monkeypatch.setattr(run_index, "write_atomically", refuse_with(StoreError("no space left")))
    assert answers(store) == expected
    assert obstacle == "busy" or not index_of(store).is_file()


def test_a_writer_killed_in_the_middle_leaves_nothing_for_long(store, monkeypatch):
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        answers(store)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert len(os.listdir(store.root / "index")) == 2
    assert answers(store) == answers_of_files(store, monkeypatch)
    assert sorted(os.listdir(store.root / "index")) == ["lock", "runs.jsonl"]


def test_two_processes_that_write_the_index_at_once_leave_a_sound_one(store, monkeypatch):
    expected = answers_of_files(store, monkeypatch)
    children = []
    for _ in range(4):
        children.append(os.fork())
        if not children[-1]:
            for _ in range(20):
                (store.root / "index" / "runs.jsonl").unlink(missing_ok=True)
                if answers(store) != expected:
                    os._exit(1)
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert answers(store) == expected
    assert set(run_index.load(index_of(store)).entries) == {job.id for job in JOBS}


def test_a_moved_store_keeps_its_index_and_a_copied_one_does_not_trust_it(store, monkeypatch):
    first = answers(store)
    moved = Store(store.root.rename(store.root.with_name("moved")))
    names = reads(monkeypatch)
    assert [job for _, job, _ in answers(moved)[0]] == [job for _, job, _ in first[0]]
    assert names == []
    copied = Store(shutil.copytree(moved.root, moved.root.with_name("copied")))
    answers(copied)
    assert len(names) >= len(JOBS)


def test_a_few_runs_are_read_without_an_index(store, monkeypatch):
    monkeypatch.setattr(run_index, "WORTH_INDEXING", len(JOBS) + 1)
    answers(store)
    assert not (store.root / "index").exists()


def test_a_file_of_a_run_that_is_no_run_is_named_with_and_without_the_index(store):
    (store.root / "runs" / "notes.txt").write_text("x")
    files = encode(JOBS[0], RECORDS[0])
    (store.root / "runs" / "0123456789abcdef").mkdir()
    for name, content in files.items():
        (store.root / "runs" / "0123456789abcdef" / name).write_bytes(content)
    for _ in range(2):
        assert len(list(store.runs(with_curves=False))) == len(JOBS)
        assert len(store.problems) == 2
