"""Tokenizers of Hugging Face models, read from a folder with ``tokenizer.json``.

Needs no network and no transformers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from madbench.errors import ConfigError, MadbenchError, require
from madbench.files import parse_json, write_atomically
from madbench.text.byte_tokenizer import FILE, Tokenizer, bytes_of, read_file

PREFIX = "hf-tokenizer:"
CONFIG = "tokenizer_config.json"  # names the end of text
FILES = (FILE, CONFIG)
ENDS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>")  # usual end-of-text tokens, if no file names one

_SPACE = "\u2581"  # how SentencePiece writes a space
_PROBES = (
    "The cat sat on the mat.", " two  spaces ", "a\tb\r\n\n c", "caf\u00e9 \u65e5\u672c\u8a9e \u00df \U0001f600",
    "x = {1: 2}  # \u2212 \u2211 0.5", "\x01\x7f \u0e01\u0e33 \u200b", "</s> <s> <|endoftext|> <unk> <0x0A>",
)  # fmt: skip
_IDENTITY = ("model", "normalizer", "pre_tokenizer", "added_tokens")  # the parts that determine the ids of a text


class FolderTokenizer(Tokenizer):
    """The tokenizer in a folder that ``save_pretrained`` of transformers wrote, such as LLaMA-2's.

    Two kinds are supported. ``ByteLevel`` (as GPT-2's) works on bytes. ``ByteFallback`` (as LLaMA-2's) works on
    characters, with bytes for characters without a token. If a tokenizer puts a space before the first word, this space
    counts as a byte of the text. Text that spells a special token does not become that token, and no special token is
    added except the end of text after each document. Raises ``ConfigError`` for a tokenizer that loses text. ``note``
    says if the tokenizer rewrites characters or absorbs a first space.
    """

    def __init__(self, spec: str, content: bytes, end_of_text: str, where: str):
        """Read a tokenizer from ``content``, the bytes of ``tokenizer.json``.

        ``spec`` names the tokenizer in manifests, and ``where`` names the file in errors. ``end_of_text`` is the token
        that ends a document. Raises ``ConfigError`` if this token is missing or the tokenizer is not supported.
        """
        parsed = _parsed(content, where)
        parsed["model"]["dropout"] = parsed["truncation"] = parsed["padding"] = (
            None  # equal text gives equal ids, all of them
        )
        parsed["post_processor"] = None  # and no ids are added before or after
        for token in parsed.get("added_tokens") or ():
            if isinstance(token, dict) and token.get("content") == end_of_text:
                token["special"] = True  # text cannot spell the end of text
        self.content, self.end, self.where = content, end_of_text, where
        self.library_json = json.dumps(parsed)  # for tokenizers.Tokenizer, which encodes text as in training
        self._identity = {name: parsed.get(name) for name in _IDENTITY}
        ids, special = _ids_of(parsed, where)
        if end_of_text not in ids:
            named = ", ".join(repr(token) for token in special) or "none"
            raise ConfigError(f"{where}: no token {end_of_text!r} to end a text; its special tokens: {named}")
        kind = _kind(parsed, where)
        tokens = [b""] * (max(ids.values()) + 1)
        added = {token["content"] for token in parsed.get("added_tokens") or ()}
        for token, i in ids.items():
            tokens[i] = b"" if token in special else token.encode() if token in added else kind(token)
        tokens[ids[end_of_text]] = b""
        super().__init__(spec, tokens)
        self.end_of_text, self.vocab_size = ids[end_of_text], len(tokens)
        self.dtype = np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")
        self._adds_space = b"".join(tokens[i] for i in self._ids("a")) == b" a"
        rewriting = [step["type"] for step in _steps(parsed.get("normalizer")) if step.get("type") != "Sequence"]
        notes = []
        if rewriting:
            notes.append(f"the tokenizer rewrites characters before it counts: {', '.join(rewriting)}")
        if self._adds_space and self.decode(self.encode(" a")) == "a":
            notes.append("the tokenizer takes a space at the beginning of a text for the one that it adds")
        self.note = "; ".join(notes)
        for probe in _PROBES:
            probe = probe.removeprefix(" ") if len(notes) > bool(rewriting) else probe
            if (back := self.decode(self.encode(probe))) != probe:
                raise ConfigError(
                    f"{where}: loses text, {probe!r} comes back as {back!r}; expected a byte-level tokenizer, or one "
                    "with byte fallback"
                )

    @functools.cached_property
    def digest(self) -> str:
        identity = json.dumps([self._identity, self.end_of_text], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()

    def _ids(self, text: str) -> np.ndarray:
        with self._explained():
            return np.array(self._library.encode(text, add_special_tokens=False).ids, np.uint32)

    @functools.cached_property
    def _library(self) -> Any:
        package = require("tokenizers", f"tokenizer {self.spec!r}", "text")
        with self._explained():
            library = package.Tokenizer.from_str(self.library_json)
        library.encode_special_tokens = True  # text that spells a special token stays text
        return library

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Within a ``with`` block, convert errors of the library ``tokenizers`` to ``ConfigError``.

        These include panics of its Rust code, each of which is a ``BaseException`` but not an ``Exception``.
        """
        try:
            yield
        except (KeyboardInterrupt, MadbenchError, MemoryError, SystemExit):
            raise
        except BaseException as error:
            raise ConfigError(f"{self.where}: not a tokenizer of Hugging Face ({error})") from None

    def decode(self, ids: Iterable[int]) -> str:
        documents: list[list[bytes]] = [[]]
        for i in ids:
            if i == self.end_of_text:
                documents.append([])
            else:
                documents[-1].append(self.tokens[i])
        texts = [b"".join(parts) for parts in documents]
        texts = [text.removeprefix(b" ") if self._adds_space else text for text in texts]
        return b"".join(texts).decode("utf-8", "replace")

    def token_bytes(self) -> np.ndarray:
        return np.array([*map(len, self.tokens)], np.uint32)

    def save(self, folder: Path) -> None:
        write_atomically(Path(folder) / FILE, self.content)
        write_atomically(Path(folder) / CONFIG, json.dumps({"eos_token": self.end}).encode() + b"\n")


