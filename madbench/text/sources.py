"""Where documents come from: files of text, JSON lines and parquet, Hugging Face datasets, the standard library.

A file is one document in UTF-8, JSON lines (also gzip and zstd) or parquet; all but plain text are streamed.
"""

from __future__ import annotations

import difflib
import gzip
import io
import json
import os
import sysconfig
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from madbench.errors import ConfigError, MadbenchError, did_you_mean, require
from madbench.files import file_digest

HUB = "hf:"
STDLIB = "stdlib"
TEXT_KEY = "text"

_NOT_STDLIB = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
_CHUNK = 1 << 20  # bytes
_ROWS = 64  # of parquet that are unpacked together


@dataclass(frozen=True)
class Limits:
    """What is refused instead of read, so that a small compressed file cannot fill memory or disk.

    While a document becomes tokens, it takes about ten times its size in memory.
    """

    line: int = 32_000_000  # bytes of a line of JSON, unpacked
    document: int = 256_000_000  # characters, of a file of text bytes
    total: int = 100_000_000_000  # bytes of all text in UTF-8


class Source:
    """Documents of one origin, in an order that never changes; streamed.

    A kind of source has ``_documents``, which yields them, empty ones included, updates ``position`` and sets
    ``sha256`` at the end, and ``_explained``, which makes one of its ``errors`` a ``ConfigError``.
    """

    name: str  # as the user gave it, for error messages and manifests
    key: str | None  # key or column of the text; None where a source has none
    size: int  # bytes on disk; 0 where unknown
    mtime_ns: int | None = None  # time of the file's last change; None where the source is no file
    position: int = 0  # bytes of ``size`` read so far
    sha256: str | None = None  # of the file, hexadecimal, once documents() came to its end
    limits = Limits()  # of a line and a document; the total is the corpus's
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)  # of reading what is damaged

    def documents(self) -> Iterator[str]:
        """Every document from the first, valid Unicode and not empty; reads no further ahead than it must.

        Raises ``ConfigError`` with the place where the source cannot be read, is damaged, holds no text or breaks
        ``limits``, before more than that is in memory.
        """
        self.position, self.sha256 = 0, None
        try:
            for text in self._documents():
                if text:
                    self._check_size(len(text), "document", self.name)
                    yield valid_unicode(text)
        except MadbenchError:
            raise
        except self.errors as error:
            raise self._explained(error) from error

    def _check_size(self, size: int, what: Literal["line", "document"], where: str) -> None:
        if size > (most := getattr(self.limits, what)):
            raise ConfigError(f"{where}: a {what} of more than {most / 1e6:g} MB; --max-{what} MB allows longer ones")

    def _text_in(self, row: dict[str, Any], where: str, kind: str = "column") -> str:
        self._check_key(row, where, kind)
        text = row[self.key]
        if not isinstance(text, str):
            got = "nothing" if text is None else type(text).__name__
            raise ConfigError(f"{where}: {kind} {self.key!r}: expected text, got {got}")
        return text

    def _check_key(self, keys: Iterable[str], where: str, kind: str = "column") -> None:
        if self.key not in keys:
            near = did_you_mean(self.key, keys)
            raise ConfigError(f"{where}: no {kind} {self.key!r} (choose it with --text-key){near}")


