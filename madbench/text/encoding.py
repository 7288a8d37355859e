"""Documents to token ids: which split a document belongs to, and tokenizing batches of documents in threads."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from madbench.errors import ConfigError
from madbench.text.batches import SPLITS, Split
from madbench.text.corpus import SourceInfo, SplitInfo
from madbench.text.tokenizers import Tokenizer

IN_FLIGHT = 3  # batches a thread, so that none waits for the next

Encoded = dict[Split, tuple[np.ndarray, SplitInfo]]
"""The ids of a batch in the tokenizer's dtype, and what they add to the split's counts, by split."""
Encoder = Callable[[list[str]], Encoded]


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
        return [("val" if int.from_bytes(digest[:8], "big") < self.validation * 2**64 else "train", text)]

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


def encode(texts: list[str], tokenizer: Tokenizer, rule: SplitRule) -> Encoded:
    """The ids of documents by split; end of text follows each."""
    end = np.array([tokenizer.end_of_text], tokenizer.dtype)
    parts = [part for text in texts for part in rule.parts(text)]
    encoded = {}
    for split in SPLITS:
        own = [text for name, text in parts if name == split]
        ids = np.concatenate([end[:0], *(array for text in own for array in (tokenizer.encode(text), end))])
        encoded[split] = ids, SplitInfo(len(ids), sum(len(text.encode()) for text in own), len(own))
    return encoded


def encode_all(batches: Iterable[Batch], encoder: Encoder, workers: int) -> Iterator[tuple[Batch, Encoded]]:
    """Every batch with its ids, in order, whatever the number of threads; one worker is this thread.

    When ``batches`` raises, the batches before come first. A BPE encodes outside Python's global lock.
    """
    if workers == 1:
        yield from ((batch, encoder(batch.texts)) for batch in batches)
        return
    waiting: deque[tuple[Batch, Future[Encoded]]] = deque()

    def results(at_most: int) -> Iterator[tuple[Batch, Encoded]]:
        while len(waiting) > at_most:
            batch, future = waiting.popleft()
            yield batch, future.result()

    pool = ThreadPoolExecutor(workers)
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(encoder, batch.texts)))
            yield from results(IN_FLIGHT * workers)
        yield from results(0)
    except ConfigError:
        yield from results(0)
        raise
    finally:
        pool.shutdown(cancel_futures=True)
