"""Archived runs are imported unchanged, and archives have no failed or damaged runs and no paths of the machine."""

from __future__ import annotations

import io
import math
import os
import tarfile
from dataclasses import replace

import pytest

from madbench.errors import StoreError
from madbench.identity.text import short_digest, source_text
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.store.archive import pack, unpack
from madbench.store.runs import Store, StoreBusyError
from stored_samples import FAILED, RECORD, make_job, run_tree, tree

DIVERGED = Record("diverged", {"test_loss": math.nan}, error="loss was not finite at step 3")


@pytest.fixture
def store(tmp_path) -> Store:
    """Three runs with a result, one of them measured and with weights."""
    store = Store.open(tmp_path / "mine")
    with store.lock(make_job(0)) as work:
        (work / KEEP).mkdir()
        (work / KEEP / WEIGHTS).write_bytes(b"weights" * 1000)
        store.finish(make_job(0), RECORD)
    store.measure(make_job(0).id, "evaluation", {"validation_loss": 1.5}, settings={"seq_len": 32})
    store.finish(make_job(1), DIVERGED)
    store.finish(make_job(2), RECORD)
    return store


@pytest.fixture
def ids(store) -> list[str]:
    return store.job_ids()


@pytest.fixture
def other(tmp_path) -> Store:
    return Store.open(tmp_path / "theirs")


@pytest.fixture
def path(tmp_path, store, ids):
    pack(store, ids, tmp_path / "runs.tar.xz")
    return tmp_path / "runs.tar.xz"


