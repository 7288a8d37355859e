"""A mark for processes that import a user's script only because it defines a class that they train."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_open = 0  # blocks of ``importing_scripts`` in this process


@contextmanager
def importing_scripts() -> Iterator[None]:
    """A context in which this process counts as one that imports users' scripts. A script must then start no jobs."""
    global _open
    _open += 1
    try:
        yield
    finally:
        _open -= 1


def is_importing_scripts() -> bool:
    """True inside a block of :func:`importing_scripts`."""
    return _open > 0


def standard_first(folders: Iterable[str]) -> list[str]:
    """Sort folders of ``sys.path`` so that those of the standard library come first.

    A user's ``random.py`` then does not hide the standard module.
    """
    places = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}

    def is_standard(folder: str) -> bool:
        path = os.path.realpath(folder)
        return path in places or (os.path.dirname(path) in places and os.path.basename(path) == "lib-dynload")

    return sorted(folders, key=lambda folder: not is_standard(folder))
