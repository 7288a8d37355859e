"""What ``manifest.json`` says about a prepared corpus: enough to identify it, and to tell which request made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError
from madbench.files import write_atomically

MANIFEST = "manifest.json"
FORMAT = 1

DType = Literal["uint16", "uint32"]


@dataclass(frozen=True)
class Recipe:
    """What a command asked for, beside the sources."""

    name: str
    """Name of the corpus."""
    tokenizer: str
    """``bytes``, ``gpt2``, ``bpe:N``, or the name and digest of a tokenizer that was read from a file."""
    validation: float
    """Share of the text that is for validation."""
    text_key: str
    """Key or column of the text in sources that have keys or columns."""


@dataclass(frozen=True)
class SourceInfo:
    """One source as it was read."""

    name: str
    """Path as given, or the name of the data set."""
    size: int
    """Bytes on disk."""
    mtime_ns: int | None
    """Time of the last change of the file, to notice another one; None where the source is no file."""
    sha256: str | None
    """Hash of the raw bytes; None where the source does not say, or was not read to its end."""
    documents: int
    """Documents read from it."""


@dataclass(frozen=True)
class TokenizerInfo:
    """The tokenizer that gave the ids."""

    spec: str
    """``bytes``, ``gpt2``, ``bpe:N``, or ``none:N`` where only the ids are known."""
    digest: str
    """Hash of all that decides ids."""
    vocab_size: int
    """Number of ids, end of text included."""


@dataclass(frozen=True)
class SplitInfo:
    """One of the two token files."""

    tokens: int
    """Token ids in the file."""
    bytes: int | None
    """UTF-8 bytes of the text they spell; None where the tokenizer is not known or the file not finished."""
    documents: int | None
    """Documents in it; None where nobody counted them."""
    sha256: str
    """Hash of the file, once it is finished."""


@dataclass(frozen=True)
class Manifest:
    """All that is known about a corpus."""

    recipe: Recipe | None
    """What was asked for; None for token files that madbench has not written."""
    tokenizer: TokenizerInfo
    """The tokenizer that gave the ids."""
    dtype: DType
    """Little-endian type of one id on disk."""
    split_rule: str
    """Which text is for validation, in words."""
    splits: dict[str, SplitInfo]
    """The files ``train`` and ``val``."""
    sources: tuple[SourceInfo, ...] = ()
    """Sources in the order they were read."""
    notes: tuple[str, ...] = ()
    """What else decided the content, in words."""
    madbench: str = ""
    """Version of madbench that wrote the files."""
    python: str = ""
    """Version of Python that wrote the files."""
    format: int = FORMAT
    """Version of this layout."""

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of both splits' tokens, their type and the tokenizer, and of nothing else."""
        identity = [self.splits["train"].sha256, self.splits["val"].sha256, self.tokenizer.digest, self.dtype]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    def difference(self, recipe: Recipe, sources: Sequence[SourceInfo]) -> str | None:
        """The first setting or source that another request has otherwise, in words; reads no source."""
        for name, value in vars(self.recipe).items():
            if value != getattr(recipe, name):
                return f"{name} {value} then, {getattr(recipe, name)} now"
        for then, now in zip(self.sources, sources):
            if then.name != now.name:
                return f"{then.name} then, {now.name} now"
            if (then.size, then.mtime_ns) != (now.size, now.mtime_ns):
                return f"{then.name} has changed since"
        then, now = len(self.sources), len(sources)
        return None if then == now else f"{then} sources then, {now} now"

    def save(self, folder: Path) -> None:
        """Writes ``manifest.json`` into ``folder``, atomically."""
        write_atomically(folder / MANIFEST, json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in ``folder``; None where there is none. A damaged one is a ``StoreError``."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        version = content.get("format") if isinstance(content, dict) else None
        if version != FORMAT:
            raise ConfigError(f"{path}: format {version!r}, but this madbench reads {FORMAT}")
        manifest = from_mapping(Manifest, content, str(path))
        if manifest.recipe is None or set(manifest.splits) != {"train", "val"}:
            raise ConfigError(f"{path}: it has no recipe, or not the splits train and val")
    except FileNotFoundError:
        return None
    except ConfigError as error:
        raise StoreError(f"{error}; prepare the corpus again with --force") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "damaged"
        raise StoreError(f"{path}: cannot be read ({reason}); prepare the corpus again with --force") from error
    return manifest
