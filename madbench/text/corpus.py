"""A corpus: two memory-mapped files of token ids, ``train.bin`` and ``val.bin``, and what is known about them.

The files are nanoGPT's: ids one after another, little-endian uint16 (uint32 where the vocabulary needs it). A folder
that ``madbench lm prepare`` wrote says the rest in ``manifest.json``; one that nanoGPT's scripts wrote is read once,
in full, to learn it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, write_atomically
from madbench.text.batches import Split, check_tokens
from madbench.text.manifest import DType, Manifest, SplitFacts, TokenizerFacts, read_manifest

if TYPE_CHECKING:
    from madbench.text.tokenizers import Tokenizer

SPLITS: tuple[Split, Split] = ("train", "val")
PARTIAL = "partial"  # folder of an unfinished corpus, inside that of the finished one
VOCAB_MULTIPLE = 64

_CHUNK = 1 << 23  # bytes, a multiple of every id's size

OnRead = Callable[[int, int], object]
"""Called with the bytes just read and those that are to be read in all."""


@dataclass(frozen=True)
class Corpus:
    """A folder of tokens and what is known about it; :func:`open_corpus` makes one."""

    folder: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.manifest.recipe.name if self.manifest.recipe else self.folder.resolve().name

    @property
    def digest(self) -> str:
        """16 hexadecimal digits: the same tokens, split and tokenizer, the same digest, wherever they lie."""
        return self.manifest.digest

    @property
    def vocab_size(self) -> int:
        """Ids of the tokenizer, end of text included."""
        return self.manifest.tokenizer.vocab_size

    @property
    def padded_vocab_size(self) -> int:
        """``vocab_size`` up to a multiple of 64, which matrix products like: 257 -> 320, 50257 -> 50304."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    def tokens(self, split: Split) -> np.memmap:
        """Ids (n_tokens,) of a split, read-only and memory-mapped."""
        path = self.folder / f"{split}.bin"
        if not path.exists():
            raise StoreError(f"{path}: not there; every machine that trains needs the corpus at this path")
        return np.memmap(path, dtype=_on_disk(self.manifest.dtype), mode="r")

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that gave the ids.

        Raises ``ConfigError`` where only ids are known, or where the tokenizer here would give other ids.
        """
        return self._tokenizer

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        known = self.manifest.tokenizer
        tokenizer = _load_tokenizer(known.spec, self.folder)
        if tokenizer is None:
            raise ConfigError(
                f"{self.folder}: its tokens cannot be read as text: its tokenizer is {known.spec}, ids and nothing else"
            )
        if tokenizer.digest != known.digest:
            raise ConfigError(
                f"{self.folder}: written with tokenizer {known.spec} of digest {known.digest[:16]}; the one here has "
                f"{tokenizer.digest[:16]}: prepare the corpus again or bring its tokenizer back"
            )
        return tokenizer

    def token_bytes(self) -> np.ndarray | None:
        """UTF-8 bytes (vocab_size,) of each token, 0 for end of text; None where only ids are known."""
        return None if _is_ids_only(self.manifest.tokenizer.spec) else self.tokenizer().token_bytes()

    def description(self) -> dict[str, Any]:
        """What a run records about its data."""
        sources = [[source.name, source.sha256] for source in self.manifest.sources]
        return {
            "name": self.name,
            "digest": self.digest,
            "folder": str(self.folder.resolve()),
            "tokenizer": self.manifest.tokenizer.spec,
            "vocab_size": self.vocab_size,
            "splits": {name: asdict(facts) for name, facts in self.manifest.splits.items()},
            "split_rule": self.manifest.split_rule,
            "sources": {"count": len(sources), "sha256": hashlib.sha256(json.dumps(sources).encode()).hexdigest()},
        }


def open_corpus(
    folder: Path | str, tokenizer: str | None = None, cache: Path | None = None, on_read: OnRead = lambda *_: None
) -> Corpus:
    """The corpus in ``folder``: one that was prepared, or the ``train.bin`` and ``val.bin`` of nanoGPT's scripts.

    Args:
        folder: is only read.
        tokenizer: what gave nanoGPT's ids: ``gpt2`` (the default), ``bytes``, or ``none:N`` for ids below N of a
            tokenizer that madbench has not, which leaves the loss per token and no text.
        cache: folder that remembers what reading nanoGPT's files gave, so that only changed files are read again.
        on_read: called while they are read.

    Raises ``ConfigError`` for a folder that is no corpus, a wrong tokenizer and an id beyond its vocabulary, and
    ``StoreError`` for a corpus that is unfinished, truncated or damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"corpus {str(folder)!r}: no such folder; madbench lm prepare makes one from text")
    manifest = read_manifest(folder)
    if manifest is None:
        return Corpus(folder, _foreign_manifest(folder, tokenizer, cache, on_read))
    if tokenizer not in (None, manifest.tokenizer.spec):
        raise ConfigError(
            f"{folder}: its tokenizer is {manifest.tokenizer.spec}; {tokenizer!r} cannot be its tokenizer"
        )
    for split, facts in manifest.splits.items():
        size, expected = _size(folder / f"{split}.bin"), facts.tokens * _on_disk(manifest.dtype).itemsize
        if size != expected:
            raise StoreError(
                f"{folder / split}.bin: {'truncated: ' * (size < expected)}{size} bytes where its manifest has "
                f"{expected}; prepare the corpus again with --force"
            )
    return Corpus(folder, manifest)


