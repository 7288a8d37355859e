"""A context that protects the caller's random state."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_random_state() -> Iterator[None]:
    """A context that restores the random states of Python, NumPy and torch, on the CPU and on GPUs, when it ends.

    ``torch.random.fork_rng`` does not restore Python's and NumPy's states, from which a package's module may draw. It
    also misses GPUs that are first used inside the block. The state of a library that is imported inside the block is
    not restored.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    of_python = random.getstate()
    of_numpy = numpy.random.get_state() if numpy else None
    of_torch = torch.get_rng_state() if torch else None
    of_gpus = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(of_python)
        if numpy:
            numpy.random.set_state(of_numpy)
        if torch:
            torch.set_rng_state(of_torch)
            if of_gpus:
                torch.cuda.set_rng_state_all(of_gpus)
            elif torch.cuda.is_available():  # first used in the block: their initial seed is torch's
                torch.cuda.manual_seed_all(torch.initial_seed())
