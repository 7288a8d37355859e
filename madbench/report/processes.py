"""Work done beside this process, in copies of it, which have what it has in memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

Task = Callable[[], Any]


@contextmanager
def in_processes(tasks: Mapping[str, Task], cores: int) -> Iterator[Callable[[str], Any]]:
    """Starts ``tasks`` in forks of this process, in their order; gives what waits for the result of one, by its name.

    A task that fails there is done in this process when its result is asked for, so that it fails again with its own
    traceback. All are done that way where there is one core, or no fork that can be relied on.
    """
    if cores < 2 or sys.platform != "linux":
        yield lambda name: tasks[name]()
        return
    with warnings.catch_warnings():  # of threads in this process: none of them holds what the tasks need
        warnings.simplefilter("ignore", DeprecationWarning)
        workers = min(cores, len(tasks))
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _start_worker, (tasks,))
        begun = {name: pool.submit(_do_in_worker, name) for name in tasks}

    def result(name: str) -> Any:
        with suppress(Exception):
            return begun[name].result()
        return tasks[name]()

    try:
        yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(tasks: Mapping[str, Task]) -> None:
    global _tasks
    _tasks = tasks
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C goes to the whole group; a worker ends without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _do_in_worker(name: str) -> Any:
    return _tasks[name]()