def read_split(
    path: Path, dtype: DType, vocab_size: int, token_bytes: np.ndarray | None, on_read: Callable[[int], object]
) -> SplitFacts:
    """Reads a whole token file, to count, hash and check it; ``on_read`` gets the bytes just read.

    Raises ``StoreError`` for an empty or truncated file and ``ConfigError`` for an id of ``vocab_size`` or more.
    """
    size, item = _size(path), _on_disk(dtype).itemsize
    if size == 0:
        raise StoreError(f"{path}: empty; a corpus needs text to train on and text to validate on")
    if size % item:
        raise StoreError(
            f"{path}: truncated: {size} bytes are {size // item} ids of {item} bytes and {size % item} more"
        )
    digest, text_bytes, read = hashlib.sha256(), 0, 0
    with explain_os_errors(path), open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            ids = np.frombuffer(chunk, _on_disk(dtype))
            if ids.max() >= vocab_size:
                first = int(np.argmax(ids >= vocab_size))
                check_tokens(ids[first:][:1], vocab_size, f"{path}, token {read // item + first}")
            if token_bytes is not None:
                text_bytes += int(token_bytes[ids].sum(dtype=np.int64))
            read += len(chunk)
            on_read(len(chunk))
    return SplitFacts(size // item, text_bytes if token_bytes is not None else None, None, digest.hexdigest())


def _foreign_manifest(folder: Path, spec: str | None, cache: Path | None, on_read: OnRead) -> Manifest:
    """What can be learnt about token files that came without a manifest."""
    paths = {split: folder / f"{split}.bin" for split in SPLITS}
    missing = [path.name for path in paths.values() if not path.is_file()]
    if (folder / PARTIAL).is_dir():
        raise StoreError(f"{folder}: not finished; the madbench lm prepare command that began it goes on with it")
    if missing:
        raise ConfigError(
            f"{folder}: no corpus: {' and '.join(missing)} missing; madbench lm prepare makes one from text"
        )
    if spec is None and (folder / "meta.pkl").exists():
        raise ConfigError(
            f"{folder}: meta.pkl says that these ids are of a vocabulary of their own, which madbench does not load (a "
            "pickle can run any code); give the number of its ids, as in --tokenizer none:65"
        )
    spec = spec or "gpt2"
    tokenizer = _load_tokenizer(spec, folder)
    token_bytes = None if tokenizer is None else tokenizer.token_bytes()
    if tokenizer is None:
        facts = TokenizerFacts(spec, hashlib.sha256(spec.encode()).hexdigest(), int(spec.removeprefix("none:")))
    else:
        facts = TokenizerFacts(tokenizer.spec, tokenizer.digest, tokenizer.vocab_size)

    stamps = {split: [_size(path), path.stat().st_mtime_ns] for split, path in paths.items()}
    key = [str(folder.resolve()), facts.digest, stamps]
    remembered = (
        cache and cache / f"{folder.resolve().name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"
    )
    splits = _remembered(remembered)
    if splits is None:
        total = sum(size for size, _ in stamps.values())
        splits = {
            split: read_split(path, "uint16", facts.vocab_size, token_bytes, lambda read: on_read(read, total))
            for split, path in paths.items()
        }
        if remembered:
            content = json.dumps({split: asdict(found) for split, found in splits.items()}).encode()
            with suppress(OSError, StoreError):  # what is not remembered is read again
                remembered.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(remembered, content)
    return Manifest(None, facts, "uint16", "as the files came", splits)


def _remembered(path: Path | None) -> dict[str, SplitFacts] | None:
    try:
        content = json.loads(path.read_bytes()) if path else {}
        return {split: SplitFacts(**content[split]) for split in SPLITS}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _load_tokenizer(spec: str, folder: Path) -> Tokenizer | None:
    """The tokenizer, or None for ``none:N``."""
    if _is_ids_only(spec):
        return None
    from madbench.text.tokenizers import load_tokenizer

    return load_tokenizer(spec, folder)


def _is_ids_only(spec: str) -> bool:
    if spec.partition(":")[0] != "none":
        return False
    if not re.fullmatch(r"none:[1-9][0-9]{0,8}", spec):
        raise ConfigError(f"tokenizer {spec!r}: expected none:N with the number N of ids, as in none:65")
    return True


def _on_disk(dtype: DType) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
