"""Writing files so that a crash never leaves half of one, reading JSON that others wrote, and locking folders."""

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
"""What locking a file gives on a file system that has no locks, as on NFS without its lock service."""
LOCK_ADVICE = "files cannot be locked on this disk: have its NFS mounted with locks, or choose a folder on another disk"
MOST_DEPTH = 64
"""Levels of lists and objects that JSON may have. Files of this package have at most 8."""
_TOO_DEEP = f"lists and objects nest deeper than {MOST_DEPTH} levels"
MOST_BYTES = 64 * 2**20
"""Bytes that :func:`read_file` reads of a file. JSON takes some twenty times its size in memory."""
MOST_NAME_BYTES = 200  # file systems have 255, and temporary files are called a little more


def is_name(text: str) -> bool:
    """Whether ``text`` can name a file or folder inside another and nothing else, and prints as it is."""
    is_plain = text.isprintable() and "/" not in text and text.strip() not in ("", ".", "..")
    return is_plain and len(text.encode()) <= MOST_NAME_BYTES


@contextmanager
def explain_os_errors(path: Path, size: int | None = None) -> Iterator[None]:
    """Turns an ``OSError`` of the block into a ``StoreError`` on ``path``; ``size`` is how many bytes were to fit."""
    try:
        yield
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            need = "" if size is None else f" for {size} bytes"
            advice = "free some or choose another results folder and run again; stored runs are safe"
            problem = f"no space left{need}; {advice}"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            problem += "; choose another results folder or mend its permissions"
        elif error.errno in NO_LOCKS:
            problem += f"; {LOCK_ADVICE}"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            problem = "a file is where a folder should be; choose another results folder"
        raise StoreError(f"{path}: {problem}") from error


def write_atomically(path: Path | str, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Replaces the file ``path`` with ``content`` in one step that survives a power cut.

    A callable gets the open binary file to write into, twice where its temporary file is removed meanwhile, as by a
    driver that claims the folder of a job of which it does not know that it runs. Where anything fails, the previous
    file stays as it was and no temporary file is left. An ``OSError``, as of a full disk, is raised as ``StoreError``.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    with explain_os_errors(path, len(content) if isinstance(content, bytes) else None):
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


class UnfitFileError(OSError):
    """A pipe or a device, which may never end, or a file that is too large to be read whole."""


def check_regular(path: Path | str) -> None:
    """Raises ``OSError`` unless ``path`` is a regular file or a link to one: opening a pipe may wait for ever."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise UnfitFileError(errno.EINVAL, "Not a regular file", str(path))


def read_file(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """The content of a file that anyone may have written.

    Raises ``OSError`` if it cannot be read, and ``UnfitFileError`` unless it is a regular file of at most ``most``
    bytes.
    """
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnfitFileError(errno.EFBIG, f"Larger than {most // 2**20} MB", str(path))
    return content


def file_digest(path: Path | str) -> str:
    """SHA-256 of a file in hexadecimal digits. Raises ``OSError``."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(content: bytes | str, any_text: bool = False) -> Any:
    """Parse JSON. Raises ``ValueError`` if it is invalid or :func:`check_json` refuses it."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_json(value, any_text)
    return value


def check_json(value: Any, any_text: bool = False) -> None:
    """Raise ``ValueError`` for a parsed JSON value that can break the code that uses it.

    Refused are more than ``MOST_DEPTH`` levels, a number that is NaN or beyond the range of a float, and, unless
    ``any_text`` is given, text with unpaired surrogates. It cannot be printed; a file name that is not UTF-8 has them.
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
                raise ValueError("it has a number that is NaN or too large for a float")
        level, depth = inner, depth + 1


def printable(value: Any) -> Any:
    """A JSON value with "?" for the characters that cannot be printed, but for ends of lines and tabs.

    A record may be a stranger's, and such characters command a terminal or reorder a line.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in value)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value


def seal(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """``mapping`` of JSON values with a ``checksum`` of itself."""
    content = json.dumps(mapping, sort_keys=True)
    return {**mapping, "checksum": hashlib.sha256(content.encode()).hexdigest()}


def unseal(content: bytes) -> dict[str, Any]:
    """The mapping that :func:`seal` was given, from its JSON; ``ValueError`` where it is damaged."""
    mapping = parse_json(content, any_text=True)
    if not isinstance(mapping, dict) or seal({k: v for k, v in mapping.items() if k != "checksum"}) != mapping:
        raise ValueError("it does not match its checksum")
    del mapping["checksum"]
    return mapping


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Writes a new file whose content survives a power cut, as its name does after :func:`sync_folder`."""
    with open(path, "x+b") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it, so that their names survive a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def publish_folder(temporary: Path, folder: Path) -> None:
    """Rename ``temporary`` to ``folder`` after its files are on the disk: a power cut leaves no empty file."""
    for path in temporary.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    sync_folder(temporary)
    os.rename(temporary, folder)
    sync_folder(folder.parent)


def names_in(folder: Path) -> list[str]:
    """The names in a folder that do not begin with a dot, sorted; empty if there is no folder.

    Raises ``StoreError`` if it cannot be read, where ``Path.glob`` finds nothing.
    """
    with explain_os_errors(folder), suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return []


def may_exist(path: Path) -> bool:
    """True unless there is no such file; also if a folder above it cannot be read, which an error then names."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Makes the names in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Deletes a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_link(path: Path) -> None:
    """Raises ``StoreError`` for a link where madbench deletes, moves or cuts what it finds: that would be another's."""
    if path.is_symlink():
        problem = "a link, and madbench deletes or replaces what is here, so that it follows none; delete the link"
        raise StoreError(f"{path}: {problem}")


def lock_folder(folder: Path) -> int:
    """A descriptor holding the lock of ``folder``, which is made if need be; closing it, or a kill, frees the lock.

    The folder and the file ``lock`` in it may vanish at any time before that. Raises ``BlockingIOError`` where another
    descriptor holds it.
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
