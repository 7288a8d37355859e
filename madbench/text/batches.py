"""Windows of a token stream: which ones a training step and an evaluation see, and their tokens.

A window of ``seq_len`` tokens and its targets, the same tokens one place later, takes ``seq_len + 1`` tokens of the
split. Windows ignore where documents begin and end, as in nanoGPT.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from madbench.errors import ConfigError

Split = Literal["train", "val"]
SPLITS: tuple[Split, Split] = ("train", "val")
_EVALUATION_STREAM = 0x6576616C  # keeps the evaluation's windows apart from those of any training seed


def windows(tokens: np.ndarray, starts: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, int64 of shape (N, T), of the windows that begin at ``starts`` (N,).

    ``tokens`` (n_tokens,) may be memory-mapped: only the windows are read. Every start must be below
    ``n_tokens - seq_len``.
    """
    rows = np.lib.stride_tricks.sliding_window_view(tokens, seq_len + 1)[starts].astype(np.int64)
    return rows[:, :-1], rows[:, 1:]


def training_starts(seed: int, step: int, count: int, n_tokens: int, seq_len: int) -> np.ndarray:
    """Starts (``count``,) of one optimiser step, uniform over the split with replacement: a function of seed and step.

    Raises ``ConfigError`` when the split has no window.
    """
    return np.random.default_rng([seed, step]).integers(_window_count("train", n_tokens, seq_len), size=count)


def evaluation_starts(split: Split, evaluation: int, count: int, n_tokens: int, seq_len: int) -> np.ndarray:
    """Starts (``count``,) of one evaluation, the same for every label and seed.

    On ``val`` they are the same at every evaluation, evenly spread from the first token on; they overlap where
    ``count`` windows hold more tokens than the split. On ``train`` they are drawn anew for each ``evaluation`` number.
    Raises ``ConfigError`` when the split has no window.
    """
    possible = _window_count(split, n_tokens, seq_len)
    if split == "val":
        return np.arange(count, dtype=np.int64) * possible // count
    return np.random.default_rng([_EVALUATION_STREAM, evaluation]).integers(possible, size=count)


def check_tokens(ids: np.ndarray, vocab_size: int, where: str) -> None:
    """Raises ``ConfigError`` when an id does not fit the vocabulary; ``where`` opens its message."""
    largest = int(ids.max(initial=0))
    if largest >= vocab_size:
        raise ConfigError(
            f"{where}: token id {largest} is beyond the vocabulary of {vocab_size}; the file is damaged or was "
            "written with another tokenizer"
        )


def _window_count(split: str, n_tokens: int, seq_len: int) -> int:
    if n_tokens <= seq_len:
        raise ConfigError(
            f"the {split} split has {n_tokens} tokens; seq_len {seq_len} needs at least {seq_len + 1}: "
            "shorten model.seq_len or prepare more text"
        )
    return n_tokens - seq_len
