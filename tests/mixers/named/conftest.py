"""The library that named operators are compared with."""

from __future__ import annotations

import pytest


@pytest.fixture
def library():
    """The library, whose layers can be built on a CPU, although its kernels need a GPU."""
    pytest.importorskip("fla.layers", exc_type=ImportError)
