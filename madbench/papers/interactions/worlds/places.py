"""Places on a ring: their distances, their sinusoidal embedding, and couplings that give any effect of a shift."""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray as Array


def ring(size: int) -> Array:
    """The distances (N, N) between all pairs of N places on a ring, where N is ``size``."""
    apart = abs(np.subtract.outer(np.arange(size), np.arange(size)))
    distances: Array = np.minimum(apart, size - apart)
    return distances


def sinusoids(size: int) -> Array:
    """The orthogonal sinusoidal embedding (N, N) of N = ``size`` places on a ring, one row per place (eq. 16).

    N must be even. Every row has the squared norm N / 2. For place n, entry 0 is 1 / sqrt 2, entries 2 k - 1 and 2 k
    are sine and cosine of 2 pi k n / N, and the last entry is cos(pi n) / sqrt 2.
    """
    n, rows = np.arange(size), np.empty((size, size))
    for k in range(size // 2 + 1):
        angle = 2 * np.pi * k * n / size
        if k:
            rows[:, 2 * k - 1] = np.sin(angle) if 2 * k < size else np.cos(angle) / math.sqrt(2)
        if 2 * k < size:
            rows[:, 2 * k] = np.cos(angle) if k else 1 / math.sqrt(2)
    return rows


def wave_couplings(effect: Array) -> Array:
    """The coupling matrix C (N, N) that gives any effect f of the shift between two places on a ring (Theorem B.6).

    ``effect`` is f (N,), for shifts modulo N, and N is even. C has p_m C p_n = f[m - n] for the embeddings p of the
    places (:func:`sinusoids`).
    """
    size = len(effect)
    spectrum = np.fft.fft(effect) / size
    c = np.zeros((size, size))
    c[0, 0], c[-1, -1] = 2 * spectrum[0].real, 2 * spectrum[size // 2].real
    for k in range(1, size // 2):
        a, b = 2 * spectrum[k].real, -2 * spectrum[k].imag
        c[2 * k - 1 : 2 * k + 1, 2 * k - 1 : 2 * k + 1] = [[a, b], [-b, a]]
    return c
