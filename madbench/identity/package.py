"""Digests of this package's own code, by file: without comments, docstrings and formatting."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from madbench.identity.text import NORMAL, imports_in, normal_text, short_digest

_HOME = Path(__file__).resolve().parents[1]
DIGITS = 16
KNOWN_EQUAL = Path(__file__).with_name("known_equal.json")
"""A file with pairs of digests, by part of the code. The code of both digests gave the same numbers to the last bit.

``madbench again ARCHIVE --pairs FILE`` adds to it.
"""
Pairs = dict[str, list[list[str]]]


class _Code(NamedTuple):
    """The content of a file of this package. It is read again only after a change of the file."""

    digest: str
    imported: tuple[str, ...]
    """The modules of this package that the file imports."""


def package_digest(starts: Iterable[str], within: Collection[str], left_out: Collection[str] = ()) -> str:
    """16 hexadecimal digits of modules and of all their imports ``within`` some parts of the package.

    Imports in functions are followed. Imports only for types are not. Modules whose own name is in ``left_out`` are
    neither read nor followed. Empty if there is no such module.
    """
    found = sorted(modules_reached(starts, within, left_out))
    texts = [f"{name} {_code_of(file).digest}" for name in found if (file := file_of(name))]
    return short_digest("\n".join([f"normal {NORMAL}", *texts]).encode())[:DIGITS] if texts else ""


def modules_reached(starts: Iterable[str], within: Collection[str], left_out: Collection[str] = ()) -> set[str]:
    """The names of the modules that :func:`package_digest` reads."""
    found: set[str] = set()
    waiting = [name for name in starts if file_of(name)]
    while waiting:
        name = waiting.pop()
        if name in found or name.rpartition(".")[2] in left_out:
            continue
        found.add(name)
        waiting += imports_within(name, within)
    return found


def imports_within(module: str, within: Collection[str]) -> list[str]:
    """The modules ``within`` some parts of the package that ``module`` imports."""
    file = file_of(module)
    names = _code_of(file).imported if file else ()
    return [name for name in names if any(f"{name}.".startswith(f"{part}.") for part in within)]


def gives_equal_bits(part: str, one: str, other: str, path: Path = KNOWN_EQUAL) -> bool:
    """True if two digests of a part are equal, or if known pairs link them: their code gave the same numbers."""
    if one == other:
        return True
    pairs = known_pairs(path).get(part, [])
    reached, waiting = {one}, [one]
    while waiting:
        digest = waiting.pop()
        near = {each for pair in pairs if digest in pair for each in pair} - reached
        reached |= near
        waiting += near
    return other in reached


def known_pairs(path: Path = KNOWN_EQUAL) -> Pairs:
    """The pairs in a file such as :data:`KNOWN_EQUAL`."""
    state = path.stat()
    return _pairs(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=10)
def _pairs(path: Path, modified: int, size: int) -> Pairs:
    return json.loads(path.read_bytes())


def file_of(module: str) -> Path | None:
    """The file of a module of this package; None if there is none."""
    first, *parts = module.split(".")
    if first != "madbench":
        return None
    place = _HOME.joinpath(*parts)
    files = (place.with_suffix(".py") if parts else place / "__init__.py", place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _code_of(file: Path) -> _Code:
    state = file.stat()
    return _read(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=1000)
def _read(file: Path, modified: int, size: int) -> _Code:
    tree = ast.parse(file.read_bytes())
    names: dict[str, None] = {}
    for node, _ in imports_in(tree):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= dict.fromkeys(name if file_of(name) else node.module for name in below)
    imported = tuple(name for name in names if file_of(name))
    return _Code(short_digest(normal_text(tree).encode()), imported)
