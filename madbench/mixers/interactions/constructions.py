"""The paper's constructions for linear attention, weights set by hand: genes, pixels, time series (B.2 to B.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy import ndarray as Array

from madbench.mixers import Check
from madbench.mixers.interactions.representation import ROUNDING, outputs

ACTIVATED_BY: Mapping[int, Sequence[int]] = {1: [3], 2: [], 4: [2]}
"""The paper's example: allele 1 needs 3, 2 is always active, 4 needs 2; 0 and 3 do nothing."""


def attend(x: Array, c: Array, w: Array) -> Array:
    """(X C X^T) X W (L, d2) of tokens X (L, d), for C (d, d) and W (d, d2), by the operator (eq. 1)."""
    return outputs(c[None, None], w[None, None], x[None])[0]


def constructions() -> Iterator[Check]:
    """That each gives what it is built for; that of genes not at another length."""

    def activations(alleles: Sequence[int]) -> float:
        """The largest error over the alleles of a sequence; weights are those of sequences of four."""
        c = np.zeros((5, 5))
        for allele, needed in ACTIVATED_BY.items():
            c[allele, needed] = 1 / max(1, len(needed))
            if not needed:
                c[allele] = 1 / 4
        active = [allele in ACTIVATED_BY and {*ACTIVATED_BY[allele]} <= {*alleles} for allele in alleles]
        return abs(attend(np.eye(5)[list(alleles)], c, np.ones((5, 1)))[:, 0] - active).max()

    def genes() -> float:
        return max(map(activations, ([1, 2, 3, 4], [0, 1, 2, 3], [4, 3, 1, 0], [0, 1, 2, 4])))

    def pixels() -> float:
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
        return abs(attend(x, c, np.eye(31)[:, :1])[:, 0] - counts).max()

    def series() -> float:
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
        return abs(attend(x, c, np.concatenate([step, np.zeros((length + 1, 3))]))[-1] - values[-1]).max()

    yield Check(
        "genes", "Alleles that activate each other are told exactly at the length built for.", "B.2", genes, ROUNDING
    )
    yield Check(
        "genes at another length",
        "At another length an allele that is always active reads L' / L: this construction does not generalise.",
        "B.2",
        lambda: activations([0, 2]),
        0.1,
        is_difference=True,
    )
    yield Check("pixels", "Black pixels at any set of offsets are counted at every place.", "B.3", pixels, ROUNDING)
    yield Check(
        "time series", "The row of an unknown step is the autoregression over any delays.", "B.4", series, ROUNDING
    )
