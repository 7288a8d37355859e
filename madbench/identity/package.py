"""Digests of madbench's own code. A digest covers the files that one part of the code imports.

Comments, docstrings and formatting do not change it (:func:`madbench.identity.text.normal_text`). Everything else does.
A stored run whose code has changed gets a mark. A needless mark costs one training, but a missing mark lets
wrong numbers be shown.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from madbench.identity.text import NORMAL, imports_in, normal_text, short_digest

_home = Path(__file__).resolve().parents[1]  # the folder of the package whose files are digested
DIGITS = 16
KNOWN_EQUAL = Path(__file__).with_name("known_equal.json")
"""The shipped :data:`EqualDigests`. ``python studies/equal_code.py`` trains stored runs again and adds to it."""
EqualDigests = dict[str, list[list[str]]]
"""For each part of the code, lists of digests. All versions of the code whose digests are in one list give the same
numbers.

No digest is in two lists of a part.
"""


class _Code(NamedTuple):
    """The digest and the imports of one file of madbench."""

    digest: str
    imported: tuple[str, ...]
    """The full names of the modules of madbench that the file imports."""


@contextmanager
def files_of(home: Path) -> Iterator[None]:
    """A context in which the functions of this module read another copy of madbench.

    ``home`` is the folder ``madbench`` of the copy, such as a checkout of another commit.
    """
    global _home
    before, _home = _home, home
    try:
        yield
    finally:
        _home = before


def package_digest(
    starts: Iterable[str], within: Collection[str], is_left_out: Callable[[str], bool] = lambda module: False
) -> str:
    """A digest, in 16 hexadecimal digits, of some modules of madbench and all modules that they import.

    ``starts`` are the full names of the first modules. From these, imports are followed to any depth, but only into the
    modules and packages ``within``, such as ``madbench.models``. Imports inside functions are followed; imports only
    for type checkers are not. Modules for which ``is_left_out`` returns True are neither read nor followed. Empty if
    there is no module to read.
    """
    found = sorted(modules_reached(starts, within, is_left_out))
    texts = [f"{name} {module_digest(name)}" for name in found]
    return short_digest("\n".join([f"normal {NORMAL}", *texts]).encode())[:DIGITS] if texts else ""


def modules_reached(
    starts: Iterable[str], within: Collection[str], is_left_out: Callable[[str], bool] = lambda module: False
) -> set[str]:
    """The full names of ``starts`` and of all modules that they import, directly or through others.

    The arguments are those of :func:`package_digest`.
    """
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
    """The full names of the modules that ``module`` imports from the packages and modules ``within``.

    All names are full names, such as ``madbench.models``. A package stands for all modules below it.
    """
    file = file_of(module)
    names = _code_of(file).imported if file else ()
    return [name for name in names if any(f"{name}.".startswith(f"{part}.") for part in within)]


def gives_equal_bits(part: str, one: str, other: str, path: Path = KNOWN_EQUAL) -> bool:
    """True if two versions of the code give the same numbers on a CPU, to the last bit.

    ``one`` and ``other`` are digests of the two versions. ``part`` is the name of the part of the code that they cover.
    The versions give the same numbers if the digests are equal, or if a list in the file ``path`` has both.
    """
    return one == other or any(one in equal and other in equal for equal in equal_digests(path).get(part, []))


def equal_digests(path: Path = KNOWN_EQUAL) -> EqualDigests:
    """Read the lists of digests of equal code from the file ``path``, whose form is :data:`EqualDigests`."""
    state = path.stat()
    return _equal_digests(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=10)
def _equal_digests(path: Path, modified: int, size: int) -> EqualDigests:
    digests: EqualDigests = json.loads(path.read_bytes())
    return digests


def file_of(module: str) -> Path | None:
    """The file of a module of madbench, given by its full name.

    None if there is no such module, or if it is of another package.
    """
    first, *parts = module.split(".")
    if first != "madbench":
        return None
    place = _home.joinpath(*parts)
    files = (place.with_suffix(".py") if parts else place / "__init__.py", place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def module_digest(module: str) -> str:
    """The digest of the code of one module, in 32 hexadecimal digits. Empty if madbench has no such module."""
    file = file_of(module)
    return _code_of(file).digest if file else ""


def _code_of(file: Path) -> _Code:
    state = file.stat()
    return _read(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=1000)
def _read(file: Path, modified: int, size: int) -> _Code:
    digest, imports = _parse(file.read_bytes())
    names: dict[str, None] = {}
    for module, below in imports:
        names |= dict.fromkeys(name if file_of(name) else module for name in below or [module])
    return _Code(digest, tuple(name for name in names if file_of(name)))


@functools.lru_cache(maxsize=1000)
def _parse(content: bytes) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """The digest of the Python file with the given content, and its imports.

    ``import a.b`` gives the pair ``("a.b", ())``. ``from a import b, c`` gives ``("a", ("a.b", "a.c"))``, because b and
    c may be modules. Results are cached by content, because commits share most files.
    """
    tree = ast.parse(content)
    imports: list[tuple[str, tuple[str, ...]]] = []
    for node, _ in imports_in(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, ()) for alias in node.names]
        elif node.module:
            imports.append((node.module, tuple(f"{node.module}.{alias.name}" for alias in node.names)))
    return short_digest(normal_text(tree).encode()), tuple(imports)
