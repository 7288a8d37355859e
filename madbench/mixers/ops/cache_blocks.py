"""Blocks of rows that stay in a processor's cache, for computations on a CPU that read their data several times."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from madbench.mixers.ops.tracing import has_data

BLOCK_NUMBERS = 2**18
"""The largest count of numbers in a block. Only a block of a single row may have more."""


def cache_blocks(x: Tensor) -> Iterator[slice]:
    """The slices that divide the first axis of ``x`` into blocks that fit in a processor's cache, in order.

    If the tensor has no data (a fake tensor), only the first slice is returned. Such a computation serves to measure
    memory, and all blocks need equal memory.
    """
    count = max(1, BLOCK_NUMBERS // max(1, math.prod(x.shape[1:])))
    return (slice(i, i + count) for i in range(0, len(x) if has_data(x) else min(1, len(x)), count))
