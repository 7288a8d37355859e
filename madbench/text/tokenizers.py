"""Tokenisers by name: ``bytes``, ``gpt2``, or a BPE trained on a corpus."""

from __future__ import annotations

import re
from pathlib import Path

from madbench.errors import ConfigError, did_you_mean
from madbench.text.base import ByteTokenizer, Tokenizer
from madbench.text.bpe import FILE, TrainedTokenizer, load_gpt2, train_bpe

__all__ = ["Tokenizer", "load_tokenizer", "train_bpe"]


def load_tokenizer(spec: str, folder: Path | None = None) -> Tokenizer:
    """The tokeniser ``bytes``, ``gpt2``, a path to a ``tokenizer.json``, or the ``bpe:N`` saved in ``folder``.

    Raises ``ConfigError`` for another name and for a file that is missing, not a byte-level BPE or not of N ids.
    """
    if spec == "bytes":
        return ByteTokenizer()
    if spec == "gpt2":
        return load_gpt2()
    vocab_size = _trained_size(spec)
    if vocab_size is not None:
        if folder is None:
            raise ConfigError(f"tokenizer {spec!r} is trained on a corpus; expected the path of its {FILE}")
        return _read(Path(folder) / FILE, vocab_size)
    if spec.endswith(".json"):
        return _read(Path(spec), None)
    raise ConfigError(f"unknown tokenizer {spec!r}{did_you_mean(spec, ['bytes', 'gpt2', 'bpe:4096', 'a .json file'])}")


def _trained_size(spec: str) -> int | None:
    """N of ``bpe:N``, the spec of a BPE to train; None for any other."""
    match = re.fullmatch(r"bpe:([1-9]\d*)", spec)
    return int(match[1]) if match else None


def _read(path: Path, vocab_size: int | None) -> TrainedTokenizer:
    try:
        tokenizer = TrainedTokenizer(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror.lower()}") from error
    if vocab_size not in (None, tokenizer.vocab_size):
        raise ConfigError(f"{path}: holds {tokenizer.vocab_size} tokens, expected {vocab_size}")
    return tokenizer