def rewrite_archive(path, change) -> None:
    """Write the archive again with each member and its content as ``change`` gives them; None drops it."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member).read()) for member in archive]
    with tarfile.open(path, "w:xz") as archive:
        for member, content in filter(None, (change(*pair) for pair in members)):
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if member.isfile() else None)


def test_a_known_run_receives_the_measurements_that_it_lacks(other, path):
    job = make_job(0)
    other.finish(job, RECORD)
    other.measure(job.id, "speed", {"tokens": 2.0})
    assert unpack(path, other).already_stored == [job.id]
    found = {measured.name: measured.values for measured in other.measurements(job.id)}
    assert found == {"evaluation": {"validation_loss": 1.5}, "speed": {"tokens": 2.0}}
    other.measure(job.id, "evaluation", {"validation_loss": 9.0}, settings={"seq_len": 32})
    unpack(path, other)
    assert {"validation_loss": 9.0} in [measured.values for measured in other.measurements(job.id)], "it stays"


@pytest.mark.parametrize("with_weights", [False, True])
def test_runs_unpacked_from_an_archive_equal_the_packed_ones_bit_for_bit(store, other, tmp_path, ids, with_weights):
    pack(store, ids, tmp_path / "a.tar.xz", **{"with_weights": True} if with_weights else {})
    report = unpack(tmp_path / "a.tar.xz", other)
    assert (report.added, report.already_stored, report.conflicts, report.problems) == (ids, [], [], [])
    for job_id in ids:
        assert repr(other.read(job_id).record) == repr(store.read(job_id).record)
        assert other.measurements(job_id) == store.measurements(job_id)
        assert other.problems_of(job_id) == []
    assert other.has_weights(make_job(0).id) == with_weights
    if with_weights:
        assert tree(other) == tree(store)
        assert other.kept_file(make_job(0).id, WEIGHTS).read_bytes() == b"weights" * 1000


def test_archives_of_equal_runs_have_equal_bytes_in_any_order_of_storing(store, other, tmp_path, path, ids):
    unpack(path, other)
    (tmp_path / "again").mkdir()
    pack(other, reversed(ids), tmp_path / "again" / path.name)
    assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_an_unpacked_tar_file_is_a_results_folder(path, tmp_path, ids):
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "by_tar", filter="data")
    assert Store.open(tmp_path / "by_tar" / "runs", create=False).job_ids() == ids


def test_folders_of_the_machine_are_not_in_an_archive(store, other, tmp_path):
    corpus = {"name": "mine", "folder": "/home/somebody/corpora/mine", "tokenizer": "/home/somebody/tokenizer.json"}
    job = make_job(3)
    store.finish(job, replace(RECORD, details={"device": "cpu", "corpus": corpus}))
    pack(store, [job.id], tmp_path / "a.tar.xz")
    unpack(tmp_path / "a.tar.xz", other)
    kept = {"name": "mine", "tokenizer": "tokenizer.json"}
    assert other.read(job.id).record.details == {"device": "cpu", "corpus": kept}
    with tarfile.open(tmp_path / "a.tar.xz") as archive:
        assert all((m.mtime, m.uid, m.gid, m.uname, m.gname) == (0, 0, 0, "", "") for m in archive)


def test_paths_with_spaces_are_not_in_an_archive(store, other, tmp_path):
    folder = tmp_path / "my disk" / "a b"
    folder.mkdir(parents=True)
    texts = [
        f"{folder}/c.txt",
        f"{folder}",
        f"in {folder}/d e.txt: no such file",
        f"'{folder.parent}/x/y.txt'",
        "3 a/s",
    ]
    job = make_job(3)
    store.finish(job, replace(RECORD, details={"notes": texts}))
    pack(store, [job.id], tmp_path / "a.tar.xz")
    unpack(tmp_path / "a.tar.xz", other)
    expected = ["c.txt", "a b", "in d e.txt: no such file", "'x/y.txt'", "3 a/s"]
    assert other.read(job.id).record.details["notes"] == expected


def test_an_archive_has_no_paths_of_the_machine_without_an_option(store, other, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/some body")
    texts = ["/home/somebody/corpora/a.txt", "hf:/home/somebody/tok", "see ~/private/b.log", "at /srv/somebody/c: d"]
    texts += ["madbench @ file:///home/somebody/madbench", "file://host/home/somebody/d"]
    texts += ["/Users/somebody: full", "file:///home/somebody", "'/home/somebody'", "/srv/some body/e.txt", "/home.txt"]
    code = {"mixer": {"files": {texts[0]: 1, "a.txt": 2, "/home/somebody/a.txt": 3, "b/c.py": 4}}}
    job, more = make_job(3), {"more": {"in": texts[0]}, "code": code}
    store.finish(job, replace(RECORD, details={"notes": texts, "rate": "3 tokens/s"} | more))
    store.measure(job.id, "probe", {"value": 1.0}, {"source": texts[2], "page": "https://a.invalid/b/c"})
    pack(store, [job.id], tmp_path / "a.tar.xz")
    with tarfile.open(tmp_path / "a.tar.xz") as archive:
        content = b"".join(archive.extractfile(member).read() for member in archive)
    assert not any(name in content for name in (b"somebody", b"some body", b"private"))
    unpack(tmp_path / "a.tar.xz", other)
    details = other.read(job.id).record.details
    assert details == {
        "notes": ["a.txt", "hf:tok", "see b.log", "at c: d", "madbench @ madbench", "d"]
        + ["~: full", "~", "'~'", "~/e.txt", "/home.txt"],
        "rate": "3 tokens/s",
        "more": {"in": "a.txt"},
        "code": {"mixer": {"files": {"a.txt (2)": 1, "a.txt": 2, "a.txt (3)": 3, "b/c.py": 4}}},
    }
    (measured,) = other.measurements(job.id)
    assert measured.details == {"source": "see b.log", "page": "https://a.invalid/b/c"}
    assert other.problems_of(job.id) == []
    pack(store, [job.id], tmp_path / "b.tar.xz", with_folders=True)
    third = Store.open(tmp_path / "third")
    unpack(tmp_path / "b.tar.xz", third)
    assert third.read(job.id).record.details["notes"] == texts


def test_a_failed_run_is_not_packed(store, tmp_path):
    store.finish(make_job(4), FAILED)
    with pytest.raises(StoreError, match="failed and has no result"):
        pack(store, [make_job(4).id], tmp_path / "a.tar.xz")
    assert [*tmp_path.glob("*.xz")] == []


def test_a_damaged_run_is_not_packed(store, tmp_path, ids):
    (store.root / "runs" / ids[0] / "curve.csv").write_bytes(b"step\n1\n")
    with pytest.raises(StoreError, match="do not match their checksum"):
        pack(store, ids, tmp_path / "a.tar.xz")
    assert [*tmp_path.glob("*.xz")] == []


def test_unpacking_keeps_stored_results_and_reports_conflicts(path, other):
    other.finish(make_job(0), replace(RECORD, details={"device": "another"}))
    other.finish(make_job(1), DIVERGED)
    other.finish(make_job(2), Record("finished", {"test_accuracy": 0.5, "test_loss": 0.1}))
    report = unpack(path, other)
    assert sorted(report.already_stored) == sorted([make_job(0).id, make_job(1).id])
    assert (report.added, report.conflicts) == ([], [make_job(2).id])
    assert other.read(make_job(0).id).record.details == {"device": "another"}
    assert other.read(make_job(2).id).record.metrics["test_accuracy"] == 0.5


def test_a_run_that_failed_here_is_replaced_with_its_checkpoint(path, other):
    with other.lock(make_job(0)) as work:
        (work / "checkpoint.pt").write_bytes(b"state")
        other.finish(make_job(0), FAILED)
    assert make_job(0).id in unpack(path, other).added
    assert other.read(make_job(0).id).record == RECORD
    assert "work" in tree(other)


def test_an_altered_run_is_named_and_the_others_are_added(path, other, ids):
    def change(member, content):
        is_altered = member.name.endswith("record.json") and ids[1] in member.name
        return member, content.replace(b"0", b"1") if is_altered else content

    rewrite_archive(path, change)
    report = unpack(path, other)
    assert report.added == [ids[0], ids[2]] == other.job_ids()
    assert len(report.problems) == 1 and ids[1] in report.problems[0] and str(path) in report.problems[0]


def test_a_run_under_a_wrong_id_is_not_imported(path, other, ids):
    def change(member, content):
        member.name = member.name.replace(ids[0], "0123456789abcdef")
        return member, content

    rewrite_archive(path, change)
    report = unpack(path, other)
    assert report.added == ids[1:]
    assert "0123456789abcdef" in report.problems[0] and "delete" not in report.problems[0]


def link(member, content):
    if not member.name.endswith("curve.csv"):
        return member, content
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member, b""


def outside(member, content):
    member.name = member.name.replace("runs/runs/", "runs/runs/../../", 1)
    return member, content


@pytest.mark.parametrize("change", [link, outside])
def test_nothing_is_written_for_links_and_names_that_lead_outside(path, other, tmp_path, change):
    rewrite_archive(path, change)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="not a file of a run"):
        unpack(path, other)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 0.9])
def test_a_cut_archive_adds_nothing(path, other, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(StoreError, match="damaged, cut short, or no archive of runs"):
        unpack(path, other)
    assert tree(other) == ["runs", "work"]


def test_another_file_is_no_archive(tmp_path, other):
    (tmp_path / "book.txt").write_text("text " * 1000)
    with pytest.raises(StoreError, match="book.txt: damaged, cut short, or no archive"):
        unpack(tmp_path / "book.txt", other)
    with tarfile.open(tmp_path / "book.tar", "w") as archive:
        archive.add(tmp_path / "book.txt", "book.txt")
    with pytest.raises(StoreError, match="book.tar: holds no runs"):
        unpack(tmp_path / "book.tar", other)
    with pytest.raises(StoreError, match="absent.tar.xz: no such file"):
        unpack(tmp_path / "absent.tar.xz", other)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_an_interrupted_import_keeps_whole_runs_and_goes_on(path, other, ids, last, monkeypatch):
    adopt, done = Store.adopt, []

    def adopt_some(store, run):
        if len(done) == last:
            raise KeyboardInterrupt
        done.append(run.job.id)
        adopt(store, run)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "adopt", adopt_some)
        with pytest.raises(KeyboardInterrupt):
            unpack(path, other)
    assert other.job_ids() == done == ids[:last]
    assert not any((other.root / "work").iterdir())
    report = unpack(path, other)
    assert (report.already_stored, report.added) == (done, ids[last:])


def test_an_import_removes_the_files_of_a_killed_one(path, other, ids):
    left = other.root / "work" / "archive" / "unpacked" / "runs" / ids[0]
    left.mkdir(parents=True)
    (left / "job.json").write_text("{")
    assert unpack(path, other).added == ids
    assert not any((other.root / "work").iterdir())


def test_two_imports_at_once_are_refused(path, other):
    with other.lock("archive"), pytest.raises(StoreBusyError, match="another process"):
        unpack(path, Store(other.root))


def test_adopting_a_run_keeps_a_result_that_was_stored_meanwhile(store, other):
    other.finish(make_job(2), DIVERGED)
    other.adopt(store.read(make_job(2).id))
    assert other.read(make_job(2).id).record.status == "diverged"
    assert os.path.isdir(store.root / "runs" / make_job(2).id)
    assert tree(other) == [*run_tree(make_job(2)), "work"]


LISTING = {"files": {"own/mixer.py": ["", "*"], "own/gone.py": ["0" * 32, "*"]}, "data": {}}


@pytest.fixture
def run_with_code(tmp_path, store, monkeypatch) -> str:
    """A run that lists two files of code, of which one still exists unchanged."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mixer.py").write_text("scale = 2  # of all heads\n")
    monkeypatch.chdir(tmp_path)
    text = source_text(tmp_path / "own" / "mixer.py", tmp_path)
    listing = {**LISTING, "files": LISTING["files"] | {"own/mixer.py": [text.digest("*"), "*"]}}
    listing["content"] = {"own/mixer.py": short_digest(text.content)}
    job = make_job(9, "my:own.mixer.Mixer")
    store.finish(job, replace(RECORD, details={"code": {"mixer": listing}}))
    return job.id


