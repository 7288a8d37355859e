"""Checks of the functions that full couplings can represent, with weights that are set by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor

from madbench.mixers import Check
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.worlds import Colliding, Genotype, Hunters, Plane, sinusoids, wave_couplings

ROUNDING = 1e-10
ACTIVATED_BY: Mapping[int, Sequence[int]] = {1: [3], 2: [], 4: [2]}
"""The paper's example: allele to the alleles that it needs. Allele 2 is always active, 0 and 3 are never active."""


def outputs(c: Array, w: Array, x: Array, **options: Any) -> Array:
    """The outputs (N, L, d2) of a bidirectional :class:`Coupling` for tokens ``x`` (N, L, d).

    ``c`` and ``w`` are its parameters, with heads as their first axis. The last axis of ``w`` is d2. ``options`` are
    further arguments of ``Coupling``.
    """
    operator = Coupling(len(c), x.shape[-1], w.shape[-1], causal=False, **options).double()
    with torch.no_grad():
        for parameter, values in ((operator.c, c), (operator.w, w)):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
        y: Tensor = operator(torch.from_numpy(x))
        return y.numpy()


def linear_attention(c: Array, w: Array, x: Array) -> Array:
    """The outputs (N, L, d2) of linear attention (X C X^T) X W (eq. 1) for tokens X (N, L, d), C (d, d) and W (d, d2).

    If W has the shape (d,), the outputs have the shape (N, L).
    """
    return outputs(c[None, None], w.reshape(1, 1, len(c), -1), x).reshape(*x.shape[:2], *w.shape[1:])


def largest(x: Array) -> float:
    """The largest absolute value in ``x``."""
    return float(abs(x).max())


def representation() -> Iterator[Check]:
    """The checks of the functions that linear attention represents (Theorems 3.1, B.2, B.6, Lemma B.4, Cor. B.1)."""

    def orthogonal() -> float:
        generator, worst = np.random.default_rng(0), 0.0
        turned = np.linalg.qr(generator.normal(size=(8, 8)))[0]
        for vectors, length in itertools.product((np.eye(8), turned, sinusoids(8)), (2, 3, 7, 20)):
            effects, values = generator.normal(size=(8, 8)), generator.normal(size=8)
            inverse = np.linalg.inv(vectors)
            symbols = generator.integers(8, size=(3, length))
            actual = linear_attention(inverse @ effects @ inverse.T, inverse @ values, vectors[symbols])
            sums = [[sum((effects * values)[i, j] for j in row) for i in row] for row in symbols]  # eq. 2
            worst = max(worst, abs(actual - sums).max())
        return worst

    def waves() -> float:
        effect, vectors = np.random.default_rng(0).normal(size=12), sinusoids(12)
        shifts = np.subtract.outer(np.arange(12), np.arange(12))
        return largest(vectors @ wave_couplings(effect) @ vectors.T - effect[shifts])

    def width() -> float:
        generator, nearest = np.random.default_rng(0), math.inf
        for _ in range(20):
            vectors = generator.normal(size=(8, 7))
            inverse = np.linalg.pinv(vectors)
            difference = np.eye(8) - vectors @ inverse @ inverse.T @ vectors.T
            nearest = min(nearest, float(np.linalg.norm(difference, 2)))
        return 1 - nearest

    def compressed() -> float:
        world, worst = Colliding(positions=24, radius=2), 0.0
        sizes, directions = np.linalg.eigh(-world.effects)
        order = abs(sizes).argsort()[::-1]
        sizes, directions = sizes[order], directions[:, order]
        symbols = world.draw(np.random.default_rng(0), 200, 20)
        for width in (8, 20):
            vectors = directions[:, :width]
            actual = linear_attention(np.diag(sizes[:width]), -vectors.sum(0), vectors[symbols])
            worst = max(worst, abs(actual - world.values(symbols)).max() / (20 * abs(sizes[width])))
        return worst

    what = (
        "With orthogonal embeddings as wide as there are symbols, any effects and values are represented, "
        "at any length."
    )
    yield Check("every pairwise function", what, "Theorem 3.1, Corollary B.1", orthogonal, ROUNDING)
    what = "Of sinusoidal positions, any effect of their difference is a C of 2 x 2 blocks, one a frequency."
    yield Check("effects of shifts", what, "Lemma B.4, Theorem B.6", waves, ROUNDING)
    what = "One dimension less, and effects of each symbol on itself alone are missed by 1 in spectral norm."
    yield Check("no narrower width", what, "Theorem 3.1", width, 1e-12)
    what = "With the d largest directions of symmetric effects, errors stay below L times the next singular value."
    yield Check(
        "narrow approximation",
        what,
        "Theorem B.2, where effects are symmetric and their values lie in the span kept",
        compressed,
        1.0,
    )


def features() -> Iterator[Check]:
    """The checks of HyperFeatureAttention on hunters and prey, and of the error of linear attention (section 5)."""

    def exact(product: bool) -> float:
        world = Hunters(test_samples=50)
        symbols, values = world.data("test", 7, 0)
        c, w = world.solution
        w = w.repeat(3, axis=1) if product else w
        actual = outputs(c, w[..., None], world.vectors[symbols], orders=(3,), product=product)[..., 0]
        return largest(actual - values)

    statement = "Three heads of three factors represent hunters and prey, their features one-hots side by side"
    yield Check("coupled features", f"{statement}.", "eq. 3", lambda: exact(False), 1e-12)
    yield Check("value product", f"{statement}, values as a product.", "eq. 36", lambda: exact(True), 1e-12)
    what = "One layer of linear attention, of any number of heads, leaves an error on the same features."
    yield Check(
        "floor of linear attention",
        what,
        "section 5; the floor is ours",
        lambda: cast(float, Hunters().floor("hfa", 1, 10)),
        0.1,
        is_difference=True,
    )


