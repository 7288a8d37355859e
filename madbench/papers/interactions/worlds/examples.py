"""Further worlds of the paper: agents in a plane, alleles, pixels, and steps of a series (B.1.3, B.2 to B.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy import ndarray as Array

from madbench.config import check_at_least
from madbench.errors import ConfigError
from madbench.papers.interactions.worlds.base import World, without_replacement
from madbench.papers.interactions.worlds.places import ring, sinusoids, wave_couplings


@dataclass(frozen=True, kw_only=True)
class Plane(World):
    """Agents whose collisions cost more if they are near in both coordinates (B.1.3)::

        V_i = - sum_j [ ring(y_i, y_j) <= 2 R ] (1 + 9 [ dist(i, j) <= R2 ])

    V_i is the value of agent i. A symbol is a cell (x, y) of a torus. ring is the distance along y around the torus,
    and dist is the larger of the distances along x and y. The agent counts itself, as in
    :class:`madbench.papers.interactions.worlds.agents.Colliding`. The text of B.1.3 puts the large penalty on distant
    agents, its equation on near agents; this class follows the equation. The embedding is the Kronecker product of the
    sinusoids of x and of y, N^2 wide.
    """

    title = "Both coordinates"

    cells: int = 6
    """N, the number of cells per axis, even."""
    radius: int = 1
    """R, the radius of an agent, which is a disc, in cells. Agents collide if their y are at most 2 R apart."""
    near: int = 1
    """R2, the distance up to which a collision costs 10 instead of 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "cells")
        check_at_least(self, 0, "radius", "near")
        if self.cells % 2:
            raise ConfigError(f"cells: sines and cosines need an even number, got {self.cells}")

    @property
    def symbols(self) -> int:
        return self.cells**2

    @cached_property
    def vectors(self) -> Array:
        waves = sinusoids(self.cells)
        return np.kron(waves, waves)

    @cached_property
    def by_shift(self) -> Array:
        """The effect (N, N) of an agent on another, by the shift between them along x and along y, both modulo N."""
        away = ring(self.cells)[0]
        is_near = np.maximum.outer(away, away) <= self.near
        by_shift: Array = -1.0 * (away <= 2 * self.radius)[None] * (1 + 9 * is_near)
        return by_shift

    @cached_property
    def effects(self) -> Array:
        x, y = np.unravel_index(np.arange(self.symbols), (self.cells, self.cells))
        effects: Array = self.by_shift[np.subtract.outer(x, x) % self.cells, np.subtract.outer(y, y) % self.cells]
        return effects

    def floor(self, family: str, order: int, length: int) -> float | None:
        return 0.0 if family == "hfa" else None

    @property
    def solution(self) -> tuple[Array, Array]:
        """The C (N^2, N^2) and W (N^2,) with which linear attention gives the values exactly.

        C is a sum of Kronecker products of couplings along x and along y, one per singular vector of :attr:`by_shift`.
        """
        left, sizes, right = np.linalg.svd(-self.by_shift)
        along = zip(left.T * sizes[:, None], right)
        c = sum(np.kron(wave_couplings(of_x), wave_couplings(of_y)) for of_x, of_y in along)
        return cast(Array, c), np.array([-2.0, *[0.0] * (self.symbols - 1)])


