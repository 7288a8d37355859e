"""Values that the first mixer of a label shares with later mixers of this label, in one forward pass of a model.

A model makes an empty mapping for each pass. It gives this mapping to every mixer with the trait ``shares_values``, in
the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from madbench.mixers.traits import traits_of

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

Shared = dict[str, Tensor]
"""The shared values by name, (B, T, ...) each, for the T tokens of one forward pass. A decoding step has T = 1."""


def handed_to(mixer: nn.Module, shared: Shared | None) -> dict[str, Any]:
    """The keyword arguments for a call of the mixer: ``shared`` if mixers of its label share values, else empty."""
    return {"shared": shared} if traits_of(mixer).shares_values else {}


def mix(mixer: nn.Module, x: Tensor, shared: Shared | None) -> Tensor:
    """The mixer's output (B, T, D) for x (B, T, D).

    ``shared`` has the values that mixers share in this forward pass of the model. It is None outside of a model.
    """
    y: Tensor = mixer(x, **handed_to(mixer, shared))
    return y


def decode(mixer: Mixer, x: Tensor, cache: Any, shared: Shared) -> tuple[Tensor, Any]:
    """Decode x (B, T, D) after the tokens of ``cache``. Return the output (B, T, D) and the next cache.

    ``shared`` has the values that earlier mixers of the model computed for these tokens. The mixer may add values to
    it.

    At the start of a sequence ``cache`` is None, and x goes through the mixer's ``prefill`` if it has one. Otherwise x
    is decoded token by token.
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
    """Split every shared value along the axis ``dim``, which has ``count`` entries, into one mapping per entry.

    The axis is kept, with length 1.
    """
    return [{name: values.narrow(dim, place, 1) for name, values in shared.items()} for place in range(count)]


def join(shared: Shared, parts: Sequence[Shared], dim: int) -> None:
    """Concatenate the values of ``parts`` by name along the axis ``dim``, and add them to ``shared``.

    Names that ``shared`` already has keep their values.
    """
    for name in parts[0].keys() - shared.keys() if parts else ():
        shared[name] = torch.cat([part[name] for part in parts], dim)
