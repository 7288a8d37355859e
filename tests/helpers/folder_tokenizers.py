"""Tokenizers like those of Hugging Face models, made by the library tokenizers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

library = pytest.importorskip("tokenizers")

TEXTS = ["the cat sat on the mat, the bat sat on the hat\n", "naïve café the end  \t x = {1: 2}\n"]
ODD = [
    "",
    " ",
    "\n\n \n",
    "<|endoftext|>",
    "</s>",
    "<s> a",
    "a\r\nb\0c",
    "日本語 é \U0001f600",
    "  lots   of  space  ",
    "\ufeff",
]


def write(folder: Path, tokenizer: Any, end: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if end is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end, "model_max_length": 4096}))
    return folder


def byte_level(vocab_size: int = 300, special: Sequence[str] = ("<|endoftext|>", "<|pad|>")) -> Any:
    """A byte-level BPE tokenizer like those of GPT-2 and LLaMA-3, trained on ``TEXTS``.

    Special tokens have the first ids, so the end of text is not the last id.
    """
    pieces = library.pre_tokenizers
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = pieces.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    alphabet = pieces.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def llama(byte_fallback: bool = True, dropout: float | None = None) -> Any:
    """A tokenizer like LLaMA-2's: spaces are ``▁``, as in SentencePiece, also before the first word.

    With ``byte_fallback``, characters without a token become tokens of bytes, otherwise ``<unk>``.
    """
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>"])}
    vocabulary |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in ["\u2581", *"abcdefghijklmnopqrstuvwxyz", "th", "the", "\u2581the", "at", "\u2581c", "\u2581cat"]:
        vocabulary[token] = len(vocabulary)
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("a", "t"), ("\u2581", "c"), ("\u2581c", "at")]
    model = library.models.BPE(
        vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback, dropout=dropout
    )
    tokenizer = library.Tokenizer(model)
    steps, normalizers = library.decoders, library.normalizers
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = steps.Sequence(
        [steps.Replace("\u2581", " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = library.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def gemma() -> Any:
    """A tokenizer like Gemma's, without a space before the first word."""
    tokenizer, steps = llama(), library.decoders
    tokenizer.normalizer = library.normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = steps.Sequence([steps.Replace("\u2581", " "), steps.ByteFallback(), steps.Fuse()])
    return tokenizer


def llama3() -> Any:
    """A tokenizer like LLaMA-3's, which splits text by a regular expression and then into bytes."""
    tokenizer, pieces = byte_level(), library.pre_tokenizers
    cut = pieces.Split(library.Regex(r"\s+|[^\s]+"), "isolated")
    tokenizer.pre_tokenizer = pieces.Sequence([cut, pieces.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def metaspace() -> Any:
    """A tokenizer like those of later Mistral models, which add a space before a text unless it begins with one."""
    tokenizer = llama()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)
    return tokenizer


def byte_level_with_prefix_space() -> Any:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


KINDS = {
    "gemma": (gemma, "</s>"),
    "llama 3": (llama3, "<|endoftext|>"),
    "byte level": (byte_level, "<|endoftext|>"),
    "llama": (llama, {"content": "</s>", "lstrip": False}),
}
