"""The base class of worlds of agents. A world draws samples as symbols and gives the exact value of every agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy import ndarray as Array

from madbench.config import check_at_least
from madbench.errors import ConfigError

SPLITS = ("train", "test")
_BLOCK = 2**22  # most effects that are looked up at once


@dataclass(frozen=True, kw_only=True)
class World:
    """The base class of worlds of agents: symbols, their fixed embedding, and their exact effects on each other.

    The fields are the numbers of agents per sample and the numbers of samples.
    """

    title: ClassVar[str]
    """The heading of tables and figures of the world."""
    if TYPE_CHECKING:  # each world computes these; mypy lets no property take the place of a class attribute

        @property
        def symbols(self) -> int:
            raise NotImplementedError

        @property
        def vectors(self) -> Array:
            raise NotImplementedError

        @property
        def effects(self) -> Array:
            raise NotImplementedError

        def floor(self, family: str, order: int, length: int) -> float | None:
            raise NotImplementedError

    else:
        symbols: ClassVar[int]
        """S, the number of symbols, which are the states that an agent can have."""
        vectors: ClassVar[Array]
        """The fixed embedding E (S, d), one row per symbol."""
        effects: ClassVar[Array]
        """The theoretical matrix (S, S) or tensor (S, S, S).

        An entry is the effect of the other symbols on the first symbol, times the value of the other symbols.
        """
        floor: ClassVar[Callable[[str, int, int], float | None]]
        """Maps (family, order, length) to the lowest mean squared error that mixers of the family and order can reach.

        ``order`` is the largest number of factors of an ``hfa:`` label, or the degree of an ``ha:`` label. None if the
        error is unknown.
        """

    length: int = 10
    """L*, the number of agents of a training sample."""
    test_lengths: tuple[int, ...] = (2, 5, 10, 20)
    """Numbers of agents of a test sample, one test set per length."""
    samples: int = 8192
    """The number of training samples."""
    test_samples: int = 5000
    """The number of test samples per length."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "length", "samples", "test_samples")
        if not self.test_lengths or min(self.test_lengths) < 1 or len({*self.test_lengths}) < len(self.test_lengths):
            raise ConfigError(f"test_lengths: expected distinct lengths of at least 1, got {self.test_lengths}")

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of agents for which the world has test samples. By default all of ``test_lengths``."""
        return self.test_lengths

    def draw(self, generator: np.random.Generator, count: int, length: int) -> Array:
        """Draw the symbols (``count``, ``length``) of agents. By default they are independent and uniform."""
        return generator.integers(self.symbols, size=(count, length))

    def thin(self, generator: np.random.Generator, symbols: Array) -> Array:
        """Return the training samples (N, L).

        A world may replace some of their symbols by empty places. By default they are unchanged.
        """
        return symbols

    def values(self, symbols: Array) -> Array:
        """The value (N, L) of every agent in samples of symbols (N, L), in float64.

        By default it is the sum of the effects of all agents, including itself, on the agent. For triples it is the sum
        over all pairs of agents, each counted once.
        """
        effects, (count, length) = self.effects, symbols.shape
        others = [np.arange(length)] if effects.ndim == 2 else np.triu_indices(length, 1)
        of_agents, at_once = np.empty((count, length)), max(1, _BLOCK // length**effects.ndim)
        for start in range(0, count, at_once):
            rows = symbols[start : start + at_once]
            of_agents[start : start + at_once] = effects[rows[:, :, None], *(rows[:, None, j] for j in others)].sum(-1)
        return of_agents

    def data(self, split: str, length: int, seed: int) -> tuple[Array, Array]:
        """The symbols, int64, and the values, float64, of the samples of a split, both (N, ``length``).

        ``split`` is ``train`` or ``test``. The samples depend on ``seed``, the split and the length only.
        """
        generator = np.random.default_rng([seed, SPLITS.index(split), length])
        symbols = self.draw(generator, self.samples if split == "train" else self.test_samples, length)
        symbols = self.thin(generator, symbols) if split == "train" else symbols
        return symbols, self.values(symbols)


def without_replacement(generator: np.random.Generator, symbols: int, count: int, length: int) -> Array:
    """Draw ``count`` samples of ``length`` symbols each, (count, length). The symbols of a sample are distinct.

    Symbols are the numbers below ``symbols``.
    """
    return generator.random((count, symbols)).argsort(1)[:, :length]
