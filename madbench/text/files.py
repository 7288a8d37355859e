"""A source of documents that streams a file: JSON lines, a JSON array, parquet, or one document in UTF-8."""

from __future__ import annotations

import codecs
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from madbench.errors import ConfigError, require
from madbench.files import file_digest
from madbench.text.documents import BadRowError, Source, first_line
from madbench.text.formats import Content, format_of, is_json_lines, json_array, problem_of

_CHUNK = 1 << 20  # bytes per read
_ROWS = 64  # parquet rows that are unpacked together


class TextFile(Source):
    """A source of documents that streams one file.

    The ending of the file's name determines the format: JSON lines, a JSON array, parquet, or one document in UTF-8.
    ``key`` is the key or column of the text, and ``name`` replaces the path in messages and manifests.
    """

    def __init__(self, path: Path, key: str | None = None, name: str | None = None):
        self.path, self.name = path, name or str(path)
        self.format, self.packing = format_of(path, self.name)
        self.key = None if self.format == "text" else key
        try:
            status = path.stat()
        except OSError as error:
            raise self._explained(error) from error
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns

    def _documents(self) -> Iterator[str | BadRowError]:
        self._number = 0  # lines or rows read
        if self.format == "parquet":
            yield from self._parquet()
        else:
            with io.BufferedReader(io.FileIO(self.path), _CHUNK) as file, self._unpack(file) as content:
                head = content.peek(_CHUNK)
                if problem := problem_of(head):
                    raise ConfigError(f"{self.name}: {problem}")
                if self.format == "text":
                    if is_json_lines(head):
                        ending = f".jsonl{self.packing}"
                        raise ConfigError(f"{self.name}: JSON lines; give it a name that ends in {ending}")
                    yield self._text(content)
                elif self.format == "json" and head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                    yield from self._json_array(file, content)
                else:
                    yield from self._json_lines(file, content)
        self.sha256 = file_digest(self.path)
        self.position = self.size

    def _explained(self, error: Exception) -> ConfigError:
        if isinstance(error, OSError) and error.errno:  # an error of the disk, not of the compression
            return ConfigError(f"{self.name}: cannot be read: {(error.strerror or str(error)).lower()}")
        reason = f"{first_line(error)}; fetch the file again or leave it out"
        unit = "row" if self.format == "parquet" else "line"
        return ConfigError(f"{self.name}: damaged after {unit} {self._number}: {reason}")

    def _unpack(self, file: io.BufferedReader[io.FileIO]) -> Content:
        if not self.packing:
            return file
        if self.size == 0:
            raise EOFError("the file is empty")
        if self.packing == ".gz":
            return gzip.open(file)
        pyarrow = require("pyarrow", f"{self.name}: zstd", "text")
        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"), _CHUNK)

    def _text(self, content: Content) -> str:
        """The whole content of a text file, without its byte order mark. Raises ``ConfigError`` if it is not UTF-8."""
        encoded = content.read(self.limits.document + 1)
        self._check_size(len(encoded), "document", self.name)
        try:
            return encoded.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            place = f"byte {error.object[error.start]:#04x} at offset {error.start}"
            hint = "convert it, or name the files to use instead of their folder"
            raise ConfigError(f"{self.name}: not UTF-8: {place}; {hint}") from None

    def _json_lines(self, file: io.BufferedReader[io.FileIO], content: Content) -> Iterator[str | BadRowError]:
        """Yield the text under the key ``self.key`` of each line, or a ``BadRowError`` for a line without one.

        Each line has a JSON object. Blank lines are skipped. ``content`` is the unpacked content of ``file``.
        """
        while line := content.readline(self.limits.line + 1):
            self._number += 1
            self.position, where = file.tell(), f"{self.name}:{self._number}"
            self._check_size(len(line), "line", where)
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = str(error)
                if isinstance(error, json.JSONDecodeError):
                    reason = f"{error.msg} at character {error.pos + 1}"
                forms = " (an array of objects, or one object per line)" if self.format == "json" else ""
                yield BadRowError(f"{where}: not valid JSON{forms}: {reason}; correct the line or the file")
            else:
                yield self._text_of_object(row, where)

    def _json_array(self, file: io.BufferedReader[io.FileIO], content: Content) -> Iterator[str | BadRowError]:
        """Yield the text under ``self.key`` of each object in a JSON array, or a ``BadRowError`` for one without text.

        ``content`` is the unpacked content of ``file``.
        """
        for line, row in json_array(content, self.limits.line, self.name):
            self._number, self.position = line, file.tell()
            yield self._text_of_object(row, f"{self.name}:{self._number}")

    def _text_of_object(self, row: Any, where: str) -> str | BadRowError:
        if isinstance(row, dict):
            return self._text_in(row, where, "key")
        return BadRowError(f'{where}: expected an object such as {{"{self.key}": "..."}}')

    def _parquet(self) -> Iterator[str | BadRowError]:
        parquet = require("pyarrow.parquet", f"{self.name}: parquet", "text")
        reading = {"buffer_size": _CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        key = self.key or ""
        if key not in (names := parquet.read_schema(self.path).names):
            raise ConfigError(str(self._missing_key(names, self.name)))
        with parquet.ParquetFile(self.path, **reading) as table:
            for batch in table.iter_batches(batch_size=_ROWS, columns=[key]):
                for text in batch.column(0):
                    self._number += 1
                    yield self._text_in({key: text.as_py()}, f"{self.name}:row {self._number}")
                self.position = self.size * self._number // table.metadata.num_rows
