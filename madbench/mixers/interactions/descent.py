"""Gradient descent on interactions as the paper's proofs have it (Appendices C and G.4): small, exact, in float64.

Sample n has symbol mu s_mu^(n) times, and all its agents of a symbol have one value, so counts of symbols are the whole
of a sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array


@dataclass(frozen=True)
class Descent:
    """Gradient descent from C = 0 and a value of b = 1 for every symbol."""

    c: Array  # (d, d')
    w: Array  # (d',)
    effects: Array  # T
    losses: Array  # before each step, as the paper has the loss
    drift: float  # largest change of w_mu^2 - |C_(:,mu)|^2 / |x|^2 in the domain base
    least: float  # smallest value of a symbol on the way


def descend(counts: Array, features: Array, targets: Array, rate: float, steps: int, e: Array, f: Array) -> Descent:
    """Full-batch descent on the mean over samples of the squared error, summed over agents (Appendix C).

    Args:
        counts: s (B, S), how often each symbol is in each sample.
        features: (B, P), how often each symbol, or pair of symbols, is there to act.
        targets: (B, S), the value of an agent of each symbol in each sample.
        rate: step size of the gradient flow's time.
        steps: how many.
        e: embedding (S, d) of the agents.
        f: embedding (P, d') of what acts on them.
    """
    c, w = np.zeros((e.shape[1], f.shape[1])), np.linalg.solve(f, np.ones(len(f)))
    losses, drift, least = [], 0.0, math.inf
    norm = (e[0] ** 2).sum()
    for _ in range(steps):
        couplings, values = e @ c @ f.T, f @ w
        least = min(least, values.min())
        drift = max(drift, abs(values**2 - (couplings**2).sum(0) / norm - 1).max())
        errors = features @ (couplings * values).T - targets
        losses.append((counts * errors**2).sum() / len(counts))
        slope = 2 / len(counts) * (counts * errors).T @ features
        c, w = c - rate * e.T @ (slope * values) @ f, w - rate * f.T @ (slope * couplings).sum(0)
    return Descent(c, w, (e @ c @ f.T) * (f @ w), np.array(losses), drift, least)


def occurrences(symbols: Array, size: int) -> Array:
    """s (B, S): how often each symbol is in each sample."""
    return np.stack([np.bincount(row, minlength=size) for row in symbols]).astype(float)


def rank(counts: Array) -> int:
    """Of a tall matrix of small whole numbers, by its square: exact in float64, and quick."""
    return int(np.linalg.matrix_rank(counts.T @ counts, hermitian=True))
