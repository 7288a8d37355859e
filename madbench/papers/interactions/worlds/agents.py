"""Three worlds of agents: discs on a cylinder, hunters and prey, alliances of three."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy import ndarray as Array

from madbench.config import check_at_least
from madbench.errors import ConfigError
from madbench.papers.interactions.worlds.base import World, without_replacement
from madbench.papers.interactions.worlds.places import ring, sinusoids

Embedding = Literal["one_hot", "sinusoidal"]
Control = Literal["", "without_itself", "distinct"]


@dataclass(frozen=True, kw_only=True)
class Colliding(World):
    """Identical discs that all move right on a cylinder (eq. 4, B.1).

    The value of a disc is minus its number of collisions. Two discs of radius R collide, once, if and only if their
    positions y around the cylinder are at most 2 R apart. The symbol of a disc is therefore its y. A disc counts itself
    among its collisions, as in eq. 5 and unlike eq. 4. Otherwise no linear attention is exact at more than one length.
    """

    title = "Colliding agents"

    positions: int = 24
    """N, the number of positions around the cylinder."""
    radius: int = 1
    """R, the radius of a disc, in positions. Discs collide if their positions are at most 2 R apart."""
    embedding: Embedding = "one_hot"
    """The vectors of the positions: ``one_hot`` for unit vectors, ``sinusoidal`` for sines and cosines (eq. 16)."""
    control: Control = ""
    """The condition of the theorem that the world breaks. ``without_itself``: the value of an agent leaves out the
    agent itself. ``distinct``: no two agents share a position. Empty if no condition is broken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "positions")
        check_at_least(self, 0, "radius")
        if self.embedding == "sinusoidal" and self.positions % 2:
            raise ConfigError(f"positions: sines and cosines need an even number, got {self.positions}")
        if self.control == "distinct" and self.length > self.positions:
            raise ConfigError(f"length: {self.length} agents do not fit {self.positions} distinct positions")

    @property
    def symbols(self) -> int:
        return self.positions

    @property
    def lengths(self) -> tuple[int, ...]:
        most = self.positions if self.control == "distinct" else math.inf
        return tuple(length for length in self.test_lengths if length <= most)

    @cached_property
    def vectors(self) -> Array:
        return np.eye(self.positions) if self.embedding == "one_hot" else sinusoids(self.positions)

    @cached_property
    def effects(self) -> Array:
        return -1.0 * (ring(self.positions) <= 2 * self.radius)

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        if self.control != "distinct":
            return super().draw(generator, count, length)
        return without_replacement(generator, self.positions, count, length)

    def values(self, symbols: Array) -> Array:
        return super().values(symbols) + (self.control == "without_itself")

    def floor(self, family: str, order: int, length: int) -> float | None:
        return 0.0 if family == "hfa" and not self.control else None

    @property
    def solution(self) -> tuple[Array, Array]:
        """The C (d, d) and W (d,) with which linear attention is exact for any number of agents (eq. 5, 14, 17).

        d is the width of the embedding.
        """
        n, reach = self.positions, 2 * self.radius
        if self.embedding == "one_hot":
            return 1.0 * (ring(n) <= reach), -np.ones(n)
        k = np.ceil(np.arange(1, n) / 2)
        waves = 2 / n * np.sin(2 * np.pi * (reach + 0.5) * k / n) / np.sin(np.pi * k / n)
        return np.diag([4 / n * (reach + 0.5), *waves]), np.array([-math.sqrt(2), *[0.0] * (n - 1)])

    def control_error(self, length: int, diagonal_error: float = 0.0) -> float:
        """The mean squared error that a control causes at ``length`` if a model is exact at the training length.

        ``diagonal_error`` is for the control ``distinct``: the mean squared error of the diagonal of the learned matrix
        of effects (Appendix D.2). The result is 0 without a control.
        """
        if self.control == "without_itself":
            return (length / self.length - 1) ** 2
        return diagonal_error * ((self.length - length) / (self.length - 1)) ** 2 * (self.control == "distinct")


