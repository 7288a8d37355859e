"""Where documents come from: files, folders, datasets of the Hugging Face hub, this Python's standard library."""

from __future__ import annotations

import difflib
import os
import sysconfig
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path

from madbench.errors import ConfigError, did_you_mean
from madbench.text.formats import JSON_LINES, PARQUET, File, JsonLinesFile, ParquetFile, Source, TextFile
from madbench.text.hugging_face import PREFIX, HuggingFaceSplit

__all__ = ["STDLIB", "TEXT_KEY", "Source", "find_sources"]

STDLIB = "stdlib"
TEXT_KEY = "text"

_NOT_STDLIB = {"site-packages", "dist-packages", "test", "tests", "idle_test"}


def find_sources(words: Sequence[str], text_key: str = TEXT_KEY) -> list[Source]:
    """The sources that ``words`` name, in their order.

    A word is a file, a folder, ``hf:NAME[:CONFIG]`` (the split ``train`` of a Hugging Face dataset) or ``stdlib``
    (this Python's standard library without its tests). Of a folder: every file below it, sorted, without hidden ones
    and without following links to folders. Names ending in .jsonl, .jsonl.gz and .jsonl.zst are JSON lines, .parquet
    is parquet, each with the text under ``text_key``; any other file is one document in UTF-8.

    Raises ``ConfigError`` for a word that names nothing, a file named twice, and a ``text_key`` that no source has.
    """
    if not words:
        raise ConfigError(f"no source of text; expected files, folders, {PREFIX}NAME or {STDLIB}")
    sources = [source for word in words for source in _sources_of(word, text_key)]
    seen: set[str] = set()
    for source in sources:
        identity = str(source.path.resolve()) if isinstance(source, File) else source.name
        if identity in seen:
            raise ConfigError(f"source {source.name!r}: named twice; its text would count twice")
        seen.add(identity)
    if text_key != TEXT_KEY and not any(hasattr(source, "key") for source in sources):
        raise ConfigError(f"text key {text_key!r} has no effect: none of the sources has keys or columns")
    return sources


def _sources_of(word: str, text_key: str) -> list[Source]:
    if word == STDLIB:
        return _standard_library()
    if word.startswith(PREFIX):
        return [HuggingFaceSplit(word, text_key)]
    if os.path.isfile(word):
        return [_file(Path(word), text_key)]
    if not os.path.isdir(word):
        raise ConfigError(f"source {word!r}: no such file or folder{did_you_mean(word, _alternatives(word))}")
    sources = [_file(path, text_key) for path in _files_below(Path(word))]
    if not sources:
        raise ConfigError(f"source {word!r}: the folder holds no file")
    return sources


def _alternatives(word: str) -> list[str]:
    """What a word that names nothing may have meant; without a likely one, the kinds of source."""
    siblings = []
    with suppress(OSError):
        siblings = [str(path) for path in Path(word).parent.iterdir()]
    return difflib.get_close_matches(word, [*siblings, STDLIB], n=1) or ["a file", "a folder", f"{PREFIX}NAME", STDLIB]


def _file(path: Path, text_key: str) -> File:
    name = path.name.lower()
    if name.endswith(JSON_LINES):
        return JsonLinesFile(path, text_key)
    if name.endswith(PARQUET):
        return ParquetFile(path, text_key)
    return TextFile(path)


def _files_below(folder: Path, without: Container[str] = ()) -> list[Path]:
    """Files below ``folder``, sorted, but for hidden ones and those in folders of a name in ``without``."""
    found = []

    def refuse(error: OSError) -> None:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror.lower()}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in without]
        found += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file() or not path.exists())  # a dangling link is an error later


def _standard_library() -> list[Source]:
    """Every Python file, tests and installed packages left out, as is one in an encoding other than UTF-8."""
    root = Path(sysconfig.get_path("stdlib"))
    found = _files_below(root, _NOT_STDLIB) if root.is_dir() else []
    paths = [path for path in found if path.suffix == ".py" and _is_utf8(path)]
    if not paths:
        raise ConfigError(f"source {STDLIB!r}: this Python keeps no source files in {root}; name files of text instead")
    return [TextFile(path, f"{STDLIB}/{path.relative_to(root).as_posix()}") for path in paths]


def _is_utf8(path: Path) -> bool:
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError:
        return False
    return True