def constructions() -> Iterator[Check]:
    """The checks of the paper's constructions of weights for genes, a plane, pixels and time series (B.1.3 to B.4)."""
    what = "Alleles that activate each other are told exactly at the length built for."
    yield Check("genes", what, "B.2", _genes, ROUNDING)
    what = "At another length an allele that is always active reads L' / L: this construction does not generalize."
    yield Check("genes at another length", what, "B.2", lambda: _activations([0, 2]), 0.1, is_difference=True)
    what = "With each allele at most once, always active is an effect of 1 on itself, exact at every length."
    yield Check("genes at every length", what, "against B.2", _diagonal, ROUNDING, contradicts=True)
    what = "With a ReLU behind, min(1, y), an allele that is always active may take 1 from every other, at any length."
    yield Check("genes with a ReLU", what, "B.2", _clipped, ROUNDING)
    what = "Effects of differences of two coordinates are a C of N^2 dimensions, of Kronecker products of 2 x 2 blocks."
    yield Check("two coordinates", what, "B.1.3", _plane, ROUNDING)
    yield Check("pixels", "Black pixels at any set of offsets are counted at every place.", "B.3", _pixels, ROUNDING)
    what = "The row of an unknown step is the autoregression over any delays."
    yield Check("time series", what, "B.4", _series, ROUNDING)


def _activations(alleles: Sequence[int]) -> float:
    """The largest error of linear attention with the paper's weights, over the alleles of a sequence.

    The weights are those for sequences of four alleles. The target of an allele is 1 if it is always active or all
    alleles that it needs are in the sequence, otherwise 0.
    """
    c = np.zeros((5, 5))
    for allele, needed in ACTIVATED_BY.items():
        c[allele, needed] = 1 / max(1, len(needed))
        if not needed:
            c[allele] = 1 / 4
    active = [allele in ACTIVATED_BY and {*ACTIVATED_BY[allele]} <= {*alleles} for allele in alleles]
    return largest(linear_attention(c, np.ones(5), np.eye(5)[None, list(alleles)])[0] - active)


def _genes() -> float:
    return max(map(_activations, ([1, 2, 3, 4], [0, 1, 2, 3], [4, 3, 1, 0], [0, 1, 2, 4])))


def _pixels() -> float:
    black = np.random.default_rng(0).random((5, 6)) < 0.5
    offsets = [(0, 0), (-1, 0), (1, 0), (0, -3), (0, 2)]
    places = [(row, column) for row in range(5) for column in range(6)]
    c = np.zeros((31, 31))
    for i, (row, column) in enumerate(places):
        for down, right in offsets:
            if (place := (row + down, column + right)) in places:
                c[1 + i, 1 + places.index(place)] = 1
    x = np.concatenate([black.reshape(-1, 1), np.eye(30)], axis=1)
    counts = [sum(black[r + a, s + b] for a, b in offsets if (r + a, s + b) in places) for r, s in places]
    return largest(linear_attention(c, np.eye(31)[0], x[None])[0] - counts)


def _series() -> float:
    generator, delays, length = np.random.default_rng(0), {2: 0.5, 5: -0.4}, 12
    step = generator.normal(size=(3, 3)) / 2
    values = [*generator.normal(size=(5, 3))]
    while len(values) < length + 1:
        values.append(sum(weight * values[-delay] @ step for delay, weight in delays.items()))
    c = np.zeros((3 + length + 1, 3 + length + 1))
    for u in range(length + 1):
        for delay, weight in delays.items():
            if u >= delay:
                c[3 + u, 3 + u - delay] = weight
    unknown = np.array([*values[:-1], np.zeros(3)])
    x = np.concatenate([unknown, np.eye(length + 1)], axis=1)
    w = np.concatenate([step, np.zeros((length + 1, 3))])
    return largest(linear_attention(c, w, x[None])[0, -1] - values[-1])


def _genotype(c: Array, clips: bool, world: Genotype, length: int) -> float:
    """The largest error of linear attention with couplings ``c`` (S, S) of alleles, over random sequences.

    If ``clips``, outputs above 1 are replaced by 1. The last row and column of ``c``, those of the empty place, are
    left out.
    """
    symbols, expected = world.data("test", length, 0)
    outputs = linear_attention(c[:-1, :-1], np.ones(world.alleles), world.vectors[symbols])
    return largest((np.minimum(1, outputs) if clips else outputs) - expected)


def _diagonal() -> float:
    world = Genotype(test_samples=100)
    return max(_genotype(world.effects, False, world, length) for length in (1, 3, 6, 12))


def _clipped() -> float:
    world = Genotype(test_samples=100)
    always = np.array([needed == () for needed in world.activators] + [False])
    c = np.where(always[:, None], 1.0, world.effects)
    return max(_genotype(c, True, world, length) for length in (1, 3, 6, 12))


def _plane() -> float:
    world = Plane(test_samples=50)
    c, w = world.solution
    symbols, expected = world.data("test", 9, 0)
    return largest(linear_attention(c, w, world.vectors[symbols]) - expected)
