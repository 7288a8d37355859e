"""An unfinished corpus: token files that grow, and a state file that says how far they can be trusted.

``<folder>/partial/`` holds ``train.bin``, ``val.bin``, a trained tokenizer's ``tokenizer.json`` and ``progress.json``.
The state counts only what is on disk; ids beyond its counts are a killed process's and are written over.
A ``manifest.json`` in it means that nothing is missing but moving the files up.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, remove, sync_folder, write_atomically
from madbench.text.bpe import FILE as TOKENIZER
from madbench.text.corpus import PARTIAL, SPLITS
from madbench.text.encoding import Batch, Encoded
from madbench.text.manifest import MANIFEST, DType, Recipe, SourceFacts, TokenizerFacts

PROGRESS = "progress.json"


@dataclass(frozen=True)
class Counts:
    """Tokens and documents by split."""

    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    documents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))


@dataclass(frozen=True)
class State:
    """How far the pass over the sources is, and what it is a pass of."""

    recipe: Recipe
    """What was asked for."""
    rule: str
    """Which text is for validation, in words."""
    tokenizer: TokenizerFacts
    """The tokenizer of the ids."""
    dtype: DType
    """Type of one id on disk."""
    ended: tuple[SourceFacts, ...] = ()
    """Sources that were read to their end."""
    reading: SourceFacts | None = None
    """The next source, with the documents of it that are done; None where it was not begun."""
    counts: Counts = field(default_factory=Counts)
    """What the token files hold."""
    counts_before: Counts = field(default_factory=Counts)
    """What they held when the source being read began."""


def read_state(folder: Path) -> State | None:
    """The state of the unfinished corpus in ``folder``; None where there is none. Damaged: ``StoreError``."""
    path = folder / PARTIAL / PROGRESS
    try:
        return from_mapping(State, json.loads(path.read_bytes()), str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ConfigError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); --force starts afresh") from error


class Partial:
    """The token files of an unfinished corpus, cut to what ``state`` counts; a context manager that closes them."""

    def __init__(self, folder: Path, state: State):
        self.folder = folder / PARTIAL
        self.state = state
        self.itemsize = np.dtype(state.dtype).itemsize
        self.ended = list(state.ended)
        self.reading, self.counts, self.counts_before = state.reading, state.counts, state.counts_before
        self.files: dict[str, int] = {}

    def __enter__(self) -> Self:
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for split in SPLITS:
                path = self.folder / f"{split}.bin"
                if self._size(split) > (path.stat().st_size if path.exists() else 0):
                    raise StoreError(f"{path}: shorter than {PROGRESS} says; --force starts afresh")
                self.files[split] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.files.values():
            os.close(descriptor)

    def append(self, batch: Batch, encoded: Encoded) -> None:
        """Writes the ids of a batch. Where that fails, as on a full disk, the batch has not been added."""
        for split in SPLITS:
            with explain_os_errors(self.folder / f"{split}.bin", len(encoded.ids[split])):
                rest, offset = memoryview(encoded.ids[split]), self._size(split)
                while rest:
                    written = os.pwrite(self.files[split], rest, offset)
                    rest, offset = rest[written:], offset + written
        self.counts = Counts(
            {split: self.counts.tokens[split] + len(encoded.ids[split]) // self.itemsize for split in SPLITS},
            {split: self.counts.documents[split] + encoded.documents[split] for split in SPLITS},
        )
        self.reading = batch.source
        if batch.is_last:
            self.ended.append(batch.source)
            self.reading, self.counts_before = None, self.counts

    def forget_source(self) -> None:
        """Goes back to the beginning of the source being read."""
        self.reading, self.counts = None, self.counts_before

    def save(self) -> None:
        """Makes what was appended survive the end of the process and of the machine."""
        self.state = dataclasses.replace(
            self.state,
            ended=tuple(self.ended),
            reading=self.reading,
            counts=self.counts,
            counts_before=self.counts_before,
        )
        with explain_os_errors(self.folder):
            for split, descriptor in self.files.items():
                os.ftruncate(descriptor, self._size(split))
                os.fsync(descriptor)
        write_atomically(self.folder / PROGRESS, json.dumps(dataclasses.asdict(self.state)).encode())

    def _size(self, split: str) -> int:
        return self.counts.tokens[split] * self.itemsize


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
