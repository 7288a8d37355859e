"""The script that starts jobs, as its worker processes see it: each imports it before it trains."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from madbench.errors import TrainingError

STARTS_JOBS = 113  # exit code of a process that starts jobs while it imports the script that has started it


def check_can_start() -> None:
    """Raises ``TrainingError`` in a process that may not start others, as those of ``multiprocessing.Pool``.

    Ends a process, with the code ``STARTS_JOBS``, that is itself being started and imports its script for that.
    """
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):  # as multiprocessing knows it, which raises and prints a traceback
        raise SystemExit(STARTS_JOBS)
    if process.daemon:
        raise TrainingError(
            "jobs run in processes of their own, and a daemonic process, as a worker of multiprocessing.Pool is, "
            "cannot start any; run them from the main process, or from workers of "
            "concurrent.futures.ProcessPoolExecutor"
        )


def why_not_started(ending: str, code: int) -> str:
    """What to say of a worker process that ended with ``code`` before it began to train."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if code == STARTS_JOBS:
        what = "it starts jobs when it is imported, as each worker process does"
        return f"{script}: {what}; start them under if __name__ == '__main__':"
    return f"a worker process did not start: {ending}; what it printed says why"


@contextmanager
def main_without_file() -> Iterator[None]:
    """Lets a process that is started inside import no script that has no file, as one from standard input."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or Path(multiprocessing.process.ORIGINAL_DIR or "", path).exists():
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path
