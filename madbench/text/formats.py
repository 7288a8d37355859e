"""Files of text by format: plain text, JSON lines (plain, gzip, zstd), parquet; streamed, and hashed on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from madbench.errors import ConfigError, MissingExtraError, did_you_mean
from madbench.text.unicode import valid_unicode

JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PARQUET = ".parquet"

_CHUNK = 1 << 20  # bytes


class Source(ABC):
    """Documents of one origin, in an order that never changes."""

    name: str
    """As the user gave it, in error messages and manifests."""
    size: int
    """Bytes on disk; 0 where unknown."""
    position: int = 0
    """Bytes of ``size`` read so far."""
    sha256: str | None = None
    """SHA-256 of the file, hexadecimal, once :meth:`documents` came to its end; until then None."""

    def documents(self) -> Iterator[str]:
        """Every document from the first, valid Unicode and not empty; reads no further ahead than it must.

        Raises ``ConfigError`` with the place where the source cannot be read, is damaged or holds no text.
        """
        self.position, self.sha256 = 0, None
        for text in self._documents():
            if text:
                yield valid_unicode(text)

    @abstractmethod
    def _documents(self) -> Iterator[str]:
        """The documents, also empty ones; keeps ``position`` and at the end sets ``sha256``."""


class File(Source):
    """A file on disk."""

    def __init__(self, path: Path, name: str | None = None):
        self.path = path
        self.name = name or str(path)
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error

    def _documents(self) -> Iterator[str]:
        try:
            with open(self.path, "rb", buffering=0) as raw:
                file = _HashedFile(raw)
                yield from self._texts(file)
            self.position, self.sha256 = file.position, file.sha256.hexdigest()
        except OSError as error:
            raise self._unreadable(error) from error

    @abstractmethod
    def _texts(self, file: _HashedFile) -> Iterator[str]:
        """The documents, also empty ones; leaves ``file`` read to its end."""

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self.name}: cannot be read: {(error.strerror or str(error)).lower()}")

    def _damaged(self, after: str, error: Exception) -> ConfigError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ConfigError(f"{self.name}: damaged after {after}: {reason}; fetch the file again or leave it out")

    def _text_of(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            kind = "nothing" if value is None else type(value).__name__
            raise ConfigError(f"{self.name}:{where}: expected text, got {kind}")
        return value


class TextFile(File):
    """A file that is one document, in UTF-8, byte for byte."""

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        content = file.readall()
        self.position = file.position
        try:
            yield content.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{self.name}: not UTF-8: byte {content[error.start]:#04x} at offset {error.start}; expected text, "
                f"{', '.join(JSON_LINES)} or {PARQUET}; convert it, or name the files to use instead of their folder"
            ) from None


class JsonLinesFile(File):
    """A JSON object a line with the text under ``key``; blank lines are skipped. gzip and zstd by the file's name."""

    def __init__(self, path: Path, key: str):
        super().__init__(path)
        self.key = key

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        number = 0
        with self._decompressed(file) as lines:
            while line := self._next_line(lines, number, file):
                number += 1
                self.position = file.position
                if not line.isspace():
                    yield self._text_in(line, number)

    def _decompressed(self, file: _HashedFile) -> IO[bytes]:
        suffix = self.path.suffix.lower()
        if suffix != ".jsonl" and self.size == 0:
            raise self._damaged("byte 0", EOFError("the file is empty"))
        if suffix == ".gz":
            return gzip.open(io.BufferedReader(file, _CHUNK))
        if suffix == ".zst":
            try:
                import pyarrow
            except ImportError:
                raise MissingExtraError(f"{self.name}: zstd", "text") from None
            plain = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")
            return io.BufferedReader(plain, _CHUNK)
        return io.BufferedReader(file, _CHUNK)

    def _next_line(self, lines: IO[bytes], number: int, file: _HashedFile) -> bytes:
        try:
            return lines.readline()
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None):  # the disk, not the compression
                raise
            raise self._damaged(f"line {number}, before byte {file.position}", error) from error

    def _text_in(self, line: bytes, number: int) -> str:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            raise ConfigError(f"{self.name}:{number}: not valid JSON: {reason}; mend the line or the file") from None
        if not isinstance(found, dict):
            raise ConfigError(f'{self.name}:{number}: expected an object such as {{"{self.key}": "..."}}')
        if self.key not in found:
            raise ConfigError(f"{self.name}:{number}: {missing_key('key', self.key, found)}")
        return self._text_of(found[self.key], f"{number}: key {self.key!r}")


class ParquetFile(File):
    """A parquet file with a document a row, in the column ``key``."""

    def __init__(self, path: Path, key: str):
        super().__init__(path)
        self.key = key

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        try:
            from pyarrow import parquet
        except ImportError:
            raise MissingExtraError(f"{self.name}: parquet", "text") from None
        row = 0
        reading = {"buffer_size": _CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        try:
            with parquet.ParquetFile(self.path, **reading) as table:
                columns, rows = table.schema_arrow.names, table.metadata.num_rows
                if self.key not in columns:
                    raise ConfigError(f"{self.name}: {missing_key('column', self.key, columns)}")
                for batch in table.iter_batches(batch_size=256, columns=[self.key]):
                    for value in batch.column(0).to_pylist():
                        row += 1
                        yield self._text_of(value, f"row {row}: column {self.key!r}")
                    self.position = self.size * row // rows
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None):
                raise
            raise self._damaged(f"row {row}", error) from error
        while file.read(_CHUNK):  # parquet is not read in order; this is for the hash
            pass


class _HashedFile(io.RawIOBase):
    """The bytes of ``raw`` in order, with the hash and the count of those read."""

    def __init__(self, raw: io.FileIO):
        self.position = 0
        self.sha256 = hashlib.sha256()
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._raw.readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        self.position += count
        return count


def missing_key(kind: str, key: str, keys: Iterable[str]) -> str:
    """What to say of a row without its text; ``kind`` is key or column."""
    return f"no {kind} {key!r} (choose it with --text-key){did_you_mean(key, keys)}"
