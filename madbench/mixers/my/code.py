"""The code on which a user's module depends: the definitions that its class uses, and the files that it opens.

To find them, the module is imported, built and run once on a few tokens. If this process cannot find all of them, for
example because it imported the module before madbench, they are determined in a new process.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from madbench.errors import LabelError, MadbenchError
from madbench.identity import watch
from madbench.identity.listing import data_digest, identity_of
from madbench.identity.reach import CodeSearch
from madbench.identity.scripts import importing_scripts, is_importing_scripts, standard_first
from madbench.identity.text import source_text
from madbench.labels import trust
from madbench.mixers import Size
from madbench.mixers.my.operator import make, wrap_user_errors
from madbench.mixers.my.sources import Source, source, working_folder_on_path
from madbench.mixers.random_state import kept_random_state

SIZES = (Size(64, 2, 16, "paper"), Size(128, 8, 128, "paper"), Size(96, 3, 64, "paper"))
"""Sizes at which a module is tried, in this order, until it can be built and run."""
SECONDS = 300  # time limit of the new process


class UsersCode:
    """The code on which the module of a label ``my:path`` depends: a listing of its files with digests, and a hash.

    :mod:`madbench.identity.listing` describes the listing. ``in_new_process`` is True in a process that was started
    only to make the listing. Such a process starts no further one. Raises ``LabelError`` if the path names no module,
    or if a file was edited after this process imported it.
    """

    def __init__(self, path: str, in_new_process: bool = False):
        self.path, made = path, source(path)
        self.root = made.root
        reach = CodeSearch(made.root, made.own)
        for module, name in (*_definitions(made), *_try(path)):
            reach.start(module, name)
        is_unsure = reach.hear(watch.events_for(made.own), _probe_name(path))
        self.listing: dict[str, Any] = reach.listing()
        if is_unsure and not in_new_process:
            self.listing = _from_new_process(path) or self.listing
        for reached in reach.files.values():
            _, names = self.listing["files"].get(reach.location(reached.file), (None, None))
            if (
                names is not None
                and reached.text.digest(names) != self.listing["files"][reach.location(reached.file)][0]
            ):
                raise self._edited(reached.file)

    @property
    def identity(self) -> str:
        """A hash of the listing of the code.

        Raises ``LabelError`` if a file was edited after this process imported it.
        """
        for place, (digest, names) in self.listing["files"].items():
            text = source_text(self.root / place, self.root)
            if text is None or text.digest(names) != digest:
                raise self._edited(place)
        for place, digest in self.listing["data"].items():
            if data_digest(self.root / place) != digest:
                raise self._edited(place)
        return identity_of(self.listing)

    def _edited(self, place: str) -> LabelError:
        return LabelError(
            f"my:{self.path}: {place} was edited after this process imported it; restart Python, or the notebook's "
            "kernel"
        )


@functools.cache
def users_code(path: str) -> UsersCode:
    """The :class:`UsersCode` of the class or function at a dotted path, computed once per process.

    Raises ``LabelError`` if the path names no class or function that makes a module.
    """
    return UsersCode(path)


def _definitions(made: Source) -> Iterator[tuple[str, str]]:
    """Yield the definitions at which the search for dependencies starts, as pairs (Python module, top-level name).

    The first is the name in the label. The others are the class and its base classes, or the function, where they are
    defined.
    """
    yield made.module, made.name
    for each in inspect.getmro(made.make) if isinstance(made.make, type) else (made.make,):
        yield from _place(each)


def _place(value: Any) -> Iterator[tuple[str, str]]:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        yield module, name.partition(".")[0]


def _probe_name(path: str) -> str:
    return f"my:{path}"


def _try(path: str) -> list[tuple[str, str]]:
    """Build the module and run it once. Return the classes of its submodules as pairs (Python module, top-level name).

    Empty if this fails at all ``SIZES``.
    """
    for size in SIZES:
        with watch.watch_files(_probe_name(path)), kept_random_state(), torch.device("cpu"):
            with suppress(MadbenchError), torch.no_grad():
                torch.manual_seed(0)
                module = make(path, size)
                with working_folder_on_path(), wrap_user_errors(path):
                    module(torch.randn(1, 16, size.d_model))
                return _classes(module)
    return []


def _classes(module: nn.Module) -> list[tuple[str, str]]:
    classes = dict.fromkeys(type(part) for part in module.modules())
    return [place for each in classes for place in _place(each)]


def _from_new_process(path: str) -> dict[str, Any] | None:
    """The listing of the code at a dotted path, determined in a new process. None if this fails."""
    if is_importing_scripts():  # a script that plans runs when imported would start processes without end
        return None
    folders = os.pathsep.join(os.path.abspath(folder or ".") for folder in standard_first(sys.path))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.json")
        code = f"from {__name__} import write_listing; write_listing()"
        command = [sys.executable, "-P", "-c", code, path, str(file)]
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            environment = os.environ | {"PYTHONPATH": folders, "CUDA_VISIBLE_DEVICES": ""}
            subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=True)
            listing: dict[str, Any] = json.loads(file.read_bytes())
            return listing
    return None


def write_listing() -> None:
    """Write the listing of the code at a dotted path to a JSON file. This is the program of the new process.

    The path is the first command-line argument, and the file is the second.
    """
    path, file = sys.argv[1:]
    trust.allow([f"my:{path}"])  # the parent process was allowed to import it
    with importing_scripts():
        Path(file).write_text(json.dumps(UsersCode(path, in_new_process=True).listing))
