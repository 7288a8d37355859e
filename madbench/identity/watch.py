"""A record of the files that code outside of this package opens and runs, from Python's audit events.

A hook cannot be removed, so there is one per process, installed by the first :func:`watching`. It notes every user
module that is run, with its text. Opened files are noted only inside :func:`watching`.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_LIBRARIES = ("site-packages", "dist-packages")
_NEVER_OF_USERS = ("torch", "triton", "numpy")  # not even if they are imported from a checkout
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/run/")
_READERS_OF_SOURCE = ("linecache.py", "inspect.py", "tokenize.py", "/_inductor/", "/_dynamo/", "/triton/")
"""Parts of the file names of libraries that read source code or their own caches. Their reads are not counted."""
_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


@dataclass(frozen=True)
class Event:
    """A file that users' code opened (``opens``) or ran as a module."""

    path: str
    opens: bool
    owner: str  # the file of the code that did it
    line: int  # line of the owner's statement, at its import; 0 if in a function
    during: str  # name of the watched action


events: list[Event] = []
"""All events so far, in order."""
executed: dict[str, bytes] = {}
"""The text of every user module that was run since the hook was installed, by its file."""
watched: set[str] = set()
"""The files of user modules that were run inside :func:`watching`."""
_own: set[str] = set()
_during: list[str] = []
_is_installed = False


def own(path: Path) -> None:
    """Count a file, or all files of a folder, as users' code although it lies among the libraries."""
    text = f"{path}{os.sep}" if path.is_dir() else str(path)
    if text not in _own:
        _own.add(text)
        is_outside.cache_clear()


@functools.lru_cache(maxsize=100_000)
def is_outside(file: str) -> bool:
    """True for a file of users: not part of a library, of Python or of this package."""
    if not file or file.startswith("<"):
        return False
    path = os.path.realpath(file)
    if any(path == each or (each.endswith(os.sep) and path.startswith(each)) for each in _own):
        return True
    places = sysconfig.get_paths()
    standard = tuple(f"{os.path.realpath(places[name])}{os.sep}" for name in ("stdlib", "platstdlib"))
    if path.startswith((_PACKAGE, *standard, *_SYSTEM, *_folders_of_libraries(tuple(sys.path)))):
        return False
    return not any(part in _LIBRARIES for part in path.split(os.sep))


@functools.lru_cache(maxsize=100)
def _folders_of_libraries(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders of Python's path with installed packages, and the packages that are never users' code."""
    found = [folder for folder in folders if folder and next(Path(folder).glob("*.dist-info/RECORD"), None)]
    for name in _NEVER_OF_USERS:
        found += getattr(sys.modules.get(name), "__path__", ())
    return tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in found)


@contextmanager
def watching(what: str) -> Iterator[None]:
    """Note the files that users' code opens in the block."""
    global _is_installed
    if not _is_installed:
        sys.addaudithook(_heard)
        _is_installed = True
    _during.append(what)
    try:
        yield
    finally:
        _during.pop()


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "exec":
        with suppress(Exception):
            _note_run(arguments[0])
    elif event == "open" and _during:
        with suppress(Exception):
            _note_open(*arguments[:3])


def _note_run(code: CodeType) -> None:
    file = code.co_filename if isinstance(code, CodeType) and code.co_name == "<module>" else ""
    if is_outside(file) and file.endswith(".py"):
        path = os.path.realpath(file)
        executed[path] = Path(path).read_bytes()
        if not _during:
            watched.discard(path)
            return
        watched.add(path)
        if owner := _owner(sys._getframe(2)):
            events.append(Event(path, False, *owner, _during[-1]))


def _note_open(path: Any, mode: str | None, flags: int | None) -> None:
    reads = "r" in mode if mode else flags is not None and flags & os.O_ACCMODE == os.O_RDONLY
    if not reads or not isinstance(path, (str, bytes, os.PathLike)):
        return
    frame, place = sys._getframe(2), os.path.realpath(os.fsdecode(path))
    if place.endswith((".pyc", ".so")) or place.startswith((_PACKAGE, *_SYSTEM)) or not os.path.isfile(place):
        return
    if (owner := _owner(frame, opens=True)) and is_outside(place):
        events.append(Event(place, True, *owner, _during[-1]))


def _owner(frame: FrameType | None, opens: bool = False) -> tuple[str, int] | None:
    """The users' file whose code is running, and its line if it is being imported; None if it is not users' code.

    The frames are searched from the innermost outward, up to this package.
    """
    owner = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            break
        if is_outside(file):
            owner = owner or os.path.realpath(file)
            if frame.f_code.co_name == "<module>":
                return os.path.realpath(file), frame.f_lineno
        elif opens and not owner:
            if file.startswith("<frozen importlib") or any(part in file for part in _READERS_OF_SOURCE):
                return None
        frame = frame.f_back
    return (owner, 0) if owner else None
