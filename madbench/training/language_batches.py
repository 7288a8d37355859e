"""Windows of a corpus on their way to the device, a micro-batch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from madbench.text.batches import Split, check_tokens, windows
from madbench.text.corpus import Corpus

MICRO_BATCH_TOKENS = 12_288  # 12 windows of 1,024, as nanoGPT's


class Batches:
    """The two splits of a corpus, cut into windows of ``seq_len`` tokens for ``device``.

    ``micro_batch`` windows at most go through the model at once; by default as many as hold 12,288 tokens.
    """

    def __init__(self, corpus: Corpus, seq_len: int, device: str, micro_batch: int | None = None):
        self.corpus, self.seq_len, self.device = corpus, seq_len, torch.device(device)
        self.micro_batch = micro_batch or max(1, MICRO_BATCH_TOKENS // seq_len)
        self.tokens = {split: corpus.tokens(split) for split in ("train", "val")}

    def micro_batches(self, split: Split, starts: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, int64 (B, T) on the device, of the windows at ``starts`` (N,), in parts of like size.

        Raises ``ConfigError`` for a token id beyond the corpus' vocabulary.
        """
        for part in np.array_split(starts, self.count(len(starts))) if len(starts) else ():
            inputs, targets = self.read(split, part)
            yield self._send(inputs), self._send(targets)

    def count(self, n_windows: int) -> int:
        """Micro-batches that ``n_windows`` make."""
        return math.ceil(n_windows / self.micro_batch)

    def read(self, split: Split, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets (N, T) of the windows at ``starts`` (N,), on the host and checked."""
        inputs, targets = windows(self.tokens[split], starts, self.seq_len)
        for ids in (inputs, targets):
            check_tokens(ids, self.corpus.vocab_size, str(self.corpus.folder / f"{split}.bin"))
        return inputs, targets

    def _send(self, ids: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(ids)
        if self.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)
