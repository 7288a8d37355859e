"""A record of the files that users' code opens and runs, made from Python's audit events.

An audit hook cannot be removed, so each process has at most one. The first :func:`watch_files` installs it. From then
on the hook notes every user's module that is run, with its text. It notes opened files only inside
:func:`watch_files`.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_LIBRARIES = ("site-packages", "dist-packages")
_NEVER_OF_USERS = ("torch", "triton", "numpy")  # not even if they are imported from a checkout
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/run/")
_READERS_OF_SOURCE = ("linecache.py", "inspect.py", "tokenize.py", "/_inductor/", "/_dynamo/", "/triton/")
"""Parts of the paths of library files that read source code or their own caches. Files that they open are not noted."""
_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


Own = frozenset[str]
"""Library files that count as users' code. A folder ends with a separator, and stands for all files in it."""
NO_LIBRARY: Own = frozenset()


@dataclass(frozen=True)
class FileEvent:
    """A file that the code of one label, task or suite opened or ran as a module. ``opens`` is True if it was opened.

    It is made from a :class:`FileNote`, when it is known which file on the call stack is users' code.
    """

    path: str
    opens: bool
    owner: str
    """The file of users' code that opened or ran the file at :attr:`path`."""
    line: int
    """The line of :attr:`owner` that opened or ran the file, if ``owner`` was being imported. 0 if the line is inside a
    function.
    """
    during: str
    """The name of the watched action at that time: the argument ``what`` of the innermost :func:`watch_files`."""


@dataclass(frozen=True)
class FileNote:
    """A file that was opened or run as a module, and the call stack at that time. ``opens`` is True if it was opened.

    Some library files count as users' code for one label and not for another (:data:`Own`). So a note does not say
    which file on the stack is users' code. :func:`events_for` decides this for one label.
    """

    path: str
    opens: bool
    frames: tuple[tuple[str, int], ...]
    """The file and line of each frame, innermost first, up to the first frame of madbench. The line is 0 in a function.
    """
    during: str
    """The name of the watched action at that time: the argument ``what`` of the innermost :func:`watch_files`."""


notes: list[FileNote] = []
"""A note of every file that users' code opened or ran under watch in this process, in order."""
executed: dict[str, bytes] = {}
"""The text of every module of users' code that was run since the audit hook was installed, by file."""
watched: set[str] = set()
"""The files of modules of users' code that were run inside :func:`watch_files`."""
_own: Own = NO_LIBRARY  # files of all labels so far; notes are taken for every label
_during: list[str] = []
_is_installed = False


def own(*paths: Path) -> Own:
    """Let files, or all files in folders, count as users' code although they lie among the libraries.

    Return the set of these files and folders, for :func:`events_for` and :func:`is_outside`. From now on this process
    also notes the files that they open and run.
    """
    global _own
    files = frozenset(f"{path}{os.sep}" if path.is_dir() else str(path) for path in paths)
    _own |= files
    return files


def events_for(own: Own) -> list[FileEvent]:
    """The files that users' code has opened or run in this process so far, made from :data:`notes`.

    Users' code is every file outside of libraries, and every library file in ``own``. A note counts only if its file is
    users' code and if users' code is on its call stack.
    """
    events = []
    for note in notes:
        owner = _owner(note.frames, own, note.opens)
        if owner and is_outside(note.path, own):
            events.append(FileEvent(note.path, note.opens, *owner, note.during))
    return events


@functools.lru_cache(maxsize=100_000)
def is_outside(file: str, own: Own = NO_LIBRARY) -> bool:
    """True if a file is users' code: it is in ``own``, or it belongs to no library, nor to Python, nor to madbench."""
    if not file or file.startswith("<"):
        return False
    path = os.path.realpath(file)
    if any(path == each or (each.endswith(os.sep) and path.startswith(each)) for each in own):
        return True
    places = sysconfig.get_paths()
    standard = tuple(f"{os.path.realpath(places[name])}{os.sep}" for name in ("stdlib", "platstdlib"))
    if path.startswith((_PACKAGE, *standard, *_SYSTEM, *_folders_of_libraries(tuple(sys.path)))):
        return False
    return not any(part in _LIBRARIES for part in path.split(os.sep))


@functools.lru_cache(maxsize=100)
def _folders_of_libraries(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders of libraries: those of ``folders`` that hold installed packages, and those of torch and its kind.

    The packages ``_NEVER_OF_USERS`` count as libraries even if they are imported from a checkout.
    """
    libraries = [folder for folder in folders if folder and next(Path(folder).glob("*.dist-info/RECORD"), None)]
    for name in _NEVER_OF_USERS:
        libraries += getattr(sys.modules.get(name), "__path__", ())
    return tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in libraries)


@contextmanager
def watch_files(what: str) -> Iterator[None]:
    """A context that adds to :data:`notes` every file that users' code reads, or runs as a module, within it.

    ``what`` is a name for what the block does. It is stored with each note (:attr:`FileNote.during`).
    """
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
    if is_outside(file, _own) and file.endswith(".py"):
        path = os.path.realpath(file)
        executed[path] = Path(path).read_bytes()
        if not _during:
            watched.discard(path)
            return
        watched.add(path)
        _note(path, sys._getframe(2), opens=False)


def _note_open(path: Any, mode: str | None, flags: int | None) -> None:
    reads = "r" in mode if mode else flags is not None and flags & os.O_ACCMODE == os.O_RDONLY
    if not reads or not isinstance(path, (str, bytes, os.PathLike)):
        return
    place = os.path.realpath(os.fsdecode(path))
    if place.endswith((".pyc", ".so")) or place.startswith((_PACKAGE, *_SYSTEM)) or not os.path.isfile(place):
        return
    if is_outside(place, _own):
        _note(place, sys._getframe(2), opens=True)


def _note(path: str, frame: FrameType | None, opens: bool) -> None:
    frames = []
    while frame is not None and not (file := frame.f_code.co_filename).startswith(_PACKAGE):
        is_named = file.startswith("<")
        line = frame.f_lineno if frame.f_code.co_name == "<module>" else 0
        frames.append((file if is_named else os.path.realpath(file), line))
        frame = frame.f_back
    if _owner(frames, _own, opens):
        notes.append(FileNote(path, opens, tuple(frames), _during[-1]))


def _owner(frames: Iterable[tuple[str, int]], own: Own, opens: bool) -> tuple[str, int] | None:
    """The file of users' code on a call stack that caused an event, and its line.

    ``frames`` has a file and a line per frame, innermost first. The line is 0 inside a function. The result is the
    innermost file of users' code that is being imported, with its line. If there is none, it is the innermost file of
    users' code, with the line 0. None if the stack has no users' code, or if a library opened the file to read source
    code.
    """
    owner = ""
    for file, line in frames:
        if is_outside(file, own):
            owner = owner or file
            if line:
                return file, line
        elif opens and not owner:
            if file.startswith("<frozen importlib") or any(part in file for part in _READERS_OF_SOURCE):
                return None
    return (owner, 0) if owner else None