@dataclass(frozen=True, kw_only=True)
class Hunters(World):
    """Hunters and prey on a grid, some moving right and some up. A catch is worth +1, being caught -1 (section 5, F.1).

    An agent has a species (H or P), a policy (right or up) and a cell (x, y). The coordinate y and the difference x - y
    wrap around, x does not. Two agents of different species meet if they are near in one coordinate: in y if both move
    right, in x if both move up, and in x - y if their policies differ. The embedding has the one-hot vectors of
    species, policy, x, y and x - y side by side.
    """

    title = "Hunters and prey"

    cells: int = 6
    """N, the number of cells per axis."""
    reach: int = 1
    """D, the distance at which two agents are near."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "cells")
        check_at_least(self, 0, "reach")

    @property
    def symbols(self) -> int:
        return 4 * self.cells**2

    @cached_property
    def features(self) -> tuple[Array, ...]:
        """The species, policy, x, y and (x - y) mod N of every symbol: five arrays (S,)."""
        n = self.cells
        species, policy, x, y = np.unravel_index(np.arange(self.symbols), (2, 2, n, n))
        return species, policy, x, y, (x - y) % n

    @cached_property
    def vectors(self) -> Array:
        sizes = (2, 2, self.cells, self.cells, self.cells)
        return np.concatenate([np.eye(size)[feature] for size, feature in zip(sizes, self.features)], axis=1)

    @cached_property
    def effects(self) -> Array:
        species, policy, x, y, u = self.features
        wrapped, reach = ring(self.cells) <= self.reach, self.reach
        same = policy[:, None] == policy[None]
        near = np.where(same, wrapped[y[:, None], y[None]], wrapped[u[:, None], u[None]])
        both_up = same & (policy == 1)[:, None]
        near = np.where(both_up, abs(x[:, None] - x[None]) <= reach, near)
        effects: Array = (species[:, None] != species[None]) * near * np.where(species == 1, 1.0, -1.0)[None]
        return effects

    def floor(self, family: str, order: int, length: int) -> float | None:
        """The lowest mean squared error that ``hfa:`` of order 1 or 3 can reach on samples of ``length`` agents.

        Order 1 is linear attention, whose outputs are linear in the features of the row's agent. Its error comes from
        the part of ``effects`` outside the span of these features (eq. 3). Order 3 reaches 0. None for other orders and
        for ``ha:``.
        """
        if family != "hfa":
            return None
        return (length - 1) * self._linear_floor if order == 1 else 0.0 if order == 3 else None

    @cached_property
    def _linear_floor(self) -> float:
        basis, sizes, _ = np.linalg.svd(self.vectors, full_matrices=False)
        basis = basis[:, sizes > 1e-9 * sizes[0]]
        left = self.effects - basis @ (basis.T @ self.effects)
        return float(left.var(axis=1).mean())

    @property
    def solution(self) -> tuple[Array, Array]:
        """The C (3, 3, d, d) by head and factor, and the W (3, 1, d), that give the values exactly (eq. 36).

        They are the weights of full-coupling HyperFeatureAttention of order 3 with three heads.
        """
        n, c = self.cells, np.zeros((3, 3, 4 + 3 * self.cells, 4 + 3 * self.cells))
        x, y, u = (slice(start, start + n) for start in (4, 4 + n, 4 + 2 * n))
        banded = 1.0 * (abs(np.subtract.outer(np.arange(n), np.arange(n))) <= self.reach)
        c[:, 0, :2, :2] = [[0, 1], [1, 0]]
        c[:, 1, 2:4, 2:4] = [[[0, 1], [1, 0]], [[1, 0], [0, 0]], [[0, 0], [0, 1]]]
        c[0, 2, u, u] = c[1, 2, y, y] = ring(n) <= self.reach
        c[2, 2, x, x] = banded
        w = np.zeros((3, 1, c.shape[-1]))
        w[:, :, :2] = [-1, 1]
        return c, w


@dataclass(frozen=True, kw_only=True)
class Alliances(World):
    """Agents of K types, some of them allied (section 6).

    The value of an agent is the number of pairs of its allies that are not allied to each other. It is V_i = sum of
    g_ij g_ik (1 - g_jk) over j < k. The relation g is symmetric and reflexive, so a triple with two agents of one type
    gives 0. Ordered, strict and all tuples therefore give the same effects.
    """

    title = "Alliances of three"

    types: int = 8
    """K, the number of types."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "types")

    @property
    def symbols(self) -> int:
        return self.types

    @cached_property
    def allied(self) -> Array:
        """The relation g (K, K) of types: 1 if two types are allied, else 0. It is the same in every run."""
        above = np.triu(np.random.default_rng(0).random((self.types, self.types)) < 0.5, 1)
        return 1.0 * (above | above.T | np.eye(self.types, dtype=bool))

    @property
    def vectors(self) -> Array:
        return np.eye(self.types)

    @cached_property
    def effects(self) -> Array:
        g = self.allied
        effects: Array = g[:, :, None] * g[:, None, :] * (1 - g[None])
        return effects

    def floor(self, family: str, order: int, length: int) -> float | None:
        """The lowest mean squared error that a label of ``family`` can reach on samples of ``length`` agents.

        It is 0 for ``ha:`` of order 3, and None for other orders of ``ha:``. Labels of ``hfa:`` sum over single agents.
        They cannot represent the part of ``effects`` that is left after its means over either agent are subtracted.
        Their floor is the mean square of this part, times the number of pairs of the L - 1 other agents, C(L - 1, 2).
        """
        if family == "ha":
            return 0.0 if order == 3 else None
        effects = self.effects
        left = effects - effects.mean(1, keepdims=True) - effects.mean(2, keepdims=True)
        left += effects.mean((1, 2), keepdims=True)
        return math.comb(length - 1, 2) * float((left**2).mean())
