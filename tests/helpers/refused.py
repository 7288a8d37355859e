"""Kernels that flash-linear-attention refuses to run with the Triton at hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def skipping_refused() -> Iterator[None]:
    """Skip a test where the library knows that this Triton compiles its kernel wrongly on this GPU."""
    try:
        yield
    except RuntimeError as error:
        if "Please upgrade Triton" not in str(error):
            raise
        pytest.skip(str(error))