@dataclass(frozen=True, kw_only=True)
class Genotype(World):
    """Alleles that activate each other. The value of an allele is its activity in its sample (B.2).

    An allele is inert, always active, or as active as the share of its activators that are present. A sample has each
    allele at most once. The activators are drawn once for each value of ``relations``. The effects are exact for linear
    attention at every length: an always active allele acts on itself with 1. The paper's effect of 1 / L from every
    other allele is exact at one length only.
    """

    title = "Genotype to phenotype"

    alleles: int = 12
    """The number of different alleles."""
    relations: int = 0
    """Seed from which the activators of all alleles are drawn."""
    fewest: int = 0
    """The smallest number of alleles in a training sample. Numbers up to ``length``, L*, occur. If 0, all training
    samples have ``length`` alleles."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "alleles")
        check_at_least(self, 0, "relations", "fewest")
        if self.length > self.alleles or self.fewest > self.length:
            raise ConfigError(
                f"length: expected fewest {self.fewest} <= length <= alleles {self.alleles}, got {self.length}"
            )

    @property
    def symbols(self) -> int:
        """The number of symbols: one per allele, and one for an empty place."""
        return self.alleles + 1

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(length for length in self.test_lengths if length <= self.alleles)

    @property
    def vectors(self) -> Array:
        """The unit vectors of the alleles. The vector of an empty place is zero, so that it has no effects."""
        return np.eye(self.symbols)[:, : self.alleles]

    @cached_property
    def activators(self) -> tuple[tuple[int, ...] | None, ...]:
        """The activators of each allele, as indices of alleles.

        Empty for an always active allele, None for an inert allele, which is never active.
        """
        generator, chosen_sets = np.random.default_rng(self.relations), []
        for allele in range(self.alleles):
            others = np.delete(np.arange(self.alleles), allele)
            count = generator.integers(-1, 4)
            chosen = generator.permutation(others)[: max(count, 0)]
            chosen_sets.append(None if count < 0 else tuple(sorted(chosen.tolist())))
        return tuple(chosen_sets)

    @cached_property
    def effects(self) -> Array:
        effects = np.zeros((self.symbols, self.symbols))
        for allele, needed in enumerate(self.activators):
            if needed is not None:
                effects[allele, list(needed or (allele,))] = 1 / max(1, len(needed))
        return effects

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        return without_replacement(generator, self.alleles, count, length)

    def thin(self, generator: np.random.Generator, symbols: Array) -> Array:
        """Replace the last symbols of each training sample by empty places. At least ``fewest`` alleles remain.

        Nothing is replaced if ``fewest`` is 0.
        """
        present = generator.integers(self.fewest, self.length + 1, size=(len(symbols), 1))
        return np.where(np.arange(self.length) < present, symbols, self.alleles) if self.fewest else symbols

    def floor(self, family: str, order: int, length: int) -> float | None:
        return 0.0 if family == "hfa" and self.fewest else None


@dataclass(frozen=True, kw_only=True)
class Pixels(World):
    """Pixels of a black-and-white image. The value of a pixel is the number of black pixels at given offsets (B.3).

    A symbol is a color and a place; its vector is [black, one-hot of the place]. The offsets form a shape, which is
    found at a pixel whose value equals their number. A sample may have fewer pixels than the image has places; the
    other pixels are then missing.
    """

    title = "Pixels"
    OFFSETS = ((0, 0), (-1, 0), (1, 0), (0, -2), (0, 2))
    """Offsets in rows (down) and columns (right). They reach beyond a 3 x 3 kernel."""

    rows: int = 5
    """Rows of an image."""
    columns: int = 5
    """Columns of an image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "rows", "columns")
        if self.length > self.places:
            raise ConfigError(f"length: {self.length} pixels do not fit an image of {self.places}")

    @property
    def places(self) -> int:
        return self.rows * self.columns

    @property
    def symbols(self) -> int:
        return 2 * self.places

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(length for length in self.test_lengths if length <= self.places)

    @property
    def vectors(self) -> Array:
        black = np.repeat([0.0, 1.0], self.places)[:, None]
        return np.concatenate([black, np.tile(np.eye(self.places), (2, 1))], axis=1)

    @cached_property
    def reached(self) -> Array:
        """A matrix (P, P) of P places: 1 if the column's place is at one of the offsets from the row's, else 0."""
        down, right = np.unravel_index(np.arange(self.places), (self.rows, self.columns))
        away = np.subtract.outer(down, down).T, np.subtract.outer(right, right).T
        reached: Array = sum(1.0 * ((away[0] == a) & (away[1] == b)) for a, b in self.OFFSETS)
        return reached

    @cached_property
    def effects(self) -> Array:
        return np.kron(np.array([[0.0, 1.0], [0.0, 1.0]]), self.reached)

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        places = without_replacement(generator, self.places, count, length)
        return places + self.places * generator.integers(2, size=places.shape)

    def floor(self, family: str, order: int, length: int) -> float | None:
        return 0.0 if family == "hfa" else None

    @property
    def solution(self) -> tuple[Array, Array]:
        """The C (1 + P, 1 + P) and W (1 + P,) with which linear attention gives the values exactly.

        P is the number of places in an image (:attr:`places`). C[1 + i, 1 + j] is 1 if place j lies at one of
        :attr:`OFFSETS` from place i, and all other elements are 0. W selects the color of a pixel.
        """
        c = np.zeros((1 + self.places, 1 + self.places))
        c[1:, 1:] = self.reached
        return c, np.eye(1 + self.places)[0]


@dataclass(frozen=True, kw_only=True)
class Series(World):
    """Steps of a time series. The value of a step is its forecast from earlier steps: sum_k a_k m[t - k] (B.4).

    m[t] is the level of the series at step t. A symbol is a level and a step; its vector is [level, one-hot of the
    step]. Histories are drawn uniformly over levels, so that no step reveals its own forecast. A sample is a window of
    L steps that begins at any step. The paper's multivariate series are the check ``time series`` of ``madbench verify
    hfa:C1``.
    """

    title = "Time series"
    LEVELS = (-1.0, -0.5, 0.0, 0.5, 1.0)
    """The possible levels of the series."""
    DELAYS = {2: 0.5, 5: -0.4}
    """The delays k of the forecast, each with its coefficient a_k."""

    steps: int = 16
    """The number of steps of the longest history."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "steps")
        if self.length > self.steps:
            raise ConfigError(f"length: {self.length} is more than the {self.steps} steps of the longest history")

    @property
    def symbols(self) -> int:
        return len(self.LEVELS) * self.steps

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(length for length in self.test_lengths if length <= self.steps)

    @property
    def vectors(self) -> Array:
        level = np.repeat(self.LEVELS, self.steps)[:, None]
        return np.concatenate([level, np.tile(np.eye(self.steps), (len(self.LEVELS), 1))], axis=1)

    @cached_property
    def by_step(self) -> Array:
        """The coefficients of the forecast, (steps, steps): a_k if the column is k steps before the row, else 0."""
        before = np.subtract.outer(np.arange(self.steps), np.arange(self.steps))
        by_step: Array = sum(weight * (before == delay) for delay, weight in self.DELAYS.items())
        return by_step

    @cached_property
    def effects(self) -> Array:
        return np.kron(np.array(self.LEVELS)[None].repeat(len(self.LEVELS), axis=0), self.by_step)

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        first = generator.integers(self.steps - length + 1, size=(count, 1))
        return first + np.arange(length) + self.steps * generator.integers(len(self.LEVELS), size=(count, length))

    def floor(self, family: str, order: int, length: int) -> float | None:
        return 0.0 if family == "hfa" else None

    @property
    def solution(self) -> tuple[Array, Array]:
        """The C (1 + steps, 1 + steps) and W (1 + steps,) with which linear attention gives the values exactly.

        C couples the steps at the delays, and W reads the level.
        """
        c = np.zeros((1 + self.steps, 1 + self.steps))
        c[1:, 1:] = self.by_step
        return c, np.eye(1 + self.steps)[0]