class File(Source):
    """A file on disk, streamed by its name: JSON lines (also gzip and zstd), parquet, or one document in UTF-8."""

    def __init__(self, path: Path, key: str | None = None, name: str | None = None):
        lower = path.name.lower()
        self.path, self.name = path, name or str(path)
        self._read = self._text
        if lower.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            self._read = self._json_lines
        elif lower.endswith(".parquet"):
            self._read = self._parquet
        self.key = None if self._read == self._text else key
        try:
            status = path.stat()
        except OSError as error:
            raise self._explained(error) from error
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns

    def _documents(self) -> Iterator[str]:
        self._number = 0  # lines or rows read
        yield from self._read()
        self.sha256 = file_digest(self.path)
        self.position = self.size

    def _explained(self, error: Exception) -> ConfigError:
        if getattr(error, "errno", None):  # the disk, not the compression
            return ConfigError(f"{self.name}: cannot be read: {(error.strerror or str(error)).lower()}")
        reason = f"{_first_line(error)}; fetch the file again or leave it out"
        unit = "row" if self._read == self._parquet else "line"
        return ConfigError(f"{self.name}: damaged after {unit} {self._number}: {reason}")

    def _text(self) -> Iterator[str]:
        self._check_size(self.size, "document", self.name)
        try:
            with open(self.path, "rb") as file:
                yield file.read(self.size).decode()
        except UnicodeDecodeError as error:
            place = f"byte {error.object[error.start]:#04x} at offset {error.start}"
            hint = "convert it, or name the files to use instead of their folder"
            raise ConfigError(f"{self.name}: not UTF-8: {place}; {hint}") from None

    def _json_lines(self) -> Iterator[str]:
        """A JSON object a line with the text under ``key``; blank lines are skipped."""
        with open(self.path, "rb", _CHUNK) as file, self._decompressed(file) as lines:
            while line := lines.readline(self.limits.line + 1):
                self._number += 1
                self.position, where = file.tell(), f"{self.name}:{self._number}"
                self._check_size(len(line), "line", where)
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

    def _parquet(self) -> Iterator[str]:
        parquet = require("pyarrow.parquet", f"{self.name}: parquet", "text")
        reading = {"buffer_size": _CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        self._check_key(parquet.read_schema(self.path).names, self.name)
        with parquet.ParquetFile(self.path, **reading) as table:
            for batch in table.iter_batches(batch_size=_ROWS, columns=[self.key]):
                for text in batch.column(0):
                    self._number += 1
                    yield self._text_in({self.key: text.as_py()}, f"{self.name}:row {self._number}")
                self.position = self.size * self._number // table.metadata.num_rows


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


def find_sources(words: Sequence[str], text_key: str = TEXT_KEY, limits: Limits = Limits()) -> list[Source]:
    """The sources that ``words`` name, in their order.

    A word is a file, a folder, ``hf:NAME[:CONFIG]`` (the split ``train`` of a Hugging Face dataset) or ``stdlib``
    (this Python's standard library without its tests). Of a folder: every file below it, sorted, without hidden ones
    and without following links to folders. Names ending in .jsonl, .jsonl.gz and .jsonl.zst are JSON lines, .parquet
    is parquet, each with the text under ``text_key``; any other file is one document in UTF-8.

    Raises ``ConfigError`` for a word that names nothing, a file named twice, and a ``text_key`` that no source has.
    """
    if not words:
        raise ConfigError(f"no source of text; expected files, folders, {HUB}NAME or {STDLIB}")
    sources = [source for word in words for source in _sources_of(word, text_key)]
    seen: set[str] = set()
    for source in sources:
        source.limits = limits
        identity = str(source.path.resolve()) if isinstance(source, File) else source.name
        if identity in seen:
            raise ConfigError(f"source {source.name!r}: named twice; its text would count twice")
        seen.add(identity)
    if text_key != TEXT_KEY and not any(source.key for source in sources):
        raise ConfigError(f"text key {text_key!r} has no effect: none of the sources has keys or columns")
    return sources


def _sources_of(word: str, text_key: str) -> list[Source]:
    if word == STDLIB:
        return _standard_library()
    if word.startswith(HUB):
        return [HuggingFaceSplit(word, text_key)]
    if os.path.isfile(word):
        return [File(Path(word), text_key)]
    if not os.path.isdir(word):
        siblings = []
        with suppress(OSError):
            siblings = [str(path) for path in Path(word).parent.iterdir()]
        near = difflib.get_close_matches(word, [*siblings, STDLIB], n=1)
        forms = near or ["a file", "a folder", f"{HUB}NAME", STDLIB]
        raise ConfigError(f"source {word!r}: no such file or folder{did_you_mean(word, forms)}")
    sources = [File(path, text_key) for path in _files_below(Path(word))]
    if not sources:
        raise ConfigError(f"source {word!r}: the folder holds no file")
    return sources


def _files_below(folder: Path, without: Container[str] = ()) -> list[Path]:
    """Files below ``folder``, sorted, but for hidden ones and those in folders of a name in ``without``."""
    found = []

    def refuse(error: OSError) -> None:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror.lower()}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in without]
        found += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file() or not path.exists())  # a dangling link is an error later


def _standard_library() -> list[Source]:
    """Every Python file, without tests and installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in _files_below(root, _NOT_STDLIB) if path.suffix == ".py"] if root.is_dir() else []
    if not paths:
        raise ConfigError(f"source {STDLIB!r}: this Python has no source files in {root}; name files of text instead")
    return [File(path, name=f"{STDLIB}/{path.relative_to(root).as_posix()}") for path in paths]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def valid_unicode(text: str) -> str:
    """``text`` with U+FFFD for every lone surrogate, which JSON escapes can produce and UTF-8 forbids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
