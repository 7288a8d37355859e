"""An unfinished corpus: token files that grow, and a state file that says how far they can be trusted.

``<folder>/partial/`` holds ``train.bin``, ``val.bin``, a trained tokenizer's ``tokenizer.json`` and ``progress.json``.
The state counts only what is on disk; ids beyond its counts come from a killed process and are overwritten.
A ``manifest.json`` in it means that nothing is missing but moving the files up.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from madbench import __version__
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, remove, sync_folder
from madbench.text.corpus import (
    MANIFEST,
    PARTIAL,
    SPLITS,
    Manifest,
    Recipe,
    SourceInfo,
    Split,
    SplitInfo,
    TokenizerInfo,
    save,
)
from madbench.text.tokenizers import FILE as TOKENIZER
from madbench.text.tokenizers import Tokenizer, trained_size

PROGRESS = "progress.json"

Encoded = dict[Split, tuple[np.ndarray, SplitInfo]]
"""The ids of a batch in the tokenizer's dtype, and what they add to the split's counts, by split."""


@dataclass(frozen=True)
class Batch:
    """Documents of one source, in order."""

    texts: list[str]
    source: SourceInfo  # with the number of its documents so far
    is_last: bool  # whether the source ends here


@dataclass(frozen=True)
class State:
    """How far the pass over the sources is."""

    manifest: Manifest  # of the token files so far; its last source may have more documents
    boundary: Manifest  # the same without the source being read

    def bytes_of(self, split: Split) -> int:
        """Bytes of the split's token file that count."""
        return self.manifest.splits[split].tokens * np.dtype(self.manifest.dtype).itemsize


def begin(folder: Path, recipe: Recipe, rule: str, tokenizer: Tokenizer, notes: tuple[str, ...]) -> State:
    """Makes the token files, empty, with a trained tokenizer beside them; the state before the first document."""
    with explain_os_errors(folder):
        (folder / PARTIAL).mkdir()
        for split in SPLITS:
            (folder / PARTIAL / f"{split}.bin").touch()
    if trained_size(tokenizer.spec):
        tokenizer.save(folder / PARTIAL)
    empty, info = dict.fromkeys(SPLITS, SplitInfo()), TokenizerInfo.of(tokenizer)
    manifest = Manifest(recipe, info, tokenizer.dtype.name, rule, empty, notes=notes)
    return State(manifest, manifest)


def append(folder: Path, state: State, batch: Batch, encoded: Encoded) -> State:
    """Writes the ids of a batch. Where that fails, as on a full disk, ``state`` still holds."""
    splits = {}
    for split, (ids, added) in encoded.items():
        path, before = folder / PARTIAL / f"{split}.bin", state.manifest.splits[split]
        with explain_os_errors(path, ids.nbytes), open(path, "r+b") as file:
            file.seek(state.bytes_of(split))
            file.write(ids.tobytes())
        counts = (before.tokens + added.tokens, before.bytes + added.bytes, before.documents + added.documents)
        splits[split] = SplitInfo(*counts)
    manifest = replace(state.boundary, splits=splits, sources=(*state.boundary.sources, batch.source))
    return State(manifest, manifest if batch.is_last else state.boundary)


def save_state(folder: Path, state: State) -> None:
    """Makes what was appended survive the end of the process and of the machine."""
    for split in SPLITS:
        path = folder / PARTIAL / f"{split}.bin"
        with explain_os_errors(path), open(path, "r+b") as file:
            if os.fstat(file.fileno()).st_size < state.bytes_of(split):
                raise StoreError(f"{path}: shorter than {PROGRESS} says; --force starts afresh")
            file.truncate(state.bytes_of(split))
            os.fsync(file.fileno())
    save(state, folder / PARTIAL / PROGRESS)


def complete(folder: Path, manifest: Manifest) -> None:
    """Makes the token files that ``manifest`` counts the corpus in ``folder``."""
    splits = {}
    with explain_os_errors(folder):
        for split, info in manifest.splits.items():
            if not info.tokens:
                remove(folder / PARTIAL)
                documents = sum(info.documents for info in manifest.splits.values())
                raise ConfigError(
                    f"the sources leave {split} without text: {documents} documents, of which {manifest.split_rule}; "
                    "give more text or another --validation"
                )
            with open(folder / PARTIAL / f"{split}.bin", "rb") as file:
                splits[split] = replace(info, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    manifest = replace(manifest, splits=splits, madbench=__version__, python=platform.python_version())
    save(manifest, folder / PARTIAL / MANIFEST)
    install(folder)


def install(folder: Path) -> None:
    """Moves the files of a corpus that is complete in ``folder/partial`` up, over any older one.

    The manifest goes last. Killed at any point, another call finishes it.
    """
    partial = folder / PARTIAL
    with explain_os_errors(folder):
        remove(partial / PROGRESS)
        if (partial / "train.bin").exists():
            for stale in (MANIFEST, TOKENIZER):
                remove(folder / stale)
        for name in ("train.bin", "val.bin", TOKENIZER, MANIFEST):
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
                sync_folder(folder)
        remove(partial)
