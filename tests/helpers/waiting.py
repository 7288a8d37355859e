"""Functions for tests that wait for another process, and a context that forbids waiting for a GPU."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until ``condition()`` is true. Fails after ``seconds``; the default allows for a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds:g} s"
        time.sleep(0.01)


@contextlib.contextmanager
def forbid_waiting() -> Iterator[None]:
    """A context in which code that makes the CPU wait for the GPU raises an error."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
