"""Files and folders: atomic and durable writes, JSON from untrusted files, and locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from madbench.errors import StoreError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers of locking on a file system without locks, such as NFS without its lock service."""
LOCK_ADVICE = "files cannot be locked on this disk: have its NFS mounted with locks, or choose a folder on another disk"
MOST_DEPTH = 64
"""Largest number of nested lists and objects in JSON. The files of this package nest at most 8."""
_TOO_DEEP = f"lists and objects nest deeper than {MOST_DEPTH} levels"
MOST_BYTES = 64 * 2**20
"""Default limit of :func:`read_file` in bytes. Parsed JSON takes about twenty times its size in memory."""
MOST_LETTERS = 200
"""The largest number of characters of a path that a message repeats, if the path is too long for the file system."""
MOST_NAME_BYTES = 200  # file systems allow 255; the name of a temporary file is slightly longer


def is_name(text: str) -> bool:
    """True if ``text`` can name a file in a folder.

    It must be printable, not blank, without ``/``, other than ``.`` and ``..``, and at most ``MOST_NAME_BYTES`` long.
    """
    is_plain = text.isprintable() and "/" not in text and text.strip() not in ("", ".", "..")
    return is_plain and len(text.encode()) <= MOST_NAME_BYTES


@contextmanager
def explain_os_errors(path: Path, size: int | None = None) -> Iterator[None]:
    """A context in which an ``OSError`` becomes a ``StoreError`` that explains the problem with ``path``.

    ``size`` is the number of bytes to be written, for the message about a full disk. None if it is not known.
    """
    try:
        yield
    except OSError as error:
        problem, shown = (error.strerror or str(error)).lower(), str(path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            need = "" if size is None else f" for {size} bytes"
            advice = "free some or choose a folder on another disk, and run again; stored runs are safe"
            problem = f"no space left{need}; {advice}"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            problem += "; choose another folder or mend its permissions"
        elif error.errno == errno.EFBIG:
            problem += " for a limit of this process (ulimit -f) or of the disk; raise it or choose another folder"
        elif error.errno in NO_LOCKS:
            problem += f"; {LOCK_ADVICE}"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            problem = "a file is where a folder should be; choose another folder"
        elif error.errno == errno.ENAMETOOLONG:
            shown = f"{shown[:MOST_LETTERS]}..."
        raise StoreError(f"{shown}: {problem}") from error


def write_atomically(path: Path | str, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Replace the file ``path`` with ``content`` in one step that survives a power cut.

    ``content`` is bytes, or a function that writes to an open binary file. It is called twice if another process
    deletes the temporary file to which it writes first. This happens if the process takes over the folder of a job
    whose worker is still running. After a failure the previous file is unchanged and no temporary file remains.

    A link is replaced, and the file to which it points is unchanged (:func:`output_file` follows links). Raises
    ``StoreError`` for an ``OSError``, such as a full disk, and if ``path`` is a pipe, a device or a folder.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    with explain_os_errors(path, len(content) if isinstance(content, bytes) else None):
        with suppress(FileNotFoundError):
            if not path.is_symlink():
                check_regular(path)
        try:
            write_durably(temporary, content)
            try:
                os.replace(temporary, path)
            except FileNotFoundError:
                write_durably(temporary, content)
                os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def output_file(path: Path) -> Path:
    """The file to write for a path that the user has named: the target of a link, otherwise ``path``.

    A file in a results folder is not looked up here, because a stranger may have made a link in it. Raises
    ``StoreError`` if ``path`` is or points to a pipe, a device or a folder.
    """
    with explain_os_errors(path), suppress(FileNotFoundError):
        check_regular(path)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


class UnfitFileError(OSError):
    """A file that cannot be read whole: a pipe or a device, which may never end, or a file that is too large."""


def check_regular(path: Path | str) -> None:
    """Raise ``OSError`` unless ``path`` is a regular file or a link to one.

    A file that is not regular, such as a pipe, could block its reader forever.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise UnfitFileError(errno.EINVAL, "Not a regular file", str(path))


def read_file(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file that may come from a stranger.

    Raises ``OSError`` if the file cannot be read. Raises ``UnfitFileError``, a subclass, if it is a pipe or a device,
    or has more than ``most`` bytes.
    """
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnfitFileError(errno.EFBIG, f"Larger than {most // 2**20} MB", str(path))
    return content


def file_state(state: os.stat_result) -> str:
    """The inode, size, time of modification and time of change of a file, as text.

    The text differs after every change of the file, except for two changes within one tick of the file system's clock.
    A program can set the time of modification, but not the time of change.
    """
    return f"{state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"


def file_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits. Raises ``OSError``."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(content: bytes | str, any_text: bool = False) -> Any:
    """Parse JSON and check the value with :func:`check_json`, which explains ``any_text``.

    Raises ``ValueError`` if the JSON is invalid or the check fails.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_json(value, any_text)
    return value


def check_json(value: Any, any_text: bool = False) -> None:
    """Raise ``ValueError`` for a parsed JSON value that can break the code that uses it.

    Rejected are more than ``MOST_DEPTH`` nested levels, numbers that are NaN or beyond the range of a float, and texts
    with unpaired surrogates. Such a text cannot be printed, but occurs in file names that are not UTF-8. ``any_text``
    is True to accept it.
    """
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not any_text and not item.isascii():
                    item.encode()  # UnicodeEncodeError is a ValueError
            elif kind is dict or kind is list:
                if depth == MOST_DEPTH:
                    raise ValueError(_TOO_DEEP)
                inner += item
                if kind is dict:
                    inner += item.values()
            elif kind in (int, float) and not abs(item) <= sys.float_info.max:
                raise ValueError("a number is NaN or too large for a float")
        level, depth = inner, depth + 1


def make_printable(value: Any) -> Any:
    """Replace unprintable characters in a JSON value by "?", except newlines and tabs.

    A record may come from a stranger, and such characters can control a terminal or reorder a line.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in value)
    if isinstance(value, dict):
        return {make_printable(key): make_printable(item) for key, item in value.items()}
    return [make_printable(item) for item in value] if isinstance(value, list) else value


def seal(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a mapping of JSON values with the key ``checksum``, the SHA-256 of the mapping's content."""
    content = json.dumps(mapping, sort_keys=True)
    return {**mapping, "checksum": hashlib.sha256(content.encode()).hexdigest()}


def unseal(content: bytes) -> dict[str, Any]:
    """Parse the JSON of a mapping that :func:`seal` returned, and return the mapping without its checksum.

    Raises ``ValueError`` if the JSON is invalid or does not match the checksum.
    """
    mapping = parse_json(content, any_text=True)
    if not isinstance(mapping, dict) or seal({k: v for k, v in mapping.items() if k != "checksum"}) != mapping:
        raise ValueError("it does not match its checksum")
    del mapping["checksum"]
    return mapping


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write the new file ``path`` and wait until its content is on the disk.

    The name of the file survives a power cut only after :func:`sync_folder`. ``content`` is bytes, or a function that
    writes to an open binary file. Raises ``FileExistsError`` if the file exists.
    """
    with open(path, "x+b") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents. Their names survive a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A context that yields a temporary folder, which becomes ``folder`` when the context ends.

    So ``folder``, which must not exist, appears with all of its files at once. After an error nothing remains. Raises
    ``StoreError`` for an ``OSError``, such as a full disk.
    """
    with explain_os_errors(folder):
        make_folder(folder.parent)
        temporary = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
        try:
            temporary.mkdir()
            yield temporary
            _sync_all(temporary)
            os.rename(temporary, folder)
            sync_folder(folder.parent)
        except BaseException:
            remove(temporary)
            raise


def _sync_all(folder: Path) -> None:
    """Wait until all files in ``folder`` are on the disk, so that none of them is empty after a power cut."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def names_in(folder: Path) -> list[str]:
    """The names in a folder that do not begin with a dot, sorted. Empty if the folder does not exist.

    Raises ``StoreError`` if the folder cannot be read. ``Path.glob`` would return nothing in that case.
    """
    with explain_os_errors(folder), suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return []


def may_exist(path: Path) -> bool:
    """False if nothing exists at ``path``. True if something does, or if a parent folder cannot be read."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in ``folder`` are on the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_link(path: Path) -> None:
    """Raise ``StoreError`` if ``path`` is a symbolic link.

    Madbench deletes or replaces what is at ``path``. Through a link it could do so outside of its own folders.
    """
    if path.is_symlink():
        problem = "is a link; madbench deletes or replaces what is here, and does not follow links: delete the link"
        raise StoreError(f"{path}: {problem}")


def lock_folder(folder: Path) -> int:
    """Lock ``folder`` for this process and return a file descriptor that holds the lock.

    The folder and its file ``lock`` are made if they do not exist. The lock is free again when the descriptor is closed
    or the process ends. The lock does not protect the files: another process can still delete the folder. Raises
    ``BlockingIOError`` if another descriptor holds the lock.
    """
    path = folder / "lock"
    folder.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with suppress(FileExistsError):
            os.mkdir(folder)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
