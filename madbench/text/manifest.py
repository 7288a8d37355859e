"""The manifest of a corpus: the content of ``manifest.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from madbench.config import from_mapping
from madbench.errors import ConfigError, StoreError
from madbench.files import is_name, parse_json, read_file, seal, unseal, write_atomically

if TYPE_CHECKING:
    from madbench.text.byte_tokenizer import Tokenizer
    from madbench.text.documents import Source

Split = Literal["train", "val"]
SPLITS: tuple[Split, Split] = ("train", "val")
MANIFEST = "manifest.json"
MOST_BYTES = 256 * 2**20
"""The largest manifest in bytes. It has about 200 bytes per source."""
T = TypeVar("T")
AS_FOUND = "as the files came"  # the split rule of token files of another program


@dataclass(frozen=True)
class Recipe:
    """The settings with which a corpus was requested, without its sources.

    Raises ``ConfigError`` for a name that cannot be part of a path.
    """

    name: str
    tokenizer: str
    """``bytes``, ``gpt2``, ``bpe:N``, or name and digest of a tokenizer from a file."""
    validation: float
    text_key: str

    def __post_init__(self) -> None:
        if not is_name(self.name):
            problem = "expected one name of printable characters without '/', at most 200 bytes"
            raise ConfigError(f"name {self.name[:99]!r}: {problem}; give another with --name")


@dataclass(frozen=True)
class SourceInfo:
    """The record of one source in a manifest: what was read, and from where."""

    name: str
    """Path as given, or the name of the data set."""
    size: int
    """Size on disk in bytes."""
    mtime_ns: int | None
    """Time of the file's last change, to notice changes. None for a source that is not a file."""
    sha256: str | None
    """Digest of the raw bytes. None if it is unknown, or if the source was not read to the end."""
    documents: int
    """Number of documents that were read from the source."""
    skipped: int = 0
    """Number of rows without a text, which were skipped."""

    @classmethod
    def from_source(cls, source: Source, documents: int) -> SourceInfo:
        return cls(source.name, source.size, source.mtime_ns, source.sha256, documents, source.skipped)


@dataclass(frozen=True)
class TokenizerInfo:
    """A manifest's record of the tokenizer that gave the ids."""

    spec: str
    """``bytes``, ``gpt2``, ``bpe:N``, ``hf-tokenizer:FOLDER``, or ``none:N`` for ids without text."""
    digest: str
    """Hash of everything that determines the ids of a text."""
    vocab_size: int
    """Number of ids, including the end of text."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> TokenizerInfo:
        return cls(tokenizer.spec, tokenizer.digest, tokenizer.vocab_size)


@dataclass(frozen=True)
class SplitInfo:
    """A manifest's record of one token file: its numbers of tokens, bytes and documents, and its digest."""

    tokens: int = 0
    bytes: int | None = 0
    """Number of UTF-8 bytes of the text. None if the tokenizer is unknown."""
    documents: int | None = 0
    """Number of documents. None if they were not counted."""
    sha256: str = ""
    """Digest of the finished file. Empty before the file is finished."""


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``, which describes a corpus."""

    recipe: Recipe | None
    """The choices at preparation. None for token files that madbench has not written."""
    tokenizer: TokenizerInfo
    dtype: Literal["uint8", "uint16", "uint32", "uint64"]
    """Type of an id on disk, little-endian."""
    split_rule: str
    """The rule that assigns text to validation, in words."""
    splits: dict[str, SplitInfo]
    """The token files of the splits ``train`` and ``val``."""
    sources: tuple[SourceInfo, ...] = ()
    """The sources, in the order in which they were read."""
    notes: tuple[str, ...] = ()
    """Other facts that affect the content, in words."""
    madbench: str = ""
    """Versions that wrote the files."""
    python: str = ""
    format: Literal[1] = 1
    """Version of this layout."""

    def __post_init__(self) -> None:
        if self.splits.keys() != set(SPLITS):
            raise ConfigError(f"splits: expected {' and '.join(SPLITS)}")

    def difference(self, recipe: Recipe, sources: Sequence[Source]) -> str | None:
        """The first difference between this manifest and a request for a corpus, in words. None if they agree.

        The request has the settings ``recipe`` and the ``sources``, of which only names, sizes and times are compared.
        """
        for name, now in vars(recipe).items():
            if (then := getattr(self.recipe, name, None)) != now:
                return f"{name} {then} then, {now} now"
        for then, now in zip(self.sources, sources):
            if then.name != now.name:
                return f"{then.name} then, {now.name} now"
            if (then.size, then.mtime_ns) != (now.size, now.mtime_ns):
                return f"{then.name} has changed since"
            if then.skipped and not now.skips_bad:
                return f"{then.skipped} rows of {then.name} skipped then, none to be skipped now"
        then, now = len(self.sources), len(sources)
        return None if then == now else f"{then} sources then, {now} now"


def save(content: Any, path: Path) -> None:
    """Write the dataclass ``content`` to ``path`` as JSON with a checksum, atomically."""
    write_atomically(path, json.dumps(seal(asdict(content)), indent=1).encode() + b"\n")


def load(kind: type[T], path: Path) -> T | None:
    """Load the dataclass of type ``kind`` that :func:`save` wrote to ``path``. None if there is no file.

    Raises ``StoreError`` if the file is damaged.
    """
    try:
        mapping = parse_json(content := read_file(path, MOST_BYTES), any_text=True)
        if "checksum" in mapping:  # files of earlier versions have no checksum
            mapping = unseal(content)
        return from_mapping(kind, mapping, "its content")
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError, ConfigError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); prepare the corpus again with --force") from error
