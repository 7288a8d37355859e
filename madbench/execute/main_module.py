"""The user's script in worker processes. They import it only if they train a class defined in it.

A worker that trains a class of the user's script imports the script under its own name.
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
"""The environment for a Python that ignores modules in the working folder."""


def check_is_not_imported() -> None:
    """Raise ``TrainingError`` if the user's script starts jobs while a worker imports it."""
    process = multiprocessing.current_process()
    if is_importing_scripts() or getattr(process, "_inheriting", False):  # multiprocessing's mark of a starting process
        raise TrainingError(
            "start jobs under if __name__ == '__main__': in a script that defines what it trains, for the processes "
            "that train import it"
        )


def check_can_start() -> None:
    """Raise ``TrainingError`` in a process that may not start others, such as a worker of ``multiprocessing.Pool``."""
    check_is_not_imported()
    if multiprocessing.current_process().daemon:
        raise TrainingError(
            "jobs run in processes of their own, and a daemonic process, as a worker of multiprocessing.Pool is, "
            "cannot start any; run them from the main process, or from workers of "
            "concurrent.futures.ProcessPoolExecutor"
        )


@contextmanager
def without_main() -> Iterator[None]:
    """Start processes in the block so that they prefer Python's own modules and do not import ``__main__``."""
    main, folders = sys.modules["__main__"], sys.path
    sys.modules["__main__"], sys.path = ModuleType("__main__"), standard_first(folders)
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path = main, folders