def folder_of(spec: str) -> str:
    """The folder in a specification ``hf-tokenizer:FOLDER``. Empty if ``spec`` names another tokenizer."""
    return spec.removeprefix(PREFIX) if spec.startswith(PREFIX) else ""


def load_folder(spec: str, copies: Path | None = None) -> FolderTokenizer:
    """Load the tokenizer ``hf-tokenizer:FOLDER``, or its copy in the folder ``copies`` of a corpus if there is one.

    Raises ``ConfigError`` if there is no tokenizer, or one that is not supported.
    """
    folder = Path(folder_of(spec))
    spec = f"{PREFIX}{folder.absolute()}"
    if copies is not None and all((Path(copies) / name).is_file() for name in FILES):
        folder = Path(copies)
    if not (folder / FILE).is_file():
        problem = "no such folder" if not folder.is_dir() else f"holds no {FILE}"
        if (folder / "tokenizer.model").is_file():
            problem += " beside tokenizer.model; transformers' AutoTokenizer(...).save_pretrained(FOLDER) writes one"
        raise ConfigError(f"tokenizer {spec!r}: {folder}: {problem}")
    content = read_file(folder / FILE, folder / FILE)
    return FolderTokenizer(spec, content, _end_of_text(folder, content), str(folder / FILE))


