"""Array routines that the generators share."""

from __future__ import annotations

import numpy as np


def distinct_ids(rng: np.random.Generator, n: int, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Ordered choices of ``size`` distinct ids out of 0..n-1, uniform over all of them; int32 (*shape, size).

    The j-th number drawn is a rank among the n - j ids not yet chosen; passing the chosen ids in ascending order
    turns the rank into an id.
    """
    chosen = np.empty((*shape, size), np.int32)
    for j in range(size):
        ids = rng.integers(n - j, size=shape, dtype=np.int32)
        taken = np.sort(chosen[..., :j], axis=-1)
        for i in range(j):
            ids += ids >= taken[..., i]
        chosen[..., j] = ids
    return chosen


def first_occurrence(codes: np.ndarray) -> np.ndarray:
    """For each entry of ``codes``, non-negative (N, M), the first column of its row that holds the same code."""
    columns = np.arange(codes.shape[1])
    bits = max(1, (codes.shape[1] - 1).bit_length())
    fits = int(codes.max()) < 1 << (31 - bits)
    ordered = codes.astype(np.int32 if fits else np.int64) << bits | columns.astype(np.int32)
    ordered.sort(axis=1)
    column = ordered & ((1 << bits) - 1)
    starts = np.zeros(codes.shape, np.intp)
    starts[:, 1:] = np.where((ordered[:, 1:] ^ ordered[:, :-1]) >> bits != 0, columns[1:], 0)
    first = np.take_along_axis(column, np.maximum.accumulate(starts, axis=1), axis=1)
    result = np.empty_like(column)
    np.put_along_axis(result, column, first, axis=1)
    return result
