"""Sources of documents by format: plain text, JSON lines (also gzip and zstd), parquet, Hugging Face datasets."""

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

from madbench.errors import ConfigError, MadbenchError, did_you_mean, require

JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PARQUET = ".parquet"
HUB = "hf:"

_CHUNK = 1 << 20  # bytes


class Source(ABC):
    """Documents of one origin, in an order that never changes; streamed."""

    name: str  # as the user gave it, for error messages and manifests
    key: str | None  # key or column of the text; None where a source has none
    size: int  # bytes on disk; 0 where unknown
    mtime_ns: int | None = None  # time of the file's last change; None where the source is no file
    position: int = 0  # bytes of ``size`` read so far
    sha256: str | None = None  # of the file, hexadecimal, once documents() came to its end
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)  # of reading what is damaged

    def documents(self) -> Iterator[str]:
        """Every document from the first, valid Unicode and not empty; reads no further ahead than it must.

        Raises ``ConfigError`` with the place where the source cannot be read, is damaged or holds no text.
        """
        self.position, self.sha256 = 0, None
        try:
            for text in self._documents():
                if text:
                    yield valid_unicode(text)
        except MadbenchError:
            raise
        except self.errors as error:
            raise self._explained(error) from error

    @abstractmethod
    def _documents(self) -> Iterator[str]:
        """The documents, empty ones included; updates ``position`` and sets ``sha256`` at the end."""

    @abstractmethod
    def _explained(self, error: Exception) -> ConfigError: ...

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

    _unit = "line"

    def __init__(self, path: Path, key: str | None = None, name: str | None = None):
        self.path, self.key, self.name = path, key, name or str(path)
        try:
            status = path.stat()
        except OSError as error:
            raise self._explained(error) from error
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns

    def _documents(self) -> Iterator[str]:
        self._number = 0
        yield from self._texts()
        with open(self.path, "rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        self.position = self.size

    @abstractmethod
    def _texts(self) -> Iterator[str]:
        """The documents, empty ones included; counts the lines or rows in ``_number``."""

    def _explained(self, error: Exception) -> ConfigError:
        if getattr(error, "errno", None):  # the disk, not the compression
            return ConfigError(f"{self.name}: cannot be read: {(error.strerror or str(error)).lower()}")
        reason = f"{_first_line(error)}; fetch the file again or leave it out"
        return ConfigError(f"{self.name}: damaged after {self._unit} {self._number}: {reason}")


class TextFile(File):
    """A file that is one document, in UTF-8, byte for byte."""

    def _texts(self) -> Iterator[str]:
        content = self.path.read_bytes()
        try:
            yield content.decode()
        except UnicodeDecodeError as error:
            place = f"byte {content[error.start]:#04x} at offset {error.start}"
            hint = "convert it, or name the files to use instead of their folder"
            raise ConfigError(f"{self.name}: not UTF-8: {place}; {hint}") from None


class JsonLinesFile(File):
    """A JSON object a line with the text under ``key``; blank lines are skipped. gzip and zstd by the file's name."""

    def _texts(self) -> Iterator[str]:
        with open(self.path, "rb", _CHUNK) as file, self._decompressed(file) as lines:
            for self._number, line in enumerate(lines, 1):
                self.position, where = file.tell(), f"{self.name}:{self._number}"
                if not line.isspace():
                    yield self._text_in(self._row(line, where), where, "key")

    def _decompressed(self, file: IO[bytes]) -> IO[bytes]:
        suffix = self.path.suffix.lower()
        if suffix == ".jsonl":
            return file
        if self.size == 0:
            raise EOFError("the file is empty")
        if suffix == ".gz":
            return gzip.open(file)
        pyarrow = require("pyarrow", f"{self.name}: zstd", "text")
        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"), _CHUNK)

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

    _unit = "row"

    def _texts(self) -> Iterator[str]:
        parquet = require("pyarrow.parquet", f"{self.name}: parquet", "text")
        reading = {"buffer_size": _CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        with parquet.ParquetFile(self.path, **reading) as table:
            self._check_key(table.schema_arrow.names, self.name)
            for batch in table.iter_batches(batch_size=256, columns=[self.key]):
                for row in batch.to_pylist():
                    self._number += 1
                    yield self._text_in(row, f"{self.name}:row {self._number}")
                self.position = self.size * self._number // table.metadata.num_rows


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

    errors = (Exception,)

    def __init__(self, name: str, key: str):
        self.name, self.key = name, key
        dataset, _, config = name.removeprefix(HUB).partition(":")
        if not dataset:
            raise ConfigError(
                f"source {name!r}: expected a dataset, such as hf:openwebtext or hf:wikitext:wikitext-2-v1"
            )
        datasets = require("datasets", f"source {name!r}", "hf")
        try:
            self._builder = datasets.load_dataset_builder(dataset, config or None)
            self._rows = self._builder.as_streaming_dataset(split="train")
        except Exception as error:
            raise self._explained(error) from error
        split = (self._builder.info.splits or {}).get("train")
        self.size = (split.num_bytes or 0) if split else 0

    def _documents(self) -> Iterator[str]:
        for row in self._rows:
            text = self._text_in(row, self.name)
            self.position += len(text.encode("utf-8", "replace"))
            yield text
        self.sha256 = self._builder.hash

    def _explained(self, error: Exception) -> ConfigError:
        return ConfigError(f"source {self.name!r}: datasets cannot read it: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def valid_unicode(text: str) -> str:
    """``text`` with U+FFFD for every lone surrogate, which JSON escapes can produce and UTF-8 forbids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
