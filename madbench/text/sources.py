"""Sources of documents: files of text, JSON and parquet, Hugging Face datasets, the standard library.

A file is one document in UTF-8, JSON lines, a JSON array (these three may be compressed by gzip or zstd) or parquet.
Files of all formats except plain text are streamed.
"""

from __future__ import annotations

import difflib
import os
import sysconfig
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from madbench.config import short_repr
from madbench.errors import ConfigError, did_you_mean, no_effect, require
from madbench.text.documents import TEXT_KEY, BadRowError, Source, TextLimits, first_line
from madbench.text.files import TextFile

HUB = "hf:"
STDLIB = "stdlib"

_NOT_STDLIB = {"site-packages", "dist-packages", "test", "tests", "idle_test"}


class HuggingFaceSplit(Source):
    """A source of documents: the split ``train`` of the dataset ``hf:NAME`` or ``hf:NAME:CONFIG``.

    NAME may be a local folder. ``sha256`` is set once all documents are read. It is the hash that the builder of the
    library ``datasets`` has for the dataset, and for a dataset on the hub this hash stands for the revision. ``size``
    is the size of the split in bytes, or 0 if the dataset does not report it. ``position`` counts the bytes of the text
    that was read.
    """

    errors = (Exception,)

    def __init__(self, name: str, key: str):
        self.name, self.key = name, key
        dataset, _, config = name.removeprefix(HUB).partition(":")
        if not dataset:
            raise ConfigError(
                f"source {short_repr(name)}: expected a dataset, such as hf:openwebtext or hf:wikitext:wikitext-2-v1"
            )
        datasets = require("datasets", f"source {short_repr(name)}", "hf")
        try:
            self._builder = datasets.load_dataset_builder(dataset, config or None)
            self._rows = self._builder.as_streaming_dataset(split="train")
        except Exception as error:
            raise self._explained(error) from error
        split = (self._builder.info.splits or {}).get("train")
        self.size = (split.num_bytes or 0) if split else 0

    def _documents(self) -> Iterator[str | BadRowError]:
        for row in self._rows:
            text = self._text_in(row, self.name)
            self.position += len(text.encode("utf-8", "replace")) if isinstance(text, str) else 0
            yield text
        self.sha256 = self._builder.hash

    def _explained(self, error: Exception) -> ConfigError:
        return ConfigError(f"source {short_repr(self.name)}: datasets cannot read it: {first_line(error)}")


def find_sources(
    words: Sequence[str], text_key: str = TEXT_KEY, limits: TextLimits = TextLimits(), skip_bad: bool = False
) -> list[Source]:
    """The sources named by ``words``, in order.

    A word is a file, a folder, ``hf:NAME[:CONFIG]`` (the split ``train`` of a Hugging Face dataset) or ``stdlib`` (this
    Python's standard library without its tests, each file once). A folder means every file below it, sorted, without
    hidden files and linked folders.

    Files whose names end in .jsonl, .ndjson, .jsonlines and .jl are JSON lines. A .json file is JSON lines or an array
    of objects. A .parquet file is parquet. The text in them is under the key or column ``text_key``. Any other file is
    one document in UTF-8. All formats except parquet may be compressed (.gz or .zst). A row without a text is an error,
    or is skipped and counted if ``skip_bad`` is true.

    Raises ``ConfigError`` for a word that names nothing, a file that is named twice or has no text, and a ``text_key``
    or ``skip_bad`` without effect.
    """
    if not words:
        raise ConfigError(f"no source of text; expected files, folders, {HUB}NAME or {STDLIB}")
    sources = [source for word in words for source in _sources_of(word, text_key)]
    seen: set[str] = set()
    for source in sources:
        source.limits, source.skips_bad = limits, skip_bad
        identity = str(source.path.resolve()) if isinstance(source, TextFile) else source.name
        if identity in seen:
            raise ConfigError(f"source {short_repr(source.name)}: named twice; its text would count twice")
        seen.add(identity)
    if text_key != TEXT_KEY and not any(source.key for source in sources):
        raise no_effect(f"text key {short_repr(text_key)}", because="none of the sources has keys or columns")
    if skip_bad and not any(source.key for source in sources):
        raise no_effect("--skip-bad", because="none of the sources has rows")
    return sources


def _sources_of(word: str, text_key: str) -> list[Source]:
    if word == STDLIB:
        return _standard_library()
    if word.startswith(HUB):
        return [HuggingFaceSplit(word, text_key)]
    if os.path.isfile(word):
        return [TextFile(Path(word), text_key)]
    if not os.path.isdir(word):
        if os.path.exists(word):
            problem = "a pipe or a device can be read only once; copy its text into a file"
            raise ConfigError(f"source {short_repr(word)}: not a regular file; {problem}")
        siblings = []
        with suppress(OSError):
            siblings = [str(path) for path in Path(word).parent.iterdir() if path != Path(word)]  # not a dangling link
        near = difflib.get_close_matches(word, [*siblings, STDLIB], n=1)
        forms = near or ["a file", "a folder", f"{HUB}NAME", STDLIB]
        raise ConfigError(f"source {short_repr(word)}: no such file or folder{did_you_mean(word, forms)}")
    sources: list[Source] = [TextFile(path, text_key) for path in _files_below(Path(word))]
    if not sources:
        raise ConfigError(f"source {short_repr(word)}: the folder holds no file")
    return sources


def _files_below(folder: Path, without: Container[str] = ()) -> list[Path]:
    """The files below ``folder``, sorted. Hidden files and folders are left out, and folders named in ``without``.

    Raises ``ConfigError`` for a folder that cannot be read.
    """
    paths = []

    def refuse(error: OSError) -> None:
        raise ConfigError(f"{error.filename}: cannot be read: {(error.strerror or str(error)).lower()}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in without]
        paths += [Path(parent, name) for name in names if not name.startswith(".")]
    # a dangling link raises an error later
    return sorted(path for path in paths if path.is_file() or not path.exists())


def _standard_library() -> list[Source]:
    """A source for every Python file of the standard library, each once, without tests and installed packages.

    Raises ``ConfigError`` if this Python has no source files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in _files_below(root, _NOT_STDLIB) if path.suffix == ".py"] if root.is_dir() else []
    if not paths:
        raise ConfigError(f"source {STDLIB!r}: this Python has no source files in {root}; name files of text instead")
    once: dict[Path, Path] = {}  # Debian's Python has a file and a link to it
    for path in paths:
        once.setdefault(path.resolve(), path)
    return [TextFile(path, name=f"{STDLIB}/{path.relative_to(root).as_posix()}") for path in once.values()]
