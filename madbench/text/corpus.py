"""A corpus: two memory-mapped files of token ids, ``train.bin`` and ``val.bin``, and their manifest.

The files have nanoGPT's format: a sequence of ids, little-endian uint16 (uint32 if the vocabulary needs it). ``madbench
lm prepare`` also writes ``manifest.json``, which identifies the corpus and the request that made it. For a folder that
nanoGPT's scripts wrote, the manifest is computed by reading the files once (:mod:`madbench.text.token_files`).
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from madbench.details import CorpusDetails, SplitDetails
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors
from madbench.text.byte_tokenizer import Tokenizer
from madbench.text.manifest import (
    AS_FOUND,
    MANIFEST,
    SPLITS,
    Manifest,
    Recipe,
    Split,
    SplitInfo,
    TokenizerInfo,
    load,
    save,
)
from madbench.text.token_files import check_header, likely_dtype, named_dtype
from madbench.text.tokenizers import load_tokenizer

PARTIAL = "partial"  # folder of an unfinished corpus, inside that of the finished one
VOCAB_MULTIPLE = 64

_CHUNK = 1 << 22  # ids read at a time


@dataclass(frozen=True)
class Corpus:
    """A folder with token files, and its manifest. Use :func:`open_corpus` to open one."""

    folder: Path
    manifest: Manifest
    cache: Path | None = field(default=None, compare=False)
    """Folder with a record of verified files, which are not read again. If None, there is no such record."""

    def verify(self) -> None:
        """Verify that the token files match the manifest. Files that ``cache`` records as verified are not read again.

        Raises ``StoreError`` if a file has changed or is not on this machine.
        """
        for path in (self.folder / f"{split}.bin" for split in SPLITS):
            if not path.exists():
                raise StoreError(f"{path}: not there; every machine that trains needs the corpus at this path")
        tokenizer, token_bytes = self.manifest.tokenizer, None if self.manifest.recipe else self.token_bytes()
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        splits = _as_stored(self.folder, tokenizer, dtype, token_bytes, self.cache).splits
        for split, info in self.manifest.splits.items():
            if splits[split].sha256 != info.sha256:
                path, advice = self.folder / f"{split}.bin", "give the command again to train on what is there now"
                if self.manifest.recipe:
                    advice = f"delete {self.folder} and prepare the corpus again"
                raise StoreError(f"{path}: damaged or changed: not the tokens that its manifest describes; {advice}")

    @property
    def name(self) -> str:
        return self.manifest.recipe.name if self.manifest.recipe else self.folder.resolve().name

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that identify tokens, split and tokenizer. They do not depend on the folder."""
        manifest, splits = self.manifest, self.manifest.splits
        identity = [splits["train"].sha256, splits["val"].sha256, manifest.tokenizer.digest, manifest.dtype]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    @property
    def vocab_size(self) -> int:
        """The number of ids of the tokenizer, including end of text."""
        return self.manifest.tokenizer.vocab_size

    @property
    def padded_vocab_size(self) -> int:
        """``vocab_size`` rounded up to a multiple of 64, for fast matrix products: 257 -> 320, 50257 -> 50304."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    def absolute(self) -> Corpus:
        """A copy of the corpus with absolute paths, for a process with another working directory."""
        return replace(self, folder=self.folder.absolute(), cache=self.cache and self.cache.absolute())

    def tokens(self, split: Split) -> np.memmap:
        """The ids (N,) of a split, as a read-only memory map of its file."""
        return np.memmap(self.folder / f"{split}.bin", np.dtype(self.manifest.dtype).newbyteorder("<"), mode="r")

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer with which the corpus was encoded.

        Raises ``ConfigError`` if the tokenizer is unknown (``none:N``), or if the installed one would give other ids.
        """
        info = self.manifest.tokenizer
        if _number_of_ids(info.spec):
            raise ConfigError(
                f"{self.folder}: not readable as text: its tokenizer is {info.spec}, which means ids only"
            )
        tokenizer = load_tokenizer(info.spec, self.folder)
        if tokenizer.digest != info.digest:
            raise ConfigError(
                f"{self.folder}: written with tokenizer {info.spec} of digest {info.digest[:16]}; the one here has "
                f"{tokenizer.digest[:16]}: prepare the corpus again or bring its tokenizer back"
            )
        return tokenizer

    def token_bytes(self) -> np.ndarray | None:
        """The number of UTF-8 bytes of each token, (vocab_size,). 0 for the end of text.

        None if the tokenizer is unknown (``none:N``).
        """
        return None if _number_of_ids(self.manifest.tokenizer.spec) else self.tokenizer().token_bytes()

    def description(self) -> CorpusDetails:
        """The description of the corpus in a run's record: name, digest, tokenizer, splits and sources."""
        sources = [[source.name, source.sha256] for source in self.manifest.sources]
        return {
            "name": self.name,
            "digest": self.digest,
            "folder": str(self.folder.resolve()),
            "tokenizer": self.manifest.tokenizer.spec,
            "dtype": self.manifest.dtype,
            "vocab_size": self.vocab_size,
            "splits": {name: cast(SplitDetails, asdict(split)) for name, split in self.manifest.splits.items()},
            "split_rule": self.manifest.split_rule,
            "sources": {
                "count": len(sources),
                "sha256": hashlib.sha256(json.dumps(sources).encode()).hexdigest(),
                "skipped": sum(source.skipped for source in self.manifest.sources),
            },
        }