def test_source_code_is_packed_as_text_and_stays_with_the_run(store, other, tmp_path, run_with_code):
    packed = pack(store, [run_with_code], tmp_path / "a.tar.xz")
    assert (packed.sources, packed.absent) == ({"own/mixer.py"}, {"own/gone.py"})
    assert unpack(tmp_path / "a.tar.xz", other).added == [run_with_code]
    assert other.kept_file(run_with_code, "source/own/mixer.py.txt").read_text() == "scale = 2  # of all heads\n"
    assert not other.problems_of(run_with_code) and not [*other.root.rglob("*.py")]
    (tmp_path / "own" / "mixer.py").write_text("scale = 3")
    assert pack(other, [run_with_code], tmp_path / "b.tar.xz").sources == {
        "own/mixer.py"
    }  # the text that came with the run
    assert pack(store, [run_with_code], tmp_path / "c.tar.xz").sources == set()
    none = pack(other, [run_with_code], tmp_path / "d.tar.xz", with_source=False)
    assert not none.sources and not none.absent
    unpack(tmp_path / "d.tar.xz", fresh := Store.open(tmp_path / "fresh"))
    assert not fresh.kept_files(run_with_code)


@pytest.mark.parametrize("place", ["{tmp}/secret.py", "../secret.py", "own/../../secret.py", "own/secret.txt"])
def test_no_file_outside_the_folder_of_the_code_is_packed(store, tmp_path, run_with_code, place):
    place = place.format(tmp=tmp_path)
    (tmp_path / place).write_text("key = 1")
    files = {each: source_text(tmp_path / each, tmp_path) for each in ("own/mixer.py", place)}
    listing = {"files": {each: [text.digest("*"), "*"] for each, text in files.items()}, "data": {}}
    job = make_job(10)
    store.finish(job, replace(RECORD, details={"code": {"mixer": listing}}))
    assert pack(store, [job.id], tmp_path / "a.tar.xz").sources == {"own/mixer.py"}


