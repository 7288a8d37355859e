"""What operators with full coupling matrices can represent, as checks, by couplings and values written down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array

from madbench.mixers import Check
from madbench.mixers.interactions.coupling import Coupling
from madbench.mixers.interactions.worlds import Colliding, Hunters, sinusoids, wave_couplings

ROUNDING = 1e-10


def outputs(c: Array, w: Array, x: Array, **how: Any) -> Array:
    """What the operator gives for tokens X (N, L, d), (N, L, d2): C and W by head, W of output width d2."""
    operator = Coupling(len(c), x.shape[-1], w.shape[-1], causal=False, **how).double()
    with torch.no_grad():
        for parameter, given in ((operator.c, c), (operator.w, w)):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(given)))
        return operator(torch.from_numpy(x)).numpy()


def linear_attention(c: Array, w: Array, x: Array) -> Array:
    """(X C X^T) X w (N, L) for C (d, d), w (d,) (eq. 1)."""
    return outputs(c[None, None], w[None, None, :, None], x)[..., 0]


def pair_sums(effects: Array, symbols: Array) -> Array:
    """sum_j effects[x_i, x_j], one pair at a time (eq. 2)."""
    return np.array([[sum(effects[i, j] for j in row) for i in row] for row in symbols])


def representation() -> Iterator[Check]:
    def orthogonal() -> float:
        generator, worst = np.random.default_rng(0), 0.0
        turned = np.linalg.qr(generator.normal(size=(8, 8)))[0]
        for vectors, length in itertools.product((np.eye(8), turned, sinusoids(8)), (2, 3, 7, 20)):
            effects, values = generator.normal(size=(8, 8)), generator.normal(size=8)
            inverse = np.linalg.inv(vectors)
            symbols = generator.integers(8, size=(3, length))
            given = linear_attention(inverse @ effects @ inverse.T, inverse @ values, vectors[symbols])
            worst = max(worst, abs(given - pair_sums(effects * values, symbols)).max())
        return worst

    def waves() -> float:
        effect, vectors = np.random.default_rng(0).normal(size=12), sinusoids(12)
        shifts = np.subtract.outer(np.arange(12), np.arange(12))
        return abs(vectors @ wave_couplings(effect) @ vectors.T - effect[shifts]).max()

    def width() -> float:
        generator, nearest = np.random.default_rng(0), math.inf
        for _ in range(20):
            vectors = generator.normal(size=(8, 7))
            inverse = np.linalg.pinv(vectors)
            nearest = min(nearest, np.linalg.norm(np.eye(8) - vectors @ inverse @ inverse.T @ vectors.T, 2))
        return 1 - nearest

    def compressed() -> float:
        world, worst = Colliding(positions=24, radius=2), 0.0
        sizes, directions = np.linalg.eigh(-world.effects)
        order = abs(sizes).argsort()[::-1]
        sizes, directions = sizes[order], directions[:, order]
        symbols = world.draw(np.random.default_rng(0), 200, 20)
        for width in (8, 20):
            vectors = directions[:, :width]
            given = linear_attention(np.diag(sizes[:width]), -vectors.sum(0), vectors[symbols])
            worst = max(worst, abs(given - world.values(symbols)).max() / (20 * abs(sizes[width])))
        return worst

    yield Check(
        "every pairwise function",
        "With orthogonal embeddings as wide as there are symbols, any effects and values are represented, "
        "at any length.",
        "Theorem 3.1, Corollary B.1",
        orthogonal,
        ROUNDING,
    )
    yield Check(
        "effects of shifts",
        "Of sinusoidal positions, any effect of their difference is a C of 2 x 2 blocks, one a frequency.",
        "Lemma B.4, Theorem B.6",
        waves,
        ROUNDING,
    )
    yield Check(
        "no narrower width",
        "One dimension less, and effects of each symbol on itself alone are missed by 1 in spectral norm.",
        "Theorem 3.1",
        width,
        1e-12,
    )
    yield Check(
        "parameters by length",
        "Linear attention needs no more parameters for longer sequences, a linear network L^2 times S^2.",
        "Theorem 3.2",
        None,
        reason="a count: S^2 + S parameters against L^2 S^2, at S 24 and L 10 600 against 57,600; nothing to measure",
    )
    yield Check(
        "narrow approximation",
        "With the d largest directions of symmetric effects, errors stay below L times the next singular value.",
        "Theorem B.2, where effects are symmetric and their values lie in the span kept",
        compressed,
        1.0,
    )


def features() -> Iterator[Check]:
    def exact(product: bool) -> float:
        world = Hunters(test_samples=50)
        symbols, values = world.data("test", 7, 0)
        c, w = world.solution
        w = w.repeat(3, axis=1) if product else w
        given = outputs(c, w[..., None], world.vectors[symbols], orders=(3,), product=product)[..., 0]
        return abs(given - values).max()

    about = "Three heads of three factors represent hunters and prey, their features one-hots side by side"
    yield Check("coupled features", f"{about}.", "eq. 3", lambda: exact(False), 1e-12)
    yield Check("value product", f"{about}, values as a product.", "eq. 36", lambda: exact(True), 1e-12)
    yield Check(
        "floor of linear attention",
        "One layer of linear attention, of any number of heads, leaves an error on the same features.",
        "section 5; the floor is ours",
        lambda: Hunters().floor("hfa", 1, 10),
        0.1,
        is_difference=True,
    )
    yield Check(
        "two layers",
        "Nor can two layers of linear attention.",
        "Remark F.6",
        None,
        reason="argued there, not proven: two layers do contain products of features",
    )
