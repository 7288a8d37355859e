"""Kernels that flash-linear-attention refuses to run with the installed Triton."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def skip_if_refused() -> Iterator[None]:
    """Skip a test if the library reports that this Triton compiles its kernel wrongly on this GPU."""
    try:
        yield
    except RuntimeError as error:
        if "Please upgrade Triton" not in str(error):
            raise
        pytest.skip(str(error))