SECRET = '''import os
import torch

KEY = "secret"  # secret
"""secret"""


def scale(x):
    """A secret docstring."""
    return x * 2  # secret
'''


@pytest.mark.parametrize("names", [[], ["no_such_name"], ["os", "torch"], ["scale"]])
def test_a_foreign_record_gets_no_code_packed_beyond_what_its_digest_proves(store, tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.py").write_text(SECRET)
    guessed = tmp_path / "guessed.py"
    guessed.write_text("import os\nimport torch\ndef scale(x): return x*2")
    listing = {"files": {"private.py": [source_text(guessed, tmp_path).digest(names), names]}, "data": {}}
    job = make_job(11)
    store.finish(job, replace(RECORD, details={"code": {"mixer": listing}}))
    proven = {name for name in names if name != "no_such_name"}
    path = tmp_path / "a.tar.xz"
    assert pack(store, [job.id], path).sources == ({"private.py"} if proven else set())
    with tarfile.open(path) as archive:
        content = b"".join(archive.extractfile(each).read() for each in archive if each.name.endswith(".txt"))
    assert b"secret" not in content
    assert all(name.encode() in content for name in proven)


@pytest.mark.parametrize("name", ["evil.py", "source/evil.py", "source/evil.so", "weights.pt"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_run_with_files_that_the_format_does_not_know_is_left_out(store, other, path, ids, name, is_listed):
    with store.lock(make_job(0)) as work:
        (work / KEEP / name).parent.mkdir(parents=True, exist_ok=True)
        (work / KEEP / name).write_text("raise SystemExit")
        store.finish(make_job(0), RECORD, replace=True)
    if is_listed:
        pack(store, ids, path, with_weights=True)
    else:
        content = (store.root / "runs" / make_job(0).id / name).read_bytes()
        with tarfile.open(path) as archive:
            members = [(member, archive.extractfile(member).read()) for member in archive]
        members.append((tarfile.TarInfo(f"runs/runs/{make_job(0).id}/{name}"), content))
        with tarfile.open(path, "w:xz") as archive:
            for member, content in members:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    report = unpack(path, other)
    assert sorted(report.added) == sorted(set(ids) - {make_job(0).id})
    assert len(report.problems) == 1 and name.partition("/")[0] in report.problems[0]
