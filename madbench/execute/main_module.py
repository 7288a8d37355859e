"""The program that starts jobs, as its worker processes see it. They import none of it but the classes that they train.

A worker that trains a class of the user's script imports the script, under its own name, for that.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from madbench.errors import TrainingError
from madbench.identity.scripts import is_importing_scripts, standard_first

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of a process whose Python finds its own modules, whatever files the working folder has."""


def check_is_not_imported() -> None:
    """Raise ``TrainingError`` in a process that imports a script of the user, which starts jobs meanwhile."""
    process = multiprocessing.current_process()
    if is_importing_scripts() or getattr(process, "_inheriting", False):  # multiprocessing's mark of one being started
        raise TrainingError(
            "start jobs under if __name__ == '__main__': in a script that defines what it trains, for the processes "
            "that train import it"
        )


def check_can_start() -> None:
    """Raise ``TrainingError`` in a process that may not start others, as those of ``multiprocessing.Pool``."""
    check_is_not_imported()
    if multiprocessing.current_process().daemon:
        raise TrainingError(
            "jobs run in processes of their own, and a daemonic process, as a worker of multiprocessing.Pool is, "
            "cannot start any; run them from the main process, or from workers of "
            "concurrent.futures.ProcessPoolExecutor"
        )


@contextmanager
def without_main() -> Iterator[None]:
    """Let a process that is started inside import Python's modules before others, and not the module ``__main__``."""
    main, folders = sys.modules["__main__"], sys.path
    sys.modules["__main__"], sys.path = ModuleType("__main__"), standard_first(folders)
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path = main, folders
