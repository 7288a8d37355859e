"""What every source of documents shares: where it is read, what is refused of it, and rows without a text."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from madbench.errors import ConfigError, MadbenchError, did_you_mean


class BadRowError(ConfigError):
    """A row without a text: not valid JSON, no object, without the key, or with something else under it."""


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

    A kind of source has ``_documents``, which yields them, empty ones included, and a ``BadRowError`` for each row that
    has none, updates ``position`` and sets ``sha256`` at the end, and ``_explained``, which makes one of its ``errors``
    a ``ConfigError``.
    """

    name: str  # as the user gave it, for error messages and manifests
    key: str | None  # key or column of the text; None if a source has none
    size: int  # bytes on disk; 0 where unknown
    mtime_ns: int | None = None  # time of the file's last change; None if the source is no file
    position: int = 0  # bytes of ``size`` read so far
    sha256: str | None = None  # of the file, hexadecimal, once documents() came to its end
    limits = Limits()  # of a line and a document; the total is the corpus's
    skips_bad = False  # whether rows without a text are left out and counted, instead of an error
    skipped: int = 0  # rows left out by documents() so far
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)  # of reading what is damaged

    def documents(self) -> Iterator[str]:
        """Every document from the first, valid Unicode and not empty; reads no further ahead than it must.

        Raises ``ConfigError`` with the place where the source cannot be read, is damaged, holds no text or breaks
        ``limits``, before more than that is in memory.
        """
        self.position, self.sha256, self.skipped = 0, None, 0
        try:
            for text in self._documents():
                if isinstance(text, BadRowError):
                    if not self.skips_bad:
                        raise text
                    self.skipped += 1
                elif text:
                    self._check_size(len(text), "document", self.name)
                    yield valid_unicode(text)
        except MadbenchError:
            raise
        except self.errors as error:
            raise self._explained(error) from error

    def _check_size(self, size: int, what: Literal["line", "document"], where: str) -> None:
        if size > (most := getattr(self.limits, what)):
            raise ConfigError(f"{where}: a {what} of more than {most / 1e6:g} MB; --max-{what} MB allows longer ones")

    def _text_in(self, row: dict[str, Any], where: str, kind: str = "column") -> str | BadRowError:
        """The text of a row, or why it has none."""
        if self.key not in row:
            return self._missing_key(row, where, kind)
        if isinstance(text := row[self.key], str):
            return text
        got = "nothing" if text is None else type(text).__name__
        return BadRowError(f"{where}: {kind} {self.key!r}: expected text, got {got}")

    def _missing_key(self, keys: Iterable[str], where: str, kind: str = "column") -> BadRowError:
        near = did_you_mean(self.key, keys)
        return BadRowError(f"{where}: no {kind} {self.key!r} (choose it with --text-key){near}")


def valid_unicode(text: str) -> str:
    """``text`` with U+FFFD for every lone surrogate, which JSON escapes can produce and UTF-8 forbids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def first_line(error: Exception) -> str:
    """The first line of an error's message; its kind where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
