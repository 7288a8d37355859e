"""Kernels that flash-linear-attention refuses to run with the installed Triton."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def skip_if_refused() -> Iterator[None]:
    """A context that skips the test if flash-linear-attention refuses a kernel with the installed Triton.

    The library does so if this version of Triton compiles the kernel wrongly on this GPU. Other errors are raised.
    """
    try:
        yield
    except RuntimeError as error:
        if "Please upgrade Triton" not in str(error):
            raise
        pytest.skip(str(error))