def imagined_corpus(vocab_size: int) -> Corpus:
    """A corpus without tokens, whose tokenizer has ``vocab_size`` ids. It is enough to plan jobs, not to train them."""
    info = TokenizerInfo(f"none:{vocab_size}", "", vocab_size)
    dtype: Literal["uint16", "uint32"] = "uint16" if vocab_size <= 1 << 16 else "uint32"
    return Corpus(
        Path(), Manifest(Recipe("none", info.spec, 0.0, ""), info, dtype, "none", dict.fromkeys(SPLITS, SplitInfo()))
    )


def open_corpus(
    folder: Path | str, tokenizer: str | None = None, cache: Path | None = None, dtype: str | None = None
) -> Corpus:
    """Open the corpus in ``folder``, prepared by madbench or with nanoGPT's ``train.bin`` and ``val.bin``.

    The folder is only read. The token files are verified.

    Args:
        folder: the folder of the corpus.
        tokenizer: tokenizer of nanoGPT's ids: ``gpt2`` (the default), ``bytes``, or ``none:N`` for N ids of a tokenizer
            that madbench does not have; then there are losses per token but no text.
        cache: folder with a record of verified files and of nanoGPT's manifests. Only files with a new size, inode or
            time of change are read again. Without it, files are read each time.
        dtype: type of nanoGPT's ids, such as ``uint16``; by default found by
            :func:`madbench.text.token_files.likely_dtype`.

    Raises ``ConfigError`` if the folder is not a corpus, if the tokenizer or type is wrong, or if an id exceeds the
    vocabulary. Raises ``StoreError`` if the corpus is unfinished, truncated or damaged.
    """
    folder, asked = Path(folder), None if dtype is None else named_dtype(dtype)
    if not folder.is_dir():
        raise ConfigError(f"corpus {str(folder)!r}: no such folder; madbench lm prepare makes one from text")
    manifest = load(Manifest, folder / MANIFEST)
    if manifest is None:
        return Corpus(folder, _foreign_manifest(folder, tokenizer, asked, cache), cache)
    if tokenizer not in (None, manifest.tokenizer.spec):
        raise ConfigError(
            f"--tokenizer {tokenizer!r}: {folder} was prepared with {manifest.tokenizer.spec}; leave out --tokenizer"
        )
    if asked not in (None, np.dtype(manifest.dtype)):
        raise ConfigError(f"--dtype {dtype!r}: {folder} has ids of type {manifest.dtype}; leave out --dtype")
    for split, info in manifest.splits.items():
        with explain_os_errors(folder / f"{split}.bin"):
            size = (folder / f"{split}.bin").stat().st_size
        expected = info.tokens * np.dtype(manifest.dtype).itemsize
        if size != expected:
            raise StoreError(
                f"{folder / split}.bin: {'truncated: ' if size < expected else ''}{size} bytes where its manifest has "
                f"{expected}; prepare the corpus again with --force"
            )
    corpus = Corpus(folder, manifest, cache)
    corpus.verify()
    return corpus


def _foreign_manifest(folder: Path, spec: str | None, dtype: np.dtype | None, cache: Path | None) -> Manifest:
    """The manifest of token files that another program wrote, computed from the files or read from ``cache``.

    ``spec`` names the tokenizer, by default ``gpt2``. ``dtype`` is the type of the ids, by default the likely one.
    Raises the errors of :func:`open_corpus`.
    """
    missing = [name for name in ("train.bin", "val.bin") if not (folder / name).is_file()]
    if (folder / PARTIAL).is_dir():
        raise StoreError(f"{folder}: not finished; run the madbench lm prepare command that began it to resume")
    if missing:
        raise ConfigError(f"{folder}: {' and '.join(missing)} missing; madbench lm prepare makes a corpus from text")
    if spec is None and (folder / "meta.pkl").exists():
        raise ConfigError(
            f"{folder}: meta.pkl says that these ids are of a vocabulary of their own, which madbench does not load (a "
            "pickle can run any code); give the number of its ids, as in --tokenizer none:65"
        )
    spec, token_bytes = spec or "gpt2", None
    if vocab_size := _number_of_ids(spec):
        info = TokenizerInfo(spec, hashlib.sha256(spec.encode()).hexdigest(), vocab_size)
    else:
        tokenizer = load_tokenizer(spec, folder)
        info, token_bytes = TokenizerInfo.from_tokenizer(tokenizer), tokenizer.token_bytes()
    paths = [folder / f"{split}.bin" for split in SPLITS]
    with explain_os_errors(folder):
        for path in paths:
            check_header(path)
        dtype = dtype or likely_dtype(paths, info.vocab_size)
    return _as_stored(folder, info, dtype, token_bytes, cache)


