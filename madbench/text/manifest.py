"""What ``manifest.json`` says about a prepared corpus: enough to identify it, and to tell whether a command made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError

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

    def difference(self, now: Recipe) -> str | None:
        """The first setting that another command has otherwise, in words."""
        for name, value in vars(self).items():
            if value != getattr(now, name):
                return f"{name} {value} then, {getattr(now, name)} now"
        return None


@dataclass(frozen=True)
class SourceFacts:
    """One source as it was read."""

    name: str
    """Path as given, or the name of the data set."""
    size: int
    """Bytes on disk."""
    mtime_ns: int | None
    """Time of the last change of the file, to notice another one; None where the source is no file."""
    sha256: str | None
    """Hash of the raw bytes; None where the source does not say."""
    documents: int
    """Documents in it."""

    @property
    def stamp(self) -> tuple[str, int, int | None]:
        """What tells a changed source without reading it."""
        return self.name, self.size, self.mtime_ns


@dataclass(frozen=True)
class TokenizerFacts:
    """The tokenizer that gave the ids."""

    spec: str
    """``bytes``, ``gpt2``, ``bpe:N``, or ``none:N`` where only the ids are known."""
    digest: str
    """Hash of all that decides ids."""
    vocab_size: int
    """Ids there are, end of text included."""


@dataclass(frozen=True)
class SplitFacts:
    """One of the two token files."""

    tokens: int
    """Token ids in the file."""
    bytes: int | None
    """UTF-8 bytes of the text they spell; None where the tokenizer is not known."""
    documents: int | None
    """Documents in it; None where nobody counted them."""
    sha256: str
    """Hash of the file."""


@dataclass(frozen=True)
class Manifest:
    """All that is known about a corpus."""

    recipe: Recipe | None
    """What was asked for; None for token files that madbench has not written."""
    tokenizer: TokenizerFacts
    """The tokenizer that gave the ids."""
    dtype: DType
    """Little-endian type of one id on disk."""
    split_rule: str
    """Which text is for validation, in words."""
    splits: dict[str, SplitFacts]
    """The files ``train`` and ``val``."""
    sources: tuple[SourceFacts, ...] = ()
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

    def to_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in ``folder``; None where there is none. A damaged one is a ``StoreError``."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "damaged"
        raise StoreError(f"{path}: cannot be read ({reason}); prepare the corpus again with --force") from error
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise StoreError(f"{path}: format {version!r}, but this madbench reads {FORMAT}; prepare again with --force")
    try:
        manifest = from_mapping(Manifest, content, str(path))
    except ConfigError as error:
        raise StoreError(f"{error}; prepare the corpus again with --force") from None
    if manifest.recipe is None or set(manifest.splits) != {"train", "val"}:
        raise StoreError(f"{path}: it has no recipe, or not the splits train and val; prepare again with --force")
    return manifest
