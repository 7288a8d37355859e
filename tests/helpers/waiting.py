"""Waiting for what another process does, and not waiting for a GPU."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition that holds soon, but for a machine that is busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds:g} s"
        time.sleep(0.01)


@contextlib.contextmanager
def never_waiting() -> Iterator[None]:
    """Within the block, waiting for the GPU is an error."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
