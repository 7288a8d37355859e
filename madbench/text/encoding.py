"""Documents to token ids: which split a document belongs to, and tokenising batches of documents in processes."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from madbench.errors import ConfigError, MadbenchError
from madbench.text.batches import Split

if TYPE_CHECKING:
    from madbench.text.manifest import DType, SourceFacts
    from madbench.text.tokenizers import Tokenizer

IN_FLIGHT = 3  # batches a process, so that none waits for the next

_HASHES = 1 << 64


@dataclass(frozen=True)
class SplitRule:
    """Which text is for validation.

    A document whole, by its hash, so that copies of one document are never on both sides. Where documents are too few
    for that, the end of every document.
    """

    validation: float
    """Share of the text that is for validation."""
    by_tail: bool
    """Whether it is the end of every document."""

    def parts(self, text: str) -> list[tuple[Split, str]]:
        """The document's text by split; no part is empty."""
        if self.by_tail:
            cut = len(text) - round(len(text) * self.validation)
            parts: list[tuple[Split, str]] = [("train", text[:cut]), ("val", text[cut:])]
        else:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            is_validation = int.from_bytes(digest[:8], "big") < self.validation * _HASHES
            parts = [("val" if is_validation else "train", text)]
        return [(split, part) for split, part in parts if part]

    def __str__(self) -> str:
        if self.by_tail:
            return f"val has the last {100 * self.validation:g}% of every document, by characters"
        return f"val has the documents whose sha256, as a fraction of its range, is below {self.validation:g}"


@dataclass(frozen=True)
class Batch:
    """Documents of one source, in order."""

    texts: list[str]
    source: SourceFacts
    """The source, with the documents of it so far."""
    is_last: bool
    """Whether the source ends here."""


@dataclass(frozen=True)
class Encoded:
    """Ids of one batch, as they lie on disk, and the documents they are of, by split."""

    ids: dict[Split, bytes]
    documents: dict[Split, int]


@dataclass(frozen=True)
class Encoder:
    """Splits and tokenises documents; end of text follows each."""

    tokenizer: Tokenizer
    dtype: DType
    rule: SplitRule

    def __call__(self, texts: list[str]) -> Encoded:
        parts = [part for text in texts for part in self.rule.parts(text)]
        ids, documents = {}, {}
        for split in ("train", "val"):
            own = [text for of_split, text in parts if of_split == split]
            flat = (
                [array for encoded in self.tokenizer.encode_batch(own) for array in (encoded, self._end)] if own else []
            )
            ids[split] = np.concatenate(flat).astype(np.dtype(self.dtype).newbyteorder("<")).tobytes() if own else b""
            documents[split] = len(own)
        return Encoded(ids, documents)

    @property
    def _end(self) -> np.ndarray:
        return np.array([self.tokenizer.end_of_text])


def encode_all(batches: Iterable[Batch], encoder: Encoder, workers: int) -> Iterator[tuple[Batch, Encoded]]:
    """Every batch with its ids, in order, whatever the number of processes; one worker is this process.

    When ``batches`` raises, what it gave before is still handed on first.
    """
    if workers == 1:
        for batch in batches:
            yield batch, encoder(batch.texts)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (encoder,))
    waiting: deque = deque()
    unreadable = None
    try:
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(_encode, batch.texts)))
                if len(waiting) > IN_FLIGHT * workers:
                    yield _next_of(waiting)
        except ConfigError as error:
            unreadable = error
        while waiting:
            yield _next_of(waiting)
        if unreadable:
            raise unreadable
    except BrokenProcessPool:
        raise MadbenchError(
            "a tokenising process was killed, as when memory runs out; what is done is kept: the same command with "
            "fewer --workers goes on from there"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _next_of(waiting: deque) -> tuple[Batch, Encoded]:
    batch, future = waiting.popleft()
    return batch, future.result()


def _start_worker(encoder: Encoder) -> None:
    global _encoder
    _encoder = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent stops the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _encode(texts: list[str]) -> Encoded:
    return _encoder(texts)