def _as_stored(
    folder: Path, info: TokenizerInfo, dtype: np.dtype, token_bytes: np.ndarray | None, cache: Path | None
) -> Manifest:
    """The manifest of the token files as they are on disk now, computed from them or read from ``cache``.

    ``info`` describes the tokenizer, and ``dtype`` is the type of the ids. ``token_bytes`` has the number of bytes of
    each token. If it is None, bytes of text are not counted.
    """
    paths = {split: folder / f"{split}.bin" for split in SPLITS}
    with explain_os_errors(folder):
        stats = [path.stat() for path in paths.values()]
    stamps = [(stat.st_size, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
    key = json.dumps([str(folder.resolve()), info.digest, dtype.name, token_bytes is None, stamps])
    name = f"{folder.resolve().name}-{hashlib.sha256(key.encode()).hexdigest()}.json"
    with suppress(StoreError):
        if cache and (manifest := load(Manifest, cache / name)):
            return manifest
    with explain_os_errors(folder):
        splits: dict[str, SplitInfo] = {
            split: _read_split(path, info.vocab_size, dtype, token_bytes) for split, path in paths.items()
        }
    manifest = Manifest(None, info, cast(Any, dtype.name), AS_FOUND, splits)
    if cache:
        with suppress(OSError, StoreError):  # without a cache entry, files are read again
            cache.mkdir(parents=True, exist_ok=True)
            save(manifest, cache / name)
    return manifest


def _read_split(path: Path, vocab_size: int, dtype: np.dtype, token_bytes: np.ndarray | None) -> SplitInfo:
    """Read a whole token file. Return its number of tokens and bytes of text, and its digest.

    Bytes are counted if ``token_bytes``, the number of bytes of each token, is not None.
    Raises ``StoreError`` for a truncated or empty file, and ``ConfigError`` for an id beyond the vocabulary.
    """
    size, text_bytes = path.stat().st_size, 0
    if not size:
        raise StoreError(f"{path}: empty; a corpus needs text to train on and text to validate on")
    if more := size % dtype.itemsize:
        ids: Any = f"{size // dtype.itemsize} ids of {dtype.itemsize} bytes"
        advice = "fetch it again, or give the type of its ids with --dtype"
        raise StoreError(f"{path}: truncated: {size} bytes are {ids} and {more} more; {advice}")
    ids = np.memmap(path, dtype, mode="r")
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        if chunk.max() >= vocab_size:
            first = int(np.argmax(chunk >= vocab_size))
            raise ConfigError(
                f"{path}, token {start + first}: token id {chunk[first]} is beyond the vocabulary of {vocab_size}; the "
                f"file is damaged, was written with another tokenizer (--tokenizer), or its ids are not {dtype.name} "
                "(--dtype)"
            )
        text_bytes += 0 if token_bytes is None else int(token_bytes[chunk].sum(dtype=np.int64))
    return SplitInfo(len(ids), None if token_bytes is None else text_bytes, None, hashlib.sha256(ids).hexdigest())


def _number_of_ids(spec: str) -> int | None:
    """The number N if ``spec`` is ``none:N``, which stands for N ids without a tokenizer. None if it names a tokenizer.

    Raises ``ConfigError`` for ``none`` without a valid number.
    """
    if spec.partition(":")[0] != "none":
        return None
    if not re.fullmatch(r"none:[1-9][0-9]{0,8}", spec):
        raise ConfigError(f"tokenizer {spec!r}: expected none:N with the number N of ids, as in none:65")
    return int(spec.removeprefix("none:"))


def window_count(split: str, n_tokens: int, seq_len: int) -> int:
    """The number of windows in a split of ``n_tokens`` tokens. A window has ``seq_len`` inputs and one token more.

    Windows overlap: each begins one token after the one before. ``split`` names the split in errors. Raises
    ``ConfigError`` if the split is too short for a window.
    """
    if n_tokens <= seq_len:
        shorter = f"take a seq_len of at most {n_tokens - 1}, or " if n_tokens > 1 else ""
        raise ConfigError(
            f"the {split} split has {n_tokens} tokens; seq_len {seq_len} needs at least {seq_len + 1}: "
            f"{shorter}prepare the corpus again from more text"
        )
    return n_tokens - seq_len
