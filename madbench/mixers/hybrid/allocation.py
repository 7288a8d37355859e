"""The label of a hybrid, and the ranks and costs of the layers of its pattern."""

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

    The pattern is as short as possible, so it is not itself a repetition of a shorter one.
    """

    layers: tuple[Label, ...]
    is_cut: bool = False
    """True if the last repetition may be incomplete."""

    def __str__(self) -> str:
        return join_pattern(self.layers, self.is_cut)

    @property
    def kinds(self) -> tuple[Label, ...]:
        """The different labels, in the order in which they first occur."""
        return tuple(dict.fromkeys(self.layers))

    def at(self, depth: int) -> tuple[Label, ...]:
        """The labels of the mixers of a model with ``depth`` layers, in order.

        Raises ``ConfigError`` if ``depth`` is not a multiple of the pattern's length, unless ``is_cut`` is true.
        """
        length = len(self.layers)
        if depth % length and not self.is_cut:
            below, above = depth // length * length, (depth // length + 1) * length
            fitting = f"model.n_layer={below} or {above}" if below else f"model.n_layer={above}"
            raise ConfigError(
                f"{self}: a model of {depth} layers is no multiple of the pattern's {length}; use {fitting}, or "
                f"'{join_pattern(self.layers, is_cut=True)}' to cut the last repetition"
            )
        return tuple(self.layers[index % length] for index in range(depth))

    def numbers(self, kind: Label) -> str:
        """The numbers of the pattern's layers with the label ``kind``, as a text such as ``layers 1 to 3``.

        Layers are counted from 1.
        """
        numbers = [index + 1 for index, layer in enumerate(self.layers) if layer == kind]
        is_run = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
        text = f"{numbers[0]} to {numbers[-1]}" if is_run else ", ".join(map(str, numbers))
        return f"layers {text}" if len(numbers) > 1 else f"layer {text}"


@dataclass(frozen=True)
class HybridAllocation(MixerSequence):
    """The allocations (ranks and costs) of the layers of one pattern. Every cost is the sum over these layers."""

    label: HybridLabel

    @property
    def size(self) -> Size:
        """The size for which the ranks of the layers were chosen."""
        return self.blocks[0].size

    @property
    def ranks(self) -> Mapping[str, Any]:  # type: ignore[override]  # here always a mapping
        """The ranks of every mixer of the pattern, by name.

        A name is the mixer's label, a space and the name of the rank, such as ``KDA qk``.
        """
        return {f"{kind.label} {name}": rank for kind, _ in self.kinds for name, rank in kind.ranks.items()}

    @property
    def terms(self) -> Mapping[str, int]:
        """The number of parameters of each part of each mixer, summed over the layers with this mixer.

        A key is the mixer's label, a space and the name of the part, which is called a term.
        """
        return {
            f"{kind.label} {name}": number * count for kind, count in self.kinds for name, number in kind.terms.items()
        }
