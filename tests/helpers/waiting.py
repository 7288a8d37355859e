"""Wait for another process, and forbid waiting for a GPU."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition holds. Fail after ``seconds``, which allow for a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds:g} s"
        time.sleep(0.01)


@contextlib.contextmanager
def forbid_waiting() -> Iterator[None]:
    """Raise an error if code in the block waits for the GPU."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
