"""Digests of madbench's own code, each of the files that one part of a run's code imports.

Comments, docstrings, formatting and annotations do not change them (:mod:`madbench.identity.comparable`).
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from madbench.identity.comparable import untyped, without_places
from madbench.identity.text import NORMAL, imports_in, normal_text, short_digest

HOME = Path(__file__).resolve().parents[1]
DIGITS = 16
KNOWN_EQUAL = Path(__file__).with_name("known_equal.json")
"""A file with pairs of digests, by part of the code. The code of the two digests of a pair gave the same numbers, to
the last bit.

``madbench again ARCHIVE --pairs FILE`` adds pairs to it.
"""
COVERED = ("mixers", "models", "papers", "suites", "tasks", "text", "training")
"""The subpackages whose code a digest can cover."""
ANNOTATED = Path(__file__).with_name("annotated.json")
"""A file with the digests of this package's files from the time when a digest still covered all annotations, and the
names of all imported modules.

It maps the digest of a file without them (:func:`comparable`), in 16 digits, to the digest with them. A file has its
digest of that time until its code changes. So runs of that time are not marked when only annotations change, or when a
module that no digest covers is renamed. Made by ``studies/annotated.py``.
"""
Pairs = dict[str, list[list[str]]]


class _Code(NamedTuple):
    """The digest and the imports of one file of this package."""

    digest: str
    imported: tuple[str, ...]
    """The modules of this package that the file imports."""


def package_digest(
    starts: Iterable[str], within: Collection[str], is_left_out: Callable[[str], bool] = lambda module: False
) -> str:
    """A digest, in 16 hexadecimal digits, of the modules ``starts`` and of all modules that they import.

    Only imports of modules ``within`` the named parts of the package are followed, such as ``madbench.models``. Imports
    inside functions are followed; imports only for type checkers are not. Modules whose full name satisfies
    ``is_left_out`` are neither read nor followed. Empty if there is no module to read.
    """
    found = sorted(modules_reached(starts, within, is_left_out))
    texts = [f"{name} {_code_of(file).digest}" for name in found if (file := file_of(name))]
    return short_digest("\n".join([f"normal {NORMAL}", *texts]).encode())[:DIGITS] if texts else ""


def modules_reached(
    starts: Iterable[str], within: Collection[str], is_left_out: Callable[[str], bool] = lambda module: False
) -> set[str]:
    """The full names of the modules whose code :func:`package_digest` covers."""
    found: set[str] = set()
    waiting = [name for name in starts if file_of(name)]
    while waiting:
        name = waiting.pop()
        if name in found or is_left_out(name):
            continue
        found.add(name)
        waiting += imports_within(name, within)
    return found


def imports_within(module: str, within: Collection[str]) -> list[str]:
    """The modules that ``module`` imports and that are ``within`` the named parts of the package."""
    file = file_of(module)
    names = _code_of(file).imported if file else ()
    return [name for name in names if any(f"{name}.".startswith(f"{part}.") for part in within)]


def gives_equal_bits(part: str, one: str, other: str, path: Path = KNOWN_EQUAL) -> bool:
    """True if the code of two digests of a ``part`` is known to give the same numbers, to the last bit.

    The digests are equal, or a chain of pairs in the file ``path`` connects them.
    """
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
    """The pairs of digests in a file like :data:`KNOWN_EQUAL`, by part of the code."""
    state = path.stat()
    return _pairs(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=10)
def _pairs(path: Path, modified: int, size: int) -> Pairs:
    return json.loads(path.read_bytes())


def file_of(module: str) -> Path | None:
    """The file of a module of this package, given by its full name. None if there is no such module."""
    first, *parts = module.split(".")
    if first != "madbench":
        return None
    place = HOME.joinpath(*parts)
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
    return _Code(_file_digest(tree), imported)


def comparable(tree: ast.Module) -> ast.Module:
    """The part of a file's syntax tree that its digest covers."""
    return without_places(untyped(tree), "madbench", COVERED)


def _file_digest(tree: ast.Module) -> str:
    digest = short_digest(normal_text(comparable(tree)).encode())
    return _annotated(ANNOTATED).get(digest[:DIGITS], digest)


@functools.cache
def _annotated(path: Path) -> dict[str, str]:
    return json.loads(path.read_bytes())
