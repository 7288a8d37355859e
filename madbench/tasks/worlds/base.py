"""What all worlds have: samples drawn as symbols, and the exact value of every agent in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy import ndarray as Array

from madbench.config import check_at_least
from madbench.errors import ConfigError

SPLITS = ("train", "test")
_BLOCK = 2**22  # effects that are looked up at once


@dataclass(frozen=True, kw_only=True)
class World:
    """What all worlds have: how many agents a sample has, and how many samples there are."""

    title: ClassVar[str]
    """Heading of its table."""
    symbols: ClassVar[int]
    """S, how many different agents there are."""
    vectors: ClassVar[Array]
    """The fixed embedding E (S, d), a row a symbol."""
    effects: ClassVar[Array]
    """The theoretical matrix (S, S) or tensor (S, S, S): effect of other symbols on the first times their value."""
    floor: ClassVar[Callable[[str, int, int], float | None]]
    """(family, order, length) -> the mean squared error below which no mixer of them can get; None: not known.

    ``order`` is the largest number of factors of an ``hfa:`` label, or the degree of an ``ha:`` label.
    """

    length: int = 10
    """Agents of a training sample, L*."""
    test_lengths: tuple[int, ...] = (2, 5, 10, 20)
    """Agents of a test sample, one test set a length."""
    samples: int = 8192
    """Training samples."""
    test_samples: int = 5000
    """Test samples of each length."""

    def __post_init__(self):
        check_at_least(self, 1, "length", "samples", "test_samples")
        if not self.test_lengths or min(self.test_lengths) < 1 or len({*self.test_lengths}) < len(self.test_lengths):
            raise ConfigError(f"test_lengths: expected lengths of at least 1, each once, got {self.test_lengths}")

    @property
    def lengths(self) -> tuple[int, ...]:
        """The test lengths that this world has samples of."""
        return self.test_lengths

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        """Symbols (count, length) of independent agents, all symbols alike."""
        return generator.integers(self.symbols, size=(count, length))

    def thin(self, generator: np.random.Generator, symbols: Array) -> Array:
        """Training samples (N, L) as they are used: those drawn, unless a world leaves places empty."""
        return symbols

    def values(self, symbols: Array) -> Array:
        """The value (N, L) of every agent in every sample, in float64."""
        effects, (count, length) = self.effects, symbols.shape
        others = [np.arange(length)] if effects.ndim == 2 else np.triu_indices(length, 1)
        of_agents, at_once = np.empty((count, length)), max(1, _BLOCK // length**effects.ndim)
        for start in range(0, count, at_once):
            rows = symbols[start : start + at_once]
            of_agents[start : start + at_once] = effects[rows[:, :, None], *(rows[:, None, j] for j in others)].sum(-1)
        return of_agents

    def data(self, split: str, length: int, seed: int) -> tuple[Array, Array]:
        """Symbols int64 and values float64 (N, L) of a split, from a generator of its own."""
        generator = np.random.default_rng([seed, SPLITS.index(split), length])
        symbols = self.draw(generator, self.samples if split == "train" else self.test_samples, length)
        symbols = self.thin(generator, symbols) if split == "train" else symbols
        return symbols, self.values(symbols)


def without_replacement(generator: np.random.Generator, symbols: int, count: int, length: int) -> Array:
    """Symbols (count, length), none twice in a sample."""
    return generator.random((count, symbols)).argsort(1)[:, :length]