def _end_of_text(folder: Path, content: bytes) -> str:
    """The end-of-text token that the folder's configuration names, or else the only special token among ``ENDS``.

    ``content`` is the content of ``tokenizer.json``. Raises ``ConfigError`` if there is no such token.
    """
    for name in (CONFIG, "special_tokens_map.json"):
        if (folder / name).is_file():
            try:
                token = parse_json(read_file(folder / name, folder / name)).get("eos_token")
            except (ValueError, AttributeError) as error:
                raise ConfigError(f"{folder / name}: not a JSON object ({type(error).__name__})") from None
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and token:
                return token
    _, special = _ids_of(_parsed(content, str(folder / FILE)), str(folder / FILE))
    usual = [token for token in ENDS if token in special]
    if len(usual) != 1:
        named = ", ".join(map(repr, special)) or "none"
        raise ConfigError(
            f"{folder / FILE}: no file names its end of text; write {CONFIG} beside it, such as "
            f'{{"eos_token": "</s>"}}. Its special tokens: {named}'
        )
    return usual[0]


def _parsed(content: bytes, where: str) -> dict[str, Any]:
    try:
        parsed = parse_json(content)
        if not isinstance(parsed, dict) or not isinstance(parsed["model"], dict):
            raise TypeError("its model is not an object")
        if not isinstance(parsed.get("added_tokens"), (list, type(None))):
            raise TypeError("added_tokens is not a list")
        return parsed
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where}: not a tokenizer of Hugging Face ({type(error).__name__}: {error})") from None


def _ids_of(parsed: dict[str, Any], where: str) -> tuple[dict[str, int], list[str]]:
    """The id of every token, by the token's text, and the list of special tokens.

    ``parsed`` is the content of ``tokenizer.json``, and ``where`` names the file in errors. Raises ``ConfigError`` if
    they cannot be read.
    """
    try:
        vocabulary = parsed["model"].get("vocab", {})
        if isinstance(vocabulary, list):  # a unigram model, with scores
            vocabulary = {token: i for i, (token, _) in enumerate(vocabulary)}
        added = parsed.get("added_tokens") or []
        ids = {**vocabulary, **{token["content"]: token["id"] for token in added}}
        special = [token["content"] for token in added if token["special"]]
        if not ids or not all(type(i) is int and 0 <= i < 1 << 24 for i in ids.values()):
            raise ValueError("invalid ids")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: its vocabulary cannot be read ({type(error).__name__}: {error})") from None
    return ids, special


def _kind(parsed: dict[str, Any], where: str) -> Any:
    """The function from the text of a token to the token's bytes, for the content ``parsed`` of ``tokenizer.json``.

    A byte-level tokenizer writes tokens with GPT-2's character for each byte. A tokenizer with byte fallback writes
    them in characters, or as ``<0x0A>`` for a single byte. Raises ``ConfigError``, whose message begins with ``where``,
    for any other tokenizer.
    """
    names = [step.get("type") for part in ("pre_tokenizer", "decoder") for step in _steps(parsed.get(part))]
    if "ByteLevel" in names:
        return _byte_level(where)
    if "ByteFallback" in names or parsed["model"].get("byte_fallback"):
        return _character_bytes
    raise ConfigError(
        f"{where}: a {parsed['model'].get('type')} without bytes for characters that it does not know, which loses "
        "text; expected a byte-level tokenizer, or one with byte fallback"
    )


def _steps(part: Any) -> list[dict[str, Any]]:
    """A part of ``tokenizer.json``, such as the normalizer, as a list of its steps. Empty if the file lacks the part.

    A step of type ``Sequence`` is followed by the steps that it contains.
    """
    if not isinstance(part, dict):
        return []
    inner = part.get("pretokenizers") or part.get("decoders") or part.get("normalizers") or []
    return [part, *(step for each in inner for step in _steps(each))]


def _byte_level(where: str) -> Any:
    def bytes_of_token(token: str) -> bytes:
        try:
            return bytes_of(token)
        except KeyError:
            raise ConfigError(f"{where}: token {token!r} is not written in GPT-2's letters for bytes") from None

    return bytes_of_token


def _character_bytes(token: str) -> bytes:
    if match := re.fullmatch("<0x([0-9A-Fa-f]{2})>", token):
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE, " ").encode()
