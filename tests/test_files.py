"""Files are written as a whole or not at all, and only ordinary files are read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess

import pytest

from madbench.errors import StoreError
from madbench.files import (
    MOST_DEPTH,
    UnfitFileError,
    lock_folder,
    output_file,
    parse_json,
    read_file,
    remove,
    write_atomically,
)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root and the mount capability")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def names(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_bytes_and_callables_are_written(tmp_path):
    write_atomically(tmp_path / "a", b"one")
    write_atomically(tmp_path / "b", lambda file: file.write(b"two"))
    assert (tmp_path / "a").read_bytes() == b"one"
    assert (tmp_path / "b").read_bytes() == b"two"
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("kind", ["pipe", "device", "large", "folder"])
def test_pipes_devices_folders_and_large_files_are_not_read(tmp_path, kind):
    path = tmp_path / "a"
    {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "large": lambda: path.write_bytes(bytes(1001)),
        "folder": path.mkdir,
    }[kind]()
    with pytest.raises(IsADirectoryError if kind == "folder" else UnfitFileError, match=str(path)):
        read_file(path, 1000)
    (tmp_path / "b").write_bytes(bytes(1000))
    assert read_file(tmp_path / "b", 1000) == bytes(1000)


def test_pipes_devices_and_folders_are_not_replaced(tmp_path):
    pipe, link, circle = tmp_path / "pipe", tmp_path / "link", tmp_path / "circle"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    circle.symlink_to(circle)
    for write in (write_atomically, lambda path, content: write_atomically(output_file(path), content)):
        with pytest.raises(StoreError, match=f"^{pipe}: not a regular file$"):
            write(pipe, b"new")
        with pytest.raises(StoreError, match=f"^{tmp_path}: is a directory$"):
            write(tmp_path, b"new")
    for path, problem in ((link, "not a regular file"), (circle, "too many levels of symbolic links")):
        with pytest.raises(StoreError, match=f"^{path}: {problem}$"):
            output_file(path)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode) and names(tmp_path) == ["circle", "link", "pipe"]


def test_only_an_output_follows_links(tmp_path):
    real, link, dangling = tmp_path / "real", tmp_path / "link", tmp_path / "dangling"
    real.write_bytes(b"previous")
    link.symlink_to("real")
    dangling.symlink_to("made")
    for path, target in ((link, "real"), (dangling, "made")):
        write_atomically(output_file(path), b"new")
        assert path.is_symlink() and (tmp_path / target).read_bytes() == b"new"
    write_atomically(link, b"newer")  # as in a results folder, in which a stranger may have made the link
    assert not link.is_symlink() and real.read_bytes() == b"new"


def test_a_reader_sees_the_previous_content_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"previous")

    def write(file):
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"previous"

    write_atomically(path, write)
    assert path.read_bytes() == b"new"


def test_a_failing_callable_leaves_only_the_previous_file(tmp_path):
    (tmp_path / "a").write_bytes(b"previous")

    def write(file):
        file.write(b"half")
        raise KeyError("bug")

    with pytest.raises(KeyError):
        write_atomically(tmp_path / "a", write)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"previous"


def test_a_full_disk_leaves_only_the_previous_file(tiny_disk):
    path = tiny_disk / "checkpoint"
    write_atomically(path, b"previous")
    for content in (bytes(100_000), lambda file: file.write(bytes(100_000))):
        with pytest.raises(StoreError, match=f"{path}: no space left"):
            write_atomically(path, content)
        assert names(tiny_disk) == ["checkpoint"]
        assert path.read_bytes() == b"previous"
    write_atomically(path, bytes(30_000))
    assert path.read_bytes() == bytes(30_000)


def test_a_limit_on_the_size_of_files_is_named(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="a: file too large for a limit of this process"):
        write_atomically(tmp_path / "a", b"new")


@pytest.mark.parametrize("name", ["x" * 5_000, "x" * 300])
def test_a_path_that_is_too_long_is_shown_in_part(tmp_path, name):
    with pytest.raises(StoreError, match=r"/x{1,200}\.\.\.: file name too long"):
        write_atomically(tmp_path / name, b"new")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_any_failing_step_leaves_the_previous_file_and_says_why(tmp_path, monkeypatch, function):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(b"previous")
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(StoreError, match="a: no space left for 3 bytes"):
        write_atomically(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"previous"


def test_a_missing_folder_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="no such file or directory"):
        write_atomically(tmp_path / "absent" / "a", b"new")


def test_remove_deletes_files_folders_and_links_but_no_link_targets(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "inner").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_text("x")
    for name in ("file", "link", "folder", "absent"):
        remove(tmp_path / name)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["inner"]


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def without_locks(request, monkeypatch):
    """A disk whose files cannot be locked, as NFS without its lock service."""

    def flock(descriptor, operation):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_disk_without_locks_is_named_with_advice(without_locks, tmp_path):
    from madbench.store.runs import Store, StoreBusyError
    from sample_jobs import mad_job

    with pytest.raises(StoreError, match="files cannot be locked on this disk: .*NFS.* or choose a folder") as caught:
        with Store.open(tmp_path).lock(mad_job("S")):
            pass
    assert str(tmp_path / "work") in str(caught.value) and not isinstance(caught.value, StoreBusyError)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Errno"):
        lock_folder(tmp_path / "folder")
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_preparing_a_corpus_on_a_disk_without_locks_is_an_error_of_the_user(without_locks, tmp_path):
    from madbench.text.prepare import prepare

    (tmp_path / "text.txt").write_text("words and words\n" * 100)
    with pytest.raises(StoreError, match="files cannot be locked on this disk"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "corpus")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_json_nested_too_deeply_is_refused_but_brackets_in_text_are_not():
    assert parse_json(nested(MOST_DEPTH)) and parse_json('["' + "[" * 1000 + '"]') == ["[" * 1000]
    for depth in (MOST_DEPTH + 1, 200_000):
        with pytest.raises(ValueError, match="nest deeper"):
            parse_json(nested(depth))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("NaN", "-Infinity", "1e999", "9" * 400), "NaN or too large"),
        (("9" * 5000,), "limit"),
        (('"\\ud800"', '{"\\udc80": 1}'), "surrogates"),
        (("[",), "Expecting"),
    ],
)
def test_json_that_code_could_trip_over_is_refused(texts, message):
    for text in texts:
        for json in (text, f'{{"a": [{text}]}}'):
            with pytest.raises(ValueError, match=message):
                parse_json(json)
