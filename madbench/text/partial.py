"""An unfinished corpus: token files that grow, and a state file that says how far they can be trusted.

``<folder>/partial/`` holds ``train.bin``, ``val.bin``, a trained tokenizer's ``tokenizer.json`` and ``progress.json``.
The state counts only what is on disk; ids beyond its counts come from a killed process and are overwritten.
A ``manifest.json`` in it means that nothing is missing but moving the files up.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError
from madbench.files import explain_os_errors, remove, sync_folder, write_atomically
from madbench.text.batches import SPLITS
from madbench.text.corpus import PARTIAL
from madbench.text.encoding import Batch, Encoded
from madbench.text.manifest import MANIFEST, Manifest, SourceInfo, SplitInfo
from madbench.text.tokenizers import FILE as TOKENIZER

PROGRESS = "progress.json"


@dataclass(frozen=True)
class State:
    """How far the pass over the sources is."""

    manifest: Manifest
    """Of what is done: sources that were read to their end, tokens and documents in the token files."""
    reading: SourceInfo | None
    """The next source, with the number of its documents that are done; None where it was not begun."""
    splits_before: dict[str, SplitInfo]
    """The splits when the source being read began."""


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
    """The token files of an unfinished corpus. Raises ``StoreError`` where they hold less than ``state`` counts."""

    def __init__(self, folder: Path, state: State):
        self.folder, self.state = folder / PARTIAL, state
        self.itemsize = np.dtype(state.manifest.dtype).itemsize
        with explain_os_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            for split in SPLITS:
                path = self.folder / f"{split}.bin"
                path.touch()
                if path.stat().st_size < self._size(split):
                    raise StoreError(f"{path}: shorter than {PROGRESS} says; --force starts afresh")

    def append(self, batch: Batch, encoded: Encoded) -> None:
        """Writes the ids of a batch. Where that fails, as on a full disk, the batch has not been added."""
        manifest, splits = self.state.manifest, {}
        for split, (ids, documents) in encoded.items():
            path = self.folder / f"{split}.bin"
            with explain_os_errors(path, ids.nbytes):
                _write_at(path, self._size(split), ids.tobytes())
            before = manifest.splits[split]
            splits[split] = replace(before, tokens=before.tokens + len(ids), documents=before.documents + documents)
        if batch.is_last:
            manifest = replace(manifest, splits=splits, sources=(*manifest.sources, batch.source))
            self.state = State(manifest, None, splits)
        else:
            self.state = replace(self.state, manifest=replace(manifest, splits=splits), reading=batch.source)

    def forget_source(self) -> None:
        """Goes back to the beginning of the source being read."""
        before = self.state.splits_before
        self.state = State(replace(self.state.manifest, splits=before), None, before)

    def save(self) -> None:
        """Makes what was appended survive the end of the process and of the machine."""
        with explain_os_errors(self.folder):
            for split in SPLITS:
                with open(self.folder / f"{split}.bin", "r+b") as file:
                    file.truncate(self._size(split))
                    os.fsync(file.fileno())
        write_atomically(self.folder / PROGRESS, json.dumps(asdict(self.state)).encode())

    def _size(self, split: str) -> int:
        return self.state.manifest.splits[split].tokens * self.itemsize


def _write_at(path: Path, offset: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


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
