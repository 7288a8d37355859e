"""Declarations of a layer's parameters, which can be counted without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CONV_TAPS = 4
"""Taps of a short convolution, unless its declaration has another number. The last tap applies to the current token."""

Init = Literal["rates", "rates from zero", "steps", "zeros", "ones"]
"""The initial values of a vector, see :func:`madbench.mixers.named.layer.draw`."""
LinearInit = Literal["normal", "small", "by depth", "zeros"]
"""The initial weights of a linear map, see :func:`madbench.mixers.named.layer.draw`."""


@dataclass(frozen=True)
class Linear:
    """A linear map with a weight (outputs, inputs).

    ``bias`` is False if there is none, True if it is initially zero, or its first and last initial value. The values
    between are evenly spaced.
    """

    inputs: int
    outputs: int
    bias: bool | tuple[float, float] = False
    init: LinearInit = "normal"

    count = property(lambda self: (self.inputs + bool(self.bias)) * self.outputs, doc="Number of parameters.")


@dataclass(frozen=True)
class Taps:
    """A depthwise causal convolution with a weight (channels, 1, taps)."""

    channels: int
    bias: bool = False
    taps: int = CONV_TAPS

    count = property(lambda self: (self.taps + self.bias) * self.channels, doc="Number of parameters.")
    window = property(lambda self: (self.taps - 1) * self.channels, doc="Inputs that the next token needs.")


@dataclass(frozen=True)
class LowRank:
    """Two linear maps in a row, ``lora.0`` and ``lora.2``. The second one may have a bias."""

    inputs: int
    rank: int
    outputs: int
    bias: bool = True

    count = property(
        lambda self: self.rank * self.inputs + (self.rank + self.bias) * self.outputs, doc="Number of parameters."
    )


@dataclass(frozen=True)
class Gain:
    """The gain of a norm over ``width`` channels, initially 1, and a bias if there is one.

    If ``is_offset``, the parameter is the gain minus 1.
    """

    width: int
    is_offset: bool = False
    bias: bool = False

    count = property(lambda self: (1 + self.bias) * self.width, doc="Number of parameters.")


@dataclass(frozen=True)
class Vector:
    """A parameter that is not part of a submodule. ``shape`` is a number if the parameter has one dimension."""

    shape: int | tuple[int, ...]
    init: Init

    count = property(
        lambda self: self.shape if isinstance(self.shape, int) else math.prod(self.shape), doc="Number of parameters."
    )


Part = Linear | Taps | LowRank | Gain | Vector | tuple[Linear, ...]
"""A part of a layer. A tuple is a sequence of linear maps."""


def count(part: Part) -> int:
    """The number of parameters of a part."""
    return sum(linear.count for linear in part) if isinstance(part, tuple) else part.count
