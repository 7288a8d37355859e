"""An unfinished corpus: the token files of two splits, which grow, and a state file that records their valid length.

``<folder>/partial/`` holds ``train.bin``, ``val.bin``, ``progress.json`` and the tokenizer's files, if it has any. The
state counts only ids that are on disk. Ids beyond its counts come from a killed process and are overwritten. If
``partial/`` has a ``manifest.json``, the corpus is complete and only has to be moved into ``<folder>``.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from madbench._version import __version__
from madbench.config import convert
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, file_digest, remove, sync_folder
from madbench.text.byte_tokenizer import Tokenizer
from madbench.text.corpus import PARTIAL
from madbench.text.folder_tokenizer import FILES as TOKENIZER
from madbench.text.manifest import (
    MANIFEST,
    SPLITS,
    Manifest,
    Recipe,
    SourceInfo,
    Split,
    SplitInfo,
    TokenizerInfo,
    save,
)

PROGRESS = "progress.json"
IdType = Literal["uint8", "uint16", "uint32", "uint64"]

Encoded = dict[Split, tuple[np.ndarray, SplitInfo]]
"""For each split: the ids of a batch in the tokenizer's dtype, and the numbers of their tokens, bytes and documents."""


@dataclass(frozen=True)
class SplitRule:
    """The rule that assigns text to training or validation.

    By default a document is assigned as a whole, by its hash, so copies of a document are never in both splits. If
    there are too few documents for that, the end of every document is for validation (``by_tail``).
    """

    validation: float
    """Share of the text that is for validation."""
    by_tail: bool
    """True if the end of every document is for validation."""

    def parts(self, text: str) -> list[tuple[Split, str]]:
        """Divide the text of a non-empty document between the splits. Parts that would be empty are left out."""
        if self.by_tail:
            cut = len(text) - round(len(text) * self.validation)
            return [(split, part) for split, part in zip(SPLITS, (text[:cut], text[cut:])) if part]
        digest = hashlib.sha256(text.encode()).digest()
        return [("val" if int.from_bytes(digest[:8], "big") < self.validation * 2**64 else "train", text)]

    def __str__(self) -> str:
        if self.by_tail:
            return f"val has the last {100 * self.validation:g}% of every document, by characters"
        return f"val has the documents whose sha256, as a fraction of its range, is below {self.validation:g}"


def add_counts(one: SplitInfo, other: SplitInfo) -> SplitInfo:
    """Add the numbers of tokens, bytes and documents of two parts of a split. None of the numbers may be None."""
    assert one.bytes is not None and one.documents is not None
    assert other.bytes is not None and other.documents is not None
    return SplitInfo(one.tokens + other.tokens, one.bytes + other.bytes, one.documents + other.documents)


@dataclass(frozen=True)
class DocumentBatch:
    """A batch of consecutive documents from one source."""

    texts: list[str]
    source: SourceInfo
    """The record of the source, with the number of its documents up to the end of this batch."""
    is_last: bool
    """True if this is the last batch of the source."""


