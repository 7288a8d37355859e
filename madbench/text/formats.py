"""Sources of documents by format: plain text, JSON lines (also gzip and zstd), parquet, Hugging Face datasets.

All are streamed, and files are hashed on the way.
"""

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

JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PARQUET = ".parquet"
HUB = "hf:"

_CHUNK = 1 << 20  # bytes


class Source(ABC):
    """Documents of one origin, in an order that never changes."""

    name: str
    """As the user gave it, in error messages and manifests."""
    key: str | None
    """Key or column of the text; None where a source has none."""
    size: int
    """Bytes on disk; 0 where unknown."""
    mtime_ns: int | None = None
    """Time of the file's last change; None where the source is no file."""
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
        """The documents, empty ones included; updates ``position`` and sets ``sha256`` at the end."""

    def _text_in(self, row: dict[str, Any], where: str, kind: str = "column") -> str:
        self._check_key(row, where, kind)
        text = row[self.key]
        if not isinstance(text, str):
            got = "nothing" if text is None else type(text).__name__
            raise ConfigError(f"{where}: {kind} {self.key!r}: expected text, got {got}")
        return text

    def _check_key(self, keys: Iterable[str], where: str, kind: str = "column") -> None:
        if self.key not in keys:
            hint = f"(choose it with --text-key){did_you_mean(self.key, keys)}"
            raise ConfigError(f"{where}: no {kind} {self.key!r} {hint}")


class File(Source):
    """A file on disk."""

    def __init__(self, path: Path, key: str | None = None, name: str | None = None):
        self.path, self.key, self.name = path, key, name or str(path)
        try:
            status = path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns

    def _documents(self) -> Iterator[str]:
        try:
            with open(self.path, "rb", buffering=0) as raw:
                file = _HashedFile(raw)
                for text in self._texts(file):
                    self.position = max(self.position, file.position)
                    yield text
                while file.read(_CHUNK):  # parquet is not read in order; the hash is of the whole file
                    pass
            self.position, self.sha256 = file.position, file.sha256.hexdigest()
        except OSError as error:
            raise self._unreadable(error) from error

    @abstractmethod
    def _texts(self, file: _HashedFile) -> Iterator[str]:
        """The documents, empty ones included."""

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self.name}: cannot be read: {(error.strerror or str(error)).lower()}")

    def _damaged(self, after: str, error: Exception) -> ConfigError:
        reason = _first_line(error)
        return ConfigError(f"{self.name}: damaged after {after}: {reason}; fetch the file again or leave it out")


class TextFile(File):
    """A file that is one document, in UTF-8, byte for byte."""

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        content = file.readall()
        try:
            yield content.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{self.name}: not UTF-8: byte {content[error.start]:#04x} at offset {error.start}; expected text, "
                f"{', '.join(JSON_LINES)} or {PARQUET}; convert it, or name the files to use instead of their folder"
            ) from None


class JsonLinesFile(File):
    """A JSON object a line with the text under ``key``; blank lines are skipped. gzip and zstd by the file's name."""

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        number = 0
        with self._decompressed(file) as lines:
            while line := self._next_line(lines, number, file):
                number += 1
                if not line.isspace():
                    where = f"{self.name}:{number}"
                    yield self._text_in(self._row(line, where), where, "key")

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
            file = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")
        return io.BufferedReader(file, _CHUNK)

    def _next_line(self, lines: IO[bytes], number: int, file: _HashedFile) -> bytes:
        try:
            return lines.readline()
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None):  # the disk, not the compression
                raise
            raise self._damaged(f"line {number}, before byte {file.position}", error) from error

    def _row(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            raise ConfigError(f"{where}: not valid JSON: {reason}; correct the line or the file") from None
        if not isinstance(row, dict):
            raise ConfigError(f'{where}: expected an object such as {{"{self.key}": "..."}}')
        return row


class ParquetFile(File):
    """A parquet file with a document a row, in the column ``key``."""

    def _texts(self, file: _HashedFile) -> Iterator[str]:
        try:
            from pyarrow import parquet
        except ImportError:
            raise MissingExtraError(f"{self.name}: parquet", "text") from None
        number = 0
        reading = {"buffer_size": _CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        try:
            with parquet.ParquetFile(self.path, **reading) as table:
                self._check_key(table.schema_arrow.names, self.name)
                for batch in table.iter_batches(batch_size=256, columns=[self.key]):
                    for row in batch.to_pylist():
                        number += 1
                        yield self._text_in(row, f"{self.name}:row {number}")
                    self.position = self.size * number // table.metadata.num_rows
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None):
                raise
            raise self._damaged(f"row {number}", error) from error


def open_file(path: Path, key: str) -> File:
    """The file as its name says: JSON lines or parquet with the text under ``key``, else one document."""
    name = path.name.lower()
    if name.endswith(JSON_LINES):
        return JsonLinesFile(path, key)
    return ParquetFile(path, key) if name.endswith(PARQUET) else TextFile(path)


class HuggingFaceSplit(Source):
    """The split ``train`` of the dataset ``hf:NAME`` or ``hf:NAME:CONFIG``; NAME may be a local folder.

    ``sha256`` is what the library ``datasets`` calls the builder's hash: the revision of a dataset on the hub. ``size``
    is the bytes of the split where the dataset says so, and ``position`` counts those of the texts.
    """

    def __init__(self, name: str, key: str):
        self.name, self.key = name, key
        dataset, _, config = name.removeprefix(HUB).partition(":")
        if not dataset:
            raise ConfigError(
                f"source {name!r}: expected a dataset, such as hf:openwebtext or hf:wikitext:wikitext-2-v1"
            )
        try:
            import datasets
        except ImportError:
            raise MissingExtraError(f"source {name!r}", "hf") from None
        try:
            self._builder = datasets.load_dataset_builder(dataset, config or None)
            self._rows = self._builder.as_streaming_dataset(split="train")
        except Exception as error:
            raise self._unreadable(error) from error
        split = (self._builder.info.splits or {}).get("train")
        self.size = (split.num_bytes or 0) if split else 0

    def _documents(self) -> Iterator[str]:
        rows = iter(self._rows)
        while (row := self._next_row(rows)) is not None:
            text = self._text_in(row, self.name)
            self.position += len(text.encode("utf-8", "replace"))
            yield text
        self.sha256 = self._builder.hash

    def _next_row(self, rows: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return next(rows, None)
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConfigError:
        return ConfigError(f"source {self.name!r}: datasets cannot read it: {_first_line(error)}")


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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def valid_unicode(text: str) -> str:
    """``text`` with U+FFFD for every lone surrogate, which JSON escapes can produce and UTF-8 forbids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
