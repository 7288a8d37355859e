"""Classes for the label of a hybrid, and for the ranks and costs of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from madbench.errors import ConfigError
from madbench.labels import Label
from madbench.labels.patterns import join_pattern
from madbench.mixers import Size
from madbench.mixers.sequence import MixerSequence


@dataclass(frozen=True)
class HybridLabel:
    """A pattern of labels, one per layer, that repeats over the layers of a model.

    The pattern is not itself a repetition of a shorter one.
    """

    layers: tuple[Label, ...]
    is_cut: bool = False  # True if the last repetition may be incomplete

    def __str__(self) -> str:
        return join_pattern(self.layers, self.is_cut)

    @property
    def kinds(self) -> tuple[Label, ...]:
        """The different labels, in the order in which they first occur."""
        return tuple(dict.fromkeys(self.layers))

    def at(self, depth: int) -> tuple[Label, ...]:
        """The label of each of ``depth`` layers. Raises ``ConfigError`` if the pattern does not fit the depth."""
        length = len(self.layers)
        if depth % length and not self.is_cut:
            below, above = depth // length * length, (depth // length + 1) * length
            fitting = f"n_layer {below} or {above}" if below else f"n_layer {above}"
            raise ConfigError(
                f"{self}: a model of {depth} layers is no multiple of the pattern's {length}; use {fitting}, or "
                f"'{join_pattern(self.layers, is_cut=True)}' to cut the last repetition"
            )
        return tuple(self.layers[index % length] for index in range(depth))

    def numbers(self, kind: Label) -> str:
        """A text with the numbers of the pattern's layers whose label is ``kind``, counted from 1.

        Examples are ``layers 1 to 3`` and ``layer 4``.
        """
        numbers = [index + 1 for index, layer in enumerate(self.layers) if layer == kind]
        is_run = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
        text = f"{numbers[0]} to {numbers[-1]}" if is_run else ", ".join(map(str, numbers))
        return f"layers {text}" if len(numbers) > 1 else f"layer {text}"


@dataclass(frozen=True)
class HybridAllocation(MixerSequence):
    """The allocations of the layers of one pattern. Every cost is the sum over these layers."""

    label: HybridLabel

    @property
    def size(self) -> Size:
        """The size for which the layers were solved."""
        return self.blocks[0].size

    @property
    def ranks(self) -> Mapping[str, Any]:  # type: ignore[override]  # here always a mapping
        """The ranks of every mixer of the pattern. A key is the mixer's label, a space and the name of the rank."""
        return {f"{kind.label} {name}": rank for kind, _ in self.kinds for name, rank in kind.ranks.items()}

    @property
    def terms(self) -> Mapping[str, int]:
        """The number of parameters of each term of each mixer, summed over the mixer's layers.

        A key is the mixer's label, a space and the term.
        """
        return {
            f"{kind.label} {name}": number * count for kind, count in self.kinds for name, number in kind.terms.items()
        }
