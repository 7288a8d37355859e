"""The byte tokenizer, which is the base class of all tokenizers."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from madbench import files
from madbench.errors import ConfigError
from madbench.text.documents import valid_unicode

FILE = "tokenizer.json"  # in the format of Hugging Face's tokenizers


class Tokenizer:
    """A lossless map from text to token ids.

    In this base class each byte of the UTF-8 text is a token, so there are 257 ids. The last id is the end of text,
    which no text contains.
    """

    pattern = ""  # regular expression of the pieces that text is cut into first; tokens do not cross them
    note = ""  # changes that it may make to a text, for the manifest

    def __init__(self, spec: str = "bytes", tokens: Iterable[bytes] = tuple(bytes([byte]) for byte in range(256))):  # type: ignore[name-defined]  # mypy misses byte
        self.spec = spec  # ``bytes``, ``gpt2``, ``bpe:N`` or ``hf-tokenizer:FOLDER``
        self.tokens = tuple(tokens)  # UTF-8 bytes of every id except the last; a token may hold part of a character
        self.end_of_text = len(self.tokens)  # the id that follows every document
        self.vocab_size = len(self.tokens) + 1  # including the end of text
        self.dtype = np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")  # the smallest type that holds every id

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 digest of everything that determines the ids of a text, as 64 hexadecimal digits."""
        sha256 = hashlib.sha256()
        for part in (self.pattern.encode(), *self.tokens):
            sha256.update(len(part).to_bytes(8, "little") + part)
        return sha256.hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The ids (N,) of ``text`` in :attr:`dtype`, without the end of text. A lone surrogate counts as U+FFFD."""
        return self._ids(valid_unicode(text)).astype(self.dtype, copy=False)

    def _ids(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``. Bytes that are not UTF-8 become U+FFFD. Ids of the end of text are left out."""
        return b"".join(self.tokens[i] for i in ids if i != self.end_of_text).decode("utf-8", "replace")

    def token_bytes(self) -> np.ndarray:
        """The number of UTF-8 bytes of every token, uint32 (vocab_size,). 0 for the end of text."""
        return np.array([*map(len, self.tokens), 0], np.uint32)

    def save(self, folder: Path) -> None:
        """Write the files that are needed to rebuild the tokenizer into ``folder``, atomically.

        This class and most subclasses write none.
        """


def read_file(path: Path, where: Path | str) -> bytes:
    """The content of the file at ``path``.

    Raises ``ConfigError`` if the file cannot be read. The message calls it ``where``.
    """
    try:
        return files.read_file(path)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {(error.strerror or str(error)).lower()}") from error


# GPT-2 writes bytes as characters: a printable Latin-1 character for its own byte, U+0100 and on for the other bytes.
_PRINTABLE = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
_CHARACTERS = {chr(byte): byte for byte in _PRINTABLE}
_CHARACTERS |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)).difference(_PRINTABLE)))}
_TEXTS = {byte: character for character, byte in _CHARACTERS.items()}


def bytes_of(token: str) -> bytes:
    """The bytes of a token that is written as in GPT-2's vocabulary, with one character for each byte.

    Raises ``KeyError`` for a character that stands for no byte.
    """
    return bytes(_CHARACTERS[character] for character in token)


def text_of(token: bytes) -> str:
    """The token with these bytes, written as in GPT-2's vocabulary. Inverse of :func:`bytes_of`."""
    return "".join(_TEXTS[byte] for byte in token)
