"""A torch module that applies the mixers of a label's layers one after another. A hybrid has one pattern of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.labels import parse
from madbench.mixers.sequence import MixerSequence, block_period, build_blocks

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer


class Layers(nn.Module):
    """The mixers of a label's layers, each added to its input: (B, T, D) -> (B, T, D).

    A hybrid has one mixer per layer of its pattern, other labels have a single mixer. ``options`` are arguments of
    :func:`madbench.mixers.build`.
    """

    def __init__(self, label: str, d_model: int, max_len: int, **options: Any):
        super().__init__()
        blocks_and_options = build_blocks(parse(label), block_period(label), d_model, max_len, options, {})
        self.mixers: Sequence[Mixer] = cast("Any", nn.ModuleList(blocks_and_options))
        self.allocation = MixerSequence.from_mixers(self.mixers)

    def forward(self, x: Tensor) -> Tensor:
        for mixer in self.mixers:
            x = x + mixer(x)
        return x

    def resolve_path(self, batch: int, length: int) -> str:
        """The distinct paths of the mixers for ``batch`` sequences of ``length`` tokens, separated by commas."""
        paths = (mixer.resolve_path(batch, length) for mixer in self.mixers if hasattr(mixer, "resolve_path"))
        return ", ".join(dict.fromkeys(paths))

    @property
    def decodes(self) -> bool:
        """True if every mixer can decode token by token."""
        return all(hasattr(mixer, "step") and hasattr(mixer, "prefill") for mixer in self.mixers)

    @torch.inference_mode()
    def prefill(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Read a prompt (B, T, D). Return the output of every token (B, T, D) and the cache of every mixer."""
        caches = []
        for mixer in self.mixers:
            rows, cache = mixer.prefill(x)
            x = x + rows
            caches.append(cache)
        return x, caches

    @torch.inference_mode()
    def step(self, x: Tensor, caches: list[Any]) -> tuple[Tensor, list[Any]]:
        """Read one more token (B, D), given the caches of the tokens before.

        Return its output (B, D) and the new caches.
        """
        after = []
        for mixer, cache in zip(self.mixers, caches, strict=True):
            row, cache = mixer.step(x, cache)
            x = x + row
            after.append(cache)
        return x, after
