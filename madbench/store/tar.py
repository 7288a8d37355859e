"""A reader of tar files from strangers that limits the memory, time and disk space it uses.

Python's ``tarfile`` reads headers of any length into memory, follows the maps of sparse files and ends silently at a
damaged header. This reader supports only what archives of runs need: files, folders, and the long names of GNU tar and
pax. It reads the file once from front to back.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from madbench.errors import StoreError
from madbench.files import explain_os_errors

_BLOCK = 512
_CHUNK = 1 << 20
_MOST_HEADER = 16_384  # bytes of a long name or of pax headers
_PACKED: dict[bytes, Callable[[BinaryIO], Any]] = {b"\xfd7zXZ": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


@dataclass(frozen=True)
class UnpackingLimits:
    """Limits of reading a tar file, so that a small file cannot fill the disk or keep the machine busy."""

    members: float = 100_000
    total: float = 2_000_000_000
    """The largest number of unpacked bytes."""
    ratio: float = 200
    """The largest ratio of unpacked to packed bytes. Archives that madbench wrote have less than 20."""
    free: float = 1_000_000
    """Number of unpacked bytes that are allowed whatever the ratio."""


NO_LIMITS = UnpackingLimits(math.inf, math.inf, math.inf)


@contextmanager
def read_tar(path: Path, limits: UnpackingLimits = UnpackingLimits()) -> Iterator[TarReader]:
    """Open the tar file ``path`` within a ``with`` block, and yield a reader of it.

    The file may be compressed with xz, gzip or bzip2. Raises ``StoreError`` if the file is damaged, has a sparse file,
    or exceeds ``limits``. This can happen at any time in the block, because members are read one by one.
    """
    try:
        with explain_os_errors(path), open(path, "rb") as file:
            magic = file.peek(5)
            kind = next((kind for begin, kind in _PACKED.items() if magic.startswith(begin)), None)
            packed_bytes = path.stat().st_size
            yield TarReader(path, kind(file) if kind else file, packed_bytes, limits)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        problem = str(error) or "it ends early"
        raise StoreError(f"{path}: damaged, cut short, or no archive of runs ({problem})") from error


class TarReader:
    """A reader of the members of a tar file, one after the other. Create it with :func:`read_tar`."""

    def __init__(self, path: Path, stream: BinaryIO | Any, packed_bytes: int, limits: UnpackingLimits):
        self._path, self._stream, self._limits = path, stream, limits
        self._most_by_ratio = max(limits.free, limits.ratio * packed_bytes)
        self._count = self._members = 0  # unpacked bytes, and members, so far
        self._left = self._padding = 0  # bytes of the present member's content that are not read yet

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Yield each member of the tar file, with its full name.

        Read its :meth:`content` before the next member is requested; after that it is gone.
        """
        overrides: dict[str, Any] = {}
        while True:
            self._skip_rest()
            block = self._read(_BLOCK)
            if not any(block):
                return
            self._members += 1
            if self._members > self._limits.members:
                self._refuse(f"holds more than {self._limits.members:,} members")
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            if member.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
                overrides |= _pax_fields(self._header(member))
                continue
            if member.type == tarfile.GNUTYPE_LONGNAME:
                overrides["path"] = self._header(member).rstrip(b"\0").decode(errors="surrogateescape")
                continue
            if member.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
                self._header(member)
                continue
            if member.type == tarfile.GNUTYPE_SPARSE:
                raise tarfile.ReadError("it holds a sparse file")
            member.name, member.size = overrides.get("path", member.name), overrides.get("size", member.size)
            overrides = {}
            if member.size < 0:
                raise tarfile.ReadError("it holds a file of negative size")
            is_file = member.type not in tarfile.SUPPORTED_TYPES or member.isfile()
            self._left = member.size if is_file else 0
            self._padding = -self._left % _BLOCK
            yield member

    def content(self) -> Iterator[bytes]:
        """Yield the content of the member that :meth:`members` yielded last, in parts of at most 1 MiB."""
        while self._left:
            part = self._read(min(self._left, _CHUNK))
            self._left -= len(part)
            yield part

    def _skip_rest(self) -> None:
        for _ in self.content():
            pass
        self._read(self._padding)
        self._padding = 0

    def _header(self, member: tarfile.TarInfo) -> bytes:
        """The content of a tar member that describes the next member, such as its long name. At most 16,384 bytes."""
        if not 0 <= member.size <= _MOST_HEADER:
            raise tarfile.ReadError(f"it holds a header of {member.size:,} bytes")
        return self._read(member.size + -member.size % _BLOCK)[: member.size]

    def _read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._count += len(content)
        if self._count > self._limits.total:
            self._refuse(f"unpacks to more than {self._limits.total / 1e9:g} GB")
        if self._count > self._most_by_ratio:
            self._refuse(f"unpacks to more than {self._limits.ratio:g} times its size")
        if len(content) < size:
            raise EOFError
        return content

    def _refuse(self, problem: str) -> None:
        raise StoreError(f"{self._path}: {problem}; if you trust its author, import it with --no-limits")


def _pax_fields(content: bytes) -> dict[str, Any]:
    r"""The ``path`` and ``size`` that pax headers give for the next member. Headers without them give no field.

    Each header has the form ``"<length> <key>=<value>\n"``. Raises ``tarfile.ReadError`` if the headers are damaged or
    describe a sparse file.
    """
    fields: dict[str, Any] = {}
    while content:
        digits, space, remainder = content[:8].partition(b" ")
        length = int(digits)
        key, equals, value = content[len(digits) + 1 : length - 1].partition(b"=")
        if not space or not equals or length <= len(digits) + 1 or content[length - 1 : length] != b"\n":
            raise tarfile.ReadError("it holds damaged headers")
        if key.startswith(b"GNU.sparse."):
            raise tarfile.ReadError("it holds a sparse file")
        if key == b"path":
            fields["path"] = value.decode(errors="surrogateescape")
        elif key == b"size":
            fields["size"] = int(value)
        content = content[length:]
    return fields
