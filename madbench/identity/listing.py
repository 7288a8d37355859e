"""The code listing in the record of a run, and its comparison with the files on this machine.

A code listing is JSON: ``{"files": {place: [digest, names]}, "data": {place: digest}, "content": {place: digest}}``.

- ``files`` are the files of users' code. The names are the definitions in the file that the run used, or ``"*"`` for
  the whole file. The digest covers the code of these definitions.
- ``data`` are the data files that the code opened, each with a digest.
- ``content`` has digests of the bytes of ``files``. They do not enter any identity.

A place is the path of a file, relative to the folder from which the package of the first file is imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from madbench.identity.text import NORMAL, WHOLE, SourceText, short_digest, source_text

LARGE_BYTES = 64 * 2**20
"""If a data file has more bytes than this, its digest covers only its size and its first and last ``ENDS_BYTES`` bytes.
"""
ENDS_BYTES = 2**20
MOST_BYTES = 2 * 2**20
"""The most bytes of a Python file that is parsed because a record names it. Parsing takes a thousand times its size in
memory.
"""
KIND = "code1"
"""The prefix of an identity. Identities of earlier versions of madbench have another prefix."""


@dataclass(frozen=True)
class CodeState:
    """The result of comparing the code listing in a record with the files on this machine.

    ``kind`` is ``same``, ``changed`` or ``absent`` (a file is missing), or ``unknown`` if there is no valid listing.
    """

    kind: Literal["same", "changed", "absent", "unknown"]
    file: str = ""
    """The path of the first changed or missing file, as in the listing. Empty if there is none."""


def identity_of(code: Mapping[str, Any]) -> str:
    """The identity of users' code: a digest of a code listing, such as ``code1-9f...``. It enters the ids of jobs.

    It covers the places (paths) and digests of Python files and data files in the listing. For a data file whose place
    is an absolute path, only its name and its digest count.
    """
    files = sorted([place, digest] for place, (digest, _) in code["files"].items())
    data = sorted([Path(place).name if os.path.isabs(place) else place, each] for place, each in code["data"].items())
    return f"{KIND}-{short_digest(json.dumps([NORMAL, files, data]).encode())}"


def code_state(code: Any) -> CodeState:
    """Compare the code listing in a record with the files on this machine, which are read as text and not imported.

    The folder of the code is searched in the working folder and in the folders of ``sys.path``. ``code`` may be any
    JSON value; the result is ``unknown`` if it is not a code listing.
    """
    if not _is_listing(code):
        return CodeState("unknown")
    root = _root_of(code)
    if root is None:
        return CodeState("absent", next(iter(code["files"])))
    for place, (digest, names) in code["files"].items():
        source = _text_at(root, place)
        if source is None:
            return CodeState("absent", place)
        if source.digest(names) != digest:
            return CodeState("changed", place)
    for place, digest in code["data"].items():
        present = data_digest(root / place)
        if present != digest:
            return CodeState("changed" if present else "absent", place)
    return CodeState("same")


def recorded_files(code: Any) -> dict[str, bytes | None]:
    """The content of the Python files in a record's code listing: path in the listing to content.

    Empty if ``code`` is not a code listing.

    The content is None for a file that changed, is missing, or lies outside of the folder of the code. A record may
    come from a stranger and list any file on this machine. So content is returned only if the writer of the record must
    have had it too: the whole file if the listing has the digest of its bytes, and otherwise the code of the
    definitions whose digest the listing has.
    """
    if not _is_listing(code):
        return {}
    root = _root_of(code)
    content = code.get("content") if isinstance(code.get("content"), dict) else {}
    return {
        place: _proven(root, place, digest, names, content.get(place)) if root and _is_inside(place) else None
        for place, (digest, names) in code["files"].items()
    }


def _proven(root: Path, place: str, digest: Any, names: Any, content_digest: Any) -> bytes | None:
    text = _text_at(root, place)
    if text is None or text.digest(names) != digest:
        return None
    return text.content if short_digest(text.content) == content_digest else text.code(names)


def _is_inside(place: str) -> bool:
    parts = Path(place).parts
    return ".." not in parts and not Path(place).is_absolute()


def _text_at(root: Path, place: str) -> SourceText | None:
    """Parse the Python file at a place, relative to ``root``.

    None if it is missing, not a ``.py`` file, or larger than ``MOST_BYTES``.
    """
    return source_text(root / place, root, MOST_BYTES) if place.endswith(".py") else None


def _root_of(code: Mapping[str, Any]) -> Path | None:
    """The folder on this machine to which the paths in a code listing are relative.

    It is the working folder, or else the first folder of ``sys.path``, that has the first file of the listing. None if
    no such folder has the file.
    """
    first = next(iter(code["files"]))
    roots = [Path(each or ".").absolute() for each in dict.fromkeys(("", *sys.path))]
    return next((each for each in roots if (each / first).is_file()), None)


def _is_listing(code: Any) -> bool:
    """True if ``code``, a JSON value from a record, has the form of a code listing."""
    if not isinstance(code, dict) or not isinstance(code.get("files"), dict) or not isinstance(code.get("data"), dict):
        return False

    def is_names(names: Any) -> bool:
        return names == WHOLE or (isinstance(names, list) and all(isinstance(name, str) for name in names))

    files = code["files"].values()
    are_files = all(isinstance(each, list) and len(each) == 2 and is_names(each[1]) for each in files)
    return bool(files) and are_files and not any("\0" in place for place in (*code["files"], *code["data"]))


def data_digest(path: Path) -> str:
    """The digest of a data file, in 32 hexadecimal digits. Empty if ``path`` is not a regular file or cannot be read.

    For a file of more than ``LARGE_BYTES`` bytes it covers the size, the beginning and the end.
    """
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            return ""
        return _data_digest(str(path), state.st_mtime_ns, state.st_size)
    except (OSError, ValueError):
        return ""


@functools.lru_cache(maxsize=10_000)
def _data_digest(path: str, modified: int, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        if size > LARGE_BYTES:
            digest.update(f"{size}".encode() + file.read(ENDS_BYTES))
            file.seek(-ENDS_BYTES, os.SEEK_END)
        while part := file.read(ENDS_BYTES):
            digest.update(part)
    return digest.hexdigest()[:32]
