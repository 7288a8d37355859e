"""Checks of two statements of Appendix B: agents with several policies (eq. 18), and pixels as convolutions (B.3)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray as Array

from madbench.mixers import Check
from madbench.papers.interactions.theorems.representation import ROUNDING, linear_attention
from madbench.papers.interactions.worlds import Pixels, sinusoids, wave_couplings

CELLS, POLICIES = 4, 2
LENGTHS = (2, 6, 11)
SYMBOLS = POLICIES * CELLS**2
BATCH = 40
IMAGE = (7, 8)


def policies() -> Iterator[Check]:
    """The checks of eq. 18, on effects that depend on the shift between two agents and on the policies of both."""
    what = (
        "Effects of the shift of two agents and of both policies are a C of 2 N^2 dimensions, by a Fourier series per "
        "pair of policies: exact for drawn f and w, the agent itself among the others, at every length."
    )
    yield Check("agents of two policies", what, "B.1.3, eq. 18", functools.partial(_error, False), ROUNDING)
    what = "The sum over j other than i, where no two agents have one place and one policy: f is zero at that place."
    yield Check("distinct agents of two policies", what, "B.1.3, eq. 18", functools.partial(_error, True), ROUNDING)
    what = (
        "Where two agents may have one place and one policy, no C and W give the sum over j other than i: the effect "
        "of an agent on itself cannot be told from the effect of its like."
    )
    yield Check("other agents alone", what, "against eq. 18", _least_error, 0.1, is_difference=True, contradicts=True)


@functools.cache
def _world() -> tuple[Array, Array, Array]:
    """The embedding z (S, 2 N^2) of symbols, random effects f by policies and shift, and random values w (S,).

    There are S = 2 N^2 symbols, one for each policy and cell of an N x N grid. f is (policies, policies, N, N), with
    the shift along x and along y.
    """
    generator, waves = np.random.default_rng(0), sinusoids(CELLS)
    vectors = np.kron(np.eye(POLICIES), np.kron(waves, waves))
    return vectors, generator.normal(size=(POLICIES, POLICIES, CELLS, CELLS)), generator.normal(size=SYMBOLS)


def _effects(f: Array) -> Array:
    """The effects (S, S) of every pair of symbols, from effects f (policies, policies, N, N) by policies and shift.

    Entry (i, j) is the effect of symbol j on symbol i. A symbol is a policy and a cell (x, y). A shift is the
    difference of two cells, modulo N.
    """
    policy, x, y = cast("tuple[Array, ...]", np.unravel_index(np.arange(SYMBOLS), (POLICIES, CELLS, CELLS)))
    shifts = (np.subtract.outer(place, place) % CELLS for place in (x, y))
    effects: Array = f[policy[:, None], policy, *shifts]
    return effects


def _couplings(f: Array) -> Array:
    """The C (2 N^2, 2 N^2) with which linear attention gives the effects f (policies, policies, N, N).

    For each pair of policies it is a sum of Kronecker products of couplings along x and along y.
    """
    blocks = [[np.zeros((CELLS**2, CELLS**2)) for _ in range(POLICIES)] for _ in range(POLICIES)]
    for a, b in itertools.product(range(POLICIES), repeat=2):
        left, sizes, right = np.linalg.svd(f[a, b])
        for of_x, of_y in zip(left.T * sizes[:, None], right):
            blocks[a][b] += np.kron(wave_couplings(of_x), wave_couplings(of_y))
    return np.block(blocks)


def _error(is_distinct: bool) -> float:
    """The largest absolute error of linear attention, against the values of agents in random samples.

    The weights are computed from random effects f and random values w (:func:`_couplings`); nothing is trained. The
    value of an agent is the sum over all agents of the sample, itself included, of their effect on it times their w. If
    ``is_distinct``, no two agents of a sample are equal, the sum is over the other agents only, and f has no effect of
    an agent on itself.
    """
    vectors, f, w = _world()
    if is_distinct:
        f = f.copy()
        f[np.arange(POLICIES), np.arange(POLICIES), 0, 0] = 0
    generator, effects, worst = np.random.default_rng(1), _effects(f), 0.0
    c, values = _couplings(f), np.linalg.solve(vectors, w)
    for length in LENGTHS:
        symbols = generator.integers(SYMBOLS, size=(BATCH, length))
        if is_distinct:
            symbols = generator.random((BATCH, SYMBOLS)).argsort(1)[:, :length]
        expected = [[sum((effects * w)[i, j] for j in _sum_of_others(row, n, is_distinct)) for n, i in enumerate(row)]
                    for row in symbols]  # fmt: skip
        worst = max(worst, abs(linear_attention(c, values, vectors[symbols]) - expected).max())
    return worst


def _sum_of_others(row: Array, own: int, without_itself: bool) -> Array:
    return np.delete(row, own) if without_itself else row


def _least_error() -> float:
    """The smallest error of linear attention, over all C and W, on samples of one agent and of two equal agents.

    For n agents of one symbol, linear attention gives n T for some number T, and eq. 18 gives (n - 1) f w, where f w is
    the effect of an agent on itself times its value. The error is the larger of those for n = 1 and n = 2, relative to
    f w. It is smallest if T is one third of f w. The result is measured with this T.
    """
    vectors, f, w = _world()
    effects = _effects(f) * w
    symbol = int(abs(effects.diagonal()).argmax())
    target = effects[symbol, symbol]
    inverse = np.linalg.inv(vectors)
    c = inverse @ (np.eye(SYMBOLS) * target / 3) @ inverse.T
    errors = [
        abs(linear_attention(c, inverse @ np.ones(SYMBOLS), vectors[np.full((1, n), symbol)]) - (n - 1) * target).max()
        for n in (1, 2)
    ]
    return float(max(errors) / abs(target))


def pixels() -> Iterator[Check]:
    """The checks of Appendix B.3: linear attention over pixels is a convolution of the image.

    One of them shows that linear attention detects shapes that are larger than the 3 x 3 kernel of an ordinary layer.
    """
    what = "The counts of linear attention are the convolution of the image with a kernel that spans the offsets."
    yield Check("pixels as a convolution", what, "B.3", _against_convolution, ROUNDING)
    what = "C of other offsets, of other sizes, is another convolution: width, and number of weights, stay the same."
    yield Check("offsets of any size", what, "B.3", _any_offsets, ROUNDING)
    what = (
        "No function of 3 x 3 pixels, such as one layer with that kernel, tells a shape with offsets beyond them: two "
        "images that are equal there have and lack it, and linear attention tells them apart by one pixel."
    )
    yield Check("beyond 3 x 3", what, "B.3", _told_apart, 0.5, is_difference=True)


def _counts(black: Array, offsets: tuple[tuple[int, int], ...]) -> Array:
    """The number of black pixels at the offsets from each pixel, computed by linear attention with the paper's C and W.

    ``black`` and the result are (rows, columns).
    """
    rows, columns = black.shape
    places = [*itertools.product(range(rows), range(columns))]
    c = np.zeros((1 + len(places),) * 2)
    for i, (row, column) in enumerate(places):
        for down, right in offsets:
            if (place := (row + down, column + right)) in places:
                c[1 + i, 1 + places.index(place)] = 1
    x = np.concatenate([black.reshape(-1, 1), np.eye(len(places))], axis=1)
    counts: Array = linear_attention(c, np.eye(1 + len(places))[0], x[None])[0]
    return counts.reshape(rows, columns)


def _convolve(black: Array, offsets: tuple[tuple[int, int], ...]) -> Array:
    """The convolution of an image with a square kernel that is 1 at the offsets. Pixels beyond the image count as 0."""
    reach = max(abs(step) for offset in offsets for step in offset)
    kernel = torch.zeros(1, 1, 2 * reach + 1, 2 * reach + 1, dtype=torch.float64)
    for down, right in offsets:
        kernel[0, 0, reach + down, reach + right] = 1
    return F.conv2d(torch.from_numpy(1.0 * black)[None, None], kernel, padding=reach)[0, 0].numpy()


def _against_convolution() -> float:
    black = np.random.default_rng(0).random(IMAGE) < 0.5
    return float(abs(_counts(black, Pixels.OFFSETS) - _convolve(black, Pixels.OFFSETS)).max())


def _any_offsets() -> float:
    generator, worst = np.random.default_rng(1), 0.0
    for reach in (1, 2, 4):
        offsets = tuple({(int(a), int(b)) for a, b in generator.integers(-reach, reach + 1, size=(5, 2))})
        black = generator.random(IMAGE) < 0.5
        worst = max(worst, float(abs(_counts(black, offsets) - _convolve(black, offsets)).max()))
    return worst


def _told_apart() -> float:
    """The smallest difference between the counts of an image with a shape and of an image without one of its pixels.

    A count is the number of black pixels at ``Pixels.OFFSETS`` from the center. These pixels form the shape. Only
    pixels outside of the central 3 x 3 square are left out. 0 if the shape is not found in the first image, or is found
    in the second.
    """
    row, column = (size // 2 for size in IMAGE)
    with_shape: np.ndarray = np.zeros(IMAGE, dtype=bool)
    for down, right in Pixels.OFFSETS:
        with_shape[row + down, column + right] = True
    gaps = []
    for down, right in Pixels.OFFSETS:
        if max(abs(down), abs(right)) > 1:
            without = with_shape.copy()
            without[row + down, column + right] = False
            assert (without == with_shape)[row - 1 : row + 2, column - 1 : column + 2].all()
            counts = [_counts(image, Pixels.OFFSETS)[row, column] for image in (with_shape, without)]
            is_found = [round(float(count), 6) == len(Pixels.OFFSETS) for count in counts]
            gaps.append(counts[0] - counts[1] if is_found == [True, False] else 0.0)
    return float(min(gaps, default=0.0))
