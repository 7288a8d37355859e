"""Helpers to start worker processes that do not run the user's script.

A worker imports the script only if it trains a class that the script defines, and then under the script's own name.
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
"""The environment in which Python does not import modules from the working folder."""


def check_is_not_imported() -> None:
    """Raise ``TrainingError`` if this process is a worker that is importing the user's script.

    Call it before jobs start. A script that starts jobs outside of ``if __name__ == "__main__":`` would start them
    again in every worker.
    """
    process = multiprocessing.current_process()
    if is_importing_scripts() or getattr(process, "_inheriting", False):  # multiprocessing's mark of a starting process
        raise TrainingError(
            "start jobs under if __name__ == '__main__': in a script that defines what it trains, for the processes "
            "that train import it"
        )


def check_can_start() -> None:
    """Raise ``TrainingError`` if this process may not start processes, such as a worker of ``multiprocessing.Pool``."""
    check_is_not_imported()
    if multiprocessing.current_process().daemon:
        raise TrainingError(
            "jobs run in processes of their own, and a daemonic process, as a worker of multiprocessing.Pool is, "
            "cannot start any; run them from the main process, or from workers of "
            "concurrent.futures.ProcessPoolExecutor"
        )


@contextmanager
def without_main() -> Iterator[None]:
    """Hide ``__main__`` within a ``with`` block, so that processes started there do not import the user's script.

    These processes also prefer modules of the standard library to modules of the same name in the user's folders.
    """
    main, folders = sys.modules["__main__"], sys.path
    sys.modules["__main__"], sys.path = ModuleType("__main__"), standard_first(folders)
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path = main, folders
