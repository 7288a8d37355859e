"""Values that the first mixer of a label passes to later mixers of the same label, in one pass of a model.

A model makes an empty mapping for each pass. It goes to every mixer whose traits say that it shares values, in the
order of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from madbench.mixers.traits import traits_of

Shared = dict[str, Tensor]
"""The values by label, (B, T, ...) for the tokens of the pass. A step has T = 1."""


def handed_to(mixer: nn.Module, shared: Shared | None) -> dict[str, Shared | None]:
    """The keyword argument ``shared`` for a call of the mixer. Empty if the mixer does not share values."""
    return {"shared": shared} if traits_of(mixer).shares_values else {}


def mix(mixer: nn.Module, x: Tensor, shared: Shared | None) -> Tensor:
    """The mixer's output for x (B, T, D), in a pass of a model, or alone if ``shared`` is None."""
    return mixer(x, **handed_to(mixer, shared))


def decode(mixer: nn.Module, x: Tensor, cache: Any, shared: Shared) -> tuple[Tensor, Any]:
    """The mixer's output for x (B, T, D) after the tokens of a cache (None before a prompt), and the next cache.

    A prompt goes through the mixer's ``prefill`` if it has one; all other input goes token by token.
    """
    if cache is None and hasattr(mixer, "prefill"):
        return mixer.prefill(x, slide=False, **handed_to(mixer, shared))
    rows, of_tokens = [], split(shared, x.shape[1], dim=1)
    for token, of_token in zip(x.unbind(1), of_tokens):
        row, cache = mixer.step(token, cache, slide=False, **handed_to(mixer, of_token))
        rows.append(row)
    join(shared, of_tokens, dim=1)
    return torch.stack(rows, dim=1), cache


def split(shared: Shared, count: int, dim: int) -> list[Shared]:
    """The values of each of ``count`` places along an axis, which is kept."""
    return [{name: values.narrow(dim, place, 1) for name, values in shared.items()} for place in range(count)]


def join(shared: Shared, parts: Sequence[Shared], dim: int) -> None:
    """Adds the values of the parts to ``shared``. Values that it already has are kept."""
    for name in parts[0].keys() - shared.keys() if parts else ():
        shared[name] = torch.cat([part[name] for part in parts], dim)
