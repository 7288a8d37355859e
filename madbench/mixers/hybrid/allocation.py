"""The label and the cost of a hybrid."""

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
    """The labels of consecutive layers, which repeat over the depth of a model. No shorter pattern gives the same."""

    layers: tuple[Label, ...]
    is_cut: bool = False  # True if the last repetition may be incomplete

    def __str__(self) -> str:
        return join_pattern(self.layers, self.is_cut)

    @property
    def kinds(self) -> tuple[Label, ...]:
        """The different labels, in order of their first layer."""
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
        """The layers of the pattern that have a label, counted from 1: ``layers 1 to 3``, ``layer 4``."""
        numbers = [index + 1 for index, layer in enumerate(self.layers) if layer == kind]
        is_run = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
        text = f"{numbers[0]} to {numbers[-1]}" if is_run else ", ".join(map(str, numbers))
        return f"layers {text}" if len(numbers) > 1 else f"layer {text}"


@dataclass(frozen=True)
class HybridAllocation(MixerSequence):
    """The allocations of the layers of one pattern. Costs are sums over the layers."""

    label: HybridLabel

    @property
    def size(self) -> Size:
        """The size for which the layers were solved."""
        return self.blocks[0].size

    @property
    def ranks(self) -> Mapping[str, Any]:  # type: ignore[override]  # always by name here
        """The ranks of each kind of layer, after its label."""
        return {f"{kind.label} {name}": rank for kind, _ in self.kinds for name, rank in kind.ranks.items()}

    @property
    def terms(self) -> Mapping[str, int]:
        """The parameters of all layers of each kind by term, after its label."""
        return {
            f"{kind.label} {name}": number * count for kind, count in self.kinds for name, number in kind.terms.items()
        }