@dataclass(frozen=True)
class PreparationState:
    """The state of the preparation of a corpus: what the token files have so far."""

    manifest: Manifest
    """The manifest of the token files so far. The last source may have more documents."""
    boundary: Manifest
    """The manifest of the token files as they were after the last source that has been read to its end."""

    def bytes_of(self, split: Split) -> int:
        """The number of valid bytes of the split's token file."""
        return self.manifest.splits[split].tokens * np.dtype(self.manifest.dtype).itemsize

    def append(self, folder: Path, batch: DocumentBatch, encoded: Encoded) -> PreparationState:
        """Append the ids of a batch to the token files of the unfinished corpus in ``folder``. Return the new state.

        ``encoded`` has the ids. If writing fails, as on a full disk, this state is still valid.
        """
        splits: dict[str, SplitInfo] = {}
        for split, (ids, added) in encoded.items():
            path, before = folder / PARTIAL / f"{split}.bin", self.manifest.splits[split]
            with explain_os_errors(path, ids.nbytes), open(path, "r+b") as file:
                file.seek(self.bytes_of(split))
                file.write(ids.tobytes())
            splits[split] = add_counts(before, added)
        manifest = replace(self.boundary, splits=splits, sources=(*self.boundary.sources, batch.source))
        return PreparationState(manifest, manifest if batch.is_last else self.boundary)

    def save(self, folder: Path) -> None:
        """Save the token files and this state, so that they survive a crash of the process or the machine.

        Raises ``StoreError`` if a token file is shorter than the state says.
        """
        for split in SPLITS:
            path = folder / PARTIAL / f"{split}.bin"
            with explain_os_errors(path), open(path, "r+b") as file:
                if os.fstat(file.fileno()).st_size < self.bytes_of(split):
                    raise StoreError(f"{path}: shorter than {PROGRESS} says; --force starts afresh")
                file.truncate(self.bytes_of(split))
                os.fsync(file.fileno())
        save(self, folder / PARTIAL / PROGRESS)

    def complete(self, folder: Path) -> None:
        """Write the manifest, and move the token files into ``folder`` as a complete corpus.

        Raises ``ConfigError`` if a split has no text.
        """
        splits = {}
        with explain_os_errors(folder):
            for split, info in self.manifest.splits.items():
                if not info.tokens:
                    remove(folder / PARTIAL)
                    documents = sum(info.documents or 0 for info in self.manifest.splits.values())
                    skipped = sum(source.skipped for source in self.manifest.sources)
                    beside = f" beside {skipped} rows without a text" if skipped else ""
                    raise ConfigError(
                        f"the sources leave {split} without text: {documents} documents{beside}, of which "
                        f"{self.manifest.split_rule}; give more text or another --validation"
                    )
                splits[split] = replace(info, sha256=file_digest(folder / PARTIAL / f"{split}.bin"))
        manifest = replace(self.manifest, splits=splits, madbench=__version__, python=platform.python_version())
        save(manifest, folder / PARTIAL / MANIFEST)
        install_corpus(folder)


def start_corpus(
    folder: Path, recipe: Recipe, rule: SplitRule, tokenizer: Tokenizer, notes: tuple[str, ...]
) -> PreparationState:
    """Create empty token files in ``folder`` and save the tokenizer. Return the state before the first document.

    ``recipe``, ``rule`` and ``notes`` are stored in the manifest.
    """
    with explain_os_errors(folder):
        (folder / PARTIAL).mkdir()
        for split in SPLITS:
            (folder / PARTIAL / f"{split}.bin").touch()
    tokenizer.save(folder / PARTIAL)
    splits: dict[str, SplitInfo] = {split: SplitInfo() for split in SPLITS}
    dtype = convert(tokenizer.dtype.name, IdType, "the tokenizer")
    manifest = Manifest(recipe, TokenizerInfo.from_tokenizer(tokenizer), dtype, str(rule), splits, notes=notes)
    return PreparationState(manifest, manifest)


def encode(texts: list[str], tokenizer: Tokenizer, rule: SplitRule) -> Encoded:
    """Divide documents between the splits by ``rule``, and encode them.

    The end-of-text id follows each document, or each part of a document that is divided.
    """
    end = np.array([tokenizer.end_of_text], tokenizer.dtype)
    parts = [part for text in texts for part in rule.parts(text)]
    encoded = {}
    for split in SPLITS:
        texts_of_split = [text for name, text in parts if name == split]
        ids = np.concatenate([end[:0], *(array for text in texts_of_split for array in (tokenizer.encode(text), end))])
        encoded[split] = (
            ids,
            SplitInfo(len(ids), sum(len(text.encode()) for text in texts_of_split), len(texts_of_split)),
        )
    return encoded


def install_corpus(folder: Path) -> None:
    """Move the complete corpus in ``folder/partial`` into ``folder``, over any older corpus.

    The manifest is moved last. If a call is interrupted at any point, another call finishes the move.
    """
    partial = folder / PARTIAL
    with explain_os_errors(folder):
        remove(partial / PROGRESS)
        if (partial / "train.bin").exists():
            for stale in (MANIFEST, *TOKENIZER):
                remove(folder / stale)
        for name in ("train.bin", "val.bin", *TOKENIZER, MANIFEST):
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
                sync_folder(folder)
        remove(partial)
