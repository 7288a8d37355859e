"""Operators whose decay can have a lower bound that rises from layer to layer.

In a model of L layers, the bound of layer l = 0, 1, ..., L - 1 is l / L.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operator import Operator
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.labels.family import Layer


@dataclass(frozen=True)
class BoundedDims(Dims):
    """The widths of a layer, and the lower bound of its decay, at least 0 and below 1."""

    bound: float = 0.0


@dataclass(frozen=True)
class BoundedDecay(Operator):
    """An operator whose decay can have a lower bound.

    If ``bound`` is true, the lower bound is l / L in layer l = 0, 1, ... of a model of L layers. Otherwise it is 0.
    """

    bound: bool = False

    differs: ClassVar = (
        "Without an argument the decay has no lower bound, as in the library's layer by itself. The library's language "
        "model has bounds that are those of (bound) before training, and learns them as parameters of the model."
    )
    meanings: ClassVar = {"bound": "the decay of layer l = 0, 1, ... of L is at least l / L"}
    takes_layer = property(lambda self: self.bound)

    def placed(self, dims: Dims, place: Layer) -> Dims:
        if not self.bound:
            return dims
        return BoundedDims(dims.d, dims.heads, dims.key, dims.value, place.index / place.count)


def decay(logits: Tensor, dims: Dims) -> tuple[Tensor, Tensor]:
    """Return log f and 1 - f for the decay f = b + (1 - b) sigmoid(logits), each in the shape of ``logits``.

    b is the lower bound of f that :func:`bound_of` gives for ``dims``.
    """
    from torch.nn.functional import logsigmoid

    bound = bound_of(dims)
    kept = (1 - bound) * (-logits).sigmoid()
    return (bound + (1 - bound) * logits.sigmoid()).log() if bound else logsigmoid(logits), kept


def bound_of(dims: Dims) -> float:
    """The lower bound of the decay of a layer with these widths. 0 if ``dims`` has no field ``bound``."""
    return dims.bound if isinstance(dims, BoundedDims) else 0.0
