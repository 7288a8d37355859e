"""Documents to token ids: which split a document belongs to, and tokenizing batches of documents in processes."""

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

import numpy as np

from madbench.errors import ConfigError, MadbenchError
from madbench.text.batches import SPLITS, Split
from madbench.text.corpus import SourceInfo, SplitInfo
from madbench.text.tokenizers import Tokenizer

IN_FLIGHT = 3  # batches a process, so that none waits for the next

_HASHES = 1 << 64

Encoded = dict[Split, tuple[np.ndarray, SplitInfo]]
"""The ids of a batch in the tokenizer's dtype, and what they add to the split's counts, by split."""


@dataclass(frozen=True)
class SplitRule:
    """Which text is for validation.

    A document whole, by its hash, so that copies of one document are never on both sides. Where documents are too few
    for that, the end of every document.
    """

    validation: float  # share of the text
    by_tail: bool  # whether it is the end of every document

    def parts(self, text: str) -> list[tuple[Split, str]]:
        """The text of a document, which is not empty, by split; no part is empty."""
        if self.by_tail:
            cut = len(text) - round(len(text) * self.validation)
            return [(split, part) for split, part in (("train", text[:cut]), ("val", text[cut:])) if part]
        digest = hashlib.sha256(text.encode()).digest()
        is_validation = int.from_bytes(digest[:8], "big") < self.validation * _HASHES
        return [("val" if is_validation else "train", text)]

    def __str__(self) -> str:
        if self.by_tail:
            return f"val has the last {100 * self.validation:g}% of every document, by characters"
        return f"val has the documents whose sha256, as a fraction of its range, is below {self.validation:g}"


@dataclass(frozen=True)
class Batch:
    """Documents of one source, in order."""

    texts: list[str]
    source: SourceInfo  # with the number of its documents so far
    is_last: bool  # whether the source ends here


@dataclass(frozen=True)
class Encoder:
    """Splits and tokenizes documents; end of text follows each."""

    tokenizer: Tokenizer
    rule: SplitRule

    def __call__(self, texts: list[str]) -> Encoded:
        end = np.array([self.tokenizer.end_of_text], self.tokenizer.dtype)
        parts = [part for text in texts for part in self.rule.parts(text)]
        encoded = {}
        for split in SPLITS:
            own = [text for name, text in parts if name == split]
            ids = np.concatenate([end[:0], *(array for text in own for array in (self.tokenizer.encode(text), end))])
            encoded[split] = ids, SplitInfo(len(ids), sum(len(text.encode()) for text in own), len(own), "")
        return encoded


def encode_all(batches: Iterable[Batch], encoder: Encoder, workers: int) -> Iterator[tuple[Batch, Encoded]]:
    """Every batch with its ids, in order, whatever the number of processes; one worker is this process.

    When ``batches`` raises, the batches before come first.
    """
    if workers == 1:
        yield from ((batch, encoder(batch.texts)) for batch in batches)
        return
    waiting: deque = deque()

    def results(at_most: int) -> Iterator[tuple[Batch, Encoded]]:
        while len(waiting) > at_most:
            batch, future = waiting.popleft()
            yield batch, future.result()

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (encoder,))
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(_encode, batch.texts)))
            yield from results(IN_FLIGHT * workers)
        yield from results(0)
    except ConfigError:
        yield from results(0)
        raise
    except BrokenProcessPool:
        raise MadbenchError(
            "a tokenizing process was killed (out of memory?); resume with the same command and fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(encoder: Encoder) -> None:
    global _encoder
    _encoder = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent stops the pool
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _encode(texts: list[str]) -> Encoded:
    return _encoder(texts)
