"""What every tokeniser shares: a vocabulary of byte strings, from which all but encoding follows."""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from madbench.errors import ConfigError
from madbench.text.unicode import valid_unicode


class Tokenizer(ABC):
    """Text to token ids and back, without loss. The last id is the end of text, which no text contains."""

    pattern = ""
    """Regular expression of the pieces that text is cut into first; tokens do not cross them."""

    def __init__(self, spec: str, tokens: Sequence[bytes]):
        self.spec = spec
        """``bytes``, ``gpt2`` or ``bpe:N``."""
        self.tokens = tuple(tokens)
        """UTF-8 bytes of every id but the last; a token may hold part of a character."""

    @property
    def vocab_size(self) -> int:
        """Token ids, the end of text among them."""
        return len(self.tokens) + 1

    @property
    def end_of_text(self) -> int:
        """The id that follows every document."""
        return len(self.tokens)

    @property
    def dtype(self) -> np.dtype:
        """The smallest of uint16 and uint32, little endian, that holds every id."""
        return np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides the ids of a text, 64 hexadecimal digits."""
        sha256 = hashlib.sha256()
        for part in (self.pattern.encode(), *self.tokens):
            sha256.update(len(part).to_bytes(8, "little") + part)
        return sha256.hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The ids (N,) of ``text`` in :attr:`dtype`. A lone surrogate, which is no character, counts as U+FFFD."""
        return self._encode(valid_unicode(text)).astype(self.dtype, copy=False)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, on the calling thread."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def _encode(self, text: str) -> np.ndarray: ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; U+FFFD where their bytes are no UTF-8, nothing for the end of text."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ``ids``, none for the end of text. Raises ``ConfigError`` for an id beyond the vocabulary."""
        ids = np.fromiter(ids, np.int64)
        for unknown in ids[(ids < 0) | (ids > self.end_of_text)]:
            raise ConfigError(f"token id {unknown} is not one of the {self.vocab_size} of tokenizer {self.spec!r}")
        return b"".join(self.tokens[i] for i in ids[ids != self.end_of_text])

    def token_bytes(self) -> np.ndarray:
        """UTF-8 bytes of every id, uint16 (vocab_size,); 0 for the end of text."""
        return np.array([*map(len, self.tokens), 0], np.uint16)


class ByteTokenizer(Tokenizer):
    """Every byte of the UTF-8 text is a token; 257 ids."""

    def __init__(self):
        super().__init__("bytes", [bytes([byte]) for byte in range(256)])

    def _encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8)

    def __reduce__(self):
        return ByteTokenizer, ()
