"""The base class of sources of documents, with limits of their size and rules for rows without a text."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from madbench.errors import ConfigError, MadbenchError, did_you_mean

TEXT_KEY = "text"
"""The key or column that holds the text, unless the user names another."""


class BadRowError(ConfigError):
    """Raised or yielded for a row without a text: invalid JSON, no object, no such key, or a value that is no text."""


@dataclass(frozen=True)
class TextLimits:
    """Limits of the size of text. Larger input is refused, so that a small compressed file cannot fill memory or disk.

    Tokenizing a document takes about ten times its size in memory.
    """

    line: int = 32_000_000
    """Largest number of bytes of a line of JSON, after unpacking."""
    document: int = 256_000_000
    """Largest number of characters of a document, or of bytes of a text file."""
    total: int = 100_000_000_000
    """Largest number of bytes of all text in UTF-8."""


class Source:
    """A stream of the documents of one file or data set, in an order that never changes.

    Each subclass has two methods:

    - ``_documents`` yields documents, including empty ones, and a ``BadRowError`` for each row without a text. It also
      updates ``position``, and sets ``sha256`` at the end;
    - ``_explained`` converts an error of a type in ``errors`` to a ``ConfigError``.
    """

    name: str  # as the user gave it, for error messages and manifests
    key: str | None  # key or column of the text; None if a source has none
    size: int  # bytes on disk; 0 where unknown
    mtime_ns: int | None = None  # time of the file's last change; None if the source is no file
    position: int = 0  # bytes of ``size`` read so far
    sha256: str | None = None  # of the file, hexadecimal, after the end of documents()
    limits = TextLimits()  # for a line and a document; the corpus checks the total
    skips_bad = False  # True: skip and count rows without a text instead of raising
    skipped: int = 0  # rows skipped by documents() so far
    # errors from reading damaged input
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)

    def documents(self) -> Iterator[str]:
        """Yield every document from the first on. Documents are valid Unicode and not empty.

        Raises ``ConfigError``, with the place in the source, if it cannot be read, is damaged, has a row without a text
        or exceeds ``limits``. With ``skips_bad``, rows without a text are counted in ``skipped`` instead. The source is
        read no further ahead than needed, and no more than ``limits`` allow is in memory.
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

    if TYPE_CHECKING:

        def _documents(self) -> Iterator[str | BadRowError]: ...
        def _explained(self, error: Exception) -> ConfigError: ...

    def _check_size(self, size: int, what: Literal["line", "document"], where: str) -> None:
        if size > (most := getattr(self.limits, what)):
            raise ConfigError(f"{where}: a {what} of more than {most / 1e6:g} MB; --max-{what} MB allows longer ones")

    def _text_in(self, row: dict[str, Any], where: str, kind: str = "column") -> str | BadRowError:
        """The text of a row under the key ``self.key``, or the error that says why it has none.

        ``where`` is the place of the row, and ``kind`` is ``key`` or ``column``, both for the error.
        """
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
    """``text`` with every lone surrogate replaced by U+FFFD.

    JSON escapes can produce lone surrogates; UTF-8 forbids them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class if the message is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
